//! How much memory there is, how much of it others want, and the worker that keeps the cache within it.
//!
//! ```text
//!   /proc/meminfo, memory.max … of all cgroups above us ──▶ Memory ─┐
//!   memory.pressure of ours, or /proc/pressure/memory ─────▶ stall ─┴▶ judge ──▶ c
//! ```
//!
//! Files of the page cache count as free: the kernel gives them up before anything else.
//! What the files say is documented in proc(5), and in the kernel's admin-guide/cgroup-v2 and accounting/psi.

use std::path::{Path, PathBuf};

/// Memory as the tightest limit over this process sees it, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// What there is.
    pub limit: u64,
    /// What cannot be had back without our doing.
    pub used: u64,
    /// What should be left free.
    pub reserve: u64,
}

impl MemoryUse {
    /// What is free, or could be at once.
    pub fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

/// Where memory is looked up.
#[derive(Clone, Debug)]
pub struct Gauge {
    root: PathBuf,
    cgroups: Vec<Cgroup>,
}

/// A cgroup that this process is in.
#[derive(Clone, Debug)]
struct Cgroup {
    path: PathBuf,
    is_v2: bool,
}

impl Gauge {
    /// The machine's, or, for tests, what lies under another root.
    pub fn new(root: impl Into<PathBuf>) -> Gauge {
        let root = root.into();
        let mut cgroups = Vec::new();
        for line in read(&root.join("proc/self/cgroup")).unwrap_or_default().lines() {
            let mut words = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (words.next(), words.next()) else { continue };
            let is_v2 = controllers.is_empty();
            let base = match is_v2 {
                true => root.join("sys/fs/cgroup"),
                false if controllers.split(',').any(|name| name == "memory") => root.join("sys/fs/cgroup/memory"),
                false => continue,
            };
            // a limit of any group above holds as well; ours is the first
            for path in Path::new(path.trim_start_matches('/')).ancestors() {
                cgroups.push(Cgroup { path: base.join(path), is_v2 });
            }
        }
        Gauge { root, cgroups }
    }

    /// The tightest limit; `None` where the system tells nothing.
    pub fn memory(&self, sys_free: Option<u64>) -> Option<MemoryUse> {
        let machine = read(&self.root.join("proc/meminfo")).and_then(|text| {
            let kib = |name: &str| field(&text, name).map(|n| n.saturating_mul(1024));
            let (limit, available) = (kib("MemTotal:")?, kib("MemAvailable:")?);
            let reserve = sys_free.unwrap_or((limit / 64).max(512 << 10));
            Some(MemoryUse { limit, used: limit.saturating_sub(available), reserve })
        });
        let total = machine.map_or(u64::MAX, |memory| memory.limit);
        let groups = self.cgroups.iter().filter_map(Cgroup::memory).filter(|memory| memory.limit < total);
        machine.into_iter().chain(groups).min_by_key(|memory| memory.free().saturating_sub(memory.reserve))
    }

    /// The least of all limits.
    pub fn limit(&self) -> Option<u64> {
        let machine = self.memory(None).map(|memory| memory.limit);
        self.cgroups.iter().filter_map(|group| Some(group.memory()?.limit)).chain(machine).min()
    }

    /// Microseconds that tasks have waited for memory since the machine or the group was started.
    pub fn stalled_us(&self) -> Option<u64> {
        let own = self.cgroups.iter().find(|group| group.is_v2).map(|group| group.path.join("memory.pressure"));
        let text = own.and_then(|path| read(&path)).or_else(|| read(&self.root.join("proc/pressure/memory")))?;
        let some = text.lines().find(|line| line.starts_with("some"))?;
        some.split(' ').find_map(|word| word.strip_prefix("total=")?.parse().ok())
    }
}

impl Cgroup {
    fn memory(&self) -> Option<MemoryUse> {
        let (limit, used) = match self.is_v2 {
            true => ("memory.max", "memory.current"),
            false => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        };
        let number = |name: &str| read(&self.path.join(name))?.trim().parse::<u64>().ok();
        // "max" where there is no limit
        let (limit, used) = (number(limit)?, number(used)?);
        let stat = read(&self.path.join("memory.stat")).unwrap_or_default();
        let prefix = if self.is_v2 { "" } else { "total_" };
        let files = ["inactive_file", "active_file"].map(|name| field(&stat, &format!("{prefix}{name}")).unwrap_or(0));
        Some(MemoryUse { limit, used: used.saturating_sub(files.iter().sum()), reserve: limit / 8 })
    }
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// The number after a name in lines of names and numbers.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    lines.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()?.parse().ok())?)
}

/// The part of a time that tasks spend waiting for memory, from which on the cache gives some back: a tenth.
const STALL_PART: u64 = 10;
/// What it gives back then, and at most takes at once.
const STEP_PART: u64 = 16;

/// What c should be, as it is `c` now and the cache takes `size`; tasks have waited for `stalled_us` of the last
/// `elapsed_us`.
pub(crate) fn judge(memory: MemoryUse, stalled_us: u64, elapsed_us: u64, size: u64, c: u64) -> u64 {
    let free = memory.free();
    if free < memory.reserve {
        return size.min(c).saturating_sub(memory.reserve - free);
    }
    // that files of the page cache come and go counts as waiting, too: only if memory is short at all
    if stalled_us > elapsed_us / STALL_PART && free < 2 * memory.reserve {
        return size.min(c) - size.min(c) / STEP_PART;
    }
    let spare = free.saturating_sub(2 * memory.reserve);
    // nobody needs room that is not used
    if size > c - c / STEP_PART { c + (c / STEP_PART).max(1 << 20).min(spare / 2) } else { c }
}
