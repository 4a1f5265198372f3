//! What readers found damaged, until it is mended or written down.
//!
//! ```text
//!   a copy is wrong, another is right ──▶ wounded ──▶ the pool, in a group: is the block still there? ─▶ Zio::heal
//!   no copy is right                  ──▶ lost    ──▶ the pool, in a group: the error log on disk
//! ```
//!
//! A reader mends nothing itself: by the time that it writes, the block may have been freed, and its place be
//! another's.

use std::collections::HashMap;

use base::{Bookmark, Mutex, MutexGuard};
use format::blkptr::BlkPtr;

/// Blocks of each kind that are kept in mind. What is more is found again by the next reader.
const BLOCKS_MAX: usize = 50_000;

/// Blocks by where they belong.
type Blocks = HashMap<Bookmark, BlkPtr>;

/// See the top of the file.
#[derive(Default)]
pub struct Damage(Mutex<DamageState>);

#[derive(Default)]
struct DamageState {
    wounded: Blocks,
    lost: Blocks,
}

impl Damage {
    /// Whether anything waits to be mended or written down.
    pub fn is_empty(&self) -> bool {
        let state = self.lock();
        state.wounded.is_empty() && state.lost.is_empty()
    }

    /// Blocks without a right copy that have not been taken yet.
    pub fn lost(&self) -> Vec<(Bookmark, BlkPtr)> {
        self.lock().lost.iter().map(|(bookmark, bp)| (*bookmark, *bp)).collect()
    }

    /// Takes the blocks without a right copy.
    pub fn take_lost(&self) -> Vec<(Bookmark, BlkPtr)> {
        std::mem::take(&mut self.lock().lost).into_iter().collect()
    }

    /// Forgets a block without a right copy, wherever it was found: it has been mended.
    pub fn forget_lost(&self, mended: &BlkPtr) {
        self.lock().lost.retain(|_, bp| bp != mended);
    }

    /// Takes up to `count` blocks that can be mended.
    pub fn take_wounded(&self, count: usize) -> Vec<(Bookmark, BlkPtr)> {
        let wounded = &mut self.lock().wounded;
        let some: Vec<Bookmark> = wounded.keys().take(count).copied().collect();
        some.into_iter().filter_map(|bookmark| wounded.remove_entry(&bookmark)).collect()
    }

    /// Takes over what another pipeline of the same pool has found.
    pub fn take_from(&self, other: &Damage) {
        let DamageState { wounded, lost } = std::mem::take(&mut *other.lock());
        wounded.iter().for_each(|(bookmark, bp)| self.note_wounded(*bookmark, bp));
        lost.iter().for_each(|(bookmark, bp)| self.note_lost(*bookmark, bp));
    }

    pub(crate) fn note_wounded(&self, bookmark: Bookmark, bp: &BlkPtr) {
        note(&mut self.lock().wounded, bookmark, bp);
    }

    pub(crate) fn note_lost(&self, bookmark: Bookmark, bp: &BlkPtr) {
        note(&mut self.lock().lost, bookmark, bp);
    }

    fn lock(&self) -> MutexGuard<'_, DamageState> {
        self.0.lock()
    }
}

fn note(blocks: &mut Blocks, bookmark: Bookmark, bp: &BlkPtr) {
    if blocks.len() < BLOCKS_MAX {
        blocks.insert(bookmark, *bp);
    }
}
