//! What is shown of the counters, as lines of text.

use base::Shown;
use protocol::words::nicenum::{nicebytes, nicenum};

use super::watch::{Count, DatasetCounts, Watch};

/// Characters of the names of rows, of those of lines that are no table, and of columns.
const LABEL: usize = 14;
const TEXT_LABEL: usize = 10;
const COLUMN: usize = 10;
/// A dataset's name has this width at least.
const NAME_MIN: usize = 12;
/// Columns of a dataset.
const DATASET_COLUMNS: [&str; 4] = ["reads/s", "bytes/s", "writes/s", "bytes/s"];

/// How large a screen is, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters of a line.
    pub columns: usize,
    /// Lines.
    pub rows: usize,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScreenLine {
    /// What it says; no control characters.
    pub text: String,
    /// Whether it is above what it names.
    pub is_heading: bool,
}

/// All that is known, at that time of the day; `wanted` are the pools that were asked for, if any were. On a screen,
/// only what fits on it.
pub fn lines(watch: &Watch, wanted: &[String], clock: &str, screen: Option<Size>) -> Vec<ScreenLine> {
    let mut lines = Vec::new();
    title(&mut lines, watch, wanted, clock);
    if watch.pools().next().is_some() {
        reads(&mut lines, watch);
        ratios(&mut lines, watch);
        arc(&mut lines, watch);
        rates(&mut lines, watch);
        datasets(&mut lines, &watch.datasets(), screen);
    }
    let size = screen.unwrap_or(Size { columns: usize::MAX, rows: usize::MAX });
    lines.truncate(size.rows);
    lines.iter_mut().for_each(|line| line.text = cut(&line.text, size.columns));
    lines
}

fn title(lines: &mut Vec<ScreenLine>, watch: &Watch, wanted: &[String], clock: &str) {
    let pools: Vec<&str> = watch.pools().collect();
    let absent: Vec<&str> = wanted.iter().map(String::as_str).filter(|name| !pools.contains(name)).collect();
    let mut text = format!("cenote top  {clock}  ");
    text += &match pools.is_empty() {
        true if absent.is_empty() => "no pool is in use".to_owned(),
        true => String::new(),
        false => format!("{}  last {:.1} s", pools.join(", "), watch.seconds()),
    };
    if !absent.is_empty() {
        text += &format!("  not in use: {}", absent.join(", "));
    }
    lines.push(ScreenLine { text: Shown(text.trim_end()).to_string(), is_heading: false });
}

/// Where blocks came from that somebody, or a reader ahead, asked for.
fn reads(lines: &mut Vec<ScreenLine>, watch: &Watch) {
    let arc = |name| watch.count("arcstats", name);
    let (hits, misses, l2arc) = (arc("hits"), arc("misses"), arc("l2_hits"));
    let all = hits.plus(misses);
    heading(lines, "READS FROM", &["blocks/s", "share", "in all", "share"]);
    // pages that the kernel has are read without anybody else being asked
    let filled = watch.count_datasets("page_cache_fill");
    let text = format!("        not known; took {}/s, {} in all", byte_rate(filled), nicebytes(filled.all));
    row(lines, "page cache", [text]);
    let sources =
        [("ARC, MRU", arc("mru_hits")), ("ARC, MFU", arc("mfu_hits")), ("L2ARC", l2arc), ("disks", misses.less(l2arc))];
    for (name, count) in sources {
        let [last, ever] = count.of(all).map(percent);
        row(lines, name, [rate(count), last, nicenum(count.all), ever]);
    }
}

fn ratios(lines: &mut Vec<ScreenLine>, watch: &Watch) {
    let ratio = |hits: &[&str], misses: &[&str]| {
        let sum =
            |names: &[&str]| names.iter().map(|name| watch.count("arcstats", name)).fold(Count::default(), Count::plus);
        let hits = sum(hits);
        hits.of(hits.plus(sum(misses))).map(percent)
    };
    let columns = [
        ("ARC", ratio(&["hits"], &["misses"])),
        ("data", ratio(&["demand_data_hits"], &["demand_data_misses"])),
        ("metadata", ratio(&["demand_metadata_hits"], &["demand_metadata_misses"])),
        (
            "prefetch",
            ratio(
                &["prefetch_data_hits", "prefetch_metadata_hits"],
                &["prefetch_data_misses", "prefetch_metadata_misses"],
            ),
        ),
        ("L2ARC", ratio(&["l2_hits"], &["l2_misses"])),
    ];
    heading(lines, "HIT RATIO", &columns.each_ref().map(|(name, _)| *name));
    row(lines, "last", columns.each_ref().map(|(_, [last, _])| last.clone()));
    row(lines, "in all", columns.each_ref().map(|(_, [_, all])| all.clone()));
}

fn arc(lines: &mut Vec<ScreenLine>, watch: &Watch) {
    let size = |name| nicebytes(watch.size("arcstats", name));
    let ghosts = |of: &str| watch.count("arcstats", &format!("{of}_ghost_hits"));
    let [mru, mfu] = ["mru", "mfu"].map(ghosts);
    let none = String::new;
    heading(lines, "ARC", &["size", "target", "most", "MRU", "MFU", "metadata"]);
    let held = ["size", "c", "c_max", "mru_size", "mfu_size", "metadata_size"].map(size);
    row(lines, "held", held);
    let rows = [
        ("ghosts", ["mru_ghost_size", "mfu_ghost_size"].map(size)),
        ("ghost hits/s", [mru, mfu].map(rate)),
        ("in all", [mru, mfu].map(|count| nicenum(count.all))),
    ];
    for (name, [mru, mfu]) in rows {
        row(lines, name, [none(), none(), none(), mru, mfu]);
    }
}

/// What is done a second beside.
fn rates(lines: &mut Vec<ScreenLine>, watch: &Watch) {
    let count = |table: &str, name: &str| rate(watch.count(table, name));
    let bytes = |table: &str, name: &str| byte_rate(watch.count(table, name));
    let arc = |name| count("arcstats", name);
    let held = ["l2_size", "l2_asize"].map(|name| watch.size("arcstats", name));
    let l2arc = match held {
        [0, 0] => "empty, or no cache device".to_owned(),
        [size, stored] => format!("holds {}, stored as {}", nicebytes(size), nicebytes(stored)),
    };
    let [fed, found] = ["l2_write_bytes", "l2_read_bytes"].map(|name| bytes("arcstats", name));
    let hits = arc("l2_hits");
    text(lines, "L2ARC", &format!("{l2arc}; fed {fed}/s, read {found}/s, {hits} hits/s"));
    let [ahead, unforeseen, issued] = ["hits", "misses", "io_issued"].map(|name| count("zfetchstats", name));
    let used = arc("demand_hit_predictive_prefetch");
    text(
        lines,
        "PREFETCH",
        &format!("{ahead} hits/s, {unforeseen} misses/s; {issued} blocks/s read ahead, {used}/s used"),
    );
    let commits = count("zil", "zil_commit_count");
    let [slog, normal, in_place] =
        ["zil_itx_metaslab_slog_write", "zil_itx_metaslab_normal_write", "zil_itx_indirect_bytes"]
            .map(|name| bytes("zil", name));
    let to = format!("to log vdevs {slog}/s, pool {normal}/s, in place {in_place}/s");
    text(lines, "LOG", &format!("{commits} commits/s; {to}"));
    let [reads, writes] = ["reads", "writes"].map(|name| count("io", name));
    let [read, written] = ["nread", "nwritten"].map(|name| bytes("io", name));
    text(lines, "DISKS", &format!("{reads} reads/s, {read}/s; {writes} writes/s, {written}/s"));
}

fn datasets(lines: &mut Vec<ScreenLine>, datasets: &[DatasetCounts], screen: Option<Size>) {
    let longest = datasets.iter().map(|dataset| dataset.name.chars().count()).max().unwrap_or(0);
    let room = screen.map_or(usize::MAX, |size| size.columns.saturating_sub(COLUMN * DATASET_COLUMNS.len()));
    let width = longest.min(room).max(NAME_MIN);
    let line = |name: &str, cells: [String; 4]| {
        format!("{:<width$}{}", cut_head(&Shown(name).to_string(), width), columns(&cells))
    };
    lines.push(ScreenLine { text: line("DATASET", DATASET_COLUMNS.map(str::to_owned)), is_heading: true });
    let free = screen.map_or(usize::MAX, |size| size.rows.saturating_sub(lines.len()));
    let shown = if datasets.len() > free { free.saturating_sub(1) } else { datasets.len() };
    for DatasetCounts { name, reads, read_bytes, writes, written_bytes, .. } in &datasets[..shown] {
        let cells = [rate(*reads), byte_rate(*read_bytes), rate(*writes), byte_rate(*written_bytes)];
        lines.push(ScreenLine { text: line(name, cells), is_heading: false });
    }
    if shown < datasets.len() {
        lines.push(ScreenLine { text: format!("and {} more", datasets.len() - shown), is_heading: false });
    }
}

fn heading(lines: &mut Vec<ScreenLine>, label: &str, cells: &[&str]) {
    let text = format!("{label:<LABEL$}{}", columns(cells));
    lines.push(ScreenLine { text, is_heading: true });
}

fn row<const N: usize>(lines: &mut Vec<ScreenLine>, label: &str, cells: [String; N]) {
    lines.push(ScreenLine { text: format!("  {label:<0$}{1}", LABEL - 2, columns(&cells)), is_heading: false });
}

fn text(lines: &mut Vec<ScreenLine>, label: &str, text: &str) {
    lines.push(ScreenLine { text: format!("{label:<TEXT_LABEL$}{text}"), is_heading: false });
}

fn columns(cells: &[impl AsRef<str>]) -> String {
    cells.iter().map(|cell| format!("{:>COLUMN$}", cell.as_ref())).collect()
}

/// The beginning of a text, with a sign that there is more.
fn cut(text: &str, width: usize) -> String {
    if text.chars().nth(width).is_none() {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain((width > 0).then_some('+')).collect()
}

/// The end of a name, in which names differ most.
fn cut_head(name: &str, width: usize) -> String {
    match name.chars().count().checked_sub(width) {
        None | Some(0) => name.to_owned(),
        Some(more) => format!("+{}", name.chars().skip(more + 1).collect::<String>()),
    }
}

fn percent(part: Option<f64>) -> String {
    part.map_or("-".to_owned(), |part| format!("{:.1}%", 100.0 * part))
}

/// A rate; what is slow has a fraction.
fn rate(count: Count) -> String {
    match count.per_s {
        slow if slow > 0.0 && slow < 9.95 => format!("{slow:.1}"),
        fast => nicenum(fast.round() as u64),
    }
}

fn byte_rate(count: Count) -> String {
    nicebytes(count.per_s.round() as u64)
}
