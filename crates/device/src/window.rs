//! A part of a device that is a device itself, such as a partition of a disk image.

use std::sync::Arc;

use base::{Error, Kind, Result};

use crate::{Device, Raw, check_bounds};

/// `size` bytes of another device, from `start` on.
#[derive(Debug)]
pub struct Window {
    inner: Arc<dyn Device>,
    name: String,
    start: u64,
    size: u64,
}

impl Window {
    /// The `size` bytes of `inner` from `start` on; `name` is for messages. An error of
    /// [`Kind::Invalid`] if they reach past its end.
    pub fn new(inner: Arc<dyn Device>, name: impl Into<String>, start: u64, size: u64) -> Result<Window> {
        let name = name.into();
        if start.checked_add(size).is_none_or(|end| end > inner.size()) {
            return Err(Error::new(
                Kind::Invalid,
                format!("{size} bytes from {start} on reach past the end, which is at {}", inner.size()),
            )
            .at_vdev(inner.path()));
        }
        Ok(Window { inner, name, start, size })
    }
}

impl Device for Window {
    fn path(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn is_gone(&self) -> bool {
        self.inner.is_gone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_bounds(self, "read", offset, buf.len())?;
        self.inner.read_at(self.start + offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        check_bounds(self, "write", offset, buf.len())?;
        self.inner.write_at(self.start + offset, buf)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64, secure: bool) -> Result<()> {
        check_bounds(self, "discard", offset, len as usize)?;
        self.inner.discard(self.start + offset, len, secure)
    }

    fn sector_bytes(&self) -> u64 {
        self.inner.sector_bytes()
    }

    fn logical_sector_bytes(&self) -> u64 {
        self.inner.logical_sector_bytes()
    }

    fn may_join_reads(&self) -> bool {
        self.inner.may_join_reads()
    }

    fn raw(&self) -> Option<Raw> {
        self.inner.raw().map(|raw| Raw { base: raw.base + self.start, ..raw })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDevice;

    #[test]
    fn shows_its_part_and_nothing_else() {
        let whole: Arc<dyn Device> = Arc::new(MemDevice::new("m", (0..100).collect()));
        let part = Window::new(whole.clone(), "m1", 10, 20).unwrap();
        let mut buf = [0; 5];
        part.read_at(15, &mut buf).unwrap();
        assert_eq!(buf, [25, 26, 27, 28, 29]);
        assert_eq!(part.read_at(16, &mut buf).unwrap_err().kind(), Kind::Io);
        assert_eq!(part.read_at(u64::MAX, &mut buf).unwrap_err().kind(), Kind::Io);
        part.write_at(18, &[1, 2]).unwrap();
        assert_eq!(part.write_at(19, &[1, 2]).unwrap_err().kind(), Kind::Io);
        whole.read_at(26, &mut buf).unwrap();
        assert_eq!(buf, [26, 27, 1, 2, 30]);
        part.flush().unwrap();
        assert!(Window::new(whole.clone(), "m2", 90, 11).is_err());
        assert!(Window::new(whole, "m3", u64::MAX, 2).is_err());
    }
}
