//! What can still be had of a pool: the states that its uberblocks lead to, and how much of each is there.
//!
//! ```text
//!   ring of uberblocks   txg 1207 ─▶ MOS, metadata of all datasets: whole
//!                        txg 1206 ─▶ MOS: whole, but 3 blocks of metadata are not
//!                        txg 1205 ─▶ cannot be opened
//! ```
//!
//! Space that a group frees is used again two groups later, so older states lose their blocks one by one.

use std::collections::BTreeSet;

use base::{Env, Result};
use dmu::traverse::Visit;
use format::ids::Txg;
use format::uberblock::Uberblock;

use crate::check::{BlockKind, CheckOptions, Observer, Verify};
use crate::{Candidate, OpenOptions, Pool, Rewind};

/// Groups before the newest one whose blocks have not been used again: as many as OpenZFS defers frees.
const KEPT_GROUPS: u64 = 2;

/// A state of a pool.
#[derive(Debug)]
pub struct PoolStatePreview {
    /// The group that it is of.
    pub txg: Txg,
    /// When it was written, seconds since 1970.
    pub timestamp_s: u64,
    /// What is there of it, or why it cannot be opened.
    pub found: Result<PreviewFindings>,
}

/// What is there of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviewFindings {
    /// Names of datasets and snapshots.
    pub names: BTreeSet<String>,
    /// Blocks of metadata that no device has any more.
    pub lost_blocks: u64,
    /// Parts that cannot be walked, for want of these.
    pub lost_parts: u64,
}

impl PreviewFindings {
    /// Datasets and snapshots that another state has, and this one has not.
    pub fn lacks<'a>(&'a self, other: &'a PreviewFindings) -> impl Iterator<Item = &'a str> {
        other.names.difference(&self.names).map(String::as_str)
    }

    /// Whether nothing is missing of its metadata.
    pub fn is_whole(&self) -> bool {
        self.lost_blocks == 0 && self.lost_parts == 0
    }
}

/// Looks at nothing.
struct Blind;

impl Observer for Blind {
    fn block(&mut self, _visit: &Visit<'_>, _kind: BlockKind) {}
}

/// Looks at the state of each uberblock, the newest first: all metadata is read. `options` say how a state is opened; which
/// one is of no account.
pub fn preview(env: &Env, candidate: &Candidate, options: &OpenOptions) -> Vec<PoolStatePreview> {
    let of = |uberblock: Uberblock| {
        let options = OpenOptions { rewind: Rewind::Exactly(uberblock.txg), ..options.clone() };
        let found = Pool::open(env, candidate, &options).and_then(|pool| findings(&pool));
        PoolStatePreview { txg: uberblock.txg, timestamp_s: uberblock.timestamp_s, found }
    };
    candidate.uberblocks().into_iter().map(of).collect()
}

/// The group of the newest state whose metadata is whole; if none is, of the newest that can be opened; `None` if none can.
/// Unless it is `extreme`, only of those whose blocks cannot have been used again.
pub fn newest_whole(env: &Env, candidate: &Candidate, options: &OpenOptions, extreme: bool) -> Option<Txg> {
    let mut newest = None;
    let ring = candidate.uberblocks();
    let last = ring.first()?.txg;
    for uberblock in ring.into_iter().filter(|uberblock| extreme || uberblock.txg.plus(KEPT_GROUPS) >= last) {
        let options = OpenOptions { rewind: Rewind::Exactly(uberblock.txg), ..options.clone() };
        let Ok(pool) = Pool::open(env, candidate, &options) else { continue };
        if findings(&pool).is_ok_and(|found| found.is_whole()) {
            return Some(uberblock.txg);
        }
        newest = newest.or(Some(uberblock.txg));
    }
    newest
}

/// The newest state before the last one that can be opened, of those whose blocks cannot have been used again.
pub fn newest_before(env: &Env, candidate: &Candidate, options: &OpenOptions) -> Option<Uberblock> {
    let ring = candidate.uberblocks();
    let last = ring.first()?.txg;
    let is_kept = |uberblock: &Uberblock| uberblock.txg < last && uberblock.txg.plus(KEPT_GROUPS) >= last;
    let can_be_opened = |uberblock: &Uberblock| {
        let options = OpenOptions { rewind: Rewind::Exactly(uberblock.txg), ..options.clone() };
        Pool::open(env, candidate, &options).is_ok()
    };
    ring.into_iter().filter(is_kept).find(can_be_opened)
}

/// What is there of an open pool's metadata. Errors: those that keep it from being walked at all.
pub fn findings(pool: &Pool) -> Result<PreviewFindings> {
    let mut names = BTreeSet::new();
    for dir in pool.dsl().walk()?.into_iter().filter(|dir| dir.phys.head_dataset.is_some()) {
        names.extend(pool.dsl().snapshots(&pool.dsl().head(&dir)?)?.into_iter().map(|snapshot| snapshot.name));
        names.insert(dir.name);
    }
    let report = pool.check(CheckOptions { verify: Verify::Metadata, space: false }, &mut Blind)?;
    Ok(PreviewFindings { names, lost_blocks: report.damaged_blocks, lost_parts: report.lost_parts })
}
