use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

const BUDGET: u64 = 100 << 10;
const LIMITS: Limits = Limits { budget: BUDGET, recent: 0, metadata_max: u64::MAX, metadata_min: 0 };

/// A policy with its target and its budget kept, as a cache keeps them.
struct Kept {
    policy: Policy<u64, u64>,
    limits: Limits,
}

impl Kept {
    fn new(limits: Limits) -> Kept {
        Kept { policy: Policy::new(limits), limits }
    }

    fn ask(&mut self, key: u64, bytes: u64, contents: Contents, purpose: AccessPurpose) -> bool {
        if self.policy.get(&key, purpose).is_some() {
            return true;
        }
        let inserted = self.policy.insert(key, key, bytes, contents, purpose);
        if let Some((_, step)) = inserted.ghost {
            self.limits.recent = self.limits.recent.saturating_add_signed(step).min(self.limits.budget);
            self.policy.set_limits(self.limits);
        }
        self.evict();
        false
    }

    fn demand(&mut self, key: u64) -> bool {
        self.ask(key, 1024, Contents::Data, AccessPurpose::Demand)
    }

    fn evict(&mut self) -> Vec<Victim<u64>> {
        let mut victims = Vec::new();
        while self.policy.bytes() > self.limits.budget {
            self.policy.evict(self.policy.bytes() - self.limits.budget, 8, &mut victims);
        }
        victims
    }

    /// Checks that all counts fit together.
    fn check(&self) {
        let policy = &self.policy;
        let mut keys = HashSet::new();
        for state in [ArcState::Recent, ArcState::Frequent] {
            for contents in [Contents::Data, Contents::Metadata] {
                let list = place(state, contents);
                let (mut bytes, mut next) = (0, policy.lists.oldest(list).map(|(at, _)| at));
                while let Some(at) = next {
                    let entry = policy.lists.get(at).unwrap();
                    assert_eq!((entry.state, entry.contents), (state, contents));
                    assert_eq!(policy.index.get(&entry.key), Some(&at));
                    assert!(keys.insert(entry.key), "no key is in two lists");
                    let hash = FxBuildHasher.hash_one(entry.key);
                    assert!(policy.ghosts.iter().all(|ghosts| !ghosts.contains(hash)), "nor a ghost as well");
                    bytes += entry.bytes;
                    next = policy.lists.newer(at);
                }
                assert_eq!(bytes, policy.bytes[list]);
            }
        }
        assert_eq!(keys.len(), policy.index.len());
        let recent = policy.bytes_in(ArcState::Recent) + policy.ghosts[0].bytes();
        let all = policy.bytes() + policy.ghosts[0].bytes() + policy.ghosts[1].bytes();
        assert!(recent <= self.limits.budget && all <= 2 * self.limits.budget);
    }
}

proptest! {
    #[test]
    fn all_counts_fit(ops in prop::collection::vec((0u8..10, 0u64..400, 1u64..8192, any::<bool>()), 0..600)) {
        let mut kept = Kept::new(LIMITS);
        for (op, key, bytes, is_meta) in ops {
            let contents = if is_meta { Contents::Metadata } else { Contents::Data };
            match op {
                0 => {
                    kept.policy.remove(&key);
                }
                1 => {
                    kept.policy.insert(key, key, bytes, contents, AccessPurpose::Demand);
                    kept.evict();
                }
                2 => {
                    kept.limits.metadata_max = bytes;
                    kept.limits.metadata_min = bytes / 2;
                    kept.policy.set_limits(kept.limits);
                }
                3 => {
                    kept.ask(key, bytes, contents, AccessPurpose::Prefetch);
                }
                _ => {
                    kept.ask(key % 60, bytes, contents, AccessPurpose::Demand);
                }
            }
            kept.check();
        }
    }
}

#[test]
fn a_scan_leaves_the_working_set() {
    let mut kept = Kept::new(LIMITS);
    // what is in use takes half the cache
    (0..4).for_each(|_| {
        (0..50).for_each(|key| {
            kept.demand(key);
        })
    });
    let mut hits = 0;
    // a file forty times as large as the cache goes through, in pieces: each block is asked for ten times
    for scanned in 0..4000 {
        (0..10).for_each(|_| {
            kept.demand(1000 + scanned);
        });
        hits += u32::from(kept.demand(scanned % 50));
    }
    assert_eq!(hits, 4000, "nothing that is in use left");
    kept.check();
}

#[test]
fn a_scan_alone_leaves_what_was_used_twice() {
    let mut kept = Kept::new(LIMITS);
    (0..4).for_each(|_| {
        (0..50).for_each(|key| {
            kept.demand(key);
        })
    });
    (0..4000).for_each(|scanned| {
        kept.demand(1000 + scanned);
    });
    // but for the youngest: as nothing came after it, its four uses were one
    assert!((0..49).all(|key| kept.policy.get(&key, AccessPurpose::Prefetch).is_some()));
}

#[test]
fn a_prefetch_promotes_nothing() {
    let mut kept = Kept::new(LIMITS);
    for _ in 0..10 {
        for key in 0..50 {
            kept.ask(key, 1024, Contents::Data, AccessPurpose::Prefetch);
        }
        // so that time passes
        (1000..1010).for_each(|key| {
            kept.ask(key, 1024, Contents::Data, AccessPurpose::Prefetch);
        });
    }
    let first = kept.policy.get(&7, AccessPurpose::Demand).unwrap();
    assert!(first.was_prefetched && first.state == ArcState::Recent);
    assert!(!kept.policy.get(&7, AccessPurpose::Demand).unwrap().was_prefetched);
    (2000..2100).for_each(|key| {
        kept.demand(key);
    });
    assert_eq!(kept.policy.bytes_in(ArcState::Frequent), 0, "the first demand is no second use");
    assert!((0..50).all(|key| kept.policy.get(&key, AccessPurpose::Prefetch).is_none()), "nothing is left of them");
}

#[test]
fn the_target_learns() {
    let mut kept = Kept::new(LIMITS);
    (0..2).for_each(|_| {
        (0..90).for_each(|key| {
            kept.demand(key);
        })
    });
    let before = kept.limits.recent;
    // more than the recent list has room for, asked for again while still remembered
    (0..20).for_each(|round| {
        (0..60).for_each(|i| {
            kept.demand(10_000 + round * 30 + i);
        })
    });
    assert!(kept.limits.recent > before, "recency pays");
    kept.check();
}

#[test]
fn limits_of_metadata() {
    let mut kept = Kept::new(Limits { metadata_max: 20 << 10, metadata_min: 10 << 10, ..LIMITS });
    (0..60).for_each(|key| {
        kept.ask(key, 1024, Contents::Metadata, AccessPurpose::Demand);
    });
    (100..180).for_each(|key| {
        kept.demand(key);
    });
    assert_eq!(kept.policy.bytes_of(Contents::Metadata), 20 << 10, "what is too much left first");
    (200..900).for_each(|key| {
        kept.demand(key);
    });
    assert_eq!(kept.policy.bytes_of(Contents::Metadata), 10 << 10, "what is little stays");
    kept.check();
}
