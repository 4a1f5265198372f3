//! Counting blocks: by type, by level, by size.

use format::blkptr::{BlkPtr, Embedded};
use format::ids::VdevNumber;
use format::object_type::ObjectType;

/// Levels that are told apart; deeper ones count with the last.
pub const LEVELS: usize = 7;
/// Types that have a name of their own.
const TYPES: usize = 54;
/// Bins of sizes: powers of two up to 16 MiB and the copies of that.
pub const BINS: usize = 32;

/// What a block was found as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockKind {
    /// A block of an object of that type.
    Of(ObjectType),
    /// One that is dead, but not freed yet.
    DeferredFree,
    /// A further copy that only the dedup table knows.
    DedupDitto,
    /// A block of an object of one of the newer, nameless types.
    Other,
}

impl BlockKind {
    /// Whether a pointer that was found as this leads to a block of data with a place of its own.
    pub fn is_placed_data(self, bp: &BlkPtr) -> bool {
        let is_alive = !matches!(self, BlockKind::DeferredFree | BlockKind::DedupDitto);
        let is_data = bp.level() == 0 && !bp.object_type().is_metadata() && !bp.is_hole() && !bp.is_embedded();
        is_alive && is_data
    }
}

/// Sums over blocks, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceSums {
    /// Block pointers.
    pub count: u64,
    /// Bytes before compression.
    pub lsize: u64,
    /// Bytes after compression, of one copy; of embedded blocks none.
    pub psize: u64,
    /// Bytes allocated for all copies.
    pub asize: u64,
    /// Copies that are gang blocks.
    pub gangs: u64,
}

/// Blocks in a bin of sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// Blocks.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The sums of a whole pool.
#[derive(Clone, Debug)]
pub struct Tally {
    /// By kind, then by level.
    table: Vec<[SpaceSums; LEVELS]>,
    /// Embedded blocks by what they carry: data, nothing that is known, redaction markers.
    pub embedded: [u64; 3],
    /// Embedded blocks with data, by their compressed size.
    pub embedded_sizes: [u64; BlkPtr::EMBEDDED_SIZE_MAX + 1],
    /// Blocks with several copies on one vdev.
    pub same_vdev: u64,
    /// Blocks with several copies in one metaslab.
    pub same_slab: u64,
    /// Blocks that are not embedded, by the binary logarithm of their psize.
    pub psizes: [Bin; BINS],
    /// The same by lsize.
    pub lsizes: [Bin; BINS],
    /// The same by asize.
    pub asizes: [Bin; BINS],
}

impl BlockKind {
    /// All kinds, in the order in which zdb lists them.
    pub fn all() -> impl Iterator<Item = BlockKind> {
        let types = (0..TYPES as u8).map(|n| BlockKind::Of(ObjectType(n)));
        types.chain([BlockKind::DeferredFree, BlockKind::DedupDitto, BlockKind::Other])
    }

    /// Name as zdb prints it.
    pub fn name(self) -> &'static str {
        match self {
            BlockKind::Of(kind) => kind.name(),
            BlockKind::DeferredFree => "deferred free",
            BlockKind::DedupDitto => "dedup ditto",
            BlockKind::Other => "other",
        }
    }

    /// The kind of a block that an object refers to.
    pub fn of(bp: &BlkPtr) -> BlockKind {
        let kind = bp.object_type();
        if usize::from(kind.0) < TYPES { BlockKind::Of(kind) } else { BlockKind::Other }
    }

    fn index(self) -> usize {
        match self {
            BlockKind::Of(kind) => usize::from(kind.0).min(TYPES - 1),
            BlockKind::DeferredFree => TYPES,
            BlockKind::DedupDitto => TYPES + 1,
            BlockKind::Other => TYPES + 2,
        }
    }
}

impl SpaceSums {
    fn add(&mut self, other: &SpaceSums) {
        self.count += other.count;
        self.lsize = self.lsize.saturating_add(other.lsize);
        self.psize = self.psize.saturating_add(other.psize);
        self.asize = self.asize.saturating_add(other.asize);
        self.gangs += other.gangs;
    }
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            table: vec![[SpaceSums::default(); LEVELS]; TYPES + 3],
            embedded: [0; 3],
            embedded_sizes: [0; BlkPtr::EMBEDDED_SIZE_MAX + 1],
            same_vdev: 0,
            same_slab: 0,
            psizes: [Bin::default(); BINS],
            lsizes: [Bin::default(); BINS],
            asizes: [Bin::default(); BINS],
        }
    }
}

impl Tally {
    /// Counts a block. `slab` tells the metaslab of an offset on a vdev.
    pub(super) fn count(&mut self, bp: &BlkPtr, kind: BlockKind, slab: &dyn Fn(VdevNumber, u64) -> u64) {
        let is_embedded = bp.is_embedded();
        let sums = SpaceSums {
            count: 1,
            lsize: if is_embedded && bp.embedded() != Embedded::Data { 0 } else { bp.lsize() },
            psize: if is_embedded { 0 } else { bp.psize() },
            asize: bp.asize(),
            gangs: bp.copies().filter(|dva| dva.is_gang()).count() as u64,
        };
        self.table[kind.index()][usize::from(bp.level()).min(LEVELS - 1)].add(&sums);
        if is_embedded {
            let which = match bp.embedded() {
                Embedded::Data => 0,
                Embedded::Unknown(n) => usize::from(n).min(2),
                Embedded::Redacted => 2,
            };
            self.embedded[which] += 1;
            let size = usize::try_from(bp.psize()).unwrap_or(usize::MAX).min(BlkPtr::EMBEDDED_SIZE_MAX);
            self.embedded_sizes[size] += u64::from(which == 0);
            return;
        }
        for (bins, bytes) in
            [(&mut self.psizes, sums.psize), (&mut self.lsizes, sums.lsize), (&mut self.asizes, sums.asize)]
        {
            let bin = &mut bins[(bytes.max(1).ilog2() as usize).min(BINS - 1)];
            bin.count += 1;
            bin.bytes = bin.bytes.saturating_add(bytes);
        }
        self.count_neighbours(bp, slab);
    }

    /// Copies are meant to be far from each other; counts those that are not.
    fn count_neighbours(&mut self, bp: &BlkPtr, slab: &dyn Fn(VdevNumber, u64) -> u64) {
        let copies: Vec<_> = bp.copies().collect();
        let mut same_vdev = (0..copies.len())
            .flat_map(|i| (i + 1..copies.len()).map(move |j| (i, j)))
            .map(|(i, j)| (copies[i], copies[j]))
            .filter(|(a, b)| a.vdev() == b.vdev())
            .peekable();
        if same_vdev.peek().is_some() {
            self.same_vdev += 1;
            let in_one = |(a, b): (&format::blkptr::Dva, &format::blkptr::Dva)| {
                slab(a.vdev(), a.offset()) == slab(b.vdev(), b.offset())
            };
            self.same_slab += u64::from(same_vdev.any(in_one));
        }
    }

    /// Sums of one kind at one level.
    pub fn at(&self, kind: BlockKind, level: usize) -> SpaceSums {
        self.table[kind.index()].get(level).copied().unwrap_or_default()
    }

    /// Sums of one kind at all levels.
    pub fn of(&self, kind: BlockKind) -> SpaceSums {
        total(&self.table[kind.index()])
    }

    /// Sums of all kinds at one level.
    pub fn level(&self, level: usize) -> SpaceSums {
        total(self.table.iter().filter_map(|levels| levels.get(level)))
    }

    /// Sums of everything.
    pub fn total(&self) -> SpaceSums {
        total(self.table.iter().flatten())
    }
}

fn total<'a>(sums: impl IntoIterator<Item = &'a SpaceSums>) -> SpaceSums {
    sums.into_iter().fold(SpaceSums::default(), |mut total, sums| {
        total.add(sums);
        total
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(kind: u8, level: u64, addresses: &[(u64, u64, u64)]) -> BlkPtr {
        let mut words = [0u64; 16];
        for (i, (vdev, offset, asize)) in addresses.iter().enumerate() {
            words[2 * i] = vdev << 32 | asize / 512;
            words[2 * i + 1] = offset / 512;
        }
        words[6] = level << 56 | u64::from(kind) << 48 | 7 << 40 | 7 << 16 | 15;
        words[10] = 1;
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        BlkPtr::parse(&bytes).unwrap()
    }

    #[test]
    fn sums_and_copies_side_by_side() {
        let mut tally = Tally::default();
        let slab = |_: VdevNumber, offset: u64| offset >> 20;
        let mut count = |bp: BlkPtr| tally.count(&bp, BlockKind::of(&bp), &slab);
        count(pointer(19, 0, &[(0, 0, 4096)]));
        count(pointer(19, 1, &[(0, 0, 4096), (1, 0, 4096)]));
        count(pointer(19, 1, &[(0, 0, 4096), (0, 1 << 20, 4096)]));
        count(pointer(200, 0, &[(0, 0, 4096), (1, 4096, 4096), (1, 8192, 4096)]));
        assert_eq!((tally.same_vdev, tally.same_slab), (2, 1));
        let total = tally.total();
        assert_eq!((total.count, total.lsize, total.psize, total.asize), (4, 4 * 8192, 4 * 4096, 8 * 4096));
        assert_eq!(tally.at(BlockKind::Of(ObjectType::PLAIN_FILE_CONTENTS), 1).count, 2);
        assert_eq!((tally.of(BlockKind::Other).asize, tally.level(0).count), (3 * 4096, 2));
        assert_eq!(tally.psizes[12], Bin { count: 4, bytes: 4 * 4096 });
    }

    #[test]
    fn embedded_blocks_take_no_space() {
        let mut words = [0u64; 16];
        words[6] = 1 << 39 | 19 << 48 | 50 << 25 | 511;
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut tally = Tally::default();
        tally.count(&BlkPtr::parse(&bytes).unwrap(), BlockKind::Of(ObjectType::PLAIN_FILE_CONTENTS), &|_, _| 0);
        assert_eq!(tally.total(), SpaceSums { count: 1, lsize: 512, psize: 0, asize: 0, gangs: 0 });
        assert_eq!((tally.embedded, tally.psizes), ([1, 0, 0], [Bin::default(); BINS]));
        assert_eq!(tally.embedded_sizes[51], 1);
    }

    #[test]
    fn every_kind_has_a_place_of_its_own() {
        let mut places: Vec<usize> = BlockKind::all().map(BlockKind::index).collect();
        places.dedup();
        assert_eq!(places, (0..TYPES + 3).collect::<Vec<_>>());
    }
}
