//! Reads that try every way until the bytes are right.
//!
//! An extent is cut into *sources*, each of which gives a range of its bytes in one or more
//! *versions*: a mirror has one for each side ([`copies`]), a row of a raidz one for each set of
//! columns that may be wrong ([`rows`]). Mostly there is one source; a block on a removed vdev has
//! several if it was split, a draid's block two where a group ends, and one of before a raidz was
//! expanded has one for each line. The search goes through
//! combinations of versions, those with the fewest surprises first:
//!
//! 1. the first version of every source;
//! 2. for each leaf, each two, each three: the versions that do without them, in case disks are bad throughout;
//! 3. all combinations, ordered by the sum of the versions' numbers, up to a limit.
//!
//! Sources read leaves only as versions are called for. At the end, if the right bytes are known,
//! every leaf that returned others is charged a checksum error; if they are not, every leaf that
//! returned anything. What is wrong is not mended by the reader: see [`heal`].

mod any;
mod copies;
mod heal;
mod rows;
mod search;

use std::ops::Range;

use base::{AlignedBuf, Error, Kind as ErrorKind, Result};
use device::Read;

use crate::expansion::Order;
use crate::health::{Aux, Health, State, Stats};
use crate::locate::{Branch, Choice, Segment};
use crate::raidz::Row;
use crate::read::Extent;
use crate::tree::{Tree, Vdev, VdevId};
use any::Any;
use copies::Copies;
use rows::RowVersions;

/// Leaves named in an error at most.
const NAMES_MAX: usize = 16;

impl Tree {
    /// Reads `extent` into `buf` in every way that there is, until `good` says that the bytes are
    /// right.
    ///
    /// Counts a read error on every leaf that fails, and a checksum error on every leaf whose bytes
    /// were wrong, unless it is known to have missed the block's birth. If no way is good, `buf`'s
    /// contents are unspecified and the error is [`ErrorKind::Checksum`], or, if not even wrong
    /// bytes could be had, that of a leaf ([`ErrorKind::Io`], [`ErrorKind::Missing`]); it names the
    /// leaves tried. Panics if `buf` is not as long as the extent.
    ///
    /// Whether a leaf was charged, so that [`Tree::heal`] has something to do.
    pub fn read_verified(&self, extent: Extent, buf: &mut [u8], good: &mut dyn FnMut(&[u8]) -> bool) -> Result<bool> {
        self.read_any(extent, buf, good, true)
    }

    /// As [`Tree::read_verified`], for what may rightly not be there, such as the block behind the last of
    /// a log: if no way is good, nobody is charged for wrong bytes.
    pub fn probe(&self, extent: Extent, buf: &mut [u8], good: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        self.read_any(extent, buf, good, false).map(drop)
    }

    fn read_any(
        &self,
        extent: Extent,
        buf: &mut [u8],
        good: &mut dyn FnMut(&[u8]) -> bool,
        must_be_there: bool,
    ) -> Result<bool> {
        let size = self.padded_size(&extent, buf.len())?;
        let (mut sources, order) = self.sources(&extent, size)?;
        let mut block = AlignedBuf::zeroed(size);
        let wanted = buf.len();
        let outcome = search::search(self, &mut sources, &mut block, &mut |block| match &order {
            None => good(&block[..wanted]),
            Some(order) => {
                order.restore(block, buf);
                good(buf)
            }
        });
        sources.iter().flat_map(Source::copies).for_each(|copy| copy.charge_failure(self));
        match outcome {
            Ok(()) => {
                let mut is_wounded = false;
                for source in &sources {
                    source.compare(&block[source.range()], &mut |copy, right| {
                        copy.charge(self, Some(right));
                        is_wounded |= copy.is_wounded(right);
                    });
                }
                if order.is_none() {
                    buf.copy_from_slice(&block[..wanted]);
                }
                self.count_block(&extent, Stats::count_read);
                tracing::debug!(top = extent.top, offset = extent.offset, "read it in another way");
                Ok(is_wounded)
            }
            Err(error) => {
                if must_be_there {
                    sources.iter().flat_map(Source::copies).for_each(|copy| copy.charge(self, None));
                }
                Err(self.naming(error, &sources))
            }
        }
    }

    /// The sources of an extent, and the order of their sectors if it is not that of the block.
    fn sources(&self, extent: &Extent, size: usize) -> Result<(Vec<Source>, Option<Order>)> {
        let mut out = Vec::with_capacity(1);
        let mut order = None;
        for Segment { vdev, offset, range } in self.segments(extent, size)? {
            let (copies, parity) = self.branches(vdev, offset, extent.birth_txg);
            if let [only] = parity[..]
                && copies.is_empty()
            {
                let (rows, of_rows) = self.row_sources(only, offset, &range, extent.birth_txg)?;
                out.extend(rows);
                // what was removed leads to no raidz, so it is all of the block
                order = order.or(of_rows);
                continue;
            }
            let mut branches = vec![Source::Copies(Copies::new(range.clone(), copies))];
            for vdev in parity {
                // a raidz that is mirrored has one row; a draid is never mirrored
                branches.extend(self.row_sources(vdev, offset, &range, extent.birth_txg)?.0);
            }
            out.push(if branches.len() == 1 { branches.remove(0) } else { Source::Any(Any::new(range, branches)) });
        }
        Ok((out, order))
    }

    /// What holds the same as `vdev` does at `offset`: leaves, those to be tried first in front,
    /// and vdevs with parity.
    fn branches(&self, vdev: &Vdev, offset: u64, txg: u64) -> (Vec<Copy>, Vec<VdevId>) {
        let (mut copies, mut parity) = (Vec::new(), Vec::new());
        self.each_branch(vdev, offset, txg, &mut |branch| match branch {
            Branch::Leaf(from) => copies.push(Copy { from, bytes: Bytes::Unread }),
            Branch::Rows { vdev, .. } => parity.push(vdev),
        });
        let first = match self.first_branch(vdev, offset, txg) {
            Some(Branch::Leaf(from)) => Some(from.leaf),
            _ => None,
        };
        copies.sort_by_key(|copy| (!copy.from.trusted, Some(copy.from.leaf) != first));
        (copies, parity)
    }

    /// A source for each row of a range on a raidz or draid.
    fn row_sources(
        &self,
        vdev: VdevId,
        offset: u64,
        range: &Range<usize>,
        txg: u64,
    ) -> Result<(Vec<Source>, Option<Order>)> {
        let vdev = self.vdev(vdev);
        let source = |row: Row| {
            let cells = row.columns.iter().map(|c| self.branches(self.child(vdev, c.child), c.offset, txg).0);
            let cells = cells.collect();
            Source::Row(RowVersions::new(row, range.start, cells))
        };
        let (rows, order) = self.rows(vdev, offset, range.len(), txg)?;
        Ok((rows.into_iter().map(source).collect(), order))
    }

    /// Reads those of `copies` that have not been read, `len` bytes each, all at once.
    fn load<'a>(&self, copies: impl Iterator<Item = &'a mut Copy>, len: impl Fn(usize) -> usize) {
        let mut unread: Vec<(&mut Copy, AlignedBuf)> = copies
            .enumerate()
            .filter(|(_, copy)| matches!(copy.bytes, Bytes::Unread))
            .map(|(i, copy)| (copy, AlignedBuf::for_overwrite(len(i))))
            .collect();
        let mut reads: Vec<Read<'_>> = unread.iter_mut().map(|(copy, buf)| self.read_of(copy.from, buf)).collect();
        device::read_batch(&mut reads);
        let results: Vec<Result<()>> = reads.into_iter().map(|read| read.result).collect();
        for ((copy, buf), result) in unread.into_iter().zip(results) {
            copy.bytes = match result {
                Ok(()) => Bytes::Read(buf),
                Err(e) => {
                    let leaf = self.vdev(copy.from.leaf);
                    tracing::warn!(vdev = leaf.name(), error = %e, "read failed");
                    if e.kind() == ErrorKind::Missing {
                        leaf.set_health(Health::new(State::Unavail, Aux::OpenFailed));
                    }
                    Bytes::Failed(e)
                }
            };
        }
    }

    /// Adds to `error` which leaves were tried.
    fn naming(&self, error: Error, sources: &[Source]) -> Error {
        let mut leaves: Vec<VdevId> = sources.iter().flat_map(Source::tried).collect();
        leaves.sort_unstable();
        leaves.dedup();
        let mut names: Vec<&str> = leaves.iter().take(NAMES_MAX).map(|&leaf| self.vdev(leaf).name()).collect();
        if leaves.len() > NAMES_MAX {
            names.push("others");
        }
        if names.is_empty() { error } else { error.at_vdev(names.join(", ")) }
    }
}

/// What a leaf returned, or will.
struct Copy {
    from: Choice,
    bytes: Bytes,
}

enum Bytes {
    Unread,
    Failed(Error),
    Read(AlignedBuf),
}

impl Copy {
    fn get(&self) -> Option<&[u8]> {
        match &self.bytes {
            Bytes::Read(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The error, if it was read and that failed; leaves it unread no more.
    fn error(&self) -> Option<&Error> {
        match &self.bytes {
            Bytes::Failed(e) => Some(e),
            _ => None,
        }
    }

    /// Whether the leaf should have the right bytes, and has not.
    fn is_wounded(&self, right: &[u8]) -> bool {
        self.from.trusted
            && match &self.bytes {
                Bytes::Read(bytes) => bytes[..] != *right,
                Bytes::Failed(error) => error.kind() == ErrorKind::Io,
                Bytes::Unread => false,
            }
    }

    /// Counts a read error if the read failed.
    fn charge_failure(&self, tree: &Tree) {
        if self.error().is_some() {
            Stats::count(&tree.vdev(self.from.leaf).stats().read_errors);
        }
    }

    /// Counts a checksum error if the bytes differ from the right ones, or if there are none.
    fn charge(&self, tree: &Tree, right: Option<&[u8]>) {
        let wrong = self.get().is_some_and(|bytes| right.is_none_or(|right| bytes != right));
        if wrong && self.from.trusted {
            tracing::warn!(vdev = tree.vdev(self.from.leaf).name(), offset = self.from.offset, "wrong bytes");
            Stats::count(&tree.vdev(self.from.leaf).stats().checksum_errors);
        }
    }
}

/// A range of an extent, in versions.
enum Source {
    Copies(Copies),
    Row(RowVersions),
    Any(Any),
}

impl Source {
    /// The bytes of the extent that it gives.
    fn range(&self) -> Range<usize> {
        match self {
            Source::Copies(s) => s.range(),
            Source::Row(s) => s.range(),
            Source::Any(s) => s.range(),
        }
    }

    /// Puts version `n` into `out`, which is as long as the range; false if there are not so many.
    fn fill(&mut self, tree: &Tree, n: usize, out: &mut [u8]) -> bool {
        match self {
            Source::Copies(s) => s.fill(tree, n, out),
            Source::Row(s) => s.fill(tree, n, out),
            Source::Any(s) => s.fill(tree, n, out),
        }
    }

    /// The number of the first version that owes nothing to any of `leaves`, if there is one.
    fn without(&mut self, tree: &Tree, leaves: &[VdevId]) -> Option<usize> {
        match self {
            Source::Copies(s) => s.without(tree, leaves),
            Source::Row(s) => s.without(tree, leaves),
            Source::Any(s) => s.without(tree, leaves),
        }
    }

    /// Calls `f` with each copy and the bytes that it should have, by the right bytes of the range.
    fn compare(&self, right: &[u8], f: &mut dyn FnMut(&Copy, &[u8])) {
        match self {
            Source::Copies(s) => s.copies().for_each(|copy| f(copy, right)),
            Source::Row(s) => s.compare(right, f),
            Source::Any(s) => s.compare(right, f),
        }
    }

    /// Reads all copies that have not been read.
    fn load_all(&mut self, tree: &Tree) {
        match self {
            Source::Copies(s) => s.load_all(tree),
            Source::Row(s) => s.load_all(tree),
            Source::Any(s) => s.load_all(tree),
        }
    }

    fn copies(&self) -> Box<dyn Iterator<Item = &Copy> + '_> {
        match self {
            Source::Copies(s) => Box::new(s.copies()),
            Source::Row(s) => Box::new(s.copies()),
            Source::Any(s) => Box::new(s.copies()),
        }
    }

    /// The leaves that were read.
    fn tried(&self) -> impl Iterator<Item = VdevId> {
        self.copies().filter(|copy| !matches!(copy.bytes, Bytes::Unread)).map(|copy| copy.from.leaf)
    }
}
