//! Nodes whose attributes the kernel was told for a moment only: how much room an object takes is known when its group is
//! on disk. When somebody has waited for that, it is told to ask again at once.

use std::collections::HashSet;

use base::Mutex;

/// Parts that are locked apart from each other.
const N_SHARDS: u64 = 16;

/// The nodes that were told in this second and the one before: what was told earlier does not hold any more.
#[derive(Default)]
pub(crate) struct ToldLately {
    shards: [Mutex<Seconds>; N_SHARDS as usize],
}

#[derive(Default)]
struct Seconds {
    now_s: u64,
    now: HashSet<u64>,
    before: HashSet<u64>,
}

impl Seconds {
    fn advance(&mut self, now_s: u64) {
        if now_s != self.now_s {
            let last = std::mem::take(&mut self.now);
            self.before = if now_s == self.now_s + 1 { last } else { HashSet::new() };
            self.now_s = now_s;
        }
    }
}

impl ToldLately {
    /// A node is told now, in seconds since 1970.
    pub(crate) fn add(&self, node: u64, now_s: u64) {
        let mut shard = self.shards[(node % N_SHARDS) as usize].lock();
        shard.advance(now_s);
        shard.now.insert(node);
    }

    /// The nodes whose attributes may hold still, which are forgotten.
    pub(crate) fn take(&self, now_s: u64) -> Vec<u64> {
        let mut nodes = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.advance(now_s);
            let Seconds { now, before, .. } = &mut *shard;
            nodes.extend(now.drain().chain(before.drain()));
        }
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_holds_for_a_second() {
        let told = ToldLately::default();
        for (node, now_s) in [(1, 10), (2, 11), (17, 11), (33, 12), (2, 12)] {
            told.add(node, now_s);
        }
        let mut nodes = told.take(12);
        nodes.sort();
        nodes.dedup();
        assert_eq!(nodes, [2, 17, 33]);
        told.add(5, 12);
        assert_eq!(told.take(14), [0; 0]);
        // a clock that is set back
        told.add(6, 7);
        assert_eq!((told.take(7), told.take(7)), (vec![6], vec![]));
    }
}
