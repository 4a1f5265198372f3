//! A large device in little memory.

use std::collections::HashMap;

use base::{Result, RwLock};

use crate::{Device, check_bounds};

/// Bytes that are kept together.
const CHUNK_BYTES: usize = 64 << 10;

/// A device that keeps in memory only the parts of it that were written. All others are zeros.
pub struct ThinDevice {
    name: String,
    size: u64,
    chunks: RwLock<HashMap<u64, Box<[u8]>>>,
}

impl ThinDevice {
    /// A device of zeros; `name` is for messages.
    pub fn new(name: impl Into<String>, size: u64) -> ThinDevice {
        ThinDevice { name: name.into(), size, chunks: RwLock::default() }
    }
}

impl std::fmt::Debug for ThinDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ThinDevice({}, {} bytes)", self.name, self.size)
    }
}

/// The parts of `len` bytes from `offset` on: number of the chunk, place in it, and place among the bytes.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % CHUNK_BYTES as u64) as usize;
        let part = done..len.min(done + CHUNK_BYTES - within);
        done = part.end;
        Some((at / CHUNK_BYTES as u64, within, part))
    })
}

impl Device for ThinDevice {
    fn path(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_bounds(self, "read", offset, buf.len())?;
        let chunks = self.chunks.read();
        for (number, within, part) in parts(offset, buf.len()) {
            let buf = &mut buf[part];
            match chunks.get(&number) {
                Some(chunk) => buf.copy_from_slice(&chunk[within..within + buf.len()]),
                None => buf.fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        check_bounds(self, "write", offset, buf.len())?;
        let mut chunks = self.chunks.write();
        for (number, within, part) in parts(offset, buf.len()) {
            let buf = &buf[part];
            if !chunks.contains_key(&number) && buf.iter().all(|byte| *byte == 0) {
                continue;
            }
            let chunk = chunks.entry(number).or_insert_with(|| vec![0; CHUNK_BYTES].into_boxed_slice());
            chunk[within..within + buf.len()].copy_from_slice(buf);
        }
        Ok(())
    }

    /// Memory has nothing to flush.
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_is_kept() {
        let size = 1 << 50;
        let device = ThinDevice::new("large", size);
        let bytes: Vec<u8> = (0..3 * CHUNK_BYTES).map(|n| (n % 251) as u8 + 1).collect();
        let at = size / 2 - 1000;
        device.write_at(at, &bytes).unwrap();
        device.write_at(0, &vec![0; 4 * CHUNK_BYTES]).unwrap();
        let mut found = vec![7; bytes.len() + 20];
        device.read_at(at - 10, &mut found).unwrap();
        assert_eq!(found[..10], [0; 10]);
        assert!(found[10..10 + bytes.len()] == bytes);
        assert_eq!(found[10 + bytes.len()..], [0; 10]);
        assert_eq!(device.chunks.read().len(), 4);
        assert!(device.read_at(size - 1, &mut [0; 2]).is_err() && device.write_at(u64::MAX, &[0]).is_err());
        device.write_at(size - 1, &[9]).unwrap();
    }
}
