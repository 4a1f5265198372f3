//! How fast leaves of raidz and draid are, and which are too slow.

use std::collections::HashMap;

use base::Mutex;
use device::meter::TIME_BUCKETS;
use format::ids::{Guid, VdevNumber};

/// Looks running in which a leaf is too slow until it sits out.
const STRIKES: u32 = 3;
/// Reads of a leaf that say something.
const READS_MIN: u64 = 4;
/// Times that differ by less than this part of what is usual are the same.
const SAME_SHARE: u64 = 16;

/// A histogram of the times that reads took, as the meter has it.
pub(super) type ReadTimes = [u64; TIME_BUCKETS];

/// What is known of how fast leaves are.
#[derive(Default)]
pub(super) struct SitOut {
    state: Mutex<SitOutState>,
}

#[derive(Default)]
struct SitOutState {
    /// Top-level vdevs whose slow leaves sit out by themselves.
    by_itself: Vec<VdevNumber>,
    looked_ns: u64,
    leaves: HashMap<Guid, LeafTimes>,
}

/// Of a leaf, when it was looked at last.
struct LeafTimes {
    reads: ReadTimes,
    strikes: u32,
}

impl SitOut {
    /// Slow leaves of these top-level vdevs sit out by themselves.
    pub(super) fn take_up(&self, tops: Vec<VdevNumber>) {
        self.state.lock().by_itself = tops;
    }

    /// The top-level vdevs that are to be looked at, if the last look is so long ago.
    pub(super) fn due(&self, now_ns: u64, every_ns: u64) -> Vec<VdevNumber> {
        let mut state = self.state.lock();
        if state.by_itself.is_empty() || now_ns.saturating_sub(state.looked_ns) < every_ns {
            return Vec::new();
        }
        state.looked_ns = now_ns;
        state.by_itself.clone()
    }

    /// Those leaves of a vdev that have been too slow for some looks, by how long all reads of each have taken.
    pub(super) fn slow_leaves(&self, reads: &[(Guid, ReadTimes)], insensitivity: u64) -> Vec<Guid> {
        let known = &mut self.state.lock().leaves;
        let mut times = Vec::new();
        for (guid, reads) in reads {
            let leaf = known.entry(*guid).or_insert(LeafTimes { reads: *reads, strikes: 0 });
            times.extend(leaf.renew(*reads).map(|time_ns| (*guid, time_ns)));
        }
        let Some(most_ns) = bound(times.iter().map(|(_, ns)| *ns), insensitivity) else { return Vec::new() };
        let mut slow = Vec::new();
        for (guid, ns) in times {
            let Some(leaf) = known.get_mut(&guid) else { continue };
            leaf.strikes = if ns > most_ns { leaf.strikes + 1 } else { 0 };
            if leaf.strikes >= STRIKES {
                leaf.strikes = 0;
                slow.push(guid);
            }
        }
        slow
    }
}

impl LeafTimes {
    /// How long reads took on average since the last look, in nanoseconds, if there were some.
    fn renew(&mut self, now: ReadTimes) -> Option<u64> {
        let new: Vec<u64> = now.iter().zip(self.reads).map(|(now, before)| now.saturating_sub(before)).collect();
        self.reads = now;
        let count: u64 = new.iter().sum();
        // in the middle between the bounds of a bucket
        let sum: u128 = new.iter().enumerate().map(|(bucket, count)| u128::from(*count) * (3 << bucket) / 2).sum();
        (count >= READS_MIN).then(|| u64::try_from(sum / u128::from(count)).unwrap_or(u64::MAX))
    }
}

/// What is too slow beside others, if there are enough to tell: so many times as far above the third quarter of them as
/// that is above the first.
fn bound(times_ns: impl Iterator<Item = u64>, insensitivity: u64) -> Option<u64> {
    let mut times: Vec<u64> = times_ns.collect();
    times.sort_unstable();
    let quarter = |number: usize| times.get((times.len() - 1) * number / 4).copied();
    let (first, third) = if times.len() < 3 { return None } else { (quarter(1)?, quarter(3)?) };
    let spread = (third - first).max(third / SAME_SHARE);
    Some(third.saturating_add(spread.saturating_mul(insensitivity)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_slow() {
        assert_eq!(bound([100, 100].into_iter(), 50), None);
        assert_eq!(bound([1600, 1600, 90_000].into_iter(), 50), Some(1600 + 100 * 50));
        assert_eq!(bound([100, 200, 300, 400, 500].into_iter(), 2), Some(400 + 200 * 2));
    }

    #[test]
    fn a_slow_leaf_is_found_in_the_third_look() {
        let state = SitOut::default();
        let mut reads: Vec<(Guid, ReadTimes)> = (1..=4).map(|guid| (Guid::new(guid), [0; TIME_BUCKETS])).collect();
        assert!(state.slow_leaves(&reads, 50).is_empty());
        for look in 1..=4 {
            for (guid, times) in &mut reads {
                times[if guid.get() == 3 { 28 } else { 17 }] += 20;
            }
            let slow = state.slow_leaves(&reads, 50);
            assert_eq!(slow, if look == 3 { vec![Guid::new(3)] } else { Vec::new() }, "{look}");
        }
        assert_eq!(state.due(5, 0), Vec::new());
        state.take_up(vec![VdevNumber::new(1)]);
        assert_eq!((state.due(5, 5).len(), state.due(9, 5).len(), state.due(10, 5).len()), (1, 0, 1));
    }

    #[test]
    fn times_since_the_last_look() {
        let mut reads = [0; TIME_BUCKETS];
        let mut times = LeafTimes { reads, strikes: 0 };
        reads[10] = READS_MIN;
        assert_eq!(times.renew(reads), Some(1536));
        assert_eq!(times.renew(reads), None);
        reads[20] += READS_MIN;
        assert_eq!(times.renew(reads), Some(3 << 19));
    }
}
