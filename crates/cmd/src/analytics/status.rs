//! Facts of a pool that change seldom: its state, its vdevs, long work, and its events.

use format::ids::Guid;
use format::nvlist::NvList;
use protocol::pool_report::{PoolReport, Progress, VdevReport};
use protocol::words::time;
use serde::Serialize;

use crate::zpool::events::time_of;
use crate::zpool::names::NameStyle;
use crate::zpool::{history, reason, scan_text};

/// Vdevs that are shown.
const VDEVS_MAX: usize = 1000;
/// Events that are kept.
const EVENTS_MAX: usize = 100;

/// Facts of a pool, as they are sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PoolFacts {
    /// The word for its state.
    pub state: String,
    /// Status and action in the words of `zpool status`; empty if nothing is wrong.
    pub advice: [String; 2],
    /// Whether it is imported for writing.
    pub is_writable: bool,
    /// Bytes of its devices, and how many are taken.
    pub size: [u64; 2],
    /// Percent of free space that is in small pieces.
    pub fragmentation: Option<u64>,
    /// Blocks in the error log.
    pub damaged: u64,
    /// The words of `zpool status` about scrubs, resilvers, removals, expansions and the checkpoint, a paragraph each.
    pub work: Vec<String>,
    /// How much of a scan that is under way is done, from 0 to 1.
    pub scan_part: Option<f64>,
    /// Its vdevs, each before those below it.
    pub vdevs: Vec<VdevRow>,
    /// Events, the latest last.
    pub events: Vec<EventRow>,
}

/// A vdev.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VdevRow {
    /// Its guid: more than a number in a script can hold.
    pub guid: String,
    /// Its name.
    pub name: String,
    /// How far below the root it is.
    pub depth: usize,
    /// For what it is: `data`, `log`, `cache`, `spare`, `special` or `dedup`.
    pub role: String,
    /// Whether it is a device.
    pub is_leaf: bool,
    /// Its state.
    pub state: String,
    /// Reads that failed, writes that failed, blocks that were wrong.
    pub errors: [u64; 3],
    /// Requests that took very long.
    pub slow: u64,
    /// Bytes that it has, and how many are taken, where that is known.
    pub size: Option<[u64; 2]>,
}

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EventRow {
    /// When, in seconds since 1970.
    pub at_s: i64,
    /// Its class, without what all classes begin with.
    pub class: String,
    /// The vdev or dataset that the event is about.
    pub about: String,
}

impl PoolFacts {
    /// Of what a pool's process says of it.
    pub fn new(report: &PoolReport, events: &[EventRow]) -> PoolFacts {
        let now_s = time::now();
        let advice = reason::of(report, None).words().unwrap_or_default();
        let one_line = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let work = [
            scan_text::scan(report, now_s),
            scan_text::removal(report, now_s),
            scan_text::expansion(report, now_s),
            scan_text::checkpoint(report),
        ];
        let mut vdevs = Vec::new();
        add_vdev(&mut vdevs, report, &report.root, 0, "data");
        report.caches.iter().for_each(|cache| add_vdev(&mut vdevs, report, cache, 1, "cache"));
        report.spares.iter().for_each(|spare| add_vdev(&mut vdevs, report, spare, 1, "spare"));
        PoolFacts {
            state: report.word().to_owned(),
            advice: [one_line(advice.0), one_line(advice.1)],
            is_writable: report.is_writable,
            size: [report.space.size_bytes, report.space.allocated_bytes],
            fragmentation: report.space.fragmentation,
            damaged: report.error_count,
            work: work.into_iter().map(one_line).filter(|text| !text.is_empty()).collect(),
            scan_part: scan_part(report),
            vdevs,
            events: events.to_vec(),
        }
    }

    /// The guids of its vdevs, in their order.
    pub fn guids(&self) -> impl Iterator<Item = Guid> {
        self.vdevs.iter().map(|vdev| Guid::new(vdev.guid.parse().unwrap_or(0)))
    }
}

fn scan_part(report: &PoolReport) -> Option<f64> {
    let scan = report.scan.as_ref().filter(|scan| scan.progress == Progress::Running)?;
    let whole = scan.to_examine_bytes.saturating_sub(scan.skipped_bytes);
    (whole > 0).then(|| (scan.issued_bytes as f64 / whole as f64).min(1.0))
}

fn add_vdev(rows: &mut Vec<VdevRow>, report: &PoolReport, vdev: &VdevReport, depth: usize, role: &str) {
    if vdev.is_hole() || vdev.is_indirect() || rows.len() >= VDEVS_MAX {
        return;
    }
    let role = match &vdev.bias {
        _ if vdev.is_log => "log",
        Some(bias) => bias,
        None => role,
    };
    let space = vdev.space.as_ref().filter(|space| space.size_bytes > 0);
    rows.push(VdevRow {
        guid: if depth == 0 { report.guid } else { vdev.guid }.to_string(),
        name: NameStyle::default().name(vdev, &report.name),
        depth,
        role: role.to_owned(),
        is_leaf: vdev.children.is_empty(),
        state: vdev.word().to_owned(),
        errors: vdev.errors,
        slow: vdev.slow_ios,
        size: space.map(|space| [space.size_bytes, space.allocated_bytes]),
    });
    vdev.children.iter().for_each(|child| add_vdev(rows, report, child, depth + 1, role));
}

/// Adds events to those that are kept, as a pool's process sends them. Events that make no sense are left out.
pub fn add_events(kept: &mut Vec<EventRow>, sent: &[String]) {
    let new = sent.iter().filter_map(|event| history::unpack(event).ok()).map(|event| event_row(&event));
    kept.extend(new);
    kept.drain(..kept.len().saturating_sub(EVENTS_MAX));
}

fn event_row(event: &NvList) -> EventRow {
    let class = event.opt_str("class").unwrap_or_default();
    let short = ["resource.fs.zfs.", "sysevent.fs.zfs.", "ereport.fs.zfs."];
    let class = short.iter().find_map(|start| class.strip_prefix(start)).unwrap_or(class);
    let about = ["vdev_path", "history_dsname", "vdev_type", "history_internal_name"];
    let mut about = about.iter().filter_map(|name| event.opt_str(name)).filter(|text| !text.is_empty());
    EventRow { at_s: time_of(event).0, class: class.to_owned(), about: about.next().unwrap_or_default().to_owned() }
}

#[cfg(test)]
mod tests {
    use format::nvlist::Value;
    use protocol::pool_report::{ScanReport, SpaceReport};

    use super::*;

    #[test]
    fn vdevs_stand_in_their_order_with_what_they_are_for() {
        let leaf = |guid: u64, path: &str| VdevReport {
            kind: "disk".into(),
            guid: Guid::new(guid),
            path: Some(path.into()),
            ..VdevReport::default()
        };
        let mirror =
            VdevReport { kind: "mirror".into(), children: vec![leaf(2, "/dev/a"), leaf(3, "/dev/b")], ..leaf(1, "") };
        let mirror = VdevReport { path: None, ..mirror };
        let log = VdevReport { is_log: true, errors: [1, 2, 3], ..leaf(4, "/dev/<img src=x onerror=alert(1)>") };
        let hole = VdevReport { kind: "hole".into(), ..VdevReport::default() };
        let root = VdevReport { kind: "root".into(), children: vec![mirror, hole, log], ..VdevReport::default() };
        let scan = ScanReport {
            start_s: 5,
            to_examine_bytes: 200,
            issued_bytes: 50,
            progress: Progress::Running,
            ..ScanReport::default()
        };
        let report = PoolReport {
            name: "tank".into(),
            guid: Guid::new(u64::MAX),
            root,
            caches: vec![leaf(5, "/dev/c")],
            space: SpaceReport { size_bytes: 100, allocated_bytes: 40, ..SpaceReport::default() },
            scan: Some(scan),
            ..PoolReport::default()
        };
        let status = PoolFacts::new(&report, &[]);
        let rows: Vec<_> = status.vdevs.iter().map(|row| (&*row.name, row.depth, &*row.role, row.is_leaf)).collect();
        let hostile = "<img src=x onerror=alert(1)>";
        assert_eq!(
            rows,
            [
                ("tank", 0, "data", false),
                ("mirror-0", 1, "data", false),
                ("a", 2, "data", true),
                ("b", 2, "data", true),
                (hostile, 1, "log", true),
                ("c", 1, "cache", true)
            ]
        );
        assert_eq!((&*status.vdevs[0].guid, status.vdevs[4].errors), ("18446744073709551615", [1, 2, 3]));
        assert_eq!((status.scan_part, status.size), (Some(0.25), [100, 40]));
        assert!(status.work[0].starts_with("scan: scrub in progress since "), "{:?}", status.work);
        assert_eq!(status.guids().last(), Some(Guid::new(5)));
    }

    #[test]
    fn events_are_bounded_and_nonsense_is_none() {
        let mut event = NvList::new();
        event.set("class", Value::Str("ereport.fs.zfs.checksum".into()));
        event.set("vdev_path", Value::Str("/dev/<b>".into()));
        event.set("time", Value::I64s(vec![77, 5]));
        let sent: String = event.pack().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut kept = Vec::new();
        add_events(&mut kept, &["x".to_owned(), "00".to_owned(), sent.clone()]);
        assert_eq!(kept, [EventRow { at_s: 77, class: "checksum".into(), about: "/dev/<b>".into() }]);
        add_events(&mut kept, &vec![sent; 500]);
        assert_eq!(kept.len(), EVENTS_MAX);
    }
}
