//! The text of `zpool iostat`: columns under two lines of headings, or a table of buckets for each vdev.
//!
//! ```text
//!                 capacity     operations     bandwidth
//!   pool        alloc   free   read  write   read  write
//!   ----------  -----  -----  -----  -----  -----  -----
//!   tank        1.50G  2.25G      0     12      0  1.50M
//! ```

use protocol::io_report::IoCounters;
use protocol::words::nicenum::{nicenum, nicetime};

/// A group of columns, or the table of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnGroup {
    /// Space, operations and bytes.
    Usage,
    /// `-l`: average times.
    Latency,
    /// `-q`: requests in the queues.
    Queues,
    /// `-w`: requests by time.
    TimeHistogram,
    /// `-r`: requests by size.
    SizeHistogram,
}

/// A heading, and how many columns it is over.
type Heading = (&'static str, usize);

const READ_WRITE: [&str; 2] = ["read", "write"];

impl ColumnGroup {
    /// Whether it is a table of its own for each vdev.
    pub fn is_histogram(self) -> bool {
        matches!(self, ColumnGroup::TimeHistogram | ColumnGroup::SizeHistogram)
    }

    fn headings(self) -> &'static [Heading] {
        const WAITS: [Heading; 4] = [("total_wait", 2), ("disk_wait", 2), ("syncq_wait", 2), ("asyncq_wait", 2)];
        match self {
            ColumnGroup::Usage => &[("capacity", 2), ("operations", 2), ("bandwidth", 2)],
            ColumnGroup::Latency => {
                const { &[WAITS[0], WAITS[1], WAITS[2], WAITS[3], ("scrub", 1), ("trim", 1), ("rebuild", 1)] }
            }
            ColumnGroup::Queues => &[
                ("syncq_read", 2),
                ("syncq_write", 2),
                ("asyncq_read", 2),
                ("asyncq_write", 2),
                ("scrubq_read", 2),
                ("trimq_write", 2),
                ("rebuildq_write", 2),
            ],
            ColumnGroup::TimeHistogram => const { &WAITS },
            ColumnGroup::SizeHistogram => &[
                ("sync_read", 2),
                ("sync_write", 2),
                ("async_read", 2),
                ("async_write", 2),
                ("scrub", 2),
                ("trim", 2),
                ("rebuild", 2),
            ],
        }
    }

    fn columns(self) -> Vec<&'static str> {
        match self {
            ColumnGroup::Usage => ["alloc", "free"].into_iter().chain(READ_WRITE.repeat(2)).collect(),
            ColumnGroup::Latency => READ_WRITE.repeat(4).into_iter().chain(["wait"; 3]).collect(),
            ColumnGroup::Queues => ["pend", "activ"].repeat(7),
            ColumnGroup::TimeHistogram => {
                READ_WRITE.repeat(4).into_iter().chain(["scrub", "trim", "rebuild"]).collect()
            }
            ColumnGroup::SizeHistogram => ["ind", "agg"].repeat(7),
        }
    }

    /// Width of a column, where numbers are exact or not.
    fn width(self, literal: bool) -> usize {
        match self {
            _ if !literal => 5,
            ColumnGroup::Usage => 15,
            ColumnGroup::Latency | ColumnGroup::TimeHistogram => 10,
            ColumnGroup::Queues | ColumnGroup::SizeHistogram => 6,
        }
    }

    /// What the first column of a histogram is called.
    fn title(self) -> &'static str {
        if self == ColumnGroup::TimeHistogram { "latency" } else { "req_size" }
    }
}

/// How everything is laid out.
pub struct IostatTable {
    /// The groups of columns; if the first is a histogram, it is the only one.
    pub groups: Vec<ColumnGroup>,
    /// `-p`: exact numbers.
    pub literal: bool,
    /// `-H`: tabs, and no headings.
    pub scripted: bool,
    /// Width of the column of names.
    pub name_width: usize,
    /// What the column of names is called.
    pub title: &'static str,
}

impl IostatTable {
    fn title(&self) -> &'static str {
        if self.groups[0].is_histogram() { self.groups[0].title() } else { self.title }
    }

    fn columns(&self, forced: Option<usize>) -> impl Iterator<Item = (usize, &'static str)> {
        let of_group = move |group: &ColumnGroup| {
            let width = forced.unwrap_or(group.width(self.literal));
            group.columns().into_iter().map(move |name| (width, name))
        };
        self.groups.iter().flat_map(of_group)
    }

    /// Both lines of headings and the line below them; a histogram has the vdev's name in the first.
    fn header_of(&self, forced: Option<usize>, vdev: Option<&str>) -> String {
        let width = self.name_width.max(self.title().len()).max(vdev.map_or(0, str::len));
        let mut text = format!("{:width$}", vdev.unwrap_or_default());
        for group in &self.groups {
            let column = forced.unwrap_or(group.width(self.literal));
            group.headings().iter().for_each(|&heading| text += &centred(heading, column));
        }
        text += &format!("\n{:width$}", self.title());
        self.columns(forced).for_each(|(column, name)| text += &centred((name, 1), column));
        text + "\n" + &self.separator_of(forced, width) + "\n"
    }

    fn separator_of(&self, forced: Option<usize>, width: usize) -> String {
        let dashes = self.columns(forced).map(|(column, _)| format!("  {}", "-".repeat(column.min(20))));
        "-".repeat(width) + &dashes.collect::<String>()
    }

    /// The lines above the rows.
    pub fn header(&self) -> String {
        self.header_of(None, None)
    }

    /// The line below them, without its end.
    pub fn separator(&self) -> String {
        self.separator_of(None, self.name_width.max(self.title().len()))
    }

    /// A row without numbers, such as `logs`, without its end.
    pub fn dashes(&self, name: &str) -> String {
        let width = self.name_width.max(self.title().len()).max(name.len());
        let dashes = self.columns(None).map(|(column, _)| format!("  {:>column$}", "-"));
        format!("{name:width$}{}", dashes.collect::<String>())
    }

    /// The row of a vdev: its space, allocated and free, if it has any, and its counters per second.
    pub fn row(&self, name: &str, depth: usize, space: Option<[u64; 2]>, io: &IoCounters, scale: f64) -> String {
        let mut text = match self.scripted {
            true => name.to_owned(),
            false => format!("{:depth$}{name:width$}", "", width = self.name_width.saturating_sub(depth)),
        };
        for &group in &self.groups {
            let cells = match group {
                ColumnGroup::Usage => self.usage(space, io, scale),
                ColumnGroup::Latency => self.latencies(io),
                _ => self.queues(io),
            };
            cells.iter().for_each(|cell| text += &self.cell(cell, group.width(self.literal)));
        }
        text + "\n"
    }

    fn cell(&self, text: &str, width: usize) -> String {
        if self.scripted { format!("\t{text}") } else { format!("  {text:>width$}") }
    }

    fn number(&self, number: u64) -> String {
        if self.literal { number.to_string() } else { nicenum(number) }
    }

    fn usage(&self, space: Option<[u64; 2]>, io: &IoCounters, scale: f64) -> Vec<String> {
        let none = if self.literal { "0" } else { "-" };
        let space = space.map_or([none; 2].map(str::to_owned), |space| space.map(|bytes| self.number(bytes)));
        let rates = io.operations.into_iter().chain(io.bytes).map(|n| self.number((n as f64 * scale) as u64));
        space.into_iter().chain(rates).collect()
    }

    fn latencies(&self, io: &IoCounters) -> Vec<String> {
        let time = |histogram: &[u64]| match average(histogram) {
            0 => "-".to_owned(),
            ns if self.literal => ns.to_string(),
            ns => nicetime(ns),
        };
        columns_of_times(io).into_iter().map(time).collect()
    }

    fn queues(&self, io: &IoCounters) -> Vec<String> {
        let known = io.pending.iter().zip(&io.active).flat_map(|(&pending, &active)| [pending, active]);
        known.map(|n| self.number(n)).collect()
    }

    /// The table of a vdev's histogram, `scale` times what was counted.
    pub fn histogram(&self, name: &str, io: &IoCounters, scale: f64) -> String {
        let group = self.groups[0];
        let is_time = group == ColumnGroup::TimeHistogram;
        let columns: Vec<Vec<u64>> = match is_time {
            true => columns_of_times(io).into_iter().map(|h| IoCounters::times(h).to_vec()).collect(),
            false => columns_of_sizes(io).into_iter().map(|h| IoCounters::sizes_of(h).to_vec()).collect(),
        };
        let most = columns.iter().flatten().max().copied().unwrap_or(0);
        let width = if self.literal { most.checked_ilog10().map_or(5, |n| 5.max(n as usize + 1)) } else { 5 };
        let name_width = self.name_width.max(group.title().len());
        let mut text = match self.scripted {
            true => format!("\n{name}\n"),
            false => "\n".to_owned() + &self.header_of(Some(width), Some(name)),
        };
        for bucket in if is_time { 0 } else { SECTOR_BUCKET }..columns[0].len() {
            // times by the end of the bucket, sizes by its beginning
            let value = if is_time { (2u64 << bucket) - 1 } else { 1 << bucket };
            text += &match (self.scripted, is_time) {
                (true, _) => value.to_string(),
                (false, true) => format!("{:name_width$}", nicetime(value)),
                (false, false) => format!("{:name_width$}", nicenum(value)),
            };
            let cells = columns.iter().map(|column| self.number((column[bucket] as f64 * scale) as u64));
            cells.for_each(|cell| text += &self.cell(&cell, width));
            text += "\n";
        }
        if !self.scripted {
            text += &format!("{}\n", "-".repeat(name_width + columns.len() * (width + 2)));
        }
        text
    }
}

/// The bucket of 512 bytes; nothing smaller is asked of a device.
const SECTOR_BUCKET: usize = 9;

/// The histograms behind the columns of times.
fn columns_of_times(io: &IoCounters) -> Vec<&[u64]> {
    io.total.iter().chain(&io.disk).chain(&io.waits).map(Vec::as_slice).collect()
}

/// Those behind the columns of sizes: of requests that were made by themselves, and of those put together.
fn columns_of_sizes(io: &IoCounters) -> Vec<&[u64]> {
    io.sizes.iter().zip(&io.joined_sizes).flat_map(|(own, joined)| [own.as_slice(), joined]).collect()
}

/// Average of a histogram by powers of two, as if everything lay in the middle of its bucket.
fn average(histogram: &[u64]) -> u64 {
    let count: u128 = histogram.iter().map(|&n| u128::from(n)).sum();
    let middle = |bucket: usize| (1u128 << bucket) + (1u128 << bucket) / 2;
    let sum: u128 = histogram.iter().enumerate().map(|(bucket, &n)| u128::from(n) * middle(bucket)).sum();
    sum.checked_div(count).map_or(0, |average| average as u64)
}

/// A heading in the middle of its columns.
fn centred((name, columns): Heading, column: usize) -> String {
    let width = column * columns + 2 * (columns - 1);
    let before = (width / columns).saturating_sub(name.len() / columns);
    format!("  {:before$}{name:rest$}", "", rest = width.saturating_sub(before))
}
