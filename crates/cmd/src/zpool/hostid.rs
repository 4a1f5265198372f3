//! The id of this machine, by which pools know who had them last.

use std::io::Read;

/// The id; 0 if none is set. Environment variable `ZFS_HOSTID` has precedence, for tests.
pub fn system() -> u64 {
    const MASK: u64 = 0xffff_ffff;
    let parse = |text: String| match text.trim().strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.trim().parse().ok(),
    };
    if let Some(id) = std::env::var("ZFS_HOSTID").ok().and_then(parse) {
        return id & MASK;
    }
    let kernel = std::fs::read_to_string("/proc/sys/kernel/spl/hostid").ok();
    match kernel.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()) {
        Some(id) if id != 0 => id & MASK,
        _ => from_file().unwrap_or(0),
    }
}

/// Id and name of this machine, as pools note who has them.
pub fn host() -> (u64, String) {
    let name = nix::sys::utsname::uname().map(|uname| uname.nodename().to_string_lossy().into_owned());
    (system(), name.unwrap_or_default())
}

/// Four bytes in the machine's byte order.
fn from_file() -> Option<u64> {
    let mut bytes = [0; 4];
    std::fs::File::open("/etc/hostid").ok()?.read_exact(&mut bytes).ok()?;
    Some(u32::from_ne_bytes(bytes).into())
}
