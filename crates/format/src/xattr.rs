//! Extended attributes packed into one system attribute: a name-value list of byte arrays.
//!
//! Names are those of Linux, which may be any bytes, where [`NvList`] has text. So this
//! walks the XDR encoding, the one that all writers use, itself, and copies nothing:
//!
//! ```text
//! pair:  encoded size u32 | decoded size u32 | name length u32, name | type u32 | elements u32 | bytes
//! ```
//!
//! Source: RFC 4506, and the behaviour of libnvpair.

use std::borrow::Cow;

use base::{Endian, Error, Reader, Result};

use crate::nvlist::{NvList, Value};

const ENCODING_XDR: u8 = 1;
const TYPE_BYTES: u32 = 10;

/// Name and value of one attribute.
pub type XattrPair<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// The attributes in a packed list, in their order. What is no byte array is left out.
pub fn unpack(bytes: &[u8]) -> Result<Vec<XattrPair<'_>>> {
    let mut r = Reader::new(bytes, Endian::Big);
    let [encoding, ..] = *r.take(4)? else { return Ok(Vec::new()) };
    if encoding != ENCODING_XDR {
        let list = NvList::unpack(bytes)?;
        let bytes_of = |(name, value): (&str, &Value)| match value {
            Value::Bytes(value) => Some((Cow::Owned(name.as_bytes().to_vec()), Cow::Owned(value.clone()))),
            _ => None,
        };
        return Ok(list.iter().filter_map(bytes_of).collect());
    }
    let (version, _flags) = (r.i32()?, r.u32()?);
    if version != 0 {
        return Err(Error::corrupt(format!("extended attributes: list of unknown version {version}")));
    }
    let mut pairs = Vec::new();
    loop {
        let size = r.clone().u32()? as usize;
        let mut pair = Reader::new(if size == 0 { r.rest() } else { r.take(size)? }, Endian::Big);
        if (pair.u32()?, pair.u32()?) == (0, 0) {
            return Ok(pairs);
        }
        if size == 0 {
            return Err(Error::corrupt("extended attributes: a pair of 0 bytes"));
        }
        let name = padded(&mut pair)?;
        if pair.u32()? == TYPE_BYTES {
            pairs.push((Cow::Borrowed(name), Cow::Borrowed(padded(&mut pair)?)));
        }
    }
}

/// The packed list of these attributes.
pub fn pack<'a>(pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut out = vec![ENCODING_XDR, 1, 0, 0];
    let words = |out: &mut Vec<u8>, words: &[usize]| {
        words.iter().for_each(|&word| out.extend_from_slice(&(word as u32).to_be_bytes()));
    };
    // the version, and that names are unique
    words(&mut out, &[0, 1]);
    for (name, value) in pairs {
        let (name_space, value_space) = (name.len().next_multiple_of(4), value.len().next_multiple_of(4));
        let in_memory = (16 + name.len() + 1).next_multiple_of(8) + value.len().next_multiple_of(8);
        words(&mut out, &[20 + name_space + value_space, in_memory, name.len()]);
        out.extend_from_slice(name);
        out.resize(out.len() + name_space - name.len(), 0);
        words(&mut out, &[TYPE_BYTES as usize, value.len()]);
        out.extend_from_slice(value);
        out.resize(out.len() + value_space - value.len(), 0);
    }
    words(&mut out, &[0, 0]);
    out
}

/// A length, that many bytes, and what fills them up to a multiple of 4.
fn padded<'a>(r: &mut Reader<'a>) -> Result<&'a [u8]> {
    let len = r.u32()? as usize;
    let bytes = r.take(len)?;
    r.take(len.next_multiple_of(4) - len)?;
    Ok(bytes)
}

/// Reads `bytes` to the end; for tests with hostile bytes.
pub fn fuzz(bytes: &[u8]) {
    if let Ok(pairs) = unpack(bytes) {
        let read: usize = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!(read <= bytes.len() * 3, "what is no text grows to the three bytes of a replacement character");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut list = NvList::new();
        list.set("user.colour", Value::Bytes(b"blue".to_vec()));
        list.set("other", Value::U64(7));
        list.set("security.x", Value::Bytes(vec![]));
        list.set("trusted.long", Value::Bytes(vec![7; 333]));
        list.pack()
    }

    #[test]
    fn as_packed() {
        let bytes = sample();
        let pairs = unpack(&bytes).unwrap();
        let names: Vec<_> = pairs.iter().map(|(name, value)| (&name[..], value.len())).collect();
        assert_eq!(names, [(&b"user.colour"[..], 4), (b"security.x", 0), (b"trusted.long", 333)]);
    }

    #[test]
    fn what_is_packed_is_the_same_list() {
        let mut list = NvList::new();
        let mut pairs: Vec<(String, Vec<u8>)> = Vec::new();
        for len in 0..12 {
            pairs.push((format!("user.{}", "n".repeat(len)), vec![len as u8; len * 3]));
            list.set(&pairs[len].0, Value::Bytes(pairs[len].1.clone()));
            let packed = pack(pairs.iter().map(|(name, value)| (name.as_bytes(), &value[..])));
            assert_eq!(packed, list.pack(), "{len}");
            assert_eq!(unpack(&packed).unwrap().len(), len + 1);
        }
        assert_eq!(pack([]), NvList::new().pack());
        let odd = pack([(&b"user.\xff"[..], &b"value"[..])]);
        assert_eq!(*unpack(&odd).unwrap()[0].0, b"user.\xff"[..]);
    }

    #[test]
    fn a_name_that_is_no_text() {
        let mut bytes = sample();
        let at = bytes.windows(4).position(|part| part == b"user").unwrap();
        bytes[at + 6] = 0xff;
        assert_eq!(&*unpack(&bytes).unwrap()[0].0, b"user.c\xfflour");
    }

    #[test]
    fn nonsense_is_refused() {
        let whole = sample();
        assert!((0..whole.len()).all(|len| unpack(&whole[..len]).is_err()));
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                fuzz(&bytes);
            }
        }
    }
}
