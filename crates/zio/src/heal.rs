//! Mending blocks: the right bytes are written to every place that has others.

use std::iter;

use base::{Bookmark, CopyKind, Error, Kind, Result, ResultExt, count_copy, tunables};
use codec::checksum::Checksum;
use format::blkptr::BlkPtr;
use vdev::{Extent, ExtentCopies, Lacking};

use crate::gang::{DEPTH_MAX, is_good_header, members_in};
use crate::pointer::{check_shape, checksum_kind, extent};
use crate::zio::Zio;

/// How a block is mended.
#[derive(Clone, Copy)]
struct Mending {
    /// See [`Zio::scrub`].
    is_scrub: bool,
    lacking: Lacking,
}

/// What was read ahead of the copies of a block that are no gangs, in their order; where it ends, they are read.
type CopiesAhead<'a> = dyn Iterator<Item = ExtentCopies> + 'a;

/// Blocks that lie next to each other, with what was read of their copies that are no gangs.
pub struct ScrubRun {
    blocks: Vec<((BlkPtr, Bookmark), Vec<ExtentCopies>)>,
}

impl ScrubRun {
    /// The blocks, for those that do not come to verify them.
    pub fn into_blocks(self) -> impl Iterator<Item = (BlkPtr, Bookmark)> {
        self.blocks.into_iter().map(|(block, _)| block)
    }
}

impl Zio {
    /// Writes right bytes to every place of a block that has others, gang members included; how many bytes. The block
    /// has to stay in use until this is done. Errors: of the first copy that has no right bytes, with the others
    /// mended from each other.
    pub fn heal(&self, bp: &BlkPtr, lacking: Lacking) -> Result<u64> {
        let mut healed = 0;
        self.heal_at(bp, (0, None), Mending { is_scrub: false, lacking }, &mut iter::empty(), &mut healed)
            .map(|()| healed)
    }

    /// As [`Zio::heal`], with the bytes of the block, `psize` of them, which come from elsewhere. Errors: `Checksum` if
    /// these are not what the pointer was made for, by a sum that tells; nothing is written then.
    pub fn heal_with(&self, bp: &BlkPtr, right: &[u8]) -> Result<u64> {
        check_shape(bp)?;
        if !self.is_right_for(bp, right) {
            return Err(Error::new(Kind::Checksum, "bytes that are not those of the block"));
        }
        let mut healed = 0;
        let how = Mending { is_scrub: false, lacking: Lacking::Leave };
        self.heal_at(bp, (0, Some(right)), how, &mut iter::empty(), &mut healed).map(|()| healed)
    }

    /// Whether these are the bytes of the block, by a sum that tells.
    pub fn is_right_for(&self, bp: &BlkPtr, bytes: &[u8]) -> bool {
        let tells = checksum_kind(bp).is_ok_and(|kind| !matches!(kind, Checksum::Off | Checksum::NoParity));
        tells && bytes.len() as u64 == bp.psize() && self.sums().is_good(bp, bytes)
    }

    /// As [`Zio::heal`], to see whether all is right: leaves are charged with what is wrong, and a block of
    /// which nothing could be read is an error, too. Its place is noted in [`crate::Damage`] if no copy is right.
    pub fn scrub(&self, bp: &BlkPtr, bookmark: Bookmark, lacking: Lacking) -> Result<u64> {
        self.scrub_ahead(bp, bookmark, lacking, &mut iter::empty())
    }

    /// Reads runs of blocks for [`Zio::scrub_run`], all at once. The blocks of a run lie next to each other; a run that
    /// is so large that reading it ahead is not worth its memory is read later, block by block.
    pub fn read_runs(&self, runs: Vec<Vec<(BlkPtr, Bookmark)>>, lacking: Lacking) -> Vec<ScrubRun> {
        let bytes_max = self.env().tunable(tunables::ZFS_VDEV_AGGREGATION_LIMIT);
        let extents_of = |blocks: &Vec<(BlkPtr, Bookmark)>| -> Vec<Vec<Extent>> {
            let bytes = blocks.iter().fold(0u64, |sum, (bp, _)| sum.saturating_add(bp.psize()));
            match bytes <= bytes_max {
                true => blocks.iter().map(|(bp, _)| plain_copies(bp)).collect(),
                false => vec![Vec::new(); blocks.len()],
            }
        };
        let extents: Vec<Vec<Vec<Extent>>> = runs.iter().map(extents_of).collect();
        let mut ahead = self.tree().read_ahead(extents.iter().flatten().flatten().copied(), lacking).into_iter();
        let mut copies_of = |extents: Vec<Extent>| ahead.by_ref().take(extents.len()).collect::<Vec<_>>();
        let runs = runs.into_iter().zip(extents);
        runs.map(|(blocks, extents)| ScrubRun {
            blocks: blocks.into_iter().zip(extents).map(|(block, extents)| (block, copies_of(extents))).collect(),
        })
        .collect()
    }

    /// As [`Zio::scrub`] of each of the blocks of a run, with what was read of them.
    pub fn scrub_run(&self, run: ScrubRun, lacking: Lacking) -> Vec<((BlkPtr, Bookmark), Result<u64>)> {
        let scrub = |((bp, bookmark), copies): (_, Vec<ExtentCopies>)| {
            let outcome = self.scrub_ahead(&bp, bookmark, lacking, &mut copies.into_iter());
            ((bp, bookmark), outcome)
        };
        run.blocks.into_iter().map(scrub).collect()
    }

    fn scrub_ahead(
        &self,
        bp: &BlkPtr,
        bookmark: Bookmark,
        lacking: Lacking,
        ahead: &mut CopiesAhead<'_>,
    ) -> Result<u64> {
        if bp.is_hole() || bp.is_embedded() {
            return Ok(0);
        }
        let mut healed = 0;
        let outcome = self
            .heal_at(bp, (0, None), Mending { is_scrub: true, lacking }, ahead, &mut healed)
            .map(|()| healed)
            .at_block(bookmark);
        if outcome.as_ref().is_err_and(|error| matches!(error.kind(), Kind::Checksum | Kind::Io)) {
            self.damage().note_lost(bookmark, bp);
        }
        outcome
    }

    /// Mends a block, or a member of one; `known` are its bytes, if they came from elsewhere.
    fn heal_at(
        &self,
        bp: &BlkPtr,
        (depth, known): (usize, Option<&[u8]>),
        how: Mending,
        ahead: &mut CopiesAhead<'_>,
        healed: &mut u64,
    ) -> Result<()> {
        let Mending { is_scrub, lacking } = how;
        check_shape(bp)?;
        if depth > DEPTH_MAX {
            return Err(Error::corrupt("gang blocks nested too deep"));
        }
        // the right bytes, which all copies of a kind share
        let (mut header, mut contents) = (None, known.map(<[u8]>::to_vec));
        let (mut wrong, mut gone, mut outcome) = (Vec::new(), None, Ok(()));
        for dva in bp.copies() {
            let (right, extent) = match dva.is_gang() {
                // with a short header comes what is behind it
                true => (&mut header, self.whole_header(bp, dva)?),
                false => (&mut contents, extent(bp, dva)),
            };
            let is_good = |bytes: &[u8]| match dva.is_gang() {
                true => is_good_header(bp, bytes),
                false => self.sums().is_good(bp, bytes),
            };
            let mut good = |bytes: &[u8]| {
                let good = is_good(bytes);
                if good && right.is_none() {
                    count_copy(CopyKind::FromColumns, bytes.len());
                    *right = Some(bytes.to_vec());
                }
                good
            };
            let tree = self.tree();
            let read = if dva.is_gang() { None } else { ahead.next() };
            let healing = match (is_scrub, read) {
                (true, Some(copies)) => tree.scrub_ahead(copies, lacking, &mut good),
                (true, None) => tree.scrub(extent, lacking, &mut good),
                (false, _) => tree.heal(extent, lacking, &mut good),
            };
            match healing {
                Ok(bytes) => *healed += bytes,
                Err(error) if matches!(error.kind(), Kind::Checksum | Kind::Io) => wrong.push((dva, extent, error)),
                // a copy on a device that is gone is for when it is back
                Err(error) => gone = Some(error),
            }
        }
        if is_scrub && header.is_none() && contents.is_none() && wrong.is_empty() {
            outcome = gone.map_or(Ok(()), Err);
        }
        for (dva, extent, error) in wrong {
            match if dva.is_gang() { &header } else { &contents } {
                Some(right) => *healed += self.tree().write_over(extent, lacking, right)?,
                None => outcome = outcome.and(Err(error)),
            }
        }
        if let Some(header) = header {
            let mut rest = known.unwrap_or_default();
            for member in members_in(bp, &header)? {
                let (part, behind) = rest.split_at_checked(member.psize() as usize).unwrap_or_default();
                let part = Some(part).filter(|part| known.is_some() && self.is_right_for(&member, part));
                outcome = outcome.and(self.heal_at(&member, (depth + 1, part), how, &mut iter::empty(), healed));
                rest = behind;
            }
        }
        outcome
    }
}

/// Where the copies of a block are that are no gangs.
fn plain_copies(bp: &BlkPtr) -> Vec<Extent> {
    let is_on_disk = !bp.is_hole() && !bp.is_embedded() && check_shape(bp).is_ok();
    bp.copies().filter(|dva| is_on_disk && !dva.is_gang()).map(|dva| extent(bp, dva)).collect()
}
