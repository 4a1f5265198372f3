//! A new volume: two objects, and no block of data.

use std::sync::Arc;

use base::{Error, Kind, Result};
use dmu::zap::{Editor, ZapValue};
use dmu::{INDIRECT_SHIFT, Objset, Tx};
use format::dnode::Dnode;
use format::object_type::ObjectType;
use format::volume;

/// Bytes of a block of the properties' table at first.
const TABLE_BLOCK_SIZE: u64 = 512;
/// Block pointers in a dnode with nothing else in it.
const POINTERS: usize = 3;

/// A volume to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewVolume {
    /// Bytes: a multiple of those of its blocks.
    pub size: u64,
    /// Bytes of its blocks: a power of two.
    pub block_size: u64,
    /// What the salt of its table is; to be random.
    pub salt: u64,
}

/// Makes a volume in a set that has no objects. Errors: `Invalid` for sizes that cannot be.
pub fn create_volume(objset: &Arc<Objset>, tx: &Tx<'_>, new: &NewVolume) -> Result<()> {
    check_size(new.size, new.block_size)?;
    objset.allocate_at(tx, volume::DATA, Dnode::new(ObjectType::ZVOL, new.block_size, INDIRECT_SHIFT, POINTERS, 1))?;
    let dnode = Dnode::new(ObjectType::ZVOL_PROP, TABLE_BLOCK_SIZE, INDIRECT_SHIFT, POINTERS, 1);
    let table = objset.allocate_at(tx, volume::PROPERTIES, dnode)?;
    Editor::create(&table.changing(tx), 0, 0, new.salt)?.set(volume::SIZE.as_bytes(), &ZapValue::one(new.size))
}

/// Errors: `Invalid`, in the words of `zfs`.
pub(crate) fn check_size(size: u64, block_size: u64) -> Result<()> {
    let why = match block_size {
        _ if size == 0 => "volume size cannot be zero",
        _ if i64::try_from(size).is_err() => "volume size is too large",
        0 => "volume block size cannot be zero",
        _ if !size.is_multiple_of(block_size) => "volume size must be a multiple of volume block size",
        _ => return Ok(()),
    };
    Err(Error::new(Kind::Invalid, why))
}
