//! The state that all pages share: the pools as they were last seen, and the stream of changes.
//!
//! ```text
//!   a thread a pool ──▶ pools (one lock) ──▶ tick, each second ──▶ broadcast ──▶ pages
//!                                       └──▶ start: all that is kept, for a page that comes
//! ```
//!
//! However many pages there are, each pool is asked once. While there is none, no tick is made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use base::Mutex;
use serde::Serialize;
use tokio::sync::broadcast;

use super::clients::ClientRates;
use super::history::{COLUMN_S, HeatSubject, RecentHistory, TimedRow, VdevColumn};
use super::kept::KEPT_S;
use super::series::SERIES;
use super::status::PoolFacts;
use crate::groups::GroupSpan;

/// Ticks that a page may be behind; one that is further gets all anew.
const TICKS_MAX: usize = 16;
/// Groups of a tick: those that may have changed since the last one, after a pause of the page too.
const TICK_GROUPS: usize = 4;
/// Seconds without an answer after which that is said.
const SILENT_S: u64 = 3;

/// A mounted file system or an open volume: its name; reads, bytes read, writes and bytes written a second; its
/// number, which may be more than one in a script can hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DatasetRates(pub String, pub [f32; 4], pub String);

/// Rates of a vdev: reads, writes and bytes of each a second, and the 99th percentiles of the latency of reads and writes, in
/// nanoseconds.
pub type VdevRates = [f32; 6];

/// The state of one pool.
pub struct PoolEntry {
    /// Its name, or that of its socket as long as its process has not answered.
    pub name: String,
    /// When it was last heard of, or first looked for.
    pub heard: Instant,
    /// Why its process could not be asked, the last time.
    pub failure: Option<String>,
    /// State, vdevs and events.
    pub facts: Arc<PoolFacts>,
    /// Another number for other facts.
    pub facts_version: u64,
    /// Rows, latencies and groups.
    pub history: RecentHistory,
    /// The file systems and volumes that most goes through.
    pub datasets: Vec<DatasetRates>,
    /// How many are mounted or open.
    pub dataset_count: usize,
    /// The clients of volumes that most goes through.
    pub clients: Vec<ClientRates>,
    /// How many there are.
    pub client_count: usize,
    /// Rates of vdevs, in the order of the facts.
    pub vdevs: Vec<VdevRates>,
    /// The file that its rows are kept in.
    pub kept: Option<PathBuf>,
}

/// See the top of the file.
pub struct Hub {
    pools: Mutex<BTreeMap<String, PoolEntry>>,
    ticks: broadcast::Sender<Arc<str>>,
    /// Where rows of weeks are kept, if they are.
    kept: Option<PathBuf>,
    /// Whether there is a folder of reports.
    has_reports: bool,
}

/// The event of each second.
#[derive(Serialize)]
struct Tick<'a> {
    at_ms: u64,
    pools: Vec<PoolTick<'a>>,
}

#[derive(Serialize)]
struct PoolTick<'a> {
    id: &'a str,
    name: &'a str,
    /// Why nothing is new.
    silent: Option<String>,
    row: Option<&'a TimedRow>,
    groups: Vec<GroupSpan>,
    datasets: &'a [DatasetRates],
    dataset_count: usize,
    clients: &'a [ClientRates],
    client_count: usize,
    vdevs: &'a [VdevRates],
    /// If they are others than before.
    facts: Option<&'a PoolFacts>,
}

/// The first event of a page.
#[derive(Serialize)]
struct Start<'a> {
    at_ms: u64,
    version: &'static str,
    series: Vec<&'static str>,
    /// Seconds that rows are kept for, beyond those that are sent.
    kept_s: u64,
    /// Whether there is a folder of reports.
    has_reports: bool,
    pools: Vec<PoolStart<'a>>,
}

#[derive(Serialize)]
struct PoolStart<'a> {
    now: PoolTick<'a>,
    fine: Vec<&'a TimedRow>,
    coarse: Vec<&'a TimedRow>,
}

/// Columns of a vdev's latencies, as they are sent.
#[derive(Serialize)]
struct Heat {
    seconds: u64,
    columns: Vec<VdevColumn>,
}

impl PoolEntry {
    /// One of that name, of which nothing is known.
    pub fn new(name: String) -> PoolEntry {
        PoolEntry {
            name,
            heard: Instant::now(),
            failure: None,
            facts: Arc::default(),
            facts_version: 0,
            history: RecentHistory::default(),
            datasets: Vec::new(),
            dataset_count: 0,
            clients: Vec::new(),
            client_count: 0,
            vdevs: Vec::new(),
            kept: None,
        }
    }

    fn tick<'a>(&'a self, id: &'a str, group_count: usize, with_facts: bool) -> PoolTick<'a> {
        let silent_s = self.heard.elapsed().as_secs();
        let silent = (silent_s >= SILENT_S).then(|| match &self.failure {
            Some(why) => format!("does not answer for {silent_s} s: {why}"),
            None => format!("does not answer for {silent_s} s"),
        });
        PoolTick {
            id,
            name: &self.name,
            silent,
            row: self.history.last_row(),
            groups: self.history.groups(group_count),
            datasets: &self.datasets,
            dataset_count: self.dataset_count,
            clients: &self.clients,
            client_count: self.client_count,
            vdevs: &self.vdevs,
            facts: with_facts.then_some(&*self.facts),
        }
    }
}

impl Hub {
    /// One that knows no pool yet; with the folder that rows of weeks are kept in, and whether there is one of reports.
    pub fn new(kept: Option<PathBuf>, has_reports: bool) -> Hub {
        Hub { pools: Mutex::default(), ticks: broadcast::Sender::new(TICKS_MAX), kept, has_reports }
    }

    /// The folder that rows of weeks are kept in.
    pub fn kept_folder(&self) -> Option<&Path> {
        self.kept.as_deref()
    }

    /// The file that the rows of a pool are kept in; `None` if there is none, or no such pool.
    pub fn kept_file(&self, id: &str) -> Option<PathBuf> {
        self.pools.lock().get(id)?.kept.clone()
    }

    /// The name of a pool; `None` if there is no such one.
    pub fn name_of(&self, id: &str) -> Option<String> {
        Some(self.pools.lock().get(id)?.name.clone())
    }

    /// Changes what is known of a pool; one that is not known is made.
    pub fn change<T>(&self, id: &str, change: impl FnOnce(&mut PoolEntry) -> T) -> T {
        let mut pools = self.pools.lock();
        change(pools.entry(id.to_owned()).or_insert_with(|| PoolEntry::new(id.to_owned())))
    }

    /// Forgets a pool.
    pub fn forget(&self, id: &str) {
        self.pools.lock().remove(id);
    }

    /// How many pools are known, and whether this one is.
    pub fn knows(&self, id: &str) -> (usize, bool) {
        let pools = self.pools.lock();
        (pools.len(), pools.contains_key(id))
    }

    /// The ticks from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<str>> {
        self.ticks.subscribe()
    }

    /// How many pages are open.
    pub fn pages(&self) -> usize {
        self.ticks.receiver_count()
    }

    /// Sends what is new to all pages. `sent` has the versions of the facts that were sent.
    pub fn tick(&self, sent: &mut BTreeMap<String, u64>) {
        if self.pages() == 0 {
            // the next page gets all
            return sent.clear();
        }
        let text = {
            let pools = self.pools.lock();
            sent.retain(|id, _| pools.contains_key(id));
            let one = |(id, pool): (&'_ String, &'_ PoolEntry)| {
                sent.insert(id.clone(), pool.facts_version) != Some(pool.facts_version)
            };
            let are_new: Vec<bool> = pools.iter().map(one).collect();
            let ticks = pools.iter().zip(are_new).map(|((id, pool), is_new)| pool.tick(id, TICK_GROUPS, is_new));
            text_of(&Tick { at_ms: now_ms(), pools: ticks.collect() })
        };
        // all pages may have gone
        let _ = self.ticks.send(text.into());
    }

    /// All that is kept, for a page that comes.
    pub fn start(&self) -> String {
        let pools = self.pools.lock();
        let pools = pools.iter().map(|(id, pool)| {
            let [fine, coarse] = pool.history.rows().map(|rows| rows.iter().collect());
            PoolStart { now: pool.tick(id, usize::MAX, true), fine, coarse }
        });
        text_of(&Start {
            at_ms: now_ms(),
            version: env!("CARGO_PKG_VERSION"),
            series: SERIES.iter().map(|(name, _)| *name).collect(),
            kept_s: if self.kept.is_some() { KEPT_S } else { 0 },
            has_reports: self.has_reports,
            pools: pools.collect(),
        })
    }

    /// Latencies of a vdev or a dataset behind a column; `None` if there is no such pool.
    pub fn heat(&self, id: &str, subject: HeatSubject, after: u64) -> Option<String> {
        let pools = self.pools.lock();
        let columns = pools.get(id)?.history.heat_of(subject, after);
        Some(text_of(&Heat { seconds: COLUMN_S, columns }))
    }
}

/// A value as JSON.
pub fn text_of(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("numbers, texts and lists can be written")
}

/// The time in milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;

    use super::*;

    fn row(hub: &Hub, id: &str, at_s: u64) {
        hub.change(id, |pool| pool.history.add_row(at_s, vec![1.0; SERIES.len()].into()));
    }

    #[test]
    fn a_page_gets_all_and_then_what_is_new() {
        let hub = Hub::new(None, false);
        let mut sent = BTreeMap::new();
        row(&hub, "tank", 7);
        hub.tick(&mut sent);
        let mut page = hub.subscribe();
        let start: Value = serde_json::from_str(&hub.start()).unwrap();
        assert_eq!(start["pools"][0]["now"]["name"], "tank");
        assert_eq!(start["pools"][0]["fine"][0][0], 7);
        assert_eq!(
            start["series"].as_array().unwrap().len(),
            start["pools"][0]["fine"][0][1].as_array().unwrap().len()
        );
        let mut next = || -> Value {
            hub.tick(&mut sent);
            serde_json::from_str(&page.try_recv().unwrap()).unwrap()
        };
        assert!(next()["pools"][0]["facts"].is_object(), "they were not sent to this page");
        assert!(next()["pools"][0]["facts"].is_null());
        hub.change("tank", |pool| pool.facts_version += 1);
        assert!(next()["pools"][0]["facts"].is_object());
        hub.forget("tank");
        assert_eq!(next()["pools"], serde_json::json!([]));
    }

    #[test]
    fn a_pool_that_does_not_answer_is_said_to() {
        let hub = Hub::new(None, false);
        let hostile = "</script><img src=x onerror=alert(1)>\n\n";
        row(&hub, hostile, 1);
        let silent = |seconds: u64, failure: Option<&str>| {
            hub.change(hostile, |pool| {
                pool.heard = Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
                pool.failure = failure.map(str::to_owned);
            });
            let start = hub.start();
            assert!(!start.contains('\n'), "an event is one line");
            serde_json::from_str::<Value>(&start).unwrap()["pools"][0]["now"]["silent"].clone()
        };
        assert_eq!(silent(1, Some("x")), Value::Null);
        assert_eq!(silent(5, None), "does not answer for 5 s");
        assert_eq!(silent(60, Some("its process hangs")), "does not answer for 60 s: its process hangs");
    }

    #[test]
    fn heat_of_no_pool_is_none() {
        let hub = Hub::new(None, false);
        let vdev = HeatSubject::Vdev(format::ids::Guid::new(1));
        assert_eq!(hub.heat("tank", vdev, 0), None);
        row(&hub, "tank", 1);
        assert_eq!(hub.heat("tank", vdev, 0).unwrap(), "{\"seconds\":5,\"columns\":[]}");
    }
}
