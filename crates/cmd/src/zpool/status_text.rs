//! `zpool status` for people.

use base::Shown;
use daemon::import::features;
use protocol::pool_report::*;
use protocol::words::nicenum::nicenum;
use protocol::words::time;

use super::reason::{self, Reason};
use super::scan_text;
use super::status_options::{PoolStatus, StatusOptions, article};
use crate::histogram::dedup_histogram;

/// All lines about one pool.
pub fn text(subject: &PoolStatus, options: &StatusOptions) -> String {
    let pool = &subject.pool;
    let reason = reason::of(pool, None);
    let mut text = format!("  pool: {}\n state: {}\n", pool.name, pool.word());
    if let Some((status, action)) = reason.words() {
        text += &format!("status: {status}");
        if reason == Reason::UnsupFeatWrite {
            text += &features::lines(&pool.unwritable);
        }
        if !action.is_empty() {
            text += &format!("action: {action}");
        }
    }
    if let Some(id) = reason.message_id() {
        text += &format!("   see: {}\n", article(id));
    }
    text += &scan_text::scan(pool, time::now());
    text += &scan_text::removal(pool, time::now());
    text += &scan_text::checkpoint(pool);
    text += &scan_text::expansion(pool, time::now());
    text += &config(pool, options);
    text += &match pool.error_count {
        0 => "\nerrors: No known data errors\n".to_owned(),
        count if !options.verbose => format!("\nerrors: {count} data errors, use '-v' for a list\n"),
        _ => {
            let mut text = "\nerrors: Permanent errors have been detected in the following files:\n\n".to_owned();
            subject.damaged.iter().for_each(|path| text += &format!("        {}\n", Shown(path)));
            text
        }
    };
    text + &subject.dedup.as_ref().map_or(String::new(), |dedup| dedup_text(dedup, options.literal))
}

fn config(pool: &PoolReport, options: &StatusOptions) -> String {
    let mut listed = vec![&pool.root];
    listed.extend(pool.spares.iter().chain(&pool.caches));
    let tree_width = options.style.width(&[&pool.root], &pool.name, 0);
    let aux_width = options.style.width(&listed[1..], &pool.name, 2);
    let width = tree_width.max(aux_width).max(10);
    let mut text = format!("config:\n\n\t{:width$}  {:8} {:>5} {:>5} {:>5}", "NAME", "STATE", "READ", "WRITE", "CKSUM");
    text += if options.slow { "  SLOW" } else { "" };
    text += if options.direct { "   DIO" } else { "" };
    text += "\n";
    let lines = StatusLines { pool, options, width };
    lines.vdev(&pool.root, 0, false, &mut text);
    for class in ["dedup", "special", "logs"] {
        let is_of_class = |top: &&VdevReport| match class {
            "logs" => top.is_log,
            _ => !top.is_log && !top.is_indirect() && top.bias.as_deref() == Some(class),
        };
        let tops: Vec<&VdevReport> = pool.root.children.iter().filter(is_of_class).collect();
        if !tops.is_empty() {
            text += &format!("\t{class}\t\n");
        }
        tops.iter().for_each(|top| lines.vdev(top, 2, false, &mut text));
    }
    for (heading, vdevs, is_spare) in [("cache", &pool.caches, false), ("spares", &pool.spares, true)] {
        if !vdevs.is_empty() {
            text += &format!("\t{heading}\n");
        }
        vdevs.iter().for_each(|vdev| lines.vdev(vdev, 2, is_spare, &mut text));
    }
    text
}

struct StatusLines<'a> {
    pool: &'a PoolReport,
    options: &'a StatusOptions,
    width: usize,
}

impl StatusLines<'_> {
    fn vdev(&self, vdev: &VdevReport, depth: usize, is_spare: bool, out: &mut String) {
        if self.options.hides(vdev, depth) {
            return;
        }
        let state = match (is_spare, vdev.aux, vdev.state) {
            (true, Aux::Spared, _) => "INUSE",
            (true, _, VdevState::Healthy) => "AVAIL",
            _ => vdev.word(),
        };
        let name = self.options.style.name(vdev, &self.pool.name);
        let width = self.width.saturating_sub(depth);
        *out += &format!("\t{:depth$}{name:width$}  {state:8}", "");
        if !is_spare {
            vdev.errors.iter().for_each(|&count| *out += &format!(" {:>5}", self.count(count)));
            if self.options.slow {
                let slow = if vdev.children.is_empty() { self.count(vdev.slow_ios) } else { "-".to_owned() };
                *out += &format!(" {slow:>5}");
            }
            *out += if self.options.direct { "     0" } else { "" };
        }
        *out += &self.remark(vdev);
        *out += if vdev.is_removing { "  (removing)" } else { "" };
        *out += match vdev.awaits_resilver {
            true if self.pool.is_resilvering() && !vdev.is_deferred => "  (resilvering)",
            true => "  (awaiting resilver)",
            false => "",
        };
        if vdev.children.is_empty() {
            let is_scrubbing =
                self.pool.scan.as_ref().is_some_and(|scan| !scan.is_resilver && scan.progress == Progress::Running);
            *out += if is_scrubbing && vdev.healed_bytes > 0 { "  (repairing)" } else { "" };
            *out += &progress(vdev.initialize, vdev, self.options.initialize, &INITIALIZE);
            *out += &progress(vdev.trim, vdev, self.options.trim, &TRIM);
        }
        *out += "\n";
        let below = vdev.children.iter().filter(|child| child.is_normal());
        below.for_each(|child| self.vdev(child, depth + 2, is_spare, out));
    }

    fn count(&self, count: u64) -> String {
        if self.options.literal { count.to_string() } else { nicenum(count) }
    }

    fn remark(&self, vdev: &VdevReport) -> String {
        match (vdev.is_not_present, vdev.aux) {
            (true, _) => format!("  was {}", vdev.path.as_deref().unwrap_or("-")),
            (false, Aux::None) => String::new(),
            (false, aux) => format!("  {}", aux.words()),
        }
    }
}

struct ScanWords {
    done: &'static str,
    doing: &'static str,
    not_done: &'static str,
}

const INITIALIZE: ScanWords = ScanWords { done: "initialized", doing: "initializing", not_done: "uninitialized" };
const TRIM: ScanWords = ScanWords { done: "trimmed", doing: "trimming", not_done: "untrimmed" };

fn progress(activity: Option<(Activity, u64, u64)>, vdev: &VdevReport, verbose: bool, words: &ScanWords) -> String {
    let (activity, time_s, bytes) = match activity {
        Some(some) if verbose && some.0 != Activity::Canceled && !vdev.is_removing => some,
        Some((Activity::Active, ..)) if !verbose => return format!("  ({})", words.doing),
        _ if verbose => return format!("  ({})", words.not_done),
        _ => return String::new(),
    };
    let time = ctime_of(time_s);
    let (percent, when) = match activity {
        Activity::Complete => (100, format!("completed at {time}")),
        Activity::Suspended => (percent(bytes, vdev), format!("suspended, started at {time}")),
        Activity::Active | Activity::Canceled => (percent(bytes, vdev), format!("started at {time}")),
    };
    format!("  ({percent}% {}, {when})", words.done)
}

fn ctime_of(time_s: u64) -> String {
    time::ctime(time_s)
}

fn percent(bytes: u64, vdev: &VdevReport) -> u64 {
    (u128::from(bytes) * 100 / (u128::from(vdev.device_bytes) + 1)).min(100) as u64
}

fn dedup_text(dedup: &DedupReport, literal: bool) -> String {
    if dedup.entries == 0 {
        return "\n dedup: no DDT entries\n".to_owned();
    }
    let size = |bytes: u64| if literal { bytes.to_string() } else { nicenum(bytes) };
    let (entries, disk, core) = (dedup.entries, size(dedup.disk_bytes), size(dedup.core_bytes));
    let mut text = format!("\n dedup: DDT entries {entries}, size {disk} on disk, {core} in core\n\n");
    text += &dedup_histogram(&dedup.histogram, Some(&dedup.total));
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(path: &str) -> VdevReport {
        VdevReport { kind: "disk".into(), path: Some(path.into()), state: VdevState::Healthy, ..VdevReport::default() }
    }

    fn pool() -> PoolReport {
        let mirror = VdevReport {
            kind: "mirror".into(),
            state: VdevState::Degraded,
            children: vec![
                leaf("/dev/sda"),
                VdevReport { state: VdevState::Unavail, aux: Aux::OpenFailed, ..leaf("/dev/sdb") },
            ],
            ..VdevReport::default()
        };
        let log = VdevReport { id: 1, is_log: true, ..leaf("/dev/sdc") };
        let features = format::feature::FEATURES.iter().map(|f| (f.guid.to_owned(), false)).collect();
        PoolReport {
            name: "tank".into(),
            version: 5000,
            features,
            root: VdevReport {
                kind: "root".into(),
                state: VdevState::Degraded,
                children: vec![mirror, log],
                ..VdevReport::default()
            },
            spares: vec![leaf("/dev/sdd")],
            caches: vec![VdevReport { errors: [1234, 0, 0], ..leaf("/dev/disk/by-id/a-very-long-name") }],
            ..PoolReport::default()
        }
    }

    #[test]
    fn columns() {
        let subject = PoolStatus { pool: pool(), damaged: Vec::new(), dedup: None };
        let expect = "  pool: tank
 state: DEGRADED
status: One or more devices could not be opened.  Sufficient replicas exist for
\tthe pool to continue functioning in a degraded state.
action: Attach the missing device and online it using 'zpool online'.
   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-2Q
config:

\tNAME                STATE     READ WRITE CKSUM
\ttank                DEGRADED     0     0     0
\t  mirror-0          DEGRADED     0     0     0
\t    sda             ONLINE       0     0     0
\t    sdb             UNAVAIL      0     0     0  cannot open
\tlogs\t
\t  sdc               ONLINE       0     0     0
\tcache
\t  a-very-long-name  ONLINE   1.21K     0     0
\tspares
\t  sdd               AVAIL   \x20

errors: No known data errors
";
        // what is behind AVAIL ends with a space too few to be seen
        assert_eq!(text(&subject, &StatusOptions::default()), expect.replace("AVAIL   \x20\n", "AVAIL   \n"));
    }

    #[test]
    fn flags() {
        let mut subject =
            PoolStatus { pool: pool(), damaged: vec!["tank:/x".into()], dedup: Some(DedupReport::default()) };
        subject.pool.error_count = 2;
        let options = StatusOptions {
            verbose: true,
            slow: true,
            trim: true,
            only_unhealthy: true,
            literal: true,
            ..StatusOptions::default()
        };
        let verbose = text(&subject, &options);
        assert!(
            verbose.contains("CKSUM  SLOW\n") && verbose.contains(" 1234     0     0     0  (untrimmed)\n"),
            "{verbose}"
        );
        assert!(!verbose.contains("sda") && !verbose.contains("sdd"), "{verbose}");
        let mut crawls = subject.pool.root.children[0].children[0].clone();
        crawls.slow_ios = 1;
        assert!(!options.hides(&crawls, 2) && StatusOptions { slow: false, ..options.clone() }.hides(&crawls, 2));
        assert!(verbose.ends_with("following files:\n\n        tank:/x\n\n dedup: no DDT entries\n"), "{verbose}");
        assert!(text(&subject, &StatusOptions::default()).contains("errors: 2 data errors, use '-v' for a list\n"));
    }

    #[test]
    fn dedup_tables() {
        let bucket = [3, 3 << 17, 1 << 17, 1 << 17, 6, 6 << 17, 2 << 17, 2 << 17];
        let dedup = DedupReport {
            entries: 3,
            disk_bytes: 2048,
            core_bytes: 8192,
            histogram: vec![[0; 8], bucket],
            total: bucket,
        };
        let text = dedup_text(&dedup, false);
        assert!(text.starts_with("\n dedup: DDT entries 3, size 2K on disk, 8K in core\n\nbucket   "), "{text}");
        assert!(
            text.contains("\n     2        3    384K    128K    128K        6    768K    256K    256K\n Total  "),
            "{text}"
        );
    }
}
