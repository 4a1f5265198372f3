//! What samples add up to: by activity, thread and phase of groups, and whole stacks for a flame graph.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::activity::activity_of;

/// Different stacks that are kept; samples of more count without their functions.
const STACKS_MAX: usize = 1 << 16;

/// Whether a group was on its way to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupPhase {
    /// None was.
    Open,
    /// One waited for operations to end.
    Quiescing,
    /// One was written.
    Syncing,
}

impl GroupPhase {
    /// All of them.
    pub const ALL: [GroupPhase; 3] = [GroupPhase::Open, GroupPhase::Quiescing, GroupPhase::Syncing];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            GroupPhase::Open => "open",
            GroupPhase::Quiescing => "quiescing",
            GroupPhase::Syncing => "syncing",
        }
    }
}

/// A way from the outermost function to the innermost, with the kind of thread before it.
pub type StackPath = Vec<Arc<str>>;

/// Counts of samples.
#[derive(Default)]
pub struct CpuTally {
    by_activity: BTreeMap<&'static str, [u64; 3]>,
    by_thread: BTreeMap<Arc<str>, u64>,
    stacks: HashMap<StackPath, u64>,
    all: u64,
}

impl CpuTally {
    /// Counts a sample of a thread, whose innermost function comes first.
    pub fn count(&mut self, thread: &Arc<str>, functions: &[Arc<str>], phase: GroupPhase) {
        self.all += 1;
        let activity = activity_of(functions.iter().map(|name| &**name));
        self.by_activity.entry(activity).or_default()[phase as usize] += 1;
        *self.by_thread.entry(thread.clone()).or_default() += 1;
        let path: StackPath = std::iter::once(thread).chain(functions.iter().rev()).cloned().collect();
        let is_full = self.stacks.len() >= STACKS_MAX;
        match self.stacks.get_mut(&path) {
            Some(count) => *count += 1,
            None if is_full => *self.stacks.entry(vec![thread.clone()]).or_default() += 1,
            None => drop(self.stacks.insert(path, 1)),
        }
    }

    /// Samples in all.
    pub fn all(&self) -> u64 {
        self.all
    }

    /// Samples of each activity by phase, the most frequent first.
    pub fn activities(&self) -> Vec<(&'static str, [u64; 3])> {
        let mut rows: Vec<_> = self.by_activity.iter().map(|(name, counts)| (*name, *counts)).collect();
        rows.sort_by_key(|(name, counts)| (std::cmp::Reverse(counts.iter().sum::<u64>()), *name));
        rows
    }

    /// Samples of each kind of thread, the most frequent first.
    pub fn threads(&self) -> Vec<(Arc<str>, u64)> {
        let mut rows: Vec<_> = self.by_thread.iter().map(|(name, count)| (name.clone(), *count)).collect();
        rows.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), name.clone()));
        rows
    }

    /// The innermost functions, the most frequent first.
    pub fn functions(&self) -> Vec<(Arc<str>, u64)> {
        let mut counts: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        for (path, count) in &self.stacks {
            // the first name is the thread's
            if let [_, .., innermost] = path.as_slice() {
                *counts.entry(innermost.clone()).or_default() += count;
            }
        }
        let mut rows: Vec<_> = counts.into_iter().collect();
        rows.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), name.clone()));
        rows
    }

    /// All stacks, sorted.
    pub fn stacks(&self) -> BTreeMap<&[Arc<str>], u64> {
        self.stacks.iter().map(|(path, count)| (path.as_slice(), *count)).collect()
    }
}

/// The kind of a thread: its name without the number behind it.
pub fn thread_kind(name: &str) -> &str {
    let kind =
        name.trim_end().trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches(['-', '_', ':', '/', ' ']);
    if kind.is_empty() { name } else { kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_add_up() {
        let name = |text: &str| Arc::<str>::from(text);
        let mut tally = CpuTally::default();
        let of = [name("memcpy"), name("fuse::read"), name("main")];
        (0..3).for_each(|_| tally.count(&name("fuse"), &of, GroupPhase::Open));
        tally.count(&name("sync"), &[name("codec::checksum::x")], GroupPhase::Syncing);
        tally.count(&name("sync"), &[], GroupPhase::Quiescing);
        assert_eq!(tally.all(), 5);
        assert_eq!(tally.activities(), [("copying", [3, 0, 0]), ("checksums", [0, 0, 1]), ("other", [0, 1, 0])]);
        assert_eq!(tally.threads(), [(name("fuse"), 3), (name("sync"), 2)]);
        assert_eq!(tally.functions(), [(name("memcpy"), 3), (name("codec::checksum::x"), 1)]);
        let stacks: Vec<u64> = tally.stacks().into_values().collect();
        assert_eq!(stacks, [3, 1, 1]);
        assert_eq!(["fuse-12", "sync", "7", "io:3"].map(thread_kind), ["fuse", "sync", "7", "io"]);
    }
}
