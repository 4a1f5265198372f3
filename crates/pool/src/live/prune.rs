//! `zpool ddtprune`: entries of blocks with one pointer leave the flat dedup tables, the oldest first.
//!
//! ```text
//!   percent ─▶ a walk through all entries: how many there are of each age ─▶ what is to go
//!   days ───────────────────────────────────────────────────────────────────┘      │
//!                                   a walk: those that are to go ─▶ DedupChanges::prune ─▶ phase "tables"
//! ```
//!
//! Each group walks through a portion of the tables, as a task. The block of such an entry stays, and its pointer: when
//! that goes, the block is freed as any other ([`super::dedup`]). What comes with the same bytes later is written anew.
//! An entry that the group changes is not old any more, and stays.
//!
//! Source: zpool-ddtprune(8), and OpenZFS's behaviour.

use std::ops::ControlFlow;

use base::{Error, Kind, Result};
use dmu::zap::{Zap, ZapKey};
use format::ddt::{DdtKey, DdtPhys};
use serde::{Deserialize, Serialize};

use super::{LivePool, SyncContext};
use crate::dedup::UNIQUE;
use crate::dedup::directory::{DdtDirectory, checksums};
use crate::dedup::packed::{DdtForm, FLAT_BLOCK, changed_s_of_stored, unpack};

/// Entries that a group looks at: each of those that go may dirty a block.
const PORTION: usize = 20_000;
/// Ages by the binary logarithm of hours.
const AGES: usize = 64;
const HOUR_S: u64 = 3600;

/// Which entries are to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PruneAmount {
    /// Those that have not changed for more than so many seconds.
    Seconds(u64),
    /// The oldest, so many in a hundred.
    Percent(u64),
}

/// How far a walk is.
#[derive(Clone, Copy, Debug, Default)]
struct PruneCursor {
    kind: u8,
    cookie: u64,
}

/// What tells which entries go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PrunePlan {
    /// Those that changed before.
    Before(u64),
    /// As of `now_s`, all that are of a greater age, and so many of that one.
    Oldest { now_s: u64, age: usize, of_age: u64 },
}

impl PrunePlan {
    /// What makes up that part of entries, of whose ages there are so many each.
    fn of(ages: &[u64; AGES], percent: u64, now_s: u64) -> PrunePlan {
        let total: u128 = ages.iter().map(|&count| u128::from(count)).sum();
        let mut left = u64::try_from(total * u128::from(percent) / 100).unwrap_or(u64::MAX);
        for (age, &count) in ages.iter().enumerate().rev() {
            if left <= count {
                return PrunePlan::Oldest { now_s, age, of_age: left };
            }
            left -= count;
        }
        PrunePlan::Oldest { now_s, age: 0, of_age: left }
    }

    /// Whether an entry goes that changed then.
    fn takes(&mut self, changed_s: u64) -> bool {
        match self {
            PrunePlan::Before(second) => changed_s < *second,
            PrunePlan::Oldest { now_s, age, of_age } => match age_of(*now_s, changed_s).cmp(age) {
                std::cmp::Ordering::Less => false,
                std::cmp::Ordering::Greater => true,
                std::cmp::Ordering::Equal => {
                    let is_taken = *of_age > 0;
                    *of_age -= u64::from(is_taken);
                    is_taken
                }
            },
        }
    }
}

fn age_of(now_s: u64, changed_s: u64) -> usize {
    let hours = now_s.saturating_sub(changed_s) / HOUR_S;
    hours.checked_ilog2().map_or(0, |log| log as usize + 1)
}

impl LivePool {
    /// Takes entries of blocks with one pointer out of flat dedup tables. Returns how many.
    ///
    /// Errors: `Invalid` for an amount that makes no sense; `Busy` if that is under way already; those of groups.
    pub fn prune_dedup(&self, amount: PruneAmount) -> Result<u64> {
        let _alone = self.dedup_changes().prune_alone().ok_or_else(|| Error::new(Kind::Busy, "it is under way"))?;
        let now_s = self.env().now_s();
        let invalid = || Error::new(Kind::Invalid, "no such amount");
        let mut plan = match amount {
            PruneAmount::Seconds(seconds) => {
                PrunePlan::Before(now_s.checked_sub(seconds).filter(|second| *second > 0).ok_or_else(invalid)?)
            }
            PruneAmount::Percent(percent @ 1..=100) => {
                let (mut ages, mut at) = ([0; AGES], Some(PruneCursor::default()));
                while let Some(cursor) = at {
                    (at, ages) = self.run(move |context| {
                        let mut ages = ages;
                        let mut count = |_, _, _, changed_s| ages[age_of(now_s, changed_s)] += 1;
                        let next = context.walk_unique(cursor, &mut count)?;
                        Ok((next, ages))
                    })?;
                }
                PrunePlan::of(&ages, percent, now_s)
            }
            PruneAmount::Percent(_) => return Err(invalid()),
        };
        let (mut gone, mut at) = (0, Some(PruneCursor::default()));
        while let Some(cursor) = at {
            let count;
            (at, plan, count) = self.run(move |context| context.prune_portion(cursor, plan))?;
            gone += count;
        }
        Ok(gone)
    }
}

impl SyncContext<'_> {
    /// Takes out what is to go of a portion. Returns where the next begins, what is to go of it, and how many went.
    fn prune_portion(&self, cursor: PruneCursor, mut plan: PrunePlan) -> Result<(Option<PruneCursor>, PrunePlan, u64)> {
        let mut old = Vec::new();
        let next = self.walk_unique(cursor, &mut |kind, key, block, changed_s| {
            if plan.takes(changed_s) {
                old.push(((kind, key), block));
            }
        })?;
        let count = old.len() as u64;
        self.pool.dedup_changes().prune(old);
        Ok((next, plan, count))
    }

    /// Calls `f` with the entries of a portion: number of the checksum, key, block, and when it changed. Returns where the
    /// next portion begins.
    fn walk_unique(
        &self,
        from: PruneCursor,
        f: &mut dyn FnMut(u8, DdtKey, DdtPhys, u64),
    ) -> Result<Option<PruneCursor>> {
        let (mut room, mut cookie) = (PORTION, from.cookie);
        for checksum in checksums().filter(|&checksum| checksum as u8 >= from.kind) {
            let kind = checksum as u8;
            let directory = DdtDirectory::find(self.change.mos, checksum)?;
            let table = directory.tables[UNIQUE].filter(|_| directory.form == DdtForm::Flat);
            let Some(table) = table else { continue };
            let mut failed = Ok(());
            Zap::open(self.change.mos.object(table)?)?.for_each_from(cookie, &mut |entry| {
                cookie = entry.cookie;
                room -= 1;
                let seen = match &entry.name {
                    ZapKey::U64s(words) => seen_entry(words, entry.value.bytes()),
                    _ => Err(Error::corrupt("dedup table with names")),
                };
                match seen {
                    Ok((key, block, changed_s)) if block.references == 1 => f(kind, key, block, changed_s),
                    Ok(_) => {}
                    Err(error) => {
                        failed = Err(error);
                        return ControlFlow::Break(());
                    }
                }
                if room == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            failed?;
            if room == 0 {
                return Ok(Some(PruneCursor { kind, cookie }));
            }
            cookie = 0;
        }
        Ok(None)
    }
}

fn seen_entry(words: &[u64], stored: &[u8]) -> Result<(DdtKey, DdtPhys, u64)> {
    let words = words.try_into().map_err(|_| Error::corrupt("key of a dedup table is not 5 words"))?;
    Ok((DdtKey::from_words(words), unpack(stored)?[FLAT_BLOCK], changed_s_of_stored(stored)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first() {
        let now_s = 1_000_000_000;
        let hours = [0, 1, 1, 5, 5, 5, 100, 5000];
        let mut ages = [0; AGES];
        hours.iter().for_each(|hour| ages[age_of(now_s, now_s - hour * HOUR_S)] += 1);
        for (percent, expect) in [(1, 0), (13, 1), (25, 2), (50, 4), (99, 7), (100, 8)] {
            let mut plan = PrunePlan::of(&ages, percent, now_s);
            let gone = hours.iter().filter(|&hour| plan.takes(now_s - hour * HOUR_S)).count();
            assert_eq!(gone, expect, "{percent}%");
        }
        let mut plan = PrunePlan::of(&ages, 25, now_s);
        assert!(plan.takes(now_s - 5000 * HOUR_S) && !plan.takes(now_s - 5 * HOUR_S));
        let mut plan = PrunePlan::Before(now_s - 50);
        assert!(plan.takes(now_s - 51) && !plan.takes(now_s - 50) && plan.takes(0));
        assert_eq!(PrunePlan::of(&[0; AGES], 100, 5), PrunePlan::Oldest { now_s: 5, age: AGES - 1, of_age: 0 });
        assert_eq!(age_of(0, 77), 0);
    }
}
