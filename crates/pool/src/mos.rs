//! Reading the pool's own objects: the object directory and what it leads to.

use std::sync::Arc;

use base::{Endian, Error, Kind, Reader, Result};
use dmu::Objset;
use dmu::zap::Zap;
use format::ids::{ObjectId, Txg, VdevNumber};
use format::nvlist::NvList;
use format::space_map::{self, Run};
use format::uberblock::Uberblock;
use vdev::MapEntry;

/// Most bytes of a packed list: far more than the largest configuration.
const NVLIST_SIZE_MAX: u64 = 64 << 20;
/// Most bytes of a space map or mapping that is read whole.
const MAP_SIZE_MAX: u64 = 512 << 20;
/// A space map may have this many bytes however little it maps, and so many more for each sector. It is written anew
/// when it is longer than it needs to be, which is two words of 8 bytes for a sector; but not while its metaslab is
/// not loaded, and then it is told of every sector that is freed.
const MAP_SIZE_MIN: u64 = 4 << 20;
const MAP_BYTES_PER_SECTOR: u64 = 64;
/// Bytes of an entry in the mapping of a removed device.
const INDIRECT_ENTRY_SIZE: u64 = 24;

/// Entry of the object directory: the uberblock of the checkpoint.
pub(crate) const CHECKPOINT: &str = "com.delphix:zpool_checkpoint";
/// Object of the MOS that names the pool's own objects.
pub const DIRECTORY: ObjectId = ObjectId::new(1);

/// The ZAP that names the pool's own objects.
pub fn object_directory(mos: &Arc<Objset>) -> Result<Zap> {
    Zap::open(mos.object(DIRECTORY)?)
}

/// A packed list in object `id`; its bonus tells the length.
pub fn packed_nvlist(mos: &Arc<Objset>, id: ObjectId) -> Result<NvList> {
    let object = mos.object(id)?;
    let len = Endian::Little.u64(object.bonus()).ok_or_else(|| Error::corrupt("packed list without a length"))?;
    NvList::unpack(&object.read_whole(len, NVLIST_SIZE_MAX)?).map_err(|e| e.at_block(object.bookmark(0, 0)))
}

/// Numbers kept in the object directory itself; `None` if there are none of that name.
pub fn directory_u64s(mos: &Arc<Objset>, name: &str) -> Result<Option<Vec<u64>>> {
    Ok(object_directory(mos)?.lookup(name.as_bytes())?.map(|value| value.u64s()))
}

/// The salt of keyed checksums; `None` if the pool has none.
pub(crate) fn checksum_salt(mos: &Arc<Objset>) -> Result<Option<[u8; 32]>> {
    let Some(value) = object_directory(mos)?.lookup(b"org.illumos:checksum_salt")? else { return Ok(None) };
    match value.bytes().first_chunk() {
        Some(salt) => Ok(Some(*salt)),
        None => Err(Error::corrupt(format!("checksum salt of {} bytes", value.bytes().len()))),
    }
}

/// Most bytes that the space map of `bytes` of a vdev may have, whose sectors are of 2^`ashift` bytes.
pub(crate) fn map_size_max(bytes: u64, ashift: u32) -> u64 {
    (bytes >> ashift).saturating_mul(MAP_BYTES_PER_SECTOR).saturating_add(MAP_SIZE_MIN).min(MAP_SIZE_MAX)
}

/// The runs of space map object `id`, which has at most `size_max` bytes.
pub(crate) fn space_map(mos: &Arc<Objset>, id: ObjectId, size_max: u64) -> Result<Vec<Run>> {
    let object = mos.object(id)?;
    let header = space_map::SpaceMapHeader::parse(object.bonus())?;
    if header.length > object.dnode().size_max() {
        let what = format!("space map of {} bytes in an object of {}", header.length, object.dnode().size_max());
        return Err(Error::corrupt(what).at_block(object.bookmark(0, 0)));
    }
    let bytes = object.read_whole(header.length, size_max)?;
    space_map::runs(&bytes).map(|run| run.map_err(|e| e.at_block(object.bookmark(0, 0)))).collect()
}

/// The header of space map object `id`.
pub(crate) fn space_map_header(mos: &Arc<Objset>, id: ObjectId) -> Result<space_map::SpaceMapHeader> {
    space_map::SpaceMapHeader::parse(mos.object(id)?.bonus())
}

/// Bytes of the mapping of a removed device: object `id`.
pub(crate) fn indirect_mapping_bytes(mos: &Arc<Objset>, id: ObjectId) -> Result<u64> {
    let object = mos.object(id)?;
    let mut bonus = Reader::new(object.bonus(), Endian::Little);
    let (_offset_max, _bytes, count) = (bonus.u64()?, bonus.u64()?, bonus.u64()?);
    Ok(count.saturating_mul(INDIRECT_ENTRY_SIZE))
}

/// Whether the mapping of a removed device, object `id`, has an object that counts what is obsolete of each entry.
pub(crate) fn has_obsolete_counts(mos: &Arc<Objset>, id: ObjectId) -> Result<bool> {
    let object = mos.object(id)?;
    let mut bonus = Reader::new(object.bonus(), Endian::Little);
    let (_offset_max, _bytes, _count) = (bonus.u64()?, bonus.u64()?, bonus.u64()?);
    Ok(bonus.u64().is_ok_and(|counts| counts != 0))
}

/// The mapping of a removed device: object `id` of entries that tell where its bytes are now.
///
/// ```text
/// entry:  source: | 1 bit | offset / 512 (63) |   destination: a DVA (16 bytes)
/// bonus:  highest source offset | bytes mapped | number of entries | object of counts
/// ```
pub(crate) fn indirect_mapping(mos: &Arc<Objset>, id: ObjectId) -> Result<Vec<MapEntry>> {
    let object = mos.object(id)?;
    let mut bonus = Reader::new(object.bonus(), Endian::Little);
    let (_offset_max, _bytes, count) = (bonus.u64()?, bonus.u64()?, bonus.u64()?);
    let len = count.checked_mul(INDIRECT_ENTRY_SIZE).filter(|len| *len <= object.dnode().size_max());
    let Some(len) = len else {
        let what = format!("mapping of a removed device with {count} entries in {} bytes", object.dnode().size_max());
        return Err(Error::corrupt(what).at_block(object.bookmark(0, 0)));
    };
    let bytes = object.read_whole(len, MAP_SIZE_MAX)?;
    let entries = bytes.chunks_exact(INDIRECT_ENTRY_SIZE as usize).map(|raw| {
        let word = |i: usize| u64::from_le_bytes(*raw[i * 8..].first_chunk().expect("entries of 24 bytes"));
        MapEntry {
            src_offset: (word(0) & (u64::MAX >> 1)) << 9,
            dst_top: VdevNumber::new(word(1) >> 32 & 0xff_ffff),
            dst_offset: (word(2) & (u64::MAX >> 1)) << 9,
            asize: (word(1) & 0xff_ffff) << 9,
        }
    });
    Ok(entries.collect())
}

/// The uberblock of the checkpoint of a pool whose newest group is `newest_txg`; `None` if there is no checkpoint.
pub(crate) fn checkpointed(mos: &Arc<Objset>, newest_txg: Txg) -> Result<Option<Uberblock>> {
    let Some(value) = object_directory(mos)?.lookup(CHECKPOINT.as_bytes())? else { return Ok(None) };
    let uberblock = Uberblock::of_words(&value.u64s())?;
    match uberblock.txg < newest_txg && uberblock.checkpoint_txg == uberblock.txg {
        true => Ok(Some(uberblock)),
        false => Err(Error::corrupt(format!("a checkpoint of txg {}", uberblock.txg))),
    }
}

/// Whether the error says that a thing does not exist.
pub(crate) fn is_absent(error: &Error) -> bool {
    error.kind() == Kind::NotFound
}
