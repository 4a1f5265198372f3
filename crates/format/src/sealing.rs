//! Which bytes of an encrypted set are sealed, and which are authenticated only: over bytes as they are on disk, in the
//! byte order of their writer, never over what was parsed and written again.
//!
//! ```text
//!   dnode block   of each dnode: core, without what changes by itself | a record a pointer ─▶ additional data
//!                 its area behind the pointers: bonus buffers that are encrypted ───────────▶ sealed
//!                                               others, free slots ─────────────────────────▶ additional data
//!   log block     link, without its sum | of each record its head, pointers ────────────────▶ additional data
//!                 what is left of the records ──────────────────────────────────────────────▶ sealed
//!   indirect      a record a pointer ─▶ SHA-512, no key
//!   head          portable: kind | 0 | core and records of the meta dnode ──────────────────▶ HMAC, at 720
//!                 local:    flags | core and records of the dnodes of accounts in use ──────▶ HMAC, at 752
//!
//!   record of a pointer   properties u64 LE, without what may change | MAC (16) | 0 u64 (not in version 0)
//! ```
//!
//! The sealed pieces of a block are one message, in their order. The sum of a log block is behind its link.
//! Addresses, births and fills are in no record, so that blocks can be moved without a key.
//!
//! Source: observed in pools that OpenZFS wrote. Nothing big-endian and nothing of version 0 was at hand.

use std::ops::Range;

use base::{Block, Endian, Error, Result};

use crate::blkptr::BlkPtr;
use crate::dnode::{Dnode, SLOT_SIZE};
use crate::object_type::ObjectType;
use crate::swap;

#[cfg(test)]
mod tests;

/// Bytes of the MACs in heads.
pub const HEAD_MAC_SIZE: usize = 32;

/// Bytes of a dnode before its pointers.
const CORE_SIZE: usize = 64;
/// Where kind and flags of a head are, its MACs, and the dnodes of accounts.
const KIND_AT: usize = 704;
const FLAGS_AT: usize = 712;
const MACS_AT: usize = 720;
const ACCOUNTS_AT: usize = 1024;
/// The flag of a head by which space is counted.
const IS_COUNTED: u64 = 1;
/// The link of a log block: what is before its sum, and all of it.
const LINK_BEFORE_SUM: usize = 144;
const LINK_SIZE: usize = 184;
/// Where the used bytes of a log block are counted.
const USED_AT: usize = 136;
/// Head of a record in the log.
const LOG_HEAD_SIZE: usize = 32;

/// Version of the keys of a set: which records pointers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SealVersion {
    /// Before ZFS on Linux 0.8.
    Zero,
    /// Since then.
    One,
}

impl SealVersion {
    /// The version of that number; `None` if there is no such version.
    pub fn of_number(number: u64) -> Option<SealVersion> {
        match number {
            0 => Some(SealVersion::Zero),
            1 => Some(SealVersion::One),
            _ => None,
        }
    }
}

/// What a block is sealed with, as byte strings; see `blkptr` for where they are.
impl BlkPtr {
    /// From this and the set's key comes the key of the block.
    pub fn salt_bytes(&self) -> [u8; 8] {
        self.string(self.dvas()[2].words()[0])
    }

    /// The initialization vector.
    pub fn iv_bytes(&self) -> [u8; 12] {
        let mut iv = [0; 12];
        iv[..8].copy_from_slice(&self.string(self.dvas()[2].words()[1]));
        iv[8..].copy_from_slice(&match self.endian() {
            Endian::Little => self.iv2().to_le_bytes(),
            Endian::Big => self.iv2().to_be_bytes(),
        });
        iv
    }

    /// What the bytes of the block authenticate to.
    pub fn mac_bytes(&self) -> [u8; 16] {
        let [.., high, low] = self.checksum();
        let mut mac = [0; 16];
        mac[..8].copy_from_slice(&self.string(high));
        mac[8..].copy_from_slice(&self.string(low));
        mac
    }

    /// A byte string in a word: writers of all machines store it as it is, and readers have turned it as a number.
    fn string(&self, word: u64) -> [u8; 8] {
        match self.endian() {
            Endian::Little => word.to_le_bytes(),
            Endian::Big => word.to_be_bytes(),
        }
    }
}

/// The bytes of a block as they are on disk: sealed, if the block is. Cache devices, and what packs blocks in memory,
/// take nothing else, so that contents that were opened cannot go there.
#[derive(Clone, Debug)]
pub struct StoredBytes(Block);

/// A block that is not sealed: its contents, where they are not compressed, are its bytes on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsealed(());

impl StoredBytes {
    /// Bytes that came from a device, or go to one.
    pub fn of_device(bytes: impl Into<Block>) -> StoredBytes {
        StoredBytes(bytes.into())
    }

    /// The contents of a block that is not sealed.
    pub fn of_contents(contents: Block, _: Unsealed) -> StoredBytes {
        StoredBytes(contents)
    }

    /// The block of memory that they are in.
    pub fn block(&self) -> &Block {
        &self.0
    }
}

impl BlkPtr {
    /// Whether the block is not sealed.
    pub fn unsealed(&self) -> Option<Unsealed> {
        (!self.is_encrypted()).then_some(Unsealed(()))
    }
}

/// Adds the record of a pointer.
fn push_record(bp: &BlkPtr, version: SealVersion, out: &mut Vec<u8>) {
    const LITTLE_ENDIAN: u64 = 1 << 63;
    const DEDUP: u64 = 1 << 62;
    const CHECKSUM: u64 = 0xff << 40;
    const COMPRESS: u64 = 0x7f << 32;
    const PSIZE: u64 = 0xffff << 16;
    let kept = match (version, bp.level()) {
        (SealVersion::Zero, _) => !(DEDUP | CHECKSUM | PSIZE),
        (SealVersion::One, _) if bp.is_hole() => 0,
        (SealVersion::One, 0) => !(DEDUP | CHECKSUM),
        (SealVersion::One, _) => !(DEDUP | CHECKSUM | LITTLE_ENDIAN | COMPRESS | PSIZE),
    };
    out.extend((bp.prop() & kept).to_le_bytes());
    // the checksum of a head is a whole one
    out.extend(if bp.object_type() == ObjectType::OBJSET { [0; 16] } else { bp.mac_bytes() });
    if version == SealVersion::One {
        out.extend([0; 8]);
    }
}

/// Adds records of the pointers in `bytes`, which are in the byte order of their writer.
fn push_records(bytes: &[u8], endian: Endian, version: SealVersion, out: &mut Vec<u8>) {
    if endian == Endian::Little {
        BlkPtr::slice(bytes).iter().for_each(|bp| push_record(bp, version, out));
    } else {
        let mut turned = bytes.to_vec();
        swap::words(&mut turned);
        BlkPtr::slice(&turned).iter().for_each(|bp| push_record(bp, version, out));
    }
}

/// What the MAC of an indirect block is taken of: the records of all its pointers.
pub fn records_of_indirect(block: &[u8], endian: Endian, version: SealVersion) -> Vec<u8> {
    let mut records = Vec::with_capacity(block.len() / 4);
    push_records(block, endian, version, &mut records);
    records
}

/// What is sealed of a block, and what is authenticated with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedSpans {
    /// Additional data.
    pub additional: Vec<u8>,
    /// Where the sealed message is: in order, and apart from each other.
    pub sealed: Vec<Range<usize>>,
}

impl SealedSpans {
    /// The message in a block.
    pub fn gather(&self, block: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(self.sealed.iter().map(Range::len).sum());
        self.sealed.iter().for_each(|span| message.extend(&block[span.clone()]));
        message
    }

    /// Puts a message where that of a block is.
    pub fn scatter(&self, mut message: &[u8], block: &mut [u8]) {
        for span in &self.sealed {
            let (piece, rest) = message.split_at(span.len());
            block[span.clone()].copy_from_slice(piece);
            message = rest;
        }
    }
}

/// A dnode as it is on disk.
struct RawDnode<'a> {
    bytes: &'a [u8],
    endian: Endian,
    /// Where its pointers end.
    pointers_end: usize,
    /// Where the area behind them ends.
    area_end: usize,
}

impl RawDnode<'_> {
    /// The dnode at the start of `bytes`, which may go on behind it. Errors: `Corrupt`.
    fn first(bytes: &[u8], endian: Endian) -> Result<RawDnode<'_>> {
        let extra = *bytes.get(12).ok_or_else(|| Error::corrupt(format!("a dnode of {} bytes", bytes.len())))?;
        let size = (usize::from(extra) + 1) * SLOT_SIZE;
        let short = || Error::corrupt(format!("dnode of {size} bytes, {} are there", bytes.len()));
        let bytes = bytes.get(..size).ok_or_else(short)?;
        let has_spill = bytes[7] & Dnode::FLAG_SPILL != 0;
        let area_end = if has_spill { size - BlkPtr::SIZE } else { size };
        let pointers_end = CORE_SIZE + usize::from(bytes[3]) * BlkPtr::SIZE;
        if pointers_end > area_end {
            return Err(Error::corrupt(format!("{} block pointers in a dnode of {size} bytes", bytes[3])));
        }
        Ok(RawDnode { bytes, endian, pointers_end, area_end })
    }

    fn is_free(&self) -> bool {
        self.bytes[0] == ObjectType::NONE.0
    }

    /// Whether its bonus buffer is sealed, with all that is in the same area.
    fn is_sealed(&self) -> bool {
        let has_bonus = self.bytes[10..12] != [0; 2];
        !self.is_free() && has_bonus && ObjectType(self.bytes[4]).is_encrypted()
    }

    /// Adds the core as it is on disk, but for the bytes used and flags that may change without a key.
    fn push_core(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.extend(&self.bytes[..CORE_SIZE]);
        out[at + 7] &= Dnode::FLAG_SPILL;
        out[at + 24..at + 32].fill(0);
    }

    /// Adds the core with little-endian numbers.
    fn push_little_core(&self, out: &mut Vec<u8>) {
        let at = out.len();
        self.push_core(out);
        if self.endian == Endian::Big {
            [8..10, 10..12, 16..24].into_iter().for_each(|number| out[at + number.start..at + number.end].reverse());
        }
    }

    fn push_records(&self, version: SealVersion, out: &mut Vec<u8>) {
        push_records(&self.bytes[CORE_SIZE..self.pointers_end], self.endian, version, out);
        push_records(&self.bytes[self.area_end..], self.endian, version, out);
    }
}

/// What is sealed of a block of dnodes. Errors: `Corrupt` for one that cannot be such a block.
pub fn spans_of_dnodes(block: &[u8], endian: Endian, version: SealVersion) -> Result<SealedSpans> {
    let mut spans = SealedSpans { additional: Vec::with_capacity(block.len() / 2), sealed: Vec::new() };
    let mut at = 0;
    while at < block.len() {
        let dnode = RawDnode::first(&block[at..], endian)?;
        dnode.push_core(&mut spans.additional);
        dnode.push_records(version, &mut spans.additional);
        match dnode.is_sealed() {
            true => spans.sealed.push(at + dnode.pointers_end..at + dnode.area_end),
            false => spans.additional.extend(&dnode.bytes[dnode.pointers_end..dnode.area_end]),
        }
        at += dnode.bytes.len();
    }
    Ok(spans)
}

/// What the portable MAC of a head is taken of. Errors: `Corrupt`.
pub fn portable_data(head: &[u8], endian: Endian, version: SealVersion) -> Result<Vec<u8>> {
    let mut data = vec![0; 16];
    // the highest byte first on every machine; behind it the flags of the set that are portable: there are none
    data[..8].copy_from_slice(&word(head, KIND_AT, endian)?.to_be_bytes());
    let meta = RawDnode::first(head.get(..SLOT_SIZE).unwrap_or_default(), endian)?;
    meta.push_little_core(&mut data);
    meta.push_records(version, &mut data);
    Ok(data)
}

/// What the local MAC of a head is taken of; `None` if there is nothing that it could be taken of, and it is all zeros.
/// Errors: `Corrupt`.
pub fn local_data(head: &[u8], endian: Endian, version: SealVersion) -> Result<Option<Vec<u8>>> {
    let flags = word(head, FLAGS_AT, endian)?;
    let mut data = flags.to_le_bytes().to_vec();
    let begin = data.len();
    let accounts = head.get(ACCOUNTS_AT..).unwrap_or_default().chunks_exact(SLOT_SIZE).take(3);
    for slot in accounts {
        let dnode = RawDnode::first(slot, endian)?;
        if !dnode.is_free() {
            dnode.push_little_core(&mut data);
            dnode.push_records(version, &mut data);
        }
    }
    Ok((flags & IS_COUNTED != 0 && data.len() > begin).then_some(data))
}

/// The MACs that a head has: the portable one, the local one. Errors: `Corrupt`.
pub fn macs_of_head(head: &[u8]) -> Result<[[u8; HEAD_MAC_SIZE]; 2]> {
    let macs = head.get(MACS_AT..).and_then(|rest| rest.as_chunks().0.first_chunk());
    macs.copied().ok_or_else(|| Error::corrupt(format!("object set head of {} bytes", head.len())))
}

/// The MAC of a log block, which is behind what is left of the sum in its link. Errors: `Corrupt`.
pub fn mac_of_log(block: &[u8]) -> Result<[u8; 16]> {
    let mac = block.get(LINK_SIZE - 16..).and_then(<[u8]>::first_chunk);
    mac.copied().ok_or_else(|| Error::corrupt(format!("log block of {} bytes", block.len())))
}

/// What is sealed of a log block. Errors: `Corrupt` for one that cannot be such a block.
pub fn spans_of_log(block: &[u8], endian: Endian) -> Result<SealedSpans> {
    const WRITE: u64 = 9;
    const CLONE_RANGE: u64 = 20;
    let used = word(block, USED_AT, endian)?;
    let is_possible = |used: &usize| (LINK_SIZE..=block.len()).contains(used);
    let used = usize::try_from(used)
        .ok()
        .filter(is_possible)
        .ok_or_else(|| Error::corrupt(format!("{used} bytes used in a log block of {}", block.len())))?;
    let (mut additional, mut sealed) = (block[..LINK_BEFORE_SUM].to_vec(), Vec::new());
    let mut at = LINK_SIZE;
    while at < used {
        let kind = word(&block[..used], at, endian)? & !(1 << 63);
        let len = word(&block[..used], at + 8, endian)?;
        let least = match kind {
            WRITE => 192,
            CLONE_RANGE => 72,
            _ => LOG_HEAD_SIZE,
        };
        let end = usize::try_from(len).ok().filter(|len| (least..=used - at).contains(len)).map(|len| at + len);
        let end = end.ok_or_else(|| Error::corrupt(format!("log record of type {kind} and {len} bytes at {at}")))?;
        additional.extend(&block[at..at + LOG_HEAD_SIZE]);
        let mut seal = |span: Range<usize>| {
            if !span.is_empty() {
                sealed.push(span);
            }
        };
        match kind {
            WRITE => {
                additional.extend(&block[at + 64..at + 192]);
                seal(at + LOG_HEAD_SIZE..at + 64);
                seal(at + 192..end);
            }
            CLONE_RANGE => {
                additional.extend(&block[at + 72..end]);
                seal(at + LOG_HEAD_SIZE..at + 72);
            }
            _ => seal(at + LOG_HEAD_SIZE..end),
        }
        at = end;
    }
    Ok(SealedSpans { additional, sealed })
}

/// A number in a block as it is on disk. Errors: `Corrupt`.
fn word(block: &[u8], at: usize, endian: Endian) -> Result<u64> {
    let bytes = block.get(at..).and_then(<[u8]>::first_chunk);
    let bytes = *bytes.ok_or_else(|| Error::corrupt(format!("block of {} bytes ends before {at}", block.len())))?;
    Ok(match endian {
        Endian::Little => u64::from_le_bytes(bytes),
        Endian::Big => u64::from_be_bytes(bytes),
    })
}
