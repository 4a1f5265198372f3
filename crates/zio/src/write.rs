//! Writing blocks, and freeing them, in stages.
//!
//! | stage | what it has then | where |
//! |---|---|---|
//! | asked for | [`BlockWrite`]: contents, policy, previous pointer | `request` |
//! | transform | `Transformed`: a pointer that needs no more, or bytes and their sum | `transform` |
//! | place | [`PlacedBlock`]: the pointer, and an `ExtentWrite` for each copy or piece | here, `gang` |
//! | issue | nothing more: the writes are on their way, those of logs past the others | `issue`, `log` |
//! | done | [`Zio::finish_writes`], [`Zio::flush_writes`] | here |
//!
//! ```text
//!   contents ─┬─ all zero ──────────────▶ hole
//!             ├─ compress ─ fits in 112 ▶ embedded pointer
//!             │      │
//!             └──────┴─▶ checksum ─┬─ as it was ─▶ previous pointer
//!                                  ├─ there already ▶ pointer to that
//!                                  └─▶ allocate ─▶ pointer      the caller has it now
//!                                         │ no run long enough
//!                                         ├──▶ gang block
//!                                         ▼
//!                                       queue ─▶ vdev           the bytes follow
//! ```
//!
//! Compression and checksums run on all workers; allocation is in the order of the requests, so that
//! what is written together lies together. A pointer is returned before its bytes are on the devices:
//! its holder keeps the contents until [`Zio::finish_writes`] has returned, and reads nothing by it
//! before. What could not be written is kept for [`Zio::retry_writes`], and so is what is not flushed yet.
//!
//! A block that is freed in the transaction group that it was born in gives its space back at once.
//! The same address and birth may then belong to another block; so a cache that goes by these must
//! not keep such a block, nor one that was written anew in its place.
//!
//! A block that may be deduplicated is looked for before it gets a place of its own (`dedup`).

mod dedup;
mod gang;
mod request;
#[cfg(test)]
mod tests;
mod transform;

use base::{Block, Bookmark, Endian, Error, Kind, Result, ResultExt};
use format::blkptr::{BlkPtr, BlkPtrBuilder, Dva};
use format::ids::Txg;

use crate::alloc::{Allocator, Class};
use crate::effort;
use crate::gang::HEADER_SIZE;
use crate::issue::{BlockSlice, ExtentWrite};
use crate::on_failure::OnFailure;
use crate::zio::{Zio, read_only};
use dedup::TwinSearch;
pub use request::{BlockWrite, Compressed, DedupMode, WritePolicy};
pub use transform::stored_bytes;
use transform::{Transformed, shape, side_by_side, transform, transform_to};

/// A block that is on its way.
#[derive(Clone, Debug)]
pub struct WrittenBlock {
    /// The pointer to it.
    pub bp: BlkPtr,
    /// Its compressed bytes, if they are in one piece.
    pub packed: Option<Packed>,
}

/// The compressed bytes of a block that was just written.
#[derive(Clone)]
pub struct Packed(BlockSlice);

impl Packed {
    /// They alone, in no more memory than they need.
    pub fn into_block(self) -> Block {
        self.0.into_block()
    }
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// A block that has its address, and is not written yet.
pub struct PlacedBlock {
    bp: BlkPtr,
    writes: Vec<ExtentWrite>,
}

impl PlacedBlock {
    /// The pointer to it.
    pub fn bp(&self) -> BlkPtr {
        self.bp
    }

    /// The writes that bring it to the devices.
    pub(crate) fn into_writes(self) -> Vec<ExtentWrite> {
        self.writes
    }

    fn packed(&self) -> Option<Packed> {
        let is_packed =
            !self.bp.is_hole() && !self.bp.is_embedded() && !self.bp.is_gang() && self.bp.psize() < self.bp.lsize();
        self.writes.first().filter(|_| is_packed).map(|write| Packed(write.bytes.clone()))
    }
}

/// When a block is placed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Placing {
    /// By its group, in pieces if need be.
    WithGroup,
    /// Ahead of its group, for which `left` bytes stay free; in one piece.
    Ahead { left: u64 },
}

impl Zio {
    /// Writes blocks in transaction group `txg`: what became of them, in the order of `requests`. The bytes follow; see
    /// the top of the file. Waits when many blocks are on their way already.
    ///
    /// Errors: `NoSpace`; `Invalid` for a request that makes no sense; `ReadOnly` without allocator.
    /// If the pointer of the previous block is returned, nothing has changed, and it stays in use.
    pub fn write_batch(&self, txg: Txg, requests: &[BlockWrite]) -> Vec<Result<WrittenBlock>> {
        self.place_each(txg, requests, Placing::WithGroup, |placed| {
            let packed = placed.packed();
            self.queue().push(self.env(), placed.writes);
            WrittenBlock { bp: placed.bp, packed }
        })
    }

    /// As [`Zio::write_batch`], but the bytes are for the caller to send on their way, past those of groups:
    /// [`Zio::write_log_blocks`]. None is in pieces, and `left` bytes stay free for groups.
    pub fn place_batch(&self, txg: Txg, requests: &[BlockWrite], left: u64) -> Vec<Result<PlacedBlock>> {
        self.place_each(txg, requests, Placing::Ahead { left }, |placed| placed)
    }

    /// Gives each block an address, and tells `then`.
    fn place_each<T>(
        &self,
        txg: Txg,
        requests: &[BlockWrite],
        placing: Placing,
        then: impl Fn(PlacedBlock) -> T,
    ) -> Vec<Result<T>> {
        let allocator = match self.allocator() {
            Ok(allocator) => allocator,
            Err(_) => return requests.iter().map(|_| Err(read_only())).collect(),
        };
        let sums = self.sums();
        let work: Vec<_> = requests.iter().map(|request| (request, allocator.sector(request.policy.class))).collect();
        let work_ns = requests.iter().map(effort::of_write).sum();
        let work = work.chunks(side_by_side(requests)).collect();
        let transformed = self.env().map(work, work_ns, |blocks| transform(blocks, self.tree(), txg, sums));
        let transformed: Vec<Result<Transformed>> = transformed.into_iter().flatten().collect();
        self.prepare_search(requests, &transformed);
        let may_be_small = requests.iter().any(|request| request.policy.special_up_to > 0);
        let takes_small = may_be_small && allocator.takes_small_blocks();
        let class_of = |policy: &WritePolicy, bytes: &BlockSlice| match policy.class {
            Class::Normal if takes_small && bytes.len() as u64 <= policy.special_up_to => Class::Special,
            class => class,
        };
        let placed = requests.iter().zip(transformed).map(|(request, transformed)| {
            let placed = transformed.and_then(|transformed| match transformed {
                Transformed::InPointer(bp) => Ok(PlacedBlock { bp, writes: Vec::new() }),
                Transformed::Bytes(bytes, compress, sum) => {
                    let builder = BlkPtrBuilder::new(shape(request, bytes.len() as u64, compress), txg);
                    let builder = builder.checksum(sum).fill(request.fill);
                    let builder = if request.is_crypt { builder.crypt() } else { builder };
                    let search = self.find_twin(request, builder, &bytes)?;
                    if let TwinSearch::Found(bp) = search {
                        return Ok(PlacedBlock { bp, writes: Vec::new() });
                    }
                    let class = class_of(&request.policy, &bytes);
                    let (dvas, writes) = self.place(allocator, txg, request, &bytes, class, placing)?;
                    let bp = self.count_first(search, request.policy.copies, builder.at(&dvas));
                    Ok(PlacedBlock { bp, writes })
                }
            });
            placed.map(&then).at_block(request.bookmark)
        });
        placed.collect()
    }

    /// Allocates a block: where its copies are, and the writes that bring it there.
    fn place(
        &self,
        allocator: &Allocator,
        txg: Txg,
        request: &BlockWrite,
        bytes: &BlockSlice,
        class: Class,
        placing: Placing,
    ) -> Result<(Vec<Dva>, Vec<ExtentWrite>)> {
        let (size, copies) = (bytes.len() as u64, request.policy.copies);
        let allocated = match placing {
            Placing::WithGroup => allocator.allocate(class, size, copies, txg),
            Placing::Ahead { left } => allocator.allocate_ahead(class, size, copies, txg, left),
        };
        match allocated {
            Ok(dvas) => {
                let write = |dva| ExtentWrite::new(dva, dva.asize(), txg, bytes.clone(), request.bookmark);
                let writes = dvas.iter().map(write).collect();
                Ok((dvas, writes))
            }
            Err(e)
                if placing == Placing::WithGroup
                    && e.kind() == Kind::NoSpace
                    && allocator.can_allocate(request.policy.class, size * u64::from(copies)) =>
            {
                gang::place_gang(self.sums(), allocator, txg, request, bytes)
            }
            Err(e) => Err(e),
        }
    }

    /// Writes other contents in the place of a block that was born in this same `txg`, which nobody
    /// can have read. `None`, and nothing is done, if they do not fit there.
    ///
    /// Errors: `Invalid` for a request that makes no sense, or if the block is older.
    pub fn rewrite(&self, txg: Txg, bp: &BlkPtr, request: &BlockWrite) -> Result<Option<BlkPtr>> {
        if bp.is_hole() || bp.is_embedded() || bp.is_gang() || bp.is_dedup() || bp.uses_crypt() {
            return Ok(None);
        }
        if bp.physical_birth() != txg {
            let what = format!("block of txg {} cannot be written anew in {txg}", bp.physical_birth());
            return Err(Error::new(Kind::Invalid, what).at_block(request.bookmark));
        }
        let fitting = transform_to(request, bp.psize(), self.sums()).at_block(request.bookmark)?;
        let Some((bytes, compress)) = fitting else { return Ok(None) };
        let sum = self.sums().compute(request.policy.checksum, Endian::Little, &bytes);
        let dvas: Vec<Dva> = bp.copies().copied().collect();
        let write = |dva: &Dva| ExtentWrite::new(dva, dva.asize(), txg, bytes.clone(), request.bookmark);
        self.queue().push(self.env(), dvas.iter().map(write).collect());
        let builder = BlkPtrBuilder::new(shape(request, bp.psize(), compress), txg);
        Ok(Some(builder.at(&dvas).checksum(sum).fill(request.fill).build()))
    }

    /// Waits until all blocks are on the devices, which may still hold them in caches of their own
    /// ([`vdev::Tree::flush`]).
    ///
    /// Errors: that of the first block of which not enough could be written. It stays until
    /// [`Zio::retry_writes`] succeeds, or the space is freed or written again.
    pub fn finish_writes(&self) -> Result<()> {
        self.queue().finish()
    }

    /// Writes again what failed, and all of group `txg` that has not been flushed by [`Zio::flush_writes`],
    /// and waits as [`Zio::finish_writes`] does: for when a device has come back.
    pub fn retry_writes(&self, txg: Txg) -> Result<()> {
        self.tree().begin_again(Some(txg));
        self.queue().retry(self.env())
    }

    /// Writes again what failed, once, and waits as [`Zio::finish_writes`] does.
    pub fn retry_failed(&self) -> Result<()> {
        self.queue().retry_failed(self.env())
    }

    /// Writes elsewhere what cannot be written where it is: `relocate` is told the blocks, by their bookmarks, and whether it
    /// has is what this returns. These writes are forgotten then.
    pub fn replace_failed(&self, relocate: impl FnOnce(&[Bookmark]) -> Result<bool>) -> Result<bool> {
        let failed = self.queue().failed();
        let bookmarks: Vec<Bookmark> = failed.iter().map(|(bookmark, ..)| *bookmark).collect();
        let allocator = self.allocator()?;
        failed.iter().for_each(|(_, top, range)| allocator.pass_over(*top, range));
        let is_moved = relocate(&bookmarks)?;
        if is_moved {
            failed.into_iter().for_each(|(_, top, range)| self.queue().forget(top, range));
        }
        Ok(is_moved)
    }

    /// Makes all blocks of groups up to `txg` last that have been written. Errors: as from [`vdev::Tree::flush`];
    /// then they are kept for [`Zio::retry_writes`].
    pub fn flush_writes(&self, txg: Txg) -> Result<()> {
        self.finish_writes()?;
        self.tree().flush()?;
        self.queue().flushed(txg);
        Ok(())
    }

    /// Frees all copies of a block in `txg`; of a gang block its members, too. Space of a block that
    /// was born in `txg` is free at once. Holes and embedded blocks have none.
    ///
    /// A block that a [`RefTable`](crate::RefTable) counts is left to that. `on_failure` is for reading gang headers.
    /// Returns whether nothing leads to the block any more.
    ///
    /// Errors: `Corrupt` if some of it is free already, with the rest freed; `Unsupported` for deduplicated
    /// blocks without such a table, and on removed vdevs; those of a gang header that cannot be read, with
    /// nothing freed.
    pub fn free(&self, txg: Txg, bp: &BlkPtr, on_failure: OnFailure) -> Result<bool> {
        if bp.is_hole() || bp.is_embedded() {
            return Ok(false);
        }
        if self.release_counted(bp) {
            return Ok(false);
        }
        if bp.is_dedup() {
            return Err(Error::new(Kind::Unsupported, "freeing a block of the dedup table"));
        }
        let allocator = self.allocator()?;
        let is_new = bp.physical_birth() == txg;
        if is_new && bp.is_gang() {
            // the headers are read; if one failed to be written, so will reading
            let _ = self.queue().finish();
        }
        let dvas = self.waiting().read(on_failure, || self.addresses_of(bp))?;
        let mut outcome = Ok(());
        for dva in &dvas {
            let freed = match is_new {
                true => allocator.unallocate(txg, dva),
                false => allocator.release(txg, dva, bp.physical_birth()),
            };
            if is_new && freed.is_ok() {
                let len = if dva.is_gang() { self.tree().asize(dva.vdev(), HEADER_SIZE as u64)? } else { dva.asize() };
                self.queue().forget(dva.vdev(), dva.offset()..dva.offset() + len);
            }
            outcome = outcome.and(freed);
        }
        outcome.map(|()| true)
    }
}
