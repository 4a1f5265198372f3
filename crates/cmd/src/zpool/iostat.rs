//! `zpool iostat`: what vdevs read and write, per second.
//!
//! The first report is the average since the pool was imported, the following ones are since the one before.

mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::IsTerminal;

use format::ids::Guid;
use protocol::io_report::{IoCounters, IoReport};
use protocol::pool_report::{PoolReport, VdevReport};

use super::command::{CommandResult, Stop};
use super::names::NameStyle;
use super::pools::{self, OpenPool, Repeat, Timestamp};
use crate::getopt::{self, Opt};
use table::{ColumnGroup, IostatTable};

/// Characters that the columns shown by default take.
const COLUMNS_WIDTH: usize = 42;
/// The column of names is at least so wide.
const NAME_WIDTH_MIN: usize = 10;

/// What is to be shown.
#[derive(Clone, Debug, Default)]
struct IostatOptions {
    style: NameStyle,
    literal: bool,
    scripted: bool,
    /// `-v`, or vdevs are named.
    verbose: bool,
    /// `-y`: not the averages since the import.
    skip_first: bool,
    /// `-n`: headings once only.
    header_once: bool,
    groups: Vec<ColumnGroup>,
    /// Guids of the vdevs that are named; empty for all.
    only: Vec<Guid>,
}

/// A pool, and what it has read and written.
struct PoolIo {
    pool: PoolReport,
    io: IoReport,
}

/// Runs the command.
pub fn run(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "gLPT:vyhplqrwnH", &[]);
    let (mut options, timestamp) = options_of(&parsed.opts)?;
    let mut failed = false;
    let here = subjects(&[], &mut failed)?;
    let (operands, repeat) = interval(parsed.operands, &options, &here)?;
    let names = match choose(operands, &here, &mut options) {
        // it may be one of those that do not answer
        Err(_) if failed => return Ok(false),
        chosen => chosen?,
    };
    if here.is_empty() && !repeat.is_repeated() {
        if !failed {
            eprintln!("no pools available");
        }
        return Ok(false);
    }
    let histograms = options.groups.iter().filter(|group| group.is_histogram()).count();
    if histograms > 0 && options.groups.len() > histograms {
        return Err(Stop::usage("[-r|-w] isn't allowed with [-c|-l|-q]"));
    }
    if histograms > 1 {
        return Err(Stop::usage("Only one of [-r|-w] can be passed at a time"));
    }
    if histograms == 0 {
        options.groups.insert(0, ColumnGroup::Usage);
    }
    watch(&names, &options, timestamp, repeat)
}

fn options_of(opts: &[Opt]) -> Result<(IostatOptions, Timestamp), Stop> {
    let mut options = IostatOptions { style: NameStyle::from_env(), ..IostatOptions::default() };
    let mut timestamp = Timestamp::None;
    for opt in opts {
        match opt {
            Opt::Flag('g') => options.style.guids = true,
            Opt::Flag('L') => options.style.real_paths = true,
            Opt::Flag('P') => options.style.whole_paths = true,
            Opt::Flag('H') => options.scripted = true,
            Opt::Flag('p') => options.literal = true,
            Opt::Flag('v') => options.verbose = true,
            Opt::Flag('y') => options.skip_first = true,
            Opt::Flag('n') => options.header_once = true,
            Opt::Flag('l') => options.groups.push(ColumnGroup::Latency),
            Opt::Flag('q') => options.groups.push(ColumnGroup::Queues),
            Opt::Flag('w') => options.groups.push(ColumnGroup::TimeHistogram),
            Opt::Flag('r') => options.groups.push(ColumnGroup::SizeHistogram),
            Opt::Flag('h') => return Err(Stop::usage("")),
            Opt::Value('T', form) => timestamp = Timestamp::parse(form)?,
            other => return Err(Stop::bad_option(other)),
        }
    }
    // times before queues, whatever the order of the flags
    options.groups.sort_by_key(|group| *group as usize);
    options.groups.dedup();
    Ok((options, timestamp))
}

/// The pools of those names, or all, as they are now.
fn subjects(names: &[String], failed: &mut bool) -> Result<Vec<PoolIo>, Stop> {
    pools::ask_each(names, failed, pool_io)
}

/// The same, without those that have been exported meanwhile.
fn subjects_there(names: &[String], failed: &mut bool) -> Result<Vec<PoolIo>, Stop> {
    pools::ask_listed(|name| names.is_empty() || names.contains(name), failed, pool_io)
}

fn pool_io(mut open: OpenPool) -> Result<PoolIo, Stop> {
    Ok(PoolIo { pool: open.report()?, io: open.io()? })
}

/// Takes interval and count off the end. With `-g`, a number may be a vdev.
fn interval(operands: Vec<String>, options: &IostatOptions, here: &[PoolIo]) -> Result<(Vec<String>, Repeat), Stop> {
    let is_guid = |word: &String| word.parse().is_ok_and(|guid: Guid| here.iter().any(|s| has_guid(&s.pool, guid)));
    let keep = match options.style.guids {
        true => operands.iter().rposition(is_guid).map_or(0, |last| last + 1),
        false => 0,
    };
    let (vdevs, rest) = operands.split_at(keep);
    let (rest, repeat) = Repeat::parse(rest.to_vec())?;
    Ok(([vdevs, &rest].concat(), repeat))
}

fn has_guid(pool: &PoolReport, guid: Guid) -> bool {
    vdevs_of(pool).iter().any(|vdev| vdev.guid == guid)
}

fn vdevs_of(pool: &PoolReport) -> Vec<&VdevReport> {
    std::iter::once(&pool.root).chain(&pool.caches).flat_map(VdevReport::all).collect()
}

/// The names of the pools that are meant: all operands, or the first, or none if all are vdevs. Which
/// vdevs are meant goes to `options`.
fn choose(operands: Vec<String>, here: &[PoolIo], options: &mut IostatOptions) -> Result<Vec<String>, Stop> {
    let is_pool = |name: &String| here.iter().any(|subject| subject.pool.name == *name);
    let find = |names: &[String], pool: Option<&str>| -> Option<Vec<Guid>> {
        let pools = || here.iter().map(|s| &s.pool).filter(|p| pool.is_none_or(|name| p.name == name));
        let one = |name: &String| pools().find_map(|pool| vdev_named(pool, name, options.style));
        names.iter().map(one).collect()
    };
    if operands.is_empty() || operands.iter().all(is_pool) {
        return Ok(operands);
    }
    if let Some(only) = find(&operands, None) {
        (options.only, options.verbose) = (only, true);
        return Ok(Vec::new());
    }
    let (first, rest) = (&operands[0], &operands[1..]);
    if !is_pool(first) {
        return Err(Stop::Failed("Unable to parse pools/vdevs list.\n".to_owned()));
    }
    if let Some(only) = find(rest, Some(first)) {
        (options.only, options.verbose) = (only, true);
        return Ok(vec![first.clone()]);
    }
    let mut text = format!("Expected either a list of pools, or list of vdevs in \"{first}\", but got:\n");
    for name in rest {
        let what = match name {
            name if is_pool(name) => "pool",
            name if find(std::slice::from_ref(name), Some(first)).is_some() => "vdev in this pool",
            name if find(std::slice::from_ref(name), None).is_some() => "vdev in another pool",
            _ => "unknown",
        };
        text += &format!("\t{name} ({what})\n");
    }
    Err(Stop::Usage(text))
}

/// The guid of the vdev of a pool that is called so in any of the usual ways.
fn vdev_named(pool: &PoolReport, name: &str, style: NameStyle) -> Option<Guid> {
    let whole = NameStyle { whole_paths: true, guids: false, ..style };
    let is_called = |vdev: &&VdevReport| {
        let names = [style, NameStyle::default(), whole].map(|style| style.name(vdev, &pool.name));
        vdev.kind != "root" && (names.iter().any(|own| own == name) || vdev.guid.to_string() == name)
    };
    vdevs_of(pool).into_iter().find(is_called).map(|vdev| vdev.guid)
}

/// Shows reports until there are enough.
fn watch(names: &[String], options: &IostatOptions, timestamp: Timestamp, repeat: Repeat) -> CommandResult {
    let mut failed = false;
    let mut before: HashMap<Guid, IoReport> = HashMap::new();
    let (mut iteration, mut pool_count) = (0, 0);
    if options.skip_first {
        // shows its headings at once, as the first report would
        let now = subjects(names, &mut failed)?;
        print!("{}{}", timestamp.line(), if options.verbose { String::new() } else { heading(&now, options) });
        (iteration, pool_count) = (1, now.len());
        before = now.into_iter().map(|subject| (subject.pool.guid, subject.io)).collect();
        repeat.pause();
    }
    repeat.run(|| {
        let now = subjects_there(names, &mut failed)?;
        if now.is_empty() {
            if !failed {
                eprintln!("no pools available");
            }
            pool_count = 0;
            return Ok(!failed);
        }
        if now.len() != pool_count {
            iteration = 0;
            before.clear();
        }
        pool_count = now.len();
        iteration += 1;
        let is_page = !options.header_once && rows_of_screen().is_some_and(|rows| iteration % rows == 0);
        let mut text = timestamp.line();
        if iteration == 1 || options.verbose || is_page {
            text += &heading(&now, options);
        }
        print!("{text}{}", report(&now, &before, options));
        before = now.into_iter().map(|subject| (subject.pool.guid, subject.io)).collect();
        Ok(!failed)
    })
}

/// Lines of the terminal; `None` if it is none.
fn rows_of_screen() -> Option<usize> {
    screen().map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 0)
}

fn screen() -> Option<rustix::termios::Winsize> {
    let out = std::io::stdout();
    out.is_terminal().then(|| rustix::termios::tcgetwinsize(&out).ok()).flatten()
}

fn table(subjects: &[PoolIo], options: &IostatOptions) -> IostatTable {
    let width_of = |subject: &PoolIo| {
        let pool = &subject.pool;
        match options.verbose {
            false => pool.name.len(),
            true => {
                let caches: Vec<&VdevReport> = pool.caches.iter().collect();
                let tree = options.style.width(&[&pool.root], &pool.name, 0);
                tree.max(options.style.width(&caches, &pool.name, 2))
            }
        }
    };
    let widest = subjects.iter().map(width_of).max().unwrap_or(0);
    let room = screen().map_or(widest, |size| usize::from(size.ws_col).saturating_sub(COLUMNS_WIDTH));
    IostatTable {
        groups: options.groups.clone(),
        literal: options.literal,
        scripted: options.scripted,
        name_width: widest.min(room).max(NAME_WIDTH_MIN),
        title: if options.only.is_empty() { "pool" } else { "vdev" },
    }
}

/// The lines above the rows; histograms have their own.
fn heading(subjects: &[PoolIo], options: &IostatOptions) -> String {
    match options.scripted || options.groups[0].is_histogram() {
        true => String::new(),
        false => table(subjects, options).header(),
    }
}

/// All rows, with what was counted since `before`, by guid of the pool.
fn report(subjects: &[PoolIo], before: &HashMap<Guid, IoReport>, options: &IostatOptions) -> String {
    let table = table(subjects, options);
    let has_lines = !options.scripted && !options.groups[0].is_histogram();
    let mut text = String::new();
    for PoolIo { pool, io } in subjects {
        // imported anew, it has counted from the beginning
        let before = before.get(&pool.guid).filter(|before| before.open_ns < io.open_ns);
        let rows = Rows { pool, io, before, options, table: &table };
        let own = rows.all();
        if !own.is_empty() && has_lines && options.verbose && options.only.is_empty() {
            text += &format!("{own}{}\n", table.separator());
        } else {
            text += &own;
        }
    }
    if has_lines && (subjects.len() > 1 && !options.verbose || !options.only.is_empty()) {
        text += &format!("{}\n", table.separator());
    }
    text
}

/// The rows about one pool.
struct Rows<'a> {
    pool: &'a PoolReport,
    io: &'a IoReport,
    before: Option<&'a IoReport>,
    options: &'a IostatOptions,
    table: &'a IostatTable,
}

impl Rows<'_> {
    fn all(&self) -> String {
        let mut text = String::new();
        let root = &self.pool.root;
        self.one(root, 0, &mut text);
        if !self.options.verbose {
            return text;
        }
        root.children.iter().filter(|top| top.is_normal()).for_each(|top| self.tree(top, 2, &mut text));
        for class in ["dedup", "special", "logs"] {
            let is_of_class = |top: &&VdevReport| match class {
                "logs" => top.is_log,
                _ => !top.is_log && !top.is_indirect() && top.bias.as_deref() == Some(class),
            };
            self.section(class, root.children.iter().filter(is_of_class).collect(), &mut text);
        }
        self.section("cache", self.pool.caches.iter().collect(), &mut text);
        text
    }

    fn section(&self, heading: &str, vdevs: Vec<&VdevReport>, out: &mut String) {
        if vdevs.is_empty() {
            return;
        }
        if !self.table.groups[0].is_histogram() && !self.options.scripted && self.options.only.is_empty() {
            *out += &self.table.dashes(heading);
        }
        // OpenZFS ends this line even where it has not begun it, and scripts have got used to that
        *out += "\n";
        vdevs.into_iter().for_each(|vdev| self.tree(vdev, 2, out));
    }

    fn tree(&self, vdev: &VdevReport, depth: usize, out: &mut String) {
        if vdev.is_indirect() || vdev.is_hole() {
            return;
        }
        self.one(vdev, depth, out);
        vdev.children.iter().for_each(|child| self.tree(child, depth + 2, out));
    }

    fn one(&self, vdev: &VdevReport, depth: usize, out: &mut String) {
        let only = &self.options.only;
        if !only.is_empty() && !only.contains(&vdev.guid) {
            return;
        }
        let depth = if only.is_empty() { depth } else { 0 };
        let none = IoCounters::default();
        let of = |io: &'_ IoReport| io.vdevs.get(&vdev.guid).cloned().unwrap_or_default();
        let now = of(self.io).since(&self.before.map_or(none, of));
        let elapsed_ns = self.io.open_ns - self.before.map_or(0, |before| before.open_ns);
        let per_second = if elapsed_ns == 0 { 1.0 } else { 1e9 / elapsed_ns as f64 };
        let name = self.options.style.name(vdev, &self.pool.name);
        if self.table.groups[0].is_histogram() {
            // all that was counted, and later how much it was per second
            let scale = if self.before.is_none() { 1.0 } else { per_second };
            *out += &self.table.histogram(&name, &now, scale);
        } else {
            let space = vdev.space.as_ref().filter(|space| space.size_bytes != 0);
            let space = space.map(|s| [s.allocated_bytes, s.size_bytes.saturating_sub(s.allocated_bytes)]);
            *out += &self.table.row(&name, depth, space, &now, per_second);
        }
    }
}
