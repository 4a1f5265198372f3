//! What a pool asks of a log device: how much it logs, and what its synchronous writes cost now.

use std::path::{Path, PathBuf};

use fuse::MountInfo;
use protocol::log_report::LogReport;
use protocol::wire;

use crate::advise::sizes::DAY_S;
use crate::bench::measure::MeasureTime;
use crate::bench::sync::measure_folder;
use crate::zpool::command::Stop;
use crate::zpool::pools;

/// Synchronous writes that are measured and foretold: of databases, by one and by several threads, and of virtual machines.
pub(super) const COMMIT_LOADS: [CommitLoad; 3] = [
    CommitLoad { bytes: 4 << 10, threads: 1 },
    CommitLoad { bytes: 4 << 10, threads: 8 },
    CommitLoad { bytes: 64 << 10, threads: 1 },
];
/// Seconds that each is measured.
pub(super) const POOL_S: f64 = 2.0;

/// Groups whose log a device has at the same time.
pub(super) const GROUPS: u64 = 3;
/// SPA_MINDEVSIZE.
pub const LOG_BYTES_MIN: u64 = 64 << 20;

/// Synchronous writes of so many bytes, by so many threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitLoad {
    pub bytes: u64,
    pub threads: u32,
}

/// How such a load goes in the pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadDemand {
    pub load: CommitLoad,
    /// Writes a second as the pool is now.
    pub now_per_s: f64,
    /// Writes a second in a rehearsal with the device; `None` if there was none.
    pub rehearsed_per_s: Option<f64>,
}

/// See the top of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct LogDemand {
    pub pool: String,
    /// Bytes a day that a log device would have got, by the time since the import.
    pub bytes_a_day: f64,
    /// Seconds since the import.
    pub seconds: f64,
    pub heaviest_group: Option<u64>,
    /// A folder of the pool, and what was measured there, in the order of [`COMMIT_LOADS`].
    pub folder: Option<PathBuf>,
    pub loads: Vec<LoadDemand>,
}

impl LogDemand {
    /// Asks the process of a pool, and measures in a folder of it, if one is mounted. Errors, for the user.
    pub(super) fn of(pool: &str, pace: MeasureTime) -> Result<LogDemand, String> {
        let mut demand = LogDemand::asked(pool)?;
        demand.folder = folder_of(pool, fuse::all_mounts().unwrap_or_default());
        if let Some(folder) = &demand.folder {
            for load in COMMIT_LOADS {
                demand.loads.extend(LoadDemand::measured(folder, load, pace)?);
            }
        }
        Ok(demand)
    }

    /// Asks the process of a pool, and measures nothing. Errors, for the user.
    pub fn asked(pool: &str) -> Result<LogDemand, String> {
        let failed = |(Stop::Failed(why) | Stop::Usage(why))| why;
        let mut open = pools::open(&[pool.to_owned()], &mut false).map_err(failed)?;
        let open = open.first_mut().ok_or_else(|| format!("pool '{pool}' cannot be asked"))?;
        let report = match open.ask(&wire::Request::Logs).map_err(failed)? {
            wire::PoolReply::Logs(report) => report,
            _ => return Err(format!("pool '{pool}' is read-only: it logs nothing")),
        };
        Ok(LogDemand::reckon(pool, &report))
    }

    /// Bytes that a log needs for the heaviest group; `None` if none was logged.
    pub fn log_bytes(&self) -> Option<u64> {
        let heaviest = self.heaviest_group.filter(|bytes| *bytes > 0)?;
        Some(heaviest.saturating_mul(GROUPS).max(LOG_BYTES_MIN))
    }

    fn reckon(pool: &str, report: &LogReport) -> LogDemand {
        let seconds = report.now_ns as f64 / 1e9;
        let bytes = report.sums.block_bytes.saturating_add(report.sums.in_place_bytes);
        LogDemand {
            pool: pool.to_owned(),
            bytes_a_day: if seconds > 0.0 { bytes as f64 / seconds * DAY_S } else { 0.0 },
            seconds,
            heaviest_group: report.heaviest_group(),
            folder: None,
            loads: Vec::new(),
        }
    }
}

impl LoadDemand {
    /// Measures in a folder. `None`: interrupted. Errors, for the user: of the folder.
    fn measured(folder: &Path, load: CommitLoad, pace: MeasureTime) -> Result<Option<LoadDemand>, String> {
        let pace = MeasureTime { seconds: POOL_S, ..pace };
        let now = measure_folder(folder, load.bytes, load.threads, pace)?;
        Ok(now.map(|now| LoadDemand { load, now_per_s: now.rate(), rehearsed_per_s: None }))
    }
}

/// Where a file system of the pool that can be written is mounted.
fn folder_of(pool: &str, mounts: Vec<MountInfo>) -> Option<PathBuf> {
    let is_ours = |source: &str| source.strip_prefix(pool).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let is_meant = |mount: &MountInfo| mount.fs_type == "fuse.zfs" && !mount.is_read_only && is_ours(&mount.source);
    mounts.into_iter().find(is_meant).map(|mount| mount.point)
}

#[cfg(test)]
mod tests {
    use format::ids::Txg;
    use protocol::log_report::{GroupEnd, LogSums};

    use super::*;

    #[test]
    fn what_is_logged_in_a_day() {
        let sums = |n: u64| LogSums { block_bytes: n << 20, in_place_bytes: n << 20, ..LogSums::default() };
        let end = |txg: u64, n: u64| GroupEnd { txg: Txg::new(txg), at_ns: 0, sums: sums(n) };
        let report = LogReport {
            now_ns: 3_600_000_000_000,
            sums: sums(50),
            groups: vec![end(1, 0), end(2, 40)],
            commits: Vec::new(),
        };
        let demand = LogDemand::reckon("tank", &report);
        assert_eq!(demand.bytes_a_day, f64::from(100 << 20) * 24.0);
        assert_eq!(demand.heaviest_group, Some(80 << 20));
        assert_eq!(LogDemand::reckon("tank", &LogReport::default()).bytes_a_day, 0.0);
    }

    #[test]
    fn folders_of_a_pool() {
        let mount = |source: &str, point: &str, fs_type: &str, is_read_only| MountInfo {
            dev: "0:1".into(),
            point: point.into(),
            is_read_only,
            fs_type: fs_type.into(),
            source: source.into(),
        };
        let mounts = vec![
            mount("tankard", "/a", "fuse.zfs", false),
            mount("tank", "/b", "fuse.zfs", true),
            mount("tank", "/e", "ext4", false),
            mount("tank/y", "/f", "fuse.zfs", false),
        ];
        assert_eq!(folder_of("tank", mounts.clone()), Some("/f".into()));
        assert_eq!(folder_of("tan", mounts), None);
    }
}
