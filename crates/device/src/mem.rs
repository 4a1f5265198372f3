//! A device in memory.

use base::Result;

use crate::{Device, fits, past_the_end};

/// Bytes in memory that act as a device.
pub struct MemDevice {
    name: String,
    bytes: Vec<u8>,
}

impl MemDevice {
    /// A device that holds `bytes`; `name` is for messages.
    pub fn new(name: impl Into<String>, bytes: Vec<u8>) -> MemDevice {
        MemDevice { name: name.into(), bytes }
    }

    /// What the device holds.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What the device holds, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl std::fmt::Debug for MemDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemDevice({}, {} bytes)", self.name, self.bytes.len())
    }
}

impl Device for MemDevice {
    fn path(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if !fits(offset, buf.len(), self.size()) {
            return Err(past_the_end(&self.name, offset, buf.len(), self.size()));
        }
        let start = offset as usize;
        buf.copy_from_slice(&self.bytes[start..start + buf.len()]);
        Ok(())
    }
}
