//! Blocks that are there already: a table knows them by checksum and sizes, and counts the pointers to each.
//!
//! ```text
//!   sum, sizes ─▶ RefTable::find ─┬─ a block ─▶ (by bytes: read it, compare) ─▶ RefTable::add ─▶ pointer to it
//!                                 ├─ first ──▶ place ─▶ RefTable::add ─▶ pointer with the dedup bit
//!                                 └─ one with other bytes, or that cannot be read; a full table ─▶ place ─▶ plain pointer
//! ```
//!
//! The table knows blocks of groups on disk and those that this group has placed so far. A plain pointer costs no more
//! than the room of its block; a wrong one would be lost data.

use std::collections::BTreeMap;

use base::{Kind, Result};
use format::blkptr::{BlkPtr, BlkPtrBuilder, Dva};
use format::ddt::{DdtKey, DdtPhys};
use format::ids::Txg;

use super::request::{BlockWrite, DedupMode};
use super::transform::{Transformed, owned, same_as_before, shape};
use crate::issue::BlockSlice;
use crate::pointer::compress_kind;
use crate::refs::Twin;
use crate::zio::Zio;

/// What the search for a block came to.
pub(super) enum TwinSearch {
    /// The block is there; that is the pointer to it.
    Found(BlkPtr),
    /// It is to be the first, which others may take the place of.
    New,
    /// It is to have a place that is its alone.
    Alone,
}

impl Zio {
    /// Says which blocks will be looked for: if what the table has of them is on a device, it is read at one go.
    pub(super) fn prepare_search(&self, requests: &[BlockWrite], transformed: &[Result<Transformed>]) {
        let Some(refs) = self.refs() else { return };
        let mut keys: BTreeMap<u8, Vec<DdtKey>> = BTreeMap::new();
        for (request, transformed) in requests.iter().zip(transformed) {
            if let (true, Ok(Transformed::Bytes(bytes, compress, sum))) =
                (request.policy.dedup != DedupMode::Off, transformed)
            {
                let shape = shape(request, bytes.len() as u64, *compress);
                let bp = BlkPtrBuilder::new(shape, Txg::ZERO).checksum(*sum).build();
                keys.entry(bp.checksum_kind()).or_default().push(DdtKey::of(&bp));
            }
        }
        // one alone is looked for at once
        for (kind, keys) in keys.iter().filter(|(_, keys)| keys.len() > 1) {
            refs.prepare(*kind, keys);
        }
    }

    /// Looks for a block, and counts the pointer if it is there. `builder` has all but addresses. Errors: those of
    /// devices without which the table cannot be read.
    pub(super) fn find_twin(
        &self,
        request: &BlockWrite,
        builder: BlkPtrBuilder,
        bytes: &BlockSlice,
    ) -> Result<TwinSearch> {
        let mode = request.policy.dedup;
        let Some(refs) = self.refs().filter(|_| mode != DedupMode::Off) else { return Ok(TwinSearch::Alone) };
        let new = builder.dedup().build();
        let (kind, copies, key) = (new.checksum_kind(), request.policy.copies, DdtKey::of(&new));
        let block = match refs.find(new.birth(), kind, &key, copies) {
            Ok(Twin::There(block)) => block,
            Ok(Twin::First) => return Ok(TwinSearch::New),
            Ok(Twin::Refused) => return Ok(TwinSearch::Alone),
            Err(error) if matches!(error.kind(), Kind::Checksum | Kind::Corrupt) => {
                tracing::error!(bookmark = %request.bookmark, "a block is not deduplicated: {error}");
                return Ok(TwinSearch::Alone);
            }
            Err(error) => return Err(error),
        };
        let found = at(builder, &key, &block);
        if is_verified(request) && !self.has_bytes(request, &found, bytes) {
            return Ok(TwinSearch::Alone);
        }
        refs.add(kind, &key, copies, &block);
        Ok(TwinSearch::Found(found))
    }

    /// The pointer to a block that has been placed. One that is the first of its kind is told to the table.
    pub(super) fn count_first(&self, search: TwinSearch, copies: u8, placed: BlkPtrBuilder) -> BlkPtr {
        let bp = placed.build();
        match self.refs() {
            Some(refs) if matches!(search, TwinSearch::New) => {
                let block = DdtPhys { dvas: *bp.dvas(), references: 0, birth: bp.birth() };
                refs.add(bp.checksum_kind(), &DdtKey::of(&bp), copies, &block);
                placed.dedup().build()
            }
            _ => bp,
        }
    }

    /// The pointer for a block that was placed past its group, for a log, and is taken into the group now. If it is
    /// as it was before, or one that is there already, that is the pointer; what was placed is the caller's to free then.
    /// Errors: as from looking for a block in the table.
    pub fn adopt(&self, txg: Txg, request: &BlockWrite, placed: &BlkPtr) -> Result<BlkPtr> {
        let (policy, copies) = (request.policy, placed.copies().count());
        let is_of_policy = placed.checksum_kind() == policy.checksum as u8 && copies == usize::from(policy.copies);
        let has_place = !placed.is_hole() && !placed.is_embedded() && !placed.is_gang();
        if !has_place || !is_of_policy {
            return Ok(*placed);
        }
        let kind = compress_kind(placed)?;
        if same_as_before(request, self.tree(), placed.psize(), kind, placed.checksum()) {
            return Ok(request.previous.with_fill(request.fill));
        }
        if policy.dedup == DedupMode::Off {
            return Ok(*placed);
        }
        let bytes = match is_verified(request) {
            false => BlockSlice::new(request.data.clone(), 0..0),
            true => match self.read_physical(placed, request.bookmark) {
                Ok(physical) => owned(physical),
                Err(_) => return Ok(*placed),
            },
        };
        let builder = BlkPtrBuilder::new(shape(request, placed.psize(), kind), txg);
        let builder = builder.checksum(placed.checksum()).fill(request.fill);
        Ok(match self.find_twin(request, builder, &bytes)? {
            TwinSearch::Found(bp) => bp,
            search => {
                let dvas: Vec<Dva> = placed.copies().copied().collect();
                self.count_first(search, policy.copies, builder.at(&dvas))
            }
        })
    }

    /// Whether a block on disk has these bytes.
    fn has_bytes(&self, request: &BlockWrite, bp: &BlkPtr, bytes: &BlockSlice) -> bool {
        // it may be one of this group, that is on its way
        let _ = self.queue().finish();
        self.read_physical(bp, request.bookmark).is_ok_and(|physical| *physical == **bytes)
    }
}

/// Whether the bytes are to be compared: where it is asked for, and where the checksum alone is not enough.
fn is_verified(request: &BlockWrite) -> bool {
    request.policy.dedup == DedupMode::ByBytes || !request.policy.checksum.is_dedup_strong()
}

/// The pointer to a block of a table.
fn at(builder: BlkPtrBuilder, key: &DdtKey, block: &DdtPhys) -> BlkPtr {
    let dvas: Vec<Dva> = key.dvas(block).copied().collect();
    builder.at(&dvas).allocated_in(block.birth).dedup().build()
}
