//! Reading integers of either byte order out of byte slices, without ever panicking on a short one.

use crate::{Error, Result};

/// The byte order that a block or label was written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Endian {
    /// Least significant byte first (x86, ARM).
    #[default]
    Little,
    /// Most significant byte first (SPARC).
    Big,
}

impl Endian {
    /// The `u64` in the first 8 bytes of `bytes`; `None` if there are fewer.
    pub fn u64(self, bytes: &[u8]) -> Option<u64> {
        let raw = *bytes.first_chunk()?;
        Some(match self {
            Endian::Little => u64::from_le_bytes(raw),
            Endian::Big => u64::from_be_bytes(raw),
        })
    }

    /// The other byte order.
    pub fn other(self) -> Endian {
        match self {
            Endian::Little => Endian::Big,
            Endian::Big => Endian::Little,
        }
    }
}

/// A cursor over a byte slice; every step is checked.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    endian: Endian,
}

macro_rules! ints {
    ($($name:ident)*) => { $(
        #[doc = concat!("The next `", stringify!($name), "`.")]
        pub fn $name(&mut self) -> Result<$name> {
            let raw = *self.take(size_of::<$name>())?.first_chunk().expect("took that many");
            Ok(match self.endian {
                Endian::Little => $name::from_le_bytes(raw),
                Endian::Big => $name::from_be_bytes(raw),
            })
        }
    )* };
}

impl<'a> Reader<'a> {
    /// A cursor at the start of `bytes`.
    pub fn new(bytes: &'a [u8], endian: Endian) -> Reader<'a> {
        Reader { rest: bytes, endian }
    }

    /// The bytes not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or_else(|| {
            Error::corrupt(format!("structure ends early: {n} more bytes needed, {} there", self.rest.len()))
        })?;
        self.rest = rest;
        Ok(head)
    }

    ints! { u8 u16 u32 u64 i32 i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders_and_the_end() {
        let bytes = [1, 2, 3, 4, 5, 6, 7];
        let mut le = Reader::new(&bytes, Endian::Little);
        let mut be = Reader::new(&bytes, Endian::Big);
        assert_eq!(le.u32().unwrap(), 0x0403_0201);
        assert_eq!(be.u32().unwrap(), 0x0102_0304);
        assert_eq!(le.u16().unwrap(), 0x0605);
        assert!(le.u16().is_err());
        assert_eq!(le.u8().unwrap(), 7);
    }
}
