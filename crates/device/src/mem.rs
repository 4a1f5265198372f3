//! A device in memory.

use std::ops::Deref;

use base::{Result, RwLock};

use crate::{Device, check_bounds};

/// Bytes in memory that act as a device.
pub struct MemDevice {
    name: String,
    size: u64,
    bytes: RwLock<Vec<u8>>,
}

impl MemDevice {
    /// A device that holds `bytes`; `name` is for messages.
    pub fn new(name: impl Into<String>, bytes: Vec<u8>) -> MemDevice {
        MemDevice { name: name.into(), size: bytes.len() as u64, bytes: RwLock::new(bytes) }
    }

    /// What the device holds; writers wait as long as this is held.
    pub fn bytes(&self) -> impl Deref<Target = Vec<u8>> {
        self.bytes.read()
    }

    /// What the device holds, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut()
    }
}

impl std::fmt::Debug for MemDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemDevice({}, {} bytes)", self.name, self.size)
    }
}

impl Device for MemDevice {
    fn path(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_bounds(self, "read", offset, buf.len())?;
        let start = offset as usize;
        buf.copy_from_slice(&self.bytes()[start..start + buf.len()]);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        check_bounds(self, "write", offset, buf.len())?;
        let start = offset as usize;
        let mut bytes = self.bytes.write();
        bytes[start..start + buf.len()].copy_from_slice(buf);
        Ok(())
    }

    /// Memory has nothing to flush.
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}
