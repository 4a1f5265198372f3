//! The native encoding: the pairs as they lie in memory, in the writer's byte order.
//!
//! ```text
//! 0        4         6     8          12       16
//! +--------+---------+-----+----------+--------+------------------+-----------------+
//! | size   | name len|  0  | elements | type   | name, to 8 bytes | value, to 8     |
//! +--------+---------+-----+----------+--------+------------------+-----------------+
//! ```
//!
//! `size` counts the whole pair; a pair of size 0 (4 bytes) ends a list. The pairs of a nested list
//! follow its pair; in the pair itself is only the image of a list header (24 bytes, ignored).
//! Arrays of strings and lists begin with 8 bytes an element where pointers were.

use base::{Endian, Error, Reader, Result};

use super::code::{self, DEPTH_MAX, text, too_deep, unknown_type};
use super::list::{NvList, Value};

const PAIR_HEADER_SIZE: usize = 16;

pub(super) fn decode(bytes: &[u8], endian: Endian) -> Result<NvList> {
    let mut r = Reader::new(bytes, endian);
    let (version, _nvflag) = (r.i32()?, r.u32()?);
    if version != 0 {
        return Err(Error::corrupt(format!("nvlist of unknown version {version}")));
    }
    list(&mut r, endian, 0)
}

fn list(r: &mut Reader, endian: Endian, depth: usize) -> Result<NvList> {
    if depth > DEPTH_MAX {
        return Err(too_deep());
    }
    let mut pairs = Vec::new();
    loop {
        let size = r.u32()? as usize;
        if size == 0 {
            return Ok(pairs.into_iter().collect());
        }
        let body = size.checked_sub(4).ok_or_else(|| Error::corrupt("nvlist: a pair of less than 4 bytes"))?;
        let mut pair = Reader::new(r.take(body)?, endian);
        let name_size = pair.u16()? as usize;
        pair.u16()?;
        let n = pair.u32()? as usize;
        let kind = pair.u32()?;
        let name = text(until_nul(pair.take(name_size)?));
        pair.take((PAIR_HEADER_SIZE + name_size).next_multiple_of(8) - PAIR_HEADER_SIZE - name_size)?;
        let value = match kind {
            code::LIST => Value::List(list(r, endian, depth + 1)?),
            code::LISTS => {
                check_count(n, pair.rest().len(), 8)?;
                Value::Lists((0..n).map(|_| list(r, endian, depth + 1)).collect::<Result<_>>()?)
            }
            _ => value(&mut pair, &name, kind, n)?,
        };
        pairs.push((name, value));
    }
}

fn value(r: &mut Reader, name: &str, kind: u32, n: usize) -> Result<Value> {
    Ok(match kind {
        code::FLAG => Value::Flag,
        code::BOOL => Value::Bool(r.u32()? != 0),
        code::BYTE => Value::Byte(r.u8()?),
        code::I8 => Value::I8(r.u8()? as i8),
        code::U8 => Value::U8(r.u8()?),
        code::I16 => Value::I16(r.u16()? as i16),
        code::U16 => Value::U16(r.u16()?),
        code::I32 => Value::I32(r.i32()?),
        code::U32 => Value::U32(r.u32()?),
        code::I64 => Value::I64(r.i64()?),
        code::U64 => Value::U64(r.u64()?),
        code::HRTIME => Value::Hrtime(r.i64()?),
        code::DOUBLE => Value::Double(f64::from_bits(r.u64()?)),
        code::STR => Value::Str(text(until_nul(r.rest()))),
        code::BYTES => Value::Bytes(r.take(n)?.to_vec()),
        code::U8S => Value::U8s(r.take(n)?.to_vec()),
        code::I8S => Value::I8s(array(r, n, 1, |r| Ok(r.u8()? as i8))?),
        code::BOOLS => Value::Bools(array(r, n, 4, |r| Ok(r.u32()? != 0))?),
        code::I16S => Value::I16s(array(r, n, 2, |r| Ok(r.u16()? as i16))?),
        code::U16S => Value::U16s(array(r, n, 2, Reader::u16)?),
        code::I32S => Value::I32s(array(r, n, 4, Reader::i32)?),
        code::U32S => Value::U32s(array(r, n, 4, Reader::u32)?),
        code::I64S => Value::I64s(array(r, n, 8, Reader::i64)?),
        code::U64S => Value::U64s(array(r, n, 8, Reader::u64)?),
        code::STRS => {
            check_count(n, r.rest().len(), 9)?;
            r.take(n * 8)?;
            Value::Strs(
                (0..n)
                    .map(|_| {
                        let string = until_nul(r.rest());
                        r.take(string.len() + 1)?;
                        Ok(text(string))
                    })
                    .collect::<Result<_>>()?,
            )
        }
        _ => return Err(unknown_type(name, kind)),
    })
}

fn array<'a, T>(
    r: &mut Reader<'a>,
    n: usize,
    width: usize,
    mut each: impl FnMut(&mut Reader<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    check_count(n, r.rest().len(), width)?;
    (0..n).map(|_| each(r)).collect()
}

fn check_count(n: usize, bytes: usize, width_min: usize) -> Result<()> {
    if n > bytes / width_min {
        return Err(Error::corrupt(format!("nvlist: an array of {n} elements in {bytes} bytes")));
    }
    Ok(())
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&b| b == 0).next().unwrap_or(bytes)
}
