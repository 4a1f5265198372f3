//! What readers found damaged, for whoever mends it and writes it down.
//!
//! ```text
//!   a copy is wrong, another is right ──▶ wounded ──▶ the pool, in a group: is the block still there? ─▶ Zio::heal
//!   no copy is right                  ──▶ lost    ──▶ the pool, in a group: the error log on disk
//! ```
//!
//! A reader mends nothing itself: by the time that it writes, the block may have been freed, and its place be
//! another's.

use std::collections::HashMap;

use base::{Bookmark, Error, Kind, Mutex, MutexGuard, Result};
use format::blkptr::BlkPtr;

use crate::Zio;
use crate::gang::{DEPTH_MAX, HEADER_SIZE, header_extent};
use crate::read::{check_shape, extent};

/// Blocks of each kind that are kept in mind. What is more is found again by the next reader.
const BLOCKS_MAX: usize = 50_000;

/// Blocks by where they belong.
type Blocks = HashMap<Bookmark, BlkPtr>;

/// See the top of the file.
#[derive(Default)]
pub struct Damage(Mutex<State>);

#[derive(Default)]
struct State {
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

    /// Takes up to `count` blocks that can be mended.
    pub fn take_wounded(&self, count: usize) -> Vec<(Bookmark, BlkPtr)> {
        let wounded = &mut self.lock().wounded;
        let some: Vec<Bookmark> = wounded.keys().take(count).copied().collect();
        some.into_iter().filter_map(|bookmark| wounded.remove_entry(&bookmark)).collect()
    }

    /// Takes over what another pipeline of the same pool has found.
    pub fn take_from(&self, other: &Damage) {
        let State { wounded, lost } = std::mem::take(&mut *other.lock());
        wounded.iter().for_each(|(bookmark, bp)| self.note_wounded(*bookmark, bp));
        lost.iter().for_each(|(bookmark, bp)| self.note_lost(*bookmark, bp));
    }

    pub(crate) fn note_wounded(&self, bookmark: Bookmark, bp: &BlkPtr) {
        note(&mut self.lock().wounded, bookmark, bp);
    }

    pub(crate) fn note_lost(&self, bookmark: Bookmark, bp: &BlkPtr) {
        note(&mut self.lock().lost, bookmark, bp);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

fn note(blocks: &mut Blocks, bookmark: Bookmark, bp: &BlkPtr) {
    if blocks.len() < BLOCKS_MAX {
        blocks.insert(bookmark, *bp);
    }
}

impl Zio {
    /// What readers have found damaged.
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Writes right bytes to every place of a block that has others, gang members included; how many bytes. The block
    /// has to stay in use until this is done. Errors: of the first copy that has no right bytes, with the others
    /// mended from each other.
    pub fn heal(&self, bp: &BlkPtr) -> Result<u64> {
        let mut healed = 0;
        self.heal_at(bp, 0, &mut healed).map(|()| healed)
    }

    fn heal_at(&self, bp: &BlkPtr, depth: usize, healed: &mut u64) -> Result<()> {
        check_shape(bp)?;
        if depth > DEPTH_MAX {
            return Err(Error::corrupt("gang blocks nested too deep"));
        }
        // the right bytes, which all copies of a kind share
        let (mut header, mut contents) = (None, None);
        let (mut wrong, mut outcome) = (Vec::new(), Ok(()));
        for dva in bp.copies() {
            let (right, extent) = match dva.is_gang() {
                true => (&mut header, header_extent(bp, dva)),
                false => (&mut contents, extent(bp, dva)),
            };
            let is_good = |bytes: &[u8]| match dva.is_gang() {
                true => self.is_good_header(bp, bytes),
                false => self.is_good(bp, bytes),
            };
            let mut good = |bytes: &[u8]| {
                let good = is_good(bytes);
                if good && right.is_none() {
                    *right = Some(bytes.to_vec());
                }
                good
            };
            match self.tree.heal(extent, &mut good) {
                Ok(bytes) => *healed += bytes,
                Err(error) if matches!(error.kind(), Kind::Checksum | Kind::Io) => wrong.push((dva, extent, error)),
                // a copy on a device that is gone is for when it is back
                Err(_) => {}
            }
        }
        for (dva, extent, error) in wrong {
            match if dva.is_gang() { &header } else { &contents } {
                Some(right) => *healed += self.tree.write_over(extent, right)?,
                None => outcome = outcome.and(Err(error)),
            }
        }
        if let Some(header) = header {
            debug_assert_eq!(header.len(), HEADER_SIZE);
            for member in self.members_in(bp, &header)? {
                outcome = outcome.and(self.heal_at(&member, depth + 1, healed));
            }
        }
        outcome
    }
}
