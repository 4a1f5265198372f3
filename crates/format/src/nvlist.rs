//! Name-value lists: the self-describing trees that hold pool configurations, labels and history.
//!
//! Two encodings are on disk. XDR (RFC 4506, big-endian) is used in labels and the packed config
//! object; the native one is a memory image in the writer's byte order. Both start with
//!
//! ```text
//!  0         1         2   3   4          8
//! +---------+---------+-------+----------+--------+-------
//! | encoding| endian  |   0   | version  | nvflag | pairs ...
//! +---------+---------+-------+----------+--------+-------
//!   0 native  1 little          0          1 or 2
//!   1 XDR     0 big
//! ```
//!
//! and end with an empty pair. Lists nest; the decoder bounds the depth, and allocates no more than
//! a small multiple of the bytes it was given.
//!
//! Source: the published ZFS on-disk specification, chapter 1, and the behaviour of libnvpair.

mod code;
mod list;
mod native;
#[cfg(test)]
mod tests;
mod xdr;

use base::{Error, Result};

pub use list::{NvList, Value};

impl NvList {
    /// Decodes a packed list of either encoding from the start of `bytes`; what follows its end is ignored.
    pub fn unpack(bytes: &[u8]) -> Result<NvList> {
        let (&[encoding, endian, _, _], rest) =
            bytes.split_first_chunk().ok_or_else(|| Error::corrupt("nvlist shorter than its header"))?;
        match (encoding, endian) {
            (1, _) => xdr::decode(rest),
            (0, 1) => native::decode(rest, base::Endian::Little),
            (0, 0) => native::decode(rest, base::Endian::Big),
            _ => Err(Error::corrupt(format!("nvlist of unknown encoding {encoding}, byte order {endian}"))),
        }
    }

    /// Encodes as XDR, header included.
    pub fn pack(&self) -> Vec<u8> {
        let mut out = vec![1, 1, 0, 0];
        xdr::encode(self, &mut out);
        out
    }
}
