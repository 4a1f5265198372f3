//! A pool that is watched: what its process says of itself, second by second.

use std::collections::HashMap;
use std::sync::Arc;

use base::Result;
use format::ids::Guid;
use protocol::client::{self, Connection, off_topic};
use protocol::io_report::IoReport;
use protocol::kstat;
use protocol::pool_report::PoolReport;
use protocol::profile_report::ProfileReport;
use protocol::rundir::RunDir;
use protocol::wire::{PoolReply, Request};
use serde::Serialize;

use super::processes::{cpu_seconds, resident_bytes};
use super::tally::GroupPhase;
use crate::device_rates::DeviceRates;
use crate::groups::{GroupReader, GroupSpan};
use crate::zpool::names::NameStyle;

/// Groups that are remembered: samples wait two seconds at most to be told in which phase they were.
const GROUPS_MAX: usize = 256;

/// A pool in use.
pub struct ProfiledPool {
    dir: Arc<RunDir>,
    connection: Connection,
    /// Its name.
    pub name: String,
    /// Its process.
    pub process: u32,
    /// Its guid, by which its own counters are known.
    guid: Guid,
    vdevs: Vec<(Guid, String)>,
    first: Option<PoolLook>,
    last: Option<PoolLook>,
    groups: Vec<GroupSpan>,
    reader: GroupReader,
}

/// What was seen at one moment.
struct PoolLook {
    at_ns: u64,
    cpu_s: f64,
    io: IoReport,
    profile: ProfileReport,
}

/// What a pool did in one second, or another time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProfileRow {
    /// Its name.
    pub pool: String,
    /// Seconds of processors a second.
    pub cpu: f64,
    /// Bytes of its process in memory; bytes of the cache.
    pub resident_bytes: u64,
    #[allow(missing_docs)] // see above
    pub cache_bytes: u64,
    /// Bytes read from and written to its devices, a second.
    pub read_bytes_per_s: f64,
    #[allow(missing_docs)] // see above
    pub written_bytes_per_s: f64,
    /// Requests of FUSE a second.
    pub requests_per_s: f64,
    /// Seconds a second that its threads waited for locks.
    pub lock_wait: f64,
    /// The part of the time that a group was on its way to disk.
    pub syncing: f64,
}

/// What a vdev did, a second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfiledVdev {
    /// Its name as `zpool status` has it.
    pub name: String,
    /// Reads, writes, and their bytes.
    pub reads_per_s: f64,
    #[allow(missing_docs)] // see above
    pub writes_per_s: f64,
    #[allow(missing_docs)] // see above
    pub read_bytes_per_s: f64,
    #[allow(missing_docs)] // see above
    pub written_bytes_per_s: f64,
}

impl ProfiledPool {
    /// Meets the process of a pool; `None` if there is none. Errors: it does not answer.
    pub fn meet(dir: Arc<RunDir>, stem: &str) -> Result<Option<ProfiledPool>> {
        let Some(mut connection) = client::greet(&dir, stem)? else { return Ok(None) };
        let PoolReply::Report(report) = connection.ask(&Request::Report)? else { return Err(off_topic()) };
        let PoolReport { name, root, .. } = *report;
        let style = NameStyle::default();
        let vdevs = root.all().into_iter().skip(1).map(|vdev| (vdev.guid, style.name(vdev, &name))).collect();
        let (process, guid) = (connection.pid(), root.guid);
        let (first, last, groups, reader) = (None, None, Vec::new(), GroupReader::default());
        Ok(Some(ProfiledPool { dir, connection, name, process, guid, vdevs, first, last, groups, reader }))
    }

    /// Looks at it; what it did since the last look, but for the first. Errors: it is gone, or does not answer.
    pub fn look(&mut self) -> Result<Option<ProfileRow>> {
        let PoolReply::Io(io) = self.connection.ask(&Request::Io)? else { return Err(off_topic()) };
        let PoolReply::Profile(profile) = self.connection.ask(&Request::Profile)? else { return Err(off_topic()) };
        let at_ns = now_ns();
        self.read_groups(at_ns);
        let look = PoolLook { at_ns, cpu_s: cpu_seconds(self.process).unwrap_or(0.0), io, profile };
        let row = self.last.as_ref().map(|before| self.row(before, &look));
        if self.first.is_none() {
            self.first = Some(PoolLook { io: look.io.clone(), profile: look.profile.clone(), ..look });
        }
        self.last = Some(look);
        Ok(row)
    }

    fn row(&self, before: &PoolLook, now: &PoolLook) -> ProfileRow {
        let seconds = before.seconds_until(now);
        let [read, written] = DeviceRates::of(&before.io, &now.io, self.guid).bytes;
        let cache = kstat::read_where(self.dir.path(), &self.name, |table| table == "arcstats").unwrap_or_default();
        ProfileRow {
            pool: self.name.clone(),
            cpu: (now.cpu_s - before.cpu_s).max(0.0) / seconds,
            resident_bytes: resident_bytes(self.process),
            cache_bytes: cache.first().map_or(0, |table| table.get("size")),
            read_bytes_per_s: read,
            written_bytes_per_s: written,
            requests_per_s: now.requests().saturating_sub(before.requests()) as f64 / seconds,
            lock_wait: now.waited_ns().saturating_sub(before.waited_ns()) as f64 / 1e9 / seconds,
            syncing: self.syncing_between(before.at_ns, now.at_ns),
        }
    }

    fn read_groups(&mut self, at_ns: u64) {
        for group in self.reader.read(self.dir.path(), &self.name, at_ns / 1_000_000) {
            match self.groups.iter_mut().find(|known| known.txg == group.txg) {
                Some(known) => *known = group,
                None => self.groups.push(group),
            }
        }
        let spare = self.groups.len().saturating_sub(GROUPS_MAX);
        self.groups.drain(..spare);
    }

    /// The phase of its groups at a moment of the monotonic clock.
    pub fn phase(&self, at_ns: u64) -> GroupPhase {
        let of = |group: &GroupSpan| {
            let [quiesced, synced, done] = phases_ns(group);
            match at_ns {
                at if (synced..done).contains(&at) => GroupPhase::Syncing,
                at if (quiesced..synced).contains(&at) => GroupPhase::Quiescing,
                _ => GroupPhase::Open,
            }
        };
        self.groups.iter().map(of).max().unwrap_or(GroupPhase::Open)
    }

    fn syncing_between(&self, begin_ns: u64, end_ns: u64) -> f64 {
        let within = |group: &GroupSpan| {
            let [_, begin, end] = phases_ns(group);
            end.min(end_ns).saturating_sub(begin.max(begin_ns))
        };
        let sum: u64 = self.groups.iter().map(within).sum();
        (sum as f64 / end_ns.saturating_sub(begin_ns).max(1) as f64).min(1.0)
    }

    /// What it did from the first look to the last.
    pub fn whole(&self) -> Option<PoolWhole> {
        let (first, last) = self.first.as_ref().zip(self.last.as_ref())?;
        let vdevs = self.vdevs.iter().map(|(guid, name)| {
            let DeviceRates { operations: [reads, writes], bytes: [read, written] } =
                DeviceRates::of(&first.io, &last.io, *guid);
            ProfiledVdev {
                name: name.clone(),
                reads_per_s: reads,
                writes_per_s: writes,
                read_bytes_per_s: read,
                written_bytes_per_s: written,
            }
        });
        let requests = grown(&first.profile.requests, &last.profile.requests);
        let copied_bytes = grown(&first.profile.copied, &last.profile.copied);
        let mut lock_waits = last.profile.lock_waits.clone();
        lock_waits.sort_by_key(|waits| std::cmp::Reverse(waits.total_ns));
        Some(PoolWhole {
            seconds: first.seconds_until(last),
            row: self.row(first, last),
            vdevs: vdevs.collect(),
            requests,
            copied_bytes,
            lock_waits,
        })
    }
}

/// All that was seen of a pool.
#[derive(Clone, Debug, Serialize)]
pub struct PoolWhole {
    /// Seconds from the first look to the last, and the rates between them.
    pub seconds: f64,
    #[allow(missing_docs)] // see above
    pub row: ProfileRow,
    /// Those of its vdevs.
    pub vdevs: Vec<ProfiledVdev>,
    /// Requests of FUSE by kind, the most frequent first.
    pub requests: Vec<(String, u64)>,
    /// Bytes that its process has copied, by what they are, the most first.
    pub copied_bytes: Vec<(String, u64)>,
    /// Waits for locks, the longest first.
    pub lock_waits: Vec<protocol::profile_report::LockWaitsReport>,
}

impl PoolLook {
    fn seconds_until(&self, later: &PoolLook) -> f64 {
        (later.at_ns.saturating_sub(self.at_ns) as f64 / 1e9).max(1e-6)
    }

    fn requests(&self) -> u64 {
        self.profile.requests.iter().map(|(_, count)| count).sum()
    }

    fn waited_ns(&self) -> u64 {
        self.profile.lock_waits.iter().map(|waits| waits.total_ns).sum()
    }
}

/// What was added to counts, the most first.
fn grown(before: &[(String, u64)], now: &[(String, u64)]) -> Vec<(String, u64)> {
    let before: HashMap<&str, u64> = before.iter().map(|(kind, count)| (&**kind, *count)).collect();
    let since = |(kind, count): &(String, u64)| count.saturating_sub(before.get(&**kind).copied().unwrap_or(0));
    let mut grown: Vec<(String, u64)> = now.iter().map(|row| (row.0.clone(), since(row))).collect();
    grown.retain(|(_, count)| *count > 0);
    grown.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    grown
}

/// When a group stopped taking changes, began to be written, and was on disk, in nanoseconds. One that is being written is
/// done some time.
fn phases_ns(group: &GroupSpan) -> [u64; 3] {
    let ns = |ms: f32| (f64::from(ms) * 1e6) as u64;
    let [open, quiescing, syncing] = group.phases_ms.map(ns);
    let quiesced = group.begin_ms.saturating_mul(1_000_000).saturating_add(open);
    let synced = quiesced.saturating_add(quiescing);
    match (group.is_done, quiescing > 0) {
        (true, _) => [quiesced, synced, synced.saturating_add(syncing)],
        (false, true) => [quiesced, synced, u64::MAX],
        (false, false) => [u64::MAX; 3],
    }
}

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64) * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_of_groups() {
        let group = |is_done, phases_ms| GroupSpan { txg: 1, begin_ms: 1000, phases_ms, is_done, bytes: [0; 3] };
        let ms = 1_000_000;
        assert_eq!(phases_ns(&group(true, [500.0, 10.0, 20.0])), [1500 * ms, 1510 * ms, 1530 * ms]);
        assert_eq!(phases_ns(&group(false, [500.0, 10.0, 0.0])), [1500 * ms, 1510 * ms, u64::MAX]);
        assert_eq!(phases_ns(&group(false, [0.0; 3])), [u64::MAX; 3]);
    }
}
