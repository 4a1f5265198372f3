//! Block pointers: where a block lies, how large it is, and what its bytes must sum to.
//!
//! ```text
//! word  63      56      48      40      32      24      16       8       0
//!    0  |  pad  |      vdev (24)        | grid  |      asize (24)       |  DVA 1, in sectors of 512
//!    1  |G|                          offset (63)                        |
//!  2-3  |                             DVA 2                             |
//!  4-5  |                             DVA 3, or salt and IV if X        |
//!    6  |BDX|lvl| type  | cksum |E|comp |     psize     |     lsize     |  sizes in sectors, less one
//!    7  |R|                          padding                            |
//!    8  |                            padding                            |
//!    9  |                 physical birth, 0: same as logical            |
//!   10  |                         logical birth txg                     |
//!   11  |                fill count (or IV2 and fill if X)              |
//! 12-15 |                 checksum (12-13, MAC in 14-15 if X)           |
//! ```
//!
//! G: gang block, B: little-endian contents, D: dedup, X: encrypted, E: embedded, R: rewritten. With E the words
//! 0-5, 7-9 and 11-15 are 112 bytes of payload, and word 6 has `| BDX lvl | type | etype |E|comp |
//! psize (7) | lsize (25) |` in bytes, less one.
//!
//! Words are little-endian here; the swap of a foreign block has turned them already.
//! Source: the published ZFS on-disk specification, chapter 2, and OpenZFS's feature descriptions.

mod builder;

use std::fmt;

use base::Endian;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ids::{Txg, VdevNumber};
use crate::object_type::ObjectType;
pub use builder::{BlkPtrBuilder, Seal};

/// log2 of the sector size that sizes and offsets on disk are counted in.
pub const SECTOR_SHIFT: u32 = 9;
/// The smallest block, bytes.
pub const BLOCK_SIZE_MIN: u64 = 512;
/// The largest block that any version writes, bytes.
pub const BLOCK_SIZE_MAX: u64 = 16 << 20;

/// A data virtual address: a run of bytes on a top-level vdev.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Dva {
    words: [U64; 2],
}

impl Dva {
    /// No address.
    pub const EMPTY: Dva = Dva { words: [U64::ZERO; 2] };

    /// A pointer to `asize` bytes at `offset` (both multiples of 512) of the top-level vdev.
    pub fn new(vdev: VdevNumber, offset: u64, asize: u64, gang: bool) -> Dva {
        let first = (vdev.get() & 0xff_ffff) << 32 | (asize >> SECTOR_SHIFT) & 0xff_ffff;
        let second = offset >> SECTOR_SHIFT | u64::from(gang) << 63;
        Dva { words: [first.into(), second.into()] }
    }

    /// From the two words on disk.
    pub fn from_words(words: [u64; 2]) -> Dva {
        Dva { words: words.map(U64::new) }
    }

    /// Number of the top-level vdev.
    pub fn vdev(&self) -> VdevNumber {
        VdevNumber::new(bits(self.words[0], 32, 24))
    }

    /// Bytes allocated: with parity, padding and gang headers.
    pub fn asize(&self) -> u64 {
        bits(self.words[0], 0, 24) << SECTOR_SHIFT
    }

    /// Bytes from the end of the vdev's front labels.
    pub fn offset(&self) -> u64 {
        bits(self.words[1], 0, 63) << SECTOR_SHIFT
    }

    /// Whether what lies there is a gang header.
    pub fn is_gang(&self) -> bool {
        self.words[1].get() >> 63 != 0
    }

    /// Whether this is no address at all.
    pub fn is_empty(&self) -> bool {
        self.words == [U64::ZERO; 2]
    }

    /// The two words on disk, as the verifier of a gang header uses them.
    pub fn words(&self) -> [u64; 2] {
        self.words.map(U64::get)
    }
}

impl fmt::Debug for Dva {
    /// As zdb prints it: vdev, offset and asize in hex.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:x}:{:x}", self.vdev(), self.offset(), self.asize())
    }
}

/// A block pointer; see the drawing above.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlkPtr {
    dvas: [Dva; 3],
    prop: U64,
    pad: [U64; 2],
    physical_birth: U64,
    birth: U64,
    fill: U64,
    checksum: [U64; 4],
}

const _: () = assert!(size_of::<BlkPtr>() == BlkPtr::SIZE);

/// What an embedded block pointer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Embedded {
    /// The (compressed) contents of the block.
    Data,
    /// A redaction marker: the block was left out of a redacted send.
    Redacted,
    /// A type that no version has defined.
    Unknown(u8),
}

/// What a block pointer says of the block itself, wherever that lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShape {
    /// Bytes after decompression: a multiple of 512.
    pub lsize: u64,
    /// Bytes before: a multiple of 512.
    pub psize: u64,
    /// Number of the compression algorithm.
    pub compress: u8,
    /// Number of the checksum algorithm.
    pub checksum: u8,
    /// Type of the object that it belongs to.
    pub object_type: ObjectType,
    /// Level: 0 is data.
    pub level: u8,
}

impl BlockShape {
    /// The property word of a block with little-endian contents.
    fn prop(&self) -> u64 {
        let sectors = |bytes: u64| {
            assert!(
                (BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX * 2).contains(&bytes) && bytes.is_multiple_of(512),
                "{bytes} bytes"
            );
            (bytes >> SECTOR_SHIFT) - 1
        };
        let kinds = u64::from(self.checksum) << 40 | u64::from(self.compress) << 32;
        LITTLE_ENDIAN | self.type_and_level() | kinds | sectors(self.psize) << 16 | sectors(self.lsize)
    }

    fn type_and_level(&self) -> u64 {
        u64::from(self.level) << 56 | u64::from(self.object_type.0) << 48
    }
}

/// The bit of little-endian contents in the property word.
const LITTLE_ENDIAN: u64 = 1 << 63;
impl BlockShape {
    /// That of a hole of so many bytes.
    pub fn of_hole(lsize: u64, object_type: ObjectType, level: u8) -> BlockShape {
        BlockShape { lsize, psize: BLOCK_SIZE_MIN, compress: 0, checksum: 0, object_type, level }
    }
}

/// In the first word of padding: the bytes were written anew, with the birth of those that they were before.
const IS_REWRITTEN: u64 = 1 << 63;

impl BlkPtr {
    /// The same block, taken in group `txg`: its bytes stay where they are, and those of group `physical_birth`. Also
    /// one that was rewritten is in no snapshot before that.
    pub fn taken_in(self, txg: Txg) -> BlkPtr {
        let mut taken = BlkPtr { birth: txg.get().into(), ..self };
        if !self.is_embedded() {
            taken.physical_birth = self.physical_birth().get().into();
            taken.pad[0] = (self.pad[0].get() & !IS_REWRITTEN).into();
        }
        taken
    }

    /// The same with another fill count.
    pub fn with_fill(self, fill: u64) -> BlkPtr {
        match () {
            _ if self.is_embedded() => self,
            // the other half of the word is part of what the block is encrypted with
            _ if self.uses_crypt() => {
                BlkPtr { fill: (self.fill.get() >> 32 << 32 | fill & 0xffff_ffff).into(), ..self }
            }
            _ => BlkPtr { fill: fill.into(), ..self },
        }
    }

    /// The same pointer, which says nothing of the dedup table.
    pub fn without_dedup(self) -> BlkPtr {
        BlkPtr { prop: (self.prop.get() & !(1 << 62)).into(), ..self }
    }

    /// Bytes on disk.
    pub const SIZE: usize = 128;
    /// Bytes of payload in an embedded one.
    pub const EMBEDDED_SIZE_MAX: usize = 112;
    /// A hole that was never written.
    pub const HOLE: BlkPtr = BlkPtr {
        dvas: [Dva::EMPTY; 3],
        prop: U64::ZERO,
        pad: [U64::ZERO; 2],
        physical_birth: U64::ZERO,
        birth: U64::ZERO,
        fill: U64::ZERO,
        checksum: [U64::ZERO; 4],
    };

    /// From 128 bytes; `None` from fewer.
    pub fn parse(bytes: &[u8]) -> Option<BlkPtr> {
        BlkPtr::read_from_prefix(bytes).ok().map(|(bp, _)| bp)
    }

    /// All block pointers of an indirect block or list.
    pub fn slice(bytes: &[u8]) -> &[BlkPtr] {
        let whole = bytes.len() / BlkPtr::SIZE * BlkPtr::SIZE;
        <[BlkPtr]>::ref_from_bytes(&bytes[..whole]).expect("a whole number of unaligned structures")
    }

    /// The 128 bytes on disk.
    pub fn raw(&self) -> &[u8] {
        self.as_bytes()
    }

    /// The three addresses; unused ones are empty.
    pub fn dvas(&self) -> &[Dva; 3] {
        &self.dvas
    }

    /// The addresses in use. An encrypted pointer has no third one: salt and IV are there.
    pub fn copies(&self) -> impl Iterator<Item = &Dva> {
        let n = if self.is_embedded() {
            0
        } else if self.is_encrypted() {
            2
        } else {
            3
        };
        self.dvas[..n].iter().filter(|dva| dva.asize() != 0)
    }

    /// Whether there is no block: reads as zeros.
    pub fn is_hole(&self) -> bool {
        !self.is_embedded() && self.dvas[0].is_empty()
    }

    /// Whether the pointer carries its contents itself.
    pub fn is_embedded(&self) -> bool {
        bits(self.prop, 39, 1) != 0
    }

    /// What an embedded pointer carries.
    pub fn embedded(&self) -> Embedded {
        match bits(self.prop, 40, 8) as u8 {
            0 => Embedded::Data,
            2 => Embedded::Redacted,
            n => Embedded::Unknown(n),
        }
    }

    /// Whether the first address is a gang header.
    pub fn is_gang(&self) -> bool {
        !self.is_embedded() && self.dvas[0].is_gang()
    }

    /// Whether the block, or with the same bit the blocks below it, are encrypted or authenticated.
    pub fn uses_crypt(&self) -> bool {
        bits(self.prop, 61, 1) != 0
    }

    /// Whether the block's own contents are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.uses_crypt() && self.level() == 0 && self.object_type().is_encrypted()
    }

    /// Whether the block is in the dedup table.
    pub fn is_dedup(&self) -> bool {
        bits(self.prop, 62, 1) != 0
    }

    /// Byte order of the block's contents.
    pub fn endian(&self) -> Endian {
        if bits(self.prop, 63, 1) != 0 { Endian::Little } else { Endian::Big }
    }

    /// Logical size in bytes: after decompression.
    pub fn lsize(&self) -> u64 {
        if self.is_embedded() { bits(self.prop, 0, 25) + 1 } else { (bits(self.prop, 0, 16) + 1) << SECTOR_SHIFT }
    }

    /// Physical size in bytes: after compression.
    pub fn psize(&self) -> u64 {
        if self.is_embedded() { bits(self.prop, 25, 7) + 1 } else { (bits(self.prop, 16, 16) + 1) << SECTOR_SHIFT }
    }

    /// Bytes allocated by all copies.
    pub fn asize(&self) -> u64 {
        if self.is_embedded() { 0 } else { self.copies().map(Dva::asize).sum() }
    }

    /// Number of the compression algorithm.
    pub fn compress(&self) -> u8 {
        bits(self.prop, 32, 7) as u8
    }

    /// Number of the checksum algorithm; off (2) for an embedded one.
    pub fn checksum_kind(&self) -> u8 {
        if self.is_embedded() { 2 } else { bits(self.prop, 40, 8) as u8 }
    }

    /// Type of the object that the block belongs to.
    pub fn object_type(&self) -> ObjectType {
        ObjectType(bits(self.prop, 48, 8) as u8)
    }

    /// Level: 0 is data, others point to blocks of one level less.
    pub fn level(&self) -> u8 {
        bits(self.prop, 56, 5) as u8
    }

    /// Txg that the block was written in, logically: what snapshots go by.
    pub fn birth(&self) -> Txg {
        Txg::new(self.birth.get())
    }

    /// Txg that the bytes were allocated in, which dedup and removal can make differ.
    pub fn physical_birth(&self) -> Txg {
        match self.physical_birth.get() {
            _ if self.is_embedded() => Txg::ZERO,
            0 => self.birth(),
            txg => Txg::new(txg),
        }
    }

    /// Txg that decides whether a snapshot has the block: the logical birth, except for blocks that
    /// were rewritten elsewhere with their old one.
    pub fn reference_birth(&self) -> Txg {
        let is_rewritten = !self.is_embedded() && self.pad[0].get() & IS_REWRITTEN != 0;
        if is_rewritten { self.physical_birth() } else { self.birth() }
    }

    /// Blocks (or allocated dnodes, in an object set) below this one.
    pub fn fill(&self) -> u64 {
        match () {
            _ if self.is_embedded() => 1,
            _ if self.uses_crypt() => self.fill.get() & 0xffff_ffff,
            _ => self.fill.get(),
        }
    }

    /// The last 4 bytes of the initialisation vector of an encrypted one.
    pub fn iv2(&self) -> u32 {
        bits(self.fill, 32, 32) as u32
    }

    /// Whether a pointer in a list of dead blocks tells of a free, not of an allocation.
    pub fn is_free_mark(&self) -> bool {
        bits(self.fill, 0, 1) != 0
    }

    /// What the bytes must sum to.
    pub fn checksum(&self) -> [u64; 4] {
        self.checksum.map(U64::get)
    }

    /// Payload of an embedded pointer, `psize` bytes (at most 112).
    pub fn payload(&self) -> Vec<u8> {
        let raw = self.as_bytes();
        let mut bytes = [&raw[..48], &raw[56..80], &raw[88..]].concat();
        bytes.truncate(self.psize() as usize);
        bytes
    }

    /// The property word, for tools that show it.
    pub fn prop(&self) -> u64 {
        self.prop.get()
    }
}

impl fmt::Debug for BlkPtr {
    /// In the manner of zdb.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_hole() {
            return write!(
                f,
                "HOLE [L{} {}] size={:x}L birth={}L",
                self.level(),
                self.object_type(),
                self.lsize(),
                self.birth()
            );
        }
        if self.is_embedded() {
            return write!(
                f,
                "EMBEDDED [L{} {}] et={:?} comp={} size={:x}L/{:x}P birth={}L",
                self.level(),
                self.object_type(),
                self.embedded(),
                self.compress(),
                self.lsize(),
                self.psize(),
                self.birth()
            );
        }
        for (i, dva) in self.copies().enumerate() {
            write!(f, "DVA[{i}]=<{dva:?}> ")?;
        }
        let [a, b, c, d] = self.checksum();
        write!(
            f,
            "[L{} {}] checksum={} compress={} size={:x}L/{:x}P birth={}L/{}P fill={} cksum={a:x}:{b:x}:{c:x}:{d:x}",
            self.level(),
            self.object_type(),
            self.checksum_kind(),
            self.compress(),
            self.lsize(),
            self.psize(),
            self.birth(),
            self.physical_birth(),
            self.fill(),
        )
    }
}

fn bits(word: U64, low: u32, count: u32) -> u64 {
    word.get() >> low & ((1 << count) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_drawing_says() {
        let mut words = [0u64; 16];
        words[0] = 5 << 32 | 16;
        words[1] = 1 << 63 | 0x1234;
        words[6] = 1 << 63 | 2 << 56 | 20 << 48 | 7 << 40 | 15 << 32 | 7 << 16 | 255;
        words[10] = 99;
        words[11] = 3;
        words[15] = 0xdead;
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let bp = BlkPtr::parse(&bytes).unwrap();
        let dva = bp.dvas()[0];
        assert_eq!((dva.vdev().get(), dva.asize(), dva.offset(), dva.is_gang()), (5, 8192, 0x1234 << 9, true));
        assert_eq!(dva, Dva::new(VdevNumber::new(5), 0x1234 << 9, 8192, true));
        assert_eq!((bp.lsize(), bp.psize(), bp.level(), bp.compress()), (128 << 10, 4096, 2, 15));
        assert_eq!(
            (bp.checksum_kind(), bp.object_type(), bp.endian()),
            (7, ObjectType::DIRECTORY_CONTENTS, Endian::Little)
        );
        assert_eq!(
            (bp.birth(), bp.physical_birth(), bp.fill(), bp.checksum()[3]),
            (Txg::new(99), Txg::new(99), 3, 0xdead)
        );
        assert!(!bp.is_hole() && bp.copies().count() == 1);
        assert!(BlkPtr::HOLE.is_hole());
    }

    #[test]
    fn what_is_taken_was_not_rewritten() {
        let mut words: Vec<u64> = vec![0; 16];
        (words[1], words[6], words[7], words[9], words[10]) = (0x1234, 7 << 40 | 19 << 48 | 7, 1 << 63, 90, 60);
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let bp = BlkPtr::parse(&bytes).unwrap();
        assert_eq!((bp.birth(), bp.reference_birth()), (Txg::new(60), Txg::new(90)));
        let taken = bp.taken_in(Txg::new(100));
        assert_eq!([taken.birth(), taken.physical_birth(), taken.reference_birth()], [100, 90, 100].map(Txg::new));
        // the payload of a small block is no flag
        words[6] |= 1 << 39;
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let bp = BlkPtr::parse(&bytes).unwrap();
        assert_eq!(bp.taken_in(Txg::new(100)).payload(), bp.payload());
    }

    #[test]
    fn embedded_payload_skips_the_property_and_birth_words() {
        let mut words: Vec<u64> = (0..16).map(|i| 0x0101_0101_0101_0101 * i).collect();
        words[6] = 1 << 39 | 111 << 25 | 4095;
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let bp = BlkPtr::parse(&bytes).unwrap();
        assert_eq!((bp.lsize(), bp.psize(), bp.is_hole()), (4096, 112, false));
        let expect: Vec<u8> = [0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 15].iter().flat_map(|&b| [b; 8]).collect();
        assert_eq!(bp.payload(), expect);
    }
}
