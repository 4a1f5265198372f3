//! The lines of `zpool status` about scrubs, resilvers, removals, expansions and the checkpoint.

use protocol::pool_report::*;
use protocol::words::nicenum::{nicebytes, nicenum};
use protocol::words::time::{ctime, span};

use super::names::NameStyle;

/// Below so many bytes a second it is not told how long it takes.
const ESTIMATE_RATE_MIN: u64 = 10 << 20;

/// The line `scan:` and what belongs to it.
pub fn scan(pool: &PoolReport, now_s: u64) -> String {
    let mut text = String::new();
    let scan = pool.scan.as_ref();
    let (scrub_start_s, error_scrub_start_s) =
        (scan.map_or(0, |scan| scan.start_s), pool.error_scrub.as_ref().map_or(0, |scrub| scrub.start_s));
    if let Some(scrub) = scan.filter(|scan| !scan.is_resilver && scan.start_s > error_scrub_start_s) {
        text += &scan_lines(scrub, now_s);
    } else if let Some(scrub) = pool.error_scrub.as_ref().filter(|scrub| scrub.start_s >= scrub_start_s) {
        text += &error_scrub(scrub, now_s);
    }
    let resilver = scan.filter(|scan| scan.is_resilver);
    let is_resilvering = resilver.is_some_and(|scan| scan.progress == Progress::Running);
    let rebuilds: Vec<&VdevReport> = pool.root.children.iter().filter(|top| top.rebuild.is_some()).collect();
    let is_rebuilding = rebuilds.iter().flat_map(|top| &top.rebuild).any(|r| r.progress == Progress::Running);
    let rebuild_end_s = match is_rebuilding {
        true => 0,
        false => rebuilds.iter().flat_map(|top| &top.rebuild).map(|r| r.end_s).max().unwrap_or(0),
    };
    let resilver_end_s = resilver.map_or(0, |scan| scan.end_s);
    if let Some(scan) = resilver.filter(|scan| is_resilvering || !is_rebuilding && scan.end_s >= rebuild_end_s) {
        text += &scan_lines(scan, now_s);
    } else if is_rebuilding || rebuild_end_s > resilver_end_s {
        for top in rebuilds {
            let name = NameStyle::default().name(top, &pool.name);
            text += &top.rebuild.as_ref().map_or(String::new(), |rebuild| rebuild_lines(rebuild, &name));
        }
    }
    text + checkpoint_warning(pool)
}

fn scan_lines(scan: &ScanReport, now_s: u64) -> String {
    let (name, done) = if scan.is_resilver { ("resilver", "resilvered") } else { ("scrub", "repaired") };
    let processed = nicebytes(scan.processed_bytes);
    match scan.progress {
        Progress::Finished => {
            let what = if scan.is_resilver { "resilvered" } else { "scrub repaired" };
            let time = span(scan.end_s.saturating_sub(scan.start_s));
            let (errors, end) = (scan.errors, ctime(scan.end_s));
            return format!("  scan: {what} {processed} in {time} with {errors} errors on {end}\n");
        }
        Progress::Canceled => return format!("  scan: {name} canceled on {}\n", ctime(scan.end_s)),
        Progress::Running => {}
    }
    let mut text = match scan.is_paused {
        false => format!("  scan: {name} in progress since {}\n", ctime(scan.start_s)),
        true => format!(
            "  scan: scrub paused since {}\n\tscrub started on {}\n",
            ctime(scan.paused_s.min(now_s)),
            ctime(scan.start_s)
        ),
    };
    let to_issue = scan.to_examine_bytes.saturating_sub(scan.skipped_bytes);
    let elapsed_s = now_s.saturating_sub(scan.pass_start_s).saturating_sub(scan.spent_paused_s).max(1);
    let [scan_rate, issue_rate] = [scan.pass_examined_bytes, scan.pass_issued_bytes].map(|bytes| bytes / elapsed_s);
    let at = |rate: u64| match rate {
        0 => String::new(),
        _ if scan.is_paused => String::new(),
        rate => format!(" at {}/s", nicebytes(rate)),
    };
    let (examined, total) = (nicebytes(scan.examined_bytes), nicebytes(scan.to_examine_bytes));
    text += &format!("\t{examined} / {total} scanned{}, ", at(scan_rate));
    text += &format!("{} / {} issued{}\n", nicebytes(scan.issued_bytes), nicebytes(to_issue), at(issue_rate));
    let fraction = percent(scan.issued_bytes, to_issue);
    text += &format!("\t{processed} {done}, {fraction:.2}% done");
    let has_begun = if scan.is_resilver { scan.processed_bytes > 0 } else { scan.issued_bytes > 0 };
    if scan.is_paused {
        text + "\n"
    } else if to_issue >= scan.issued_bytes && issue_rate >= ESTIMATE_RATE_MIN && has_begun {
        text + &format!(", {} to go\n", span((to_issue - scan.issued_bytes) / issue_rate))
    } else {
        text + ", no estimated completion time\n"
    }
}

fn error_scrub(scrub: &ErrorScrub, now_s: u64) -> String {
    let examined = scrub.examined_blocks;
    match scrub.progress {
        Progress::Finished => {
            let seconds = scrub.end_s.saturating_sub(scrub.start_s);
            let (days, rest) = (seconds / 86_400, seconds % 86_400);
            let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
            format!(" scrub: scrubbed {examined} error blocks in {days} days {clock} on {}\n", ctime(scrub.end_s))
        }
        Progress::Canceled => format!(" scrub: error scrub canceled on {}\n", ctime(scrub.end_s)),
        Progress::Running => {
            let since = match scrub.is_paused {
                false => format!(" scrub: error scrub in progress since {}\n", ctime(scrub.start_s)),
                true => format!(
                    " scrub: error scrub paused since {}\n\terror scrub started on {}\n",
                    ctime(now_s),
                    ctime(scrub.start_s)
                ),
            };
            let fraction = percent(examined, scrub.to_examine_blocks.saturating_add(examined));
            format!("{since}\t{fraction:.2}% done, issued I/O for {examined} error blocks\n")
        }
    }
}

fn rebuild_lines(rebuild: &Rebuild, vdev: &str) -> String {
    let rebuilt = nicebytes(rebuild.rebuilt_bytes);
    match rebuild.progress {
        Progress::Finished => {
            let (time, errors, end) = (span(rebuild.time_ms / 1000), rebuild.errors, ctime(rebuild.end_s));
            format!("  scan: resilvered ({vdev}) {rebuilt} in {time} with {errors} errors on {end}\n")
        }
        Progress::Canceled => format!("  scan: resilver ({vdev}) canceled on {}\n", ctime(rebuild.end_s)),
        Progress::Running => {
            let estimate = nicebytes(rebuild.estimate_bytes);
            let (scanned, issued) = (nicebytes(rebuild.scanned_bytes), nicebytes(rebuild.issued_bytes));
            let fraction = percent(rebuild.scanned_bytes, rebuild.estimate_bytes.saturating_add(1)).min(100.0);
            format!(
                "  scan: resilver ({vdev}) in progress since {}\n\t{scanned} / {estimate} scanned, {issued} / {estimate} \
                 issued\n\t{rebuilt} resilvered, {fraction:.2}% done, no estimated completion time\n",
                ctime(rebuild.start_s)
            )
        }
    }
}

/// What a checkpoint holds on to is not scrubbed.
fn checkpoint_warning(pool: &PoolReport) -> &'static str {
    let created_s = pool.checkpoint.as_ref().and_then(|checkpoint| checkpoint.created_s);
    match (&pool.scan, created_s) {
        (Some(scan), Some(_)) if scan.progress == Progress::Running => {
            "    scan warning: skipping blocks that are only referenced by the checkpoint.\n"
        }
        (Some(scan), Some(created_s)) if scan.end_s >= created_s => {
            "    scan warning: skipped blocks that are only referenced by the checkpoint.\n"
        }
        _ => "",
    }
}

/// The lines `remove:`.
pub fn removal(pool: &PoolReport, now_s: u64) -> String {
    let Some(removal) = &pool.removal else { return String::new() };
    let style = NameStyle { whole_paths: true, ..NameStyle::default() };
    let vdev = pool.top(removal.vdev);
    let name = vdev.map_or_else(|| removal.vdev.to_string(), |vdev| style.name(vdev, &pool.name));
    let copied = nicenum(removal.copied_bytes);
    let mut text = match removal.progress {
        Progress::Finished => {
            let minutes = removal.end_s.saturating_sub(removal.start_s) / 60;
            let (number, end) = (removal.vdev, ctime(removal.end_s));
            let time = format!("{}h{}m", minutes / 60, minutes % 60);
            format!("remove: Removal of vdev {number} copied {copied} in {time}, completed on {end}\n")
        }
        Progress::Canceled => format!("remove: Removal of {name} canceled on {}\n", ctime(removal.end_s)),
        Progress::Running => {
            let copied = removal.copied_bytes.max(1);
            let rate = (copied / now_s.saturating_sub(removal.start_s).max(1)).max(1);
            let minutes = removal.to_copy_bytes.saturating_sub(copied) / rate / 60;
            let left = match minutes / 60 {
                hours if hours < 30 * 24 => format!(", {hours}h{}m to go", minutes % 60),
                _ => ", (copy is slow, no estimated time)".to_owned(),
            };
            let fraction = percent(copied, removal.to_copy_bytes);
            let start = ctime(removal.start_s);
            let (copied, total, rate) = (nicenum(copied), nicenum(removal.to_copy_bytes), nicenum(rate));
            format!(
                "remove: Evacuation of {name} in progress since {start}\n\
                 \t{copied} copied out of {total} at {rate}/s, {fraction:.2}% done{left}\n"
            )
        }
    };
    if removal.mapping_bytes > 0 {
        text += &format!("\t{} memory used for removed device mappings\n", nicenum(removal.mapping_bytes));
    }
    text
}

/// The line `expand:`, and how far it is.
pub fn expansion(pool: &PoolReport, now_s: u64) -> String {
    let Some(expansion) = &pool.expansion else { return String::new() };
    let vdev = pool.top(expansion.vdev);
    let name = vdev.map_or_else(|| expansion.vdev.to_string(), |vdev| NameStyle::default().name(vdev, &pool.name));
    if expansion.progress != Progress::Running {
        let time = span(expansion.end_s.saturating_sub(expansion.start_s));
        let (copied, end) = (nicenum(expansion.copied_bytes), ctime(expansion.end_s));
        return format!("expand: expanded {name} copied {copied} in {time}, on {end}\n");
    }
    let (copied, total) = (expansion.copied_bytes.max(1), expansion.to_copy_bytes);
    let rate = (copied / now_s.saturating_sub(expansion.start_s).max(1)).max(1);
    let left = match total.saturating_sub(copied) / rate {
        seconds if seconds < 30 * 24 * 3600 => format!(", {} to go", span(seconds)),
        _ => ", (copy is slow, no estimated time)".to_owned(),
    };
    let (fraction, start) = (percent(copied, total), ctime(expansion.start_s));
    let (copied, total, rate) = (nicenum(copied), nicenum(total), nicenum(rate));
    format!(
        "expand: expansion of {name} in progress since {start}\n\
         \t{copied} / {total} copied at {rate}/s, {fraction:.2}% done{left}\n"
    )
}

/// The line `checkpoint:`.
pub fn checkpoint(pool: &PoolReport) -> String {
    match &pool.checkpoint {
        None => String::new(),
        Some(Checkpoint { created_s: Some(created_s), bytes }) => {
            format!("checkpoint: created {}, consumes {}\n", ctime(*created_s), nicenum(*bytes))
        }
        Some(Checkpoint { created_s: None, bytes }) => {
            format!("checkpoint: discarding, {} remaining.\n", nicenum(*bytes))
        }
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use format::ids::VdevNumber;

    use super::*;

    fn scan_report(progress: Progress) -> ScanReport {
        ScanReport {
            is_resilver: false,
            progress,
            is_paused: false,
            start_s: 1_000_000_000,
            end_s: 1_000_000_062,
            to_examine_bytes: 4 << 20,
            examined_bytes: 1 << 20,
            skipped_bytes: 0,
            processed_bytes: 512,
            errors: 4,
            issued_bytes: 1 << 20,
            pass_start_s: 1_000_000_000,
            ..ScanReport::default()
        }
    }

    fn pool(scan: ScanReport) -> PoolReport {
        PoolReport { scan: Some(scan), ..PoolReport::default() }
    }

    #[test]
    fn scrubs() {
        let end = ctime(1_000_000_062);
        let finished = scan(&pool(scan_report(Progress::Finished)), 0);
        assert_eq!(finished, format!("  scan: scrub repaired 512B in 00:01:02 with 4 errors on {end}\n"));
        let running = scan(&pool(scan_report(Progress::Running)), 2_000_000_000);
        assert!(running.ends_with(
            "\n\t1M / 4M scanned, 1M / 4M issued\n\t512B repaired, 25.00% done, no estimated completion time\n"
        ));
        let mut paused = scan_report(Progress::Running);
        paused.is_paused = true;
        assert!(scan(&pool(paused), 2_000_000_000).ends_with("25.00% done\n"));
        assert_eq!(scan(&PoolReport::default(), 0), "");
        let mut fast = scan_report(Progress::Running);
        (fast.to_examine_bytes, fast.issued_bytes) = (4 << 30, 1 << 30);
        (fast.examined_bytes, fast.pass_examined_bytes, fast.pass_issued_bytes) = (2 << 30, 2 << 30, 1 << 30);
        fast.spent_paused_s = 36;
        assert!(scan(&pool(fast), 1_000_000_100).ends_with(
            "\n\t2G / 4G scanned at 32M/s, 1G / 4G issued at 16M/s\n\t512B repaired, 25.00% done, 00:03:12 to go\n"
        ));
    }

    #[test]
    fn the_later_of_resilver_and_rebuild() {
        let mut resilver = scan_report(Progress::Finished);
        resilver.is_resilver = true;
        let mut report = pool(resilver);
        let mut rebuild = Rebuild {
            progress: Progress::Finished,
            start_s: 0,
            end_s: 1_000_000_062,
            time_ms: 5_000,
            scanned_bytes: 0,
            issued_bytes: 0,
            rebuilt_bytes: 1 << 20,
            estimate_bytes: 0,
            errors: 0,
        };
        assert!(scan(&report, 0).starts_with("  scan: resilvered 512B in 00:01:02 with"));
        let with = |rebuild| vec![VdevReport { kind: "mirror".into(), rebuild, ..VdevReport::default() }];
        report.root.children = with(Some(rebuild.clone()));
        assert!(scan(&report, 0).starts_with("  scan: resilvered 512B in 00:01:02 with"), "in the same second");
        rebuild.end_s += 1;
        report.root.children = with(Some(rebuild));
        assert!(scan(&report, 0).starts_with("  scan: resilvered (mirror-0) 1M in 00:00:05 with"));
    }

    #[test]
    fn an_expansion_under_way() {
        let running = ExpansionReport {
            progress: Progress::Running,
            vdev: VdevNumber::new(3),
            start_s: 1000,
            end_s: 0,
            to_copy_bytes: 4 << 20,
            copied_bytes: 1 << 20,
        };
        let mut report = PoolReport { expansion: Some(running), ..PoolReport::default() };
        let text = expansion(&report, 1064);
        let (head, rates) = text.split_once('\n').unwrap();
        assert!(head.starts_with("expand: expansion of 3 in progress since "), "{head}");
        assert_eq!(rates, "\t1M / 4M copied at 16K/s, 25.00% done, 00:03:12 to go\n");
        report.expansion.as_mut().unwrap().copied_bytes = 1;
        assert!(expansion(&report, 1064).ends_with("0.00% done, (copy is slow, no estimated time)\n"));
    }

    #[test]
    fn removals() {
        let mut report = PoolReport::default();
        let removal_report = Removal {
            progress: Progress::Finished,
            vdev: VdevNumber::new(2),
            start_s: 1_000_000_000,
            end_s: 1_000_003_720,
            to_copy_bytes: 256 << 10,
            copied_bytes: 256 << 10,
            mapping_bytes: 96,
        };
        report.removal = Some(removal_report);
        let end = ctime(1_000_003_720);
        let text = format!("remove: Removal of vdev 2 copied 256K in 1h2m, completed on {end}\n");
        assert_eq!(removal(&report, 0), text + "\t96 memory used for removed device mappings\n");
    }
}
