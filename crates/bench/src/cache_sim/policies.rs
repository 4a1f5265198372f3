//! The policies that are compared: textbook ones, and that of the cache.
//!
//! All count bytes; where a paper counts pages, with pages of one size it is the same.

use std::collections::HashMap;

use arc::policy::{AccessPurpose, ArcState, Contents, Limits, Policy};

use crate::queue::KeyQueue;

/// Those that are compared unless told otherwise.
pub(crate) const NAMES: [&str; 6] = ["lru", "2q", "s3-fifo", "arc", "cenote", "cenote-32"];

/// A cache without contents.
pub(crate) trait Simulated {
    /// Whether a key is there; it is afterwards.
    fn request(&mut self, key: u64, bytes: u64) -> bool;
}

/// A policy by its name, empty, for so many bytes.
pub(crate) fn new(name: &str, bytes: u64) -> Option<Box<dyn Simulated>> {
    Some(match name {
        "lru" => Box::new(Lru { bytes_max: bytes, queue: KeyQueue::default() }),
        "arc" => Box::new(Arc { bytes_max: bytes, ..Arc::default() }),
        "2q" => Box::new(TwoQueues { bytes_max: bytes, ..TwoQueues::default() }),
        "s3-fifo" => Box::new(S3Fifo { bytes_max: bytes, ..S3Fifo::default() }),
        "cenote" => Box::new(Cenote::new(bytes, 1)),
        _ => Box::new(Cenote::new(bytes, name.strip_prefix("cenote-")?.parse().ok().filter(|shards| *shards > 0)?)),
    })
}

struct Lru {
    bytes_max: u64,
    queue: KeyQueue,
}

impl Simulated for Lru {
    fn request(&mut self, key: u64, bytes: u64) -> bool {
        let hit = self.queue.take(key).is_some();
        self.queue.push(key, bytes);
        self.queue.trim(self.bytes_max);
        hit
    }
}

/// Megiddo and Modha, FAST 2003, figure 4. Its names: T1 and T2 are held, B1 and B2 remembered.
#[derive(Default)]
struct Arc {
    bytes_max: u64,
    p: u64,
    t1: KeyQueue,
    t2: KeyQueue,
    b1: KeyQueue,
    b2: KeyQueue,
}

impl Arc {
    fn replace(&mut self, bytes: u64, is_in_b2: bool) {
        while self.t1.bytes() + self.t2.bytes() + bytes > self.bytes_max {
            let from_t1 = self.t1.bytes() > self.p || is_in_b2 && self.t1.bytes() == self.p;
            let (from, to) = match from_t1 && self.t1.bytes() > 0 || self.t2.bytes() == 0 {
                true => (&mut self.t1, &mut self.b1),
                false => (&mut self.t2, &mut self.b2),
            };
            let Some((key, bytes)) = from.pop() else { return };
            to.push(key, bytes);
        }
    }
}

impl Simulated for Arc {
    fn request(&mut self, key: u64, bytes: u64) -> bool {
        if self.t1.take(key).is_some() || self.t2.take(key).is_some() {
            self.t2.push(key, bytes);
            return true;
        }
        let (b1, b2) = (self.b1.bytes(), self.b2.bytes());
        if self.b1.take(key).is_some() {
            self.p = (self.p + bytes * (b2 / b1).max(1)).min(self.bytes_max);
            self.replace(bytes, false);
            self.t2.push(key, bytes);
        } else if self.b2.take(key).is_some() {
            self.p = self.p.saturating_sub(bytes * (b1 / b2).max(1));
            self.replace(bytes, true);
            self.t2.push(key, bytes);
        } else {
            if self.t1.bytes() + bytes > self.bytes_max && self.b1.bytes() == 0 {
                // T1 has everything: its oldest is not even remembered
                self.t1.trim(self.bytes_max.saturating_sub(bytes));
            }
            self.b1.trim(self.bytes_max.saturating_sub(self.t1.bytes() + bytes));
            self.replace(bytes, false);
            let all = self.t1.bytes() + self.t2.bytes() + self.b1.bytes();
            self.b2.trim((2 * self.bytes_max).saturating_sub(all + bytes));
            self.t1.push(key, bytes);
        }
        false
    }
}

/// Johnson and Shasha, VLDB 1994, the full version, with the sizes that they advise.
#[derive(Default)]
struct TwoQueues {
    bytes_max: u64,
    am: KeyQueue,
    a1_in: KeyQueue,
    a1_out: KeyQueue,
}

impl Simulated for TwoQueues {
    fn request(&mut self, key: u64, bytes: u64) -> bool {
        if self.am.take(key).is_some() {
            self.am.push(key, bytes);
            return true;
        }
        if self.a1_in.contains(key) {
            return true;
        }
        let is_known = self.a1_out.take(key).is_some();
        while self.am.bytes() + self.a1_in.bytes() + bytes > self.bytes_max {
            if self.a1_in.bytes() > self.bytes_max / 4 || self.am.bytes() == 0 {
                let Some((key, bytes)) = self.a1_in.pop() else { break };
                self.a1_out.push(key, bytes);
                self.a1_out.trim(self.bytes_max / 2);
            } else {
                self.am.pop();
            }
        }
        if is_known {
            self.am.push(key, bytes)
        } else {
            self.a1_in.push(key, bytes)
        }
        false
    }
}

/// Yang and others, "FIFO queues are all you need for cache eviction", SOSP 2023: a tenth for what is new.
#[derive(Default)]
struct S3Fifo {
    bytes_max: u64,
    small: KeyQueue,
    main: KeyQueue,
    ghost: KeyQueue,
    uses: HashMap<u64, u8>,
}

impl S3Fifo {
    fn evict_small(&mut self) {
        while let Some((key, bytes)) = self.small.pop() {
            if self.uses.get(&key).is_some_and(|uses| *uses > 1) {
                self.uses.insert(key, 0);
                self.main.push(key, bytes);
                continue;
            }
            self.uses.remove(&key);
            self.ghost.take(key);
            self.ghost.push(key, bytes);
            self.ghost.trim(self.bytes_max * 9 / 10);
            return;
        }
    }

    fn evict_main(&mut self) {
        while let Some((key, bytes)) = self.main.pop() {
            match self.uses.get_mut(&key).filter(|uses| **uses > 0) {
                Some(uses) => {
                    *uses -= 1;
                    self.main.push(key, bytes);
                }
                None => {
                    self.uses.remove(&key);
                    return;
                }
            }
        }
    }
}

impl Simulated for S3Fifo {
    fn request(&mut self, key: u64, bytes: u64) -> bool {
        if let Some(uses) = self.uses.get_mut(&key) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        let is_known = self.ghost.take(key).is_some();
        while self.small.bytes() + self.main.bytes() + bytes > self.bytes_max {
            let is_small = self.small.bytes() > self.bytes_max / 10 || self.main.bytes() == 0;
            if is_small {
                self.evict_small()
            } else {
                self.evict_main()
            }
            if self.uses.is_empty() {
                break;
            }
        }
        self.uses.insert(key, 0);
        if is_known {
            self.main.push(key, bytes)
        } else {
            self.small.push(key, bytes)
        }
        false
    }
}

/// The policy of the cache: shards of it, under one budget and one target, as the cache has them.
struct Cenote {
    bytes_max: u64,
    target: u64,
    bytes: u64,
    shards: Vec<Policy<u64, ()>>,
    next: usize,
}

impl Cenote {
    fn new(bytes_max: u64, shards: u64) -> Cenote {
        let limits = Cenote::limits(bytes_max, 0, shards);
        let shards = (0..shards).map(|_| Policy::new(limits)).collect();
        Cenote { bytes_max, target: 0, bytes: 0, shards, next: 0 }
    }

    fn limits(bytes_max: u64, target: u64, shards: u64) -> Limits {
        Limits { budget: bytes_max / shards, recent: target / shards, metadata_max: u64::MAX, metadata_min: 0 }
    }
}

impl Simulated for Cenote {
    fn request(&mut self, key: u64, bytes: u64) -> bool {
        let count = self.shards.len();
        let shard = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % count;
        if self.shards[shard].get(&key, AccessPurpose::Demand).is_some() {
            return true;
        }
        let inserted = self.shards[shard].insert(key, (), bytes, Contents::Data, AccessPurpose::Demand);
        self.bytes += bytes;
        if let Some((_, step)) = inserted.ghost {
            self.target = self.target.saturating_add_signed(step).min(self.bytes_max);
        }
        while self.bytes > self.bytes_max {
            let mut victims = Vec::new();
            let shard = &mut self.shards[self.next % count];
            self.next += 1;
            shard.set_limits(Cenote::limits(self.bytes_max, self.target, count as u64));
            let over = shard.bytes().saturating_sub(self.bytes_max / count as u64);
            shard.evict(over.min(self.bytes - self.bytes_max).max(u64::from(count == 1)), usize::MAX, &mut victims);
            self.bytes -= victims.iter().map(|victim| victim.bytes).sum::<u64>();
        }
        debug_assert_eq!(self.bytes, self.shards.iter().map(Policy::bytes).sum::<u64>());
        debug_assert!(self.shards[0].bytes_in(ArcState::Recent) <= self.bytes);
        false
    }
}
