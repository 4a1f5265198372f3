//! What is left of a pool whose process was killed: its socket, and its mounts. The kernel keeps those,
//! and every access to them fails with "Transport endpoint is not connected".
//!
//! Mounts are known by their source, which is a dataset of the pool, by their type, and by that
//! failure. A mount or socket that somebody still answers for is left alone.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use base::{Kind, Result};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use super::rundir::{RunDir, stem};

/// What all our mounts are of.
const FS_TYPE: &[u8] = b"fuse.zfs";

/// Clears away what is left of the pool `name`; returns whether there was something.
pub fn clear(name: &str) -> Result<bool> {
    let is_of_pool =
        |source: &str| source.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let mounts = clear_mounts(is_of_pool)?;
    let had_socket = match RunDir::find()? {
        Some(dir) => clear_socket(&dir, &stem(name))?,
        None => false,
    };
    Ok(mounts > 0 || had_socket)
}

/// Clears away what is left of any pool.
pub fn clear_all() -> Result<()> {
    let Some(dir) = RunDir::find()? else { return Ok(()) };
    for stem in dir.sockets()? {
        if clear_socket(&dir, &stem)? {
            let is_of_pool =
                |source: &str| source.strip_prefix(&*stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            clear_mounts(is_of_pool)?;
        }
    }
    Ok(())
}

/// Removes a socket that nobody listens at.
fn clear_socket(dir: &RunDir, stem: &str) -> Result<bool> {
    if !dir.sockets()?.iter().any(|socket| socket == stem) || dir.connect(stem)?.is_some() {
        return Ok(false);
    }
    match dir.claim(stem) {
        Ok(claim) => {
            drop(claim);
            Ok(true)
        }
        // just now being imported
        Err(e) if e.kind() == Kind::Exists => Ok(false),
        Err(e) => Err(e),
    }
}

/// Unmounts dead mounts whose source passes the test; returns how many these were.
fn clear_mounts(is_wanted: impl Fn(&str) -> bool) -> Result<usize> {
    let mountinfo = std::fs::read("/proc/self/mountinfo")?;
    let mut cleared = 0;
    // those mounted later lie on or below those mounted earlier
    for (source, point) in mounts(&mountinfo).into_iter().rev() {
        if is_wanted(&source) && is_dead(&point) && detach(&point) {
            tracing::info!(point = %point.display(), "unmounted what a dead process left there");
            cleared += 1;
        }
    }
    Ok(cleared)
}

/// Source and mountpoint of all mounts of our type.
fn mounts(mountinfo: &[u8]) -> Vec<(String, PathBuf)> {
    let parse = |line: &[u8]| {
        let mut fields = line.split(|&b| b == b' ');
        let point = unescape(fields.nth(4)?);
        // any number of optional fields, then a dash
        let mut after = fields.skip_while(|field| *field != b"-").skip(1);
        let (fs_type, source) = (after.next()?, after.next()?);
        let source = String::from_utf8(unescape(source)).ok()?;
        (fs_type == FS_TYPE).then(|| (source, PathBuf::from(std::ffi::OsString::from_vec(point))))
    };
    mountinfo.split(|&b| b == b'\n').filter_map(parse).collect()
}

/// Space, tab, newline and backslash are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal.filter(|_| byte == b'\\') {
            Some(value) => {
                bytes.push(value);
                rest = &after[3..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    bytes
}

fn is_dead(point: &std::path::Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = CString::new(point.as_os_str().as_bytes()) else { return false };
    // the kernel may remember attributes of the root; how full it is, it has to ask
    // SAFETY: all-zero bytes are a valid statvfs structure.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a C string, and `stat` outlives the call.
    let status = unsafe { libc::statvfs(path.as_ptr(), &mut stat) };
    status != 0 && Errno::last() == Errno::ENOTCONN
}

fn detach(point: &std::path::Path) -> bool {
    match umount2(point, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) => true,
        Err(Errno::EPERM) => {
            let mut helper = Command::new("fusermount3");
            helper.args(["-u", "-z", "--"]).arg(point).stdin(Stdio::null()).stdout(Stdio::null());
            helper.status().is_ok_and(|status| status.success())
        }
        Err(e) => {
            tracing::warn!(point = %point.display(), "cannot unmount what a dead process left there: {e}");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let text = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            23 22 0:40 / /mnt/a\\040b rw,relatime shared:1 master:2 - fuse.zfs tank/a\\040b rw,user_id=0\n\
            broken\n24 22 0:41 / /mnt rw - fuse.sshfs tank rw";
        assert_eq!(mounts(text), [("tank/a b".to_owned(), PathBuf::from("/mnt/a b"))]);
        assert!(!is_dead(std::path::Path::new("/proc")));
        assert_eq!(clear_mounts(|source| source == "no such pool").unwrap(), 0);
    }
}
