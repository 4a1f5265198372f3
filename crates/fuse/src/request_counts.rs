//! How many requests of each kind the kernel has sent to this process.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::wire::opcode;

/// Numbers of requests that are counted: those below this one.
const OPCODES: usize = 64;

static COUNTS: [AtomicU64; OPCODES] = [const { AtomicU64::new(0) }; OPCODES];

/// Names of requests; others are told by their number.
const NAMES: &[(u32, &str)] = &[
    (opcode::LOOKUP, "LOOKUP"),
    (opcode::FORGET, "FORGET"),
    (opcode::GETATTR, "GETATTR"),
    (opcode::SETATTR, "SETATTR"),
    (opcode::READLINK, "READLINK"),
    (opcode::SYMLINK, "SYMLINK"),
    (opcode::MKNOD, "MKNOD"),
    (opcode::MKDIR, "MKDIR"),
    (opcode::UNLINK, "UNLINK"),
    (opcode::RMDIR, "RMDIR"),
    (opcode::RENAME, "RENAME"),
    (opcode::LINK, "LINK"),
    (opcode::OPEN, "OPEN"),
    (opcode::READ, "READ"),
    (opcode::WRITE, "WRITE"),
    (opcode::STATFS, "STATFS"),
    (opcode::RELEASE, "RELEASE"),
    (opcode::FSYNC, "FSYNC"),
    (opcode::SETXATTR, "SETXATTR"),
    (opcode::GETXATTR, "GETXATTR"),
    (opcode::LISTXATTR, "LISTXATTR"),
    (opcode::REMOVEXATTR, "REMOVEXATTR"),
    (opcode::OPENDIR, "OPENDIR"),
    (opcode::READDIR, "READDIR"),
    (opcode::RELEASEDIR, "RELEASEDIR"),
    (opcode::FSYNCDIR, "FSYNCDIR"),
    (opcode::CREATE, "CREATE"),
    (opcode::IOCTL, "IOCTL"),
    (opcode::BATCH_FORGET, "BATCH_FORGET"),
    (opcode::FALLOCATE, "FALLOCATE"),
    (opcode::READDIRPLUS, "READDIRPLUS"),
    (opcode::RENAME2, "RENAME2"),
    (opcode::LSEEK, "LSEEK"),
    (opcode::COPY_FILE_RANGE, "COPY_FILE_RANGE"),
    (opcode::TMPFILE, "TMPFILE"),
    (opcode::STATX, "STATX"),
];

/// Counts one.
pub(crate) fn count(opcode: u32) {
    if let Some(count) = COUNTS.get(opcode as usize) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Requests of all mounts of this process by kind, of those that there were.
pub fn request_counts() -> Vec<(String, u64)> {
    let name = |opcode: usize| {
        let known = NAMES.iter().find(|(number, _)| *number as usize == opcode);
        known.map_or_else(|| opcode.to_string(), |(_, name)| (*name).to_owned())
    };
    let counts = COUNTS.iter().map(|count| count.load(Ordering::Relaxed)).enumerate();
    counts.filter(|(_, count)| *count > 0).map(|(opcode, count)| (name(opcode), count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_name() {
        let of = |name: &str| request_counts().into_iter().find(|(kind, _)| kind == name).map_or(0, |(_, count)| count);
        // no test of this program sends these
        assert_eq!([of("LSEEK"), of("63")], [0, 0]);
        count(opcode::LSEEK);
        count(63);
        count(63);
        count(u32::MAX);
        assert_eq!([of("LSEEK"), of("63")], [1, 2]);
    }
}
