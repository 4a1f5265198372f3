//! The least memory that the process of a pool works in.
//!
//! With less it would be ended by the kernel at some moment, in the middle of somebody's work, rather than refuse to begin.

use base::{Error, Kind, Result};

use crate::pressure::Gauge;

/// Bytes that the machine has to have, and each limit over the process has to allow. Some thousand small files a second are
/// made in that, which is what takes most beside the cache.
pub const MEMORY_MIN: u64 = 128 << 20;

/// Errors: `Unsupported`, if there is less memory than a pool's process needs, by the machine or a cgroup.
pub fn check_memory() -> Result<()> {
    check(&Gauge::new("/"))
}

fn check(gauge: &Gauge) -> Result<()> {
    match gauge.limit() {
        Some(limit) if limit < MEMORY_MIN => {
            let [has, needs] = [limit, MEMORY_MIN].map(|bytes| bytes >> 20);
            let why =
                format!("{has} MiB of memory are too few for the process of a pool, which takes {needs} MiB at least");
            Err(Error::new(Kind::Unsupported, why))
        }
        // where nothing is known, nothing is too little
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};

    use super::*;

    #[test]
    fn little_memory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        let of = |machine_mib: u64, group_mib: &str| {
            for folder in ["proc/self", "sys/fs/cgroup/box/pool"] {
                create_dir_all(at(folder)).unwrap();
            }
            let kib = machine_mib << 10;
            write(at("proc/meminfo"), format!("MemTotal: {kib} kB\nMemAvailable: {kib} kB\n")).unwrap();
            write(at("proc/self/cgroup"), "0::/box/pool\n").unwrap();
            write(at("sys/fs/cgroup/box/memory.max"), format!("{group_mib}\n")).unwrap();
            write(at("sys/fs/cgroup/box/memory.current"), "4096\n").unwrap();
            check(&Gauge::new(dir.path())).map_err(|error| error.to_string())
        };
        assert_eq!(of(128, "max"), Ok(()));
        assert_eq!(of(4096, &(128 << 20).to_string()), Ok(()));
        let told = "100 MiB of memory are too few for the process of a pool, which takes 128 MiB at least";
        assert_eq!(of(100, "max"), Err(told.to_owned()));
        assert_eq!(of(4096, &(100 << 20).to_string()), Err(told.to_owned()));
        let nothing = tempfile::tempdir().unwrap();
        assert!(check(&Gauge::new(nothing.path())).is_ok());
    }
}
