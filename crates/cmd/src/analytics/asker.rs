//! Asking pools: a thread for each, so that one whose process hangs delays no other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::Result;
use format::ids::Guid;
use protocol::client::{self, Connection, off_topic};
use protocol::io_report::{IoCounters, IoReport};
use protocol::kstat;
use protocol::log_report::DatasetTimes;
use protocol::pool_report::PoolReport;
use protocol::rundir::{self, RunDir};
use protocol::wire::{PoolReply, Request};

use super::clients::{ClientRates, ClientWatch};
use super::dataset_times::{DatasetHeat, TimesWatch};
use super::history::{COLUMN_S, histograms};
use super::hub::{DatasetRates, Hub, VdevRates, now_ms};
use super::kept::{MinuteWriter, file_of};
use super::series::{RowSource, p99_ns, rounded, row};
use super::status::{EventRow, PoolFacts, add_events};
use crate::device_rates::DeviceRates;
use crate::groups::{GroupReader, GroupSpan};
use crate::output;
use crate::top::watch::Watch;

/// How often a pool is asked.
const PERIOD: Duration = Duration::from_secs(1);
/// How often what changes seldom is asked for.
const FACTS_PERIOD: Duration = Duration::from_secs(3);
/// Reading the tables of file systems takes at most one of so many seconds.
const DATASETS_SHARE: u32 = 50;
/// File systems and volumes that are shown.
const DATASETS_MAX: usize = 40;
/// Pools that are watched.
const POOLS_MAX: usize = 64;

/// Watches the pools of those names, or all, until the process ends.
pub fn watch_all(hub: &Arc<Hub>, wanted: &[String]) -> ! {
    let wanted: Vec<String> = wanted.iter().map(|name| rundir::stem(name)).collect();
    let mut sent = BTreeMap::new();
    loop {
        // without a folder there are no pools
        for dir in RunDir::all().unwrap_or_default() {
            let stems = dir.sockets().unwrap_or_default();
            let dir = Arc::new(dir);
            for stem in stems.into_iter().filter(|stem| wanted.is_empty() || wanted.contains(stem)) {
                let (count, is_known) = hub.knows(&stem);
                if !is_known && count < POOLS_MAX {
                    begin(hub.clone(), dir.clone(), stem);
                }
            }
        }
        hub.tick(&mut sent);
        sleep_until_next_second();
    }
}

fn begin(hub: Arc<Hub>, dir: Arc<RunDir>, stem: String) {
    hub.change(&stem, |_| ());
    let id = stem.clone();
    let watched = hub.clone();
    let thread = std::thread::Builder::new().name("pool".to_owned());
    let watch = move || {
        let mut pool = WatchedPool::new(dir, stem.clone());
        while pool.look(&watched) {
            std::thread::sleep(PERIOD);
        }
        watched.forget(&stem);
    };
    // one that has no thread is tried again
    if thread.spawn(watch).is_err() {
        hub.forget(&id);
    }
}

fn sleep_until_next_second() {
    let rest_ms = 1000 - now_ms() % 1000;
    std::thread::sleep(Duration::from_millis(rest_ms));
}

/// A pool and what was seen of it before.
struct WatchedPool {
    dir: Arc<RunDir>,
    stem: String,
    seen: Option<SeenPool>,
}

/// The last state of one import of a pool.
struct SeenPool {
    connection: Connection,
    name: String,
    guid: Guid,
    facts: Arc<PoolFacts>,
    facts_at: Option<Instant>,
    allocated_bytes: u64,
    events: Vec<EventRow>,
    last_event: u64,
    io: Option<IoReport>,
    /// The counters when the column of latencies began that is under way, and its number.
    column: Option<(u64, IoReport)>,
    p99s: BTreeMap<Guid, [u64; 2]>,
    clients: ClientWatch,
    /// Commits, reads and writes of file systems and volumes.
    times: [TimesWatch; 3],
    counters: Watch,
    datasets: Watch,
    datasets_due: Instant,
    /// The file that rows are kept in, and whether it was said that this fails.
    writer: Option<(PathBuf, MinuteWriter)>,
    is_complaining: bool,
    groups: GroupReader,
}

impl WatchedPool {
    fn new(dir: Arc<RunDir>, stem: String) -> WatchedPool {
        WatchedPool { dir, stem, seen: None }
    }

    /// Looks at the pool; false if it is not in use any more.
    fn look(&mut self, hub: &Hub) -> bool {
        match self.ask(hub) {
            Ok(is_there) => is_there,
            Err(e) => {
                self.seen = None;
                let why = e.what().to_owned();
                hub.change(&self.stem, |pool| pool.failure = Some(why));
                true
            }
        }
    }

    fn ask(&mut self, hub: &Hub) -> Result<bool> {
        let mut seen = match self.seen.take() {
            Some(seen) => seen,
            None => match client::greet(&self.dir, &self.stem)? {
                Some(connection) => SeenPool::new(connection),
                None => return Ok(false),
            },
        };
        seen.look(&self.dir, hub, &self.stem)?;
        self.seen = Some(seen);
        Ok(true)
    }
}

impl SeenPool {
    fn new(connection: Connection) -> SeenPool {
        SeenPool {
            connection,
            name: String::new(),
            guid: Guid::NONE,
            facts: Arc::default(),
            facts_at: None,
            allocated_bytes: 0,
            events: Vec::new(),
            last_event: 0,
            io: None,
            column: None,
            p99s: BTreeMap::new(),
            clients: ClientWatch::default(),
            times: Default::default(),
            counters: Watch::default(),
            datasets: Watch::default(),
            datasets_due: Instant::now(),
            writer: None,
            is_complaining: false,
            groups: GroupReader::default(),
        }
    }

    /// Asks for all that is due, and tells the hub.
    fn look(&mut self, dir: &RunDir, hub: &Hub, id: &str) -> Result<()> {
        let facts_are_due = self.facts_at.is_none_or(|at| at.elapsed() >= FACTS_PERIOD);
        if facts_are_due {
            self.renew_facts()?;
        }
        let PoolReply::Io(io) = self.connection.ask(&Request::Io)? else { return Err(off_topic()) };
        let groups = self.read_tables(dir);
        let (clients, client_count) = self.client_rates();
        let rates_of = |guid: Guid| {
            let before = self.io.as_ref();
            before.map_or(DeviceRates::default(), |before| DeviceRates::of(before, &io, guid))
        };
        let devices = rates_of(self.guid);
        let vdevs: Vec<VdevRates> =
            self.facts.guids().map(|guid| vdev_rates(&rates_of(guid), self.p99s.get(&guid))).collect();
        let source = RowSource {
            counters: &self.counters,
            datasets: &self.datasets,
            devices: &devices,
            allocated_bytes: self.allocated_bytes,
        };
        let row = row(&source);
        let all = self.datasets.datasets();
        let at_s = now_ms() / 1000;
        let kept = hub.kept_folder().map(|folder| file_of(folder, id, self.guid));
        if let Some(file) = &kept {
            self.keep(file, at_s, &row);
        }
        let number = at_s / COLUMN_S;
        let ended = self.column.take_if(|(open, _)| *open != number);
        let heat = if self.column.is_none() { self.heat_since() } else { DatasetHeat::default() };
        hub.change(id, |pool| {
            (pool.heard, pool.failure) = (Instant::now(), None);
            pool.name.clone_from(&self.name);
            if !Arc::ptr_eq(&pool.facts, &self.facts) {
                pool.facts = self.facts.clone();
                pool.facts_version += 1;
            }
            pool.history.add_row(at_s, row);
            pool.history.add_groups(groups);
            if let Some((number, before)) = &ended {
                pool.history.add_heat(*number, [before, &io], &heat);
            }
            pool.dataset_count = all.len();
            pool.datasets = all.into_iter().take(DATASETS_MAX).map(dataset_row).collect();
            (pool.clients, pool.client_count) = (clients, client_count);
            pool.vdevs = vdevs;
            pool.kept = kept;
        });
        if let Some((_, before)) = &ended {
            self.p99s = io.vdevs.iter().map(|(guid, now)| (*guid, p99s(before.vdevs.get(guid), now))).collect();
        }
        self.column.get_or_insert_with(|| (number, io.clone()));
        self.io = Some(io);
        Ok(())
    }

    /// What clients of volumes ask for; those that may not know get none.
    fn client_rates(&mut self) -> (Vec<ClientRates>, usize) {
        match self.connection.ask(&Request::Clients) {
            Ok(PoolReply::Clients(clients)) => self.clients.rates(clients),
            _ => Default::default(),
        }
    }

    /// How long commits, reads and writes took since the last time that was asked for. A pool that is not written has none.
    fn heat_since(&mut self) -> DatasetHeat {
        let [commits, reads, writes] = &mut self.times;
        let mut heat = DatasetHeat::default();
        if let Ok(PoolReply::Logs(logs)) = self.connection.ask(&Request::Logs) {
            heat.commits = commits.since(logs.commits);
        }
        if let Ok(PoolReply::Times(times)) = self.connection.ask(&Request::Times) {
            let of = |kind: fn(&DatasetTimes) -> &Vec<u64>| {
                times.iter().map(|row| (row.dataset, kind(row).clone())).collect()
            };
            (heat.reads, heat.writes) = (reads.since(of(|row| &row.reads)), writes.since(of(|row| &row.writes)));
        }
        heat
    }

    fn renew_facts(&mut self) -> Result<()> {
        let PoolReply::Report(report) = self.connection.ask(&Request::Report)? else { return Err(off_topic()) };
        // a pool that is not written has none
        if let Ok(PoolReply::Events { events, last, .. }) =
            self.connection.ask(&Request::Events { after: self.last_event })
        {
            self.last_event = last;
            add_events(&mut self.events, &events);
        }
        let report: PoolReport = *report;
        let facts = PoolFacts::new(&report, &self.events);
        if *self.facts != facts {
            self.facts = Arc::new(facts);
        }
        (self.name, self.guid) = (report.name, report.guid);
        self.allocated_bytes = report.space.allocated_bytes;
        self.facts_at = Some(Instant::now());
        Ok(())
    }

    /// Adds a row to the file of the pool. What fails is said once, and tried again.
    fn keep(&mut self, file: &Path, at_s: u64, row: &[f32]) {
        let known = self.writer.take_if(|(path, _)| path == file);
        let writer = known.map_or_else(|| MinuteWriter::open(file), |(_, writer)| Ok(writer));
        let kept = writer.and_then(|mut writer| {
            let added = writer.add(at_s, row);
            self.writer = Some((file.to_owned(), writer));
            added
        });
        match kept {
            Ok(()) => self.is_complaining = false,
            Err(_) if self.is_complaining => {}
            Err(e) => {
                output::complain("analytics", format!("{}: {e}: nothing is kept", file.display()));
                self.is_complaining = true;
            }
        }
    }

    /// Reads the counters that the pool's process writes to files; its last groups.
    fn read_tables(&mut self, dir: &RunDir) -> Vec<GroupSpan> {
        let own = |tables| BTreeMap::from([(self.name.clone(), tables)]);
        let is_dataset = |name: &str| name.starts_with("objset-");
        const TABLES: [&str; 3] = ["arcstats", "zil", "dmu_tx"];
        // there are none when its process could not write any
        if let Ok(tables) = kstat::read_where(dir.path(), &self.name, |name| TABLES.contains(&name)) {
            self.counters.see(own(tables));
        }
        if Instant::now() >= self.datasets_due {
            let began = Instant::now();
            if let Ok(tables) = kstat::read_where(dir.path(), &self.name, is_dataset) {
                self.datasets.see(own(tables));
            }
            self.datasets_due = Instant::now() + began.elapsed() * DATASETS_SHARE;
        }
        self.groups.read(dir.path(), &self.name, now_ms())
    }
}

fn vdev_rates(rates: &DeviceRates, p99s: Option<&[u64; 2]>) -> VdevRates {
    let [[reads, writes], [read, written]] = [rates.operations, rates.bytes];
    let [read_ns, write_ns] = p99s.copied().unwrap_or_default();
    [reads, writes, read, written, read_ns as f64, write_ns as f64].map(rounded)
}

/// In which time 99 of 100 reads, and writes, were done since then.
fn p99s(before: Option<&IoCounters>, now: &IoCounters) -> [u64; 2] {
    let since = now.since(before.unwrap_or(&IoCounters::default()));
    let [reads, writes, ..] = histograms(&since);
    [reads, writes].map(|histogram| p99_ns(&IoCounters::times(histogram)))
}

fn dataset_row(counts: crate::top::watch::DatasetCounts) -> DatasetRates {
    let rates = [counts.reads, counts.read_bytes, counts.writes, counts.written_bytes];
    DatasetRates(counts.name, rates.map(|count| rounded(count.per_s)), counts.id.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_requests_of_a_vdev_are_seen() {
        let counters = |fast: u64, slow: u64| IoCounters {
            total: [vec![0, 0, fast], vec![0, 0, 0, 0, slow]],
            ..IoCounters::default()
        };
        assert_eq!(p99s(Some(&counters(5, 5)), &counters(6, 5)), [8, 0]);
        assert_eq!(p99s(None, &counters(0, 1)), [0, 32]);
        let rates = DeviceRates { operations: [1.0, 2.0], bytes: [3.0, 4.0] };
        assert_eq!(vdev_rates(&rates, Some(&[8, 0])), [1.0, 2.0, 3.0, 4.0, 8.0, 0.0]);
    }
}
