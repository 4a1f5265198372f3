//! What is told, and how it is named.
//!
//! Names begin with `cenote_`, not with `node_zfs_` as those of node_exporter's collector: that one can read the same
//! files, and with both everything would be counted twice. Behind that they are the same: `arc` for the table
//! `arcstats`, `zfetch`, `dmu_tx`, `zil`, then the name of the value. As Prometheus wants it, counters end with
//! `_total`, sizes and counts are labelled with their pool (`sum` has that of all), and a dataset is a label.
//!
//! Pools are asked side by side, and those that do not answer are left out after a while.

use std::time::Duration;

use base::Result;
use device::meter::Purpose;
use protocol::client::{self, Connection, off_topic};
use protocol::io_report::{IoCounters, IoReport};
use protocol::kstat::{self, KstatTable};
use protocol::pool_report::{PoolReport, VdevReport};
use protocol::wire::{PoolReply, Request};

use super::page::{MetricKind, MetricsPage};
use crate::zpool::names::NameStyle;

/// How long the process of a pool may take to greet, and for each of two answers: Prometheus gives up after 10 s.
const TIME_MAX: Duration = Duration::from_secs(3);
/// All words for the state of a vdev, and one that only pools have.
const STATES: [&str; 7] = ["online", "degraded", "faulted", "offline", "removed", "unavail", "split"];
const SUSPENDED: &str = "suspended";
/// Tables of what Cenote does not have, which other tools want to read, and one that is told by vdevs.
const LEFT_OUT: [&str; 3] = ["vdev_cache_stats", "dbufstats", "io"];

/// What one pool tells.
struct Told {
    report: PoolReport,
    io: IoReport,
    tables: Vec<KstatTable>,
}

/// Asks all pools.
pub fn page() -> Result<MetricsPage> {
    let mut page = MetricsPage::default();
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    page.add("build_info", MetricKind::Gauge, "Version of the exporter.", &version, 1);
    let (mut asked, mut silent) = (client::each(TIME_MAX, ask)?, 0);
    asked.sort_by_key(|told| told.as_ref().map_or(String::new(), |told| told.report.name.clone()));
    for told in asked {
        match told {
            Ok(told) => told.add_to(&mut page),
            Err(e) => {
                silent += 1;
                tracing::warn!("a pool is left out: {e}");
            }
        }
    }
    page.add("exporter_silent_pools", MetricKind::Gauge, "Pools whose process did not answer.", &[], silent);
    Ok(page)
}

fn ask(mut connection: Connection) -> Result<Told> {
    let PoolReply::Report(report) = connection.ask(&Request::Report)? else { return Err(off_topic()) };
    let PoolReply::Io(io) = connection.ask(&Request::Io)? else { return Err(off_topic()) };
    // there are none when its process could not write any
    let tables = client::folder()?.map_or(Vec::new(), |run| kstat::read(&run, &report.name).unwrap_or_default());
    Ok(Told { report: *report, io, tables })
}

impl Told {
    fn add_to(&self, page: &mut MetricsPage) {
        self.tables.iter().for_each(|table| add_table(page, &self.report.name, table));
        self.add_pool(page);
        let report = &self.report;
        report.root.children.iter().for_each(|top| self.add_vdev(page, top, ""));
        report.caches.iter().chain(&report.spares).for_each(|leaf| self.add_vdev(page, leaf, ""));
    }

    fn add_pool(&self, page: &mut MetricsPage) {
        let (report, pool) = (&self.report, [("pool", &*self.report.name)]);
        let mut gauge = |name: &str, help: &str, value: f64| page.add(name, MetricKind::Gauge, help, &pool, value);
        let space = &report.space;
        gauge("pool_size_bytes", "Bytes of the pool's data devices.", space.size_bytes as f64);
        gauge("pool_allocated_bytes", "Bytes of them that are taken.", space.allocated_bytes as f64);
        gauge("pool_freeing_bytes", "Bytes that are still to be freed.", report.freeing_bytes as f64);
        gauge("pool_leaked_bytes", "Bytes that cannot be freed.", report.leaked_bytes as f64);
        gauge("pool_dedup_ratio", "Referenced by stored bytes of dedup.", report.dedup_ratio_percent as f64 / 100.0);
        gauge("pool_damaged_blocks", "Blocks in the error log.", report.error_count as f64);
        gauge("pool_writable", "Whether the pool is imported for writing.", f64::from(u8::from(report.is_writable)));
        gauge("pool_imported_seconds", "Time since the import.", (self.io.open_ns / 1_000_000) as f64 / 1000.0);
        if let Some(percent) = space.fragmentation {
            gauge("pool_fragmentation_ratio", "Fragmentation of free space.", percent as f64 / 100.0);
        }
        let help = "State of the pool: 1 for the one it is in.";
        add_states(page, "pool_state", help, &pool, report.word(), STATES.iter().chain(&[SUSPENDED]));
        if let Some(counters) = self.io.vdevs.get(&report.guid) {
            add_io(page, "pool", "of the pool", &pool, counters);
        }
    }

    /// A vdev and those below it. What is no leaf is named by those above it too, as its own name needs be the only
    /// one only among its siblings.
    fn add_vdev(&self, page: &mut MetricsPage, vdev: &VdevReport, above: &str) {
        if vdev.is_hole() {
            return;
        }
        let style = NameStyle { whole_paths: true, ..NameStyle::default() };
        let name = style.name(vdev, &self.report.name);
        let name = if vdev.children.is_empty() { name } else { format!("{above}{name}") };
        let labels = [("pool", &*self.report.name), ("vdev", &*name)];
        let help = "State of the vdev: 1 for the one it is in.";
        add_states(page, "vdev_state", help, &labels, vdev.word(), STATES.iter());
        for (kind, count) in ["read", "write", "checksum"].into_iter().zip(vdev.errors) {
            let labels = [&labels[..], &[("type", kind)]].concat();
            page.add("vdev_errors", MetricKind::Counter, "Errors since they were cleared.", &labels, count);
        }
        if let Some(space) = &vdev.space {
            page.add("vdev_size_bytes", MetricKind::Gauge, "Bytes of a top-level vdev.", &labels, space.size_bytes);
            let help = "Bytes of a top-level vdev that are taken.";
            page.add("vdev_allocated_bytes", MetricKind::Gauge, help, &labels, space.allocated_bytes);
        }
        if let Some(counters) = self.io.vdevs.get(&vdev.guid) {
            add_io(page, "vdev", "of the vdev", &labels, counters);
            for purpose in Purpose::ALL {
                let labels = [&labels[..], &[("queue", purpose.name())]].concat();
                let mut gauge = |name, help, of: &[u64; Purpose::ALL.len()]| {
                    page.add(name, MetricKind::Gauge, help, &labels, of[purpose as usize])
                };
                gauge("vdev_requests_waiting", "Requests that wait for the device, now.", &counters.pending);
                gauge("vdev_requests_active", "Requests that the device works on, now.", &counters.active);
            }
        }
        vdev.children.iter().for_each(|child| self.add_vdev(page, child, &format!("{name}/")));
    }
}

fn add_states<'a>(
    page: &mut MetricsPage,
    name: &str,
    help: &str,
    labels: &[(&str, &str)],
    word: &str,
    states: impl Iterator<Item = &'a &'a str>,
) {
    for state in states {
        let labels = [labels, &[("state", *state)]].concat();
        page.add(name, MetricKind::Gauge, help, &labels, u8::from(word.eq_ignore_ascii_case(state)));
    }
}

/// What has been read and written.
fn add_io(page: &mut MetricsPage, of: &str, whose: &str, labels: &[(&str, &str)], counters: &IoCounters) {
    for (side, op) in ["read", "write"].into_iter().enumerate() {
        let labels = [labels, &[("op", op)]].concat();
        let mut count = |what: &str, value: u64| {
            let help = format!("Reads and writes {whose}, as zpool iostat counts them: {what}.");
            page.add(&format!("{of}_{what}"), MetricKind::Counter, &help, &labels, value);
        };
        count("operations", counters.operations[side]);
        count("bytes", counters.bytes[side]);
    }
}

/// The values of one table of counters.
fn add_table(page: &mut MetricsPage, pool: &str, table: &KstatTable) {
    if LEFT_OUT.contains(&&*table.name) {
        return;
    }
    let mut labels = vec![("pool", pool)];
    let prefix = match &table.dataset {
        Some(dataset) => {
            labels.push(("dataset", dataset));
            "dataset"
        }
        None => table.name.strip_suffix("stats").unwrap_or(&table.name),
    };
    let shown = if table.dataset.is_some() { "objset" } else { &table.name };
    for (name, value) in &table.values {
        let kind = if is_gauge(&table.name, name) { MetricKind::Gauge } else { MetricKind::Counter };
        // zil_commit_count of table zil need not say it twice
        let rest = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_')).unwrap_or(name);
        page.add(&format!("{prefix}_{rest}"), kind, &format!("{name} of kstat {shown}."), &labels, value);
    }
}

/// Whether a value goes up and down.
fn is_gauge(table: &str, name: &str) -> bool {
    const ARC: [&str; 17] = [
        "p",
        "c",
        "c_min",
        "c_max",
        "size",
        "hash_elements",
        "hash_elements_max",
        "hash_chains",
        "hash_chain_max",
        "arc_no_grow",
        "arc_need_free",
        "arc_sys_free",
        "arc_tempreserve",
        "arc_loaned_bytes",
        "arc_dnode_limit",
        "cached_only_in_progress",
        "l2_log_blk_count",
    ];
    match table {
        // what a rebuild brought back is only added to
        "arcstats" if name.starts_with("l2_rebuild_") => false,
        "arcstats" => {
            ARC.contains(&name)
                || ["_size", "_asize", "_ratio"].iter().any(|end| name.ends_with(end))
                || name.contains("_evictable_")
                || name.starts_with("arc_meta_")
                || (name.starts_with("memory_") && name.ends_with("_bytes"))
        }
        "zfetchstats" => name == "io_active",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use format::ids::Guid;

    use super::*;
    use protocol::pool_report::{Aux, VdevState};

    fn leaf(path: &str, guid: Guid, errors: [u64; 3]) -> VdevReport {
        let (path, state) = (Some(path.into()), VdevState::Healthy);
        VdevReport { kind: "disk".into(), path, guid, state, errors, ..VdevReport::default() }
    }

    fn told() -> Told {
        let gone =
            VdevReport { state: VdevState::Unavail, aux: Aux::OpenFailed, ..leaf("/dev/sdb", Guid::new(3), [0, 7, 0]) };
        let replacing =
            VdevReport { kind: "replacing".into(), guid: Guid::new(9), children: vec![gone], ..VdevReport::default() };
        let mirror = VdevReport {
            kind: "mirror".into(),
            guid: Guid::new(1),
            state: VdevState::Degraded,
            children: vec![leaf("/dev/sda", Guid::new(2), [0; 3]), replacing],
            ..VdevReport::default()
        };
        let root = VdevReport {
            kind: "root".into(),
            state: VdevState::Degraded,
            children: vec![mirror],
            ..VdevReport::default()
        };
        let report = PoolReport { name: "tank".into(), guid: Guid::new(77), root, ..PoolReport::default() };
        let counters = |n| IoCounters { operations: [n, 2 * n], bytes: [n << 10, n << 12], ..IoCounters::default() };
        let io = IoReport {
            open_ns: 1_500_000_000,
            vdevs: [(Guid::new(77), counters(5)), (Guid::new(2), counters(3))].into(),
        };
        let table = |name: &str, dataset: Option<&str>, values: &[(&str, u64)]| KstatTable {
            name: name.into(),
            at_ns: 0,
            dataset: dataset.map(str::to_owned),
            values: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        };
        let tables = vec![
            table("arcstats", None, &[("hits", 12), ("size", 34), ("arc_meta_used", 5), ("l2_rebuild_size", 6)]),
            table("zil", None, &[("zil_commit_count", 8)]),
            table("objset-0x36", Some("tank/a \"b\""), &[("zil_commit_count", 3)]),
            table("vdev_cache_stats", None, &[("hits", 0)]),
        ];
        Told { report, io, tables }
    }

    #[test]
    fn everything_is_named() {
        let mut page = MetricsPage::default();
        told().add_to(&mut page);
        let text = page.text();
        for line in [
            "# TYPE cenote_arc_hits_total counter",
            "cenote_arc_hits_total{pool=\"tank\"} 12",
            "# TYPE cenote_arc_size gauge",
            "cenote_arc_meta_used{pool=\"tank\"} 5",
            "cenote_arc_l2_rebuild_size_total{pool=\"tank\"} 6",
            "cenote_zil_commit_count_total{pool=\"tank\"} 8",
            "cenote_dataset_zil_commit_count_total{pool=\"tank\",dataset=\"tank/a \\\"b\\\"\"} 3",
            "cenote_pool_imported_seconds{pool=\"tank\"} 1.5",
            "cenote_pool_state{pool=\"tank\",state=\"degraded\"} 1",
            "cenote_pool_state{pool=\"tank\",state=\"suspended\"} 0",
            "cenote_pool_operations_total{pool=\"tank\",op=\"write\"} 10",
            "cenote_vdev_bytes_total{pool=\"tank\",vdev=\"/dev/sda\",op=\"read\"} 3072",
            "cenote_vdev_errors_total{pool=\"tank\",vdev=\"/dev/sdb\",type=\"write\"} 7",
            "cenote_vdev_state{pool=\"tank\",vdev=\"/dev/sdb\",state=\"unavail\"} 1",
            "cenote_vdev_state{pool=\"tank\",vdev=\"mirror-0/replacing-0\",state=\"online\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
        }
        assert!(!text.contains("vdev_cache") && !text.contains("\"state\""), "{text}");
    }

    #[test]
    fn a_suspended_pool_is_in_one_state() {
        let mut told = told();
        told.report.suspended = Some(protocol::pool_report::Suspended::Wait);
        let mut page = MetricsPage::default();
        told.add_to(&mut page);
        let states: Vec<String> = (page.text().lines())
            .filter(|line| line.starts_with("cenote_pool_state{") && line.ends_with(" 1"))
            .map(str::to_owned)
            .collect();
        assert_eq!(states, ["cenote_pool_state{pool=\"tank\",state=\"suspended\"} 1"]);
    }
}
