//! The id of this machine, by which pools know where they were in use last.

use std::io::Read;

/// Where it is kept: four bytes in the machine's byte order.
pub const FILE: &str = "/etc/hostid";

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
    // OpenZFS's module, if it is loaded, must know it by the same one
    let module = |file: &str| std::fs::read_to_string(file).ok();
    let of_module = module("/sys/module/spl/parameters/spl_hostid")
        .and_then(parse)
        .filter(|id| *id != 0)
        .or_else(|| u64::from_str_radix(module("/proc/sys/kernel/spl/hostid")?.trim(), 16).ok().filter(|id| *id != 0));
    of_module.map_or_else(|| from_file().unwrap_or(0), |id| id & MASK)
}

/// Id and name of this machine, as pools note where they are in use.
pub fn host() -> (u64, String) {
    let name = nix::sys::utsname::uname().map(|uname| uname.nodename().to_string_lossy().into_owned());
    (system(), name.unwrap_or_default())
}

fn from_file() -> Option<u64> {
    let mut bytes = [0; 4];
    std::fs::File::open(FILE).ok()?.read_exact(&mut bytes).ok()?;
    Some(u32::from_ne_bytes(bytes).into())
}
