//! The XDR encoding: big-endian, everything padded to 4 bytes, integers below 32 bits widened to 32.
//!
//! ```text
//! pair:  encoded size u32 | decoded size u32 | name (length u32, bytes, padding) | type u32 | elements u32 | data
//! list:  version i32 | nvflag u32 | pair ... | 0 u32 | 0 u32
//! ```

use base::{Endian, Error, Reader, Result};

use super::code::{self, DEPTH_MAX, text, too_deep, unknown_type};
use super::list::{NvList, Value};

pub(super) fn decode(bytes: &[u8]) -> Result<NvList> {
    list(&mut Reader::new(bytes, Endian::Big), 0)
}

fn list(r: &mut Reader, depth: usize) -> Result<NvList> {
    if depth > DEPTH_MAX {
        return Err(too_deep());
    }
    let (version, _nvflag) = (r.i32()?, r.u32()?);
    if version != 0 {
        return Err(Error::corrupt(format!("nvlist of unknown version {version}")));
    }
    let mut pairs = Vec::new();
    loop {
        let (encoded, decoded) = (r.u32()?, r.u32()?);
        if encoded == 0 && decoded == 0 {
            return Ok(pairs.into_iter().collect());
        }
        let name = string(r)?;
        let kind = r.u32()?;
        let n = r.u32()? as usize;
        let value = value(r, &name, kind, n, depth)?;
        pairs.push((name, value));
    }
}

fn value(r: &mut Reader, name: &str, kind: u32, n: usize, depth: usize) -> Result<Value> {
    Ok(match kind {
        code::FLAG => Value::Flag,
        code::BOOL => Value::Bool(r.u32()? != 0),
        code::BYTE => Value::Byte(r.u32()? as u8),
        code::I8 => Value::I8(r.u32()? as i8),
        code::U8 => Value::U8(r.u32()? as u8),
        code::I16 => Value::I16(r.u32()? as i16),
        code::U16 => Value::U16(r.u32()? as u16),
        code::I32 => Value::I32(r.i32()?),
        code::U32 => Value::U32(r.u32()?),
        code::I64 => Value::I64(r.i64()?),
        code::U64 => Value::U64(r.u64()?),
        code::HRTIME => Value::Hrtime(r.i64()?),
        code::DOUBLE => Value::Double(f64::from_bits(r.u64()?)),
        code::STR => Value::Str(string(r)?),
        code::LIST => Value::List(list(r, depth + 1)?),
        code::BYTES => Value::Bytes(padded(r, n)?.to_vec()),
        code::BOOLS => Value::Bools(array(r, 4, |r| Ok(r.u32()? != 0))?),
        code::I8S => Value::I8s(array(r, 4, |r| Ok(r.u32()? as i8))?),
        code::U8S => Value::U8s(array(r, 4, |r| Ok(r.u32()? as u8))?),
        code::I16S => Value::I16s(array(r, 4, |r| Ok(r.u32()? as i16))?),
        code::U16S => Value::U16s(array(r, 4, |r| Ok(r.u32()? as u16))?),
        code::I32S => Value::I32s(array(r, 4, Reader::i32)?),
        code::U32S => Value::U32s(array(r, 4, Reader::u32)?),
        code::I64S => Value::I64s(array(r, 8, Reader::i64)?),
        code::U64S => Value::U64s(array(r, 8, Reader::u64)?),
        // an empty string takes 4 bytes, an empty list 16: so much bounds the allocation
        code::STRS => Value::Strs(elements(r, n, 4, string)?),
        code::LISTS => Value::Lists(elements(r, n, 16, |r| list(r, depth + 1))?),
        _ => return Err(unknown_type(name, kind)),
    })
}

/// An array that carries its own length.
fn array<'a, T>(r: &mut Reader<'a>, width: usize, each: impl FnMut(&mut Reader<'a>) -> Result<T>) -> Result<Vec<T>> {
    let n = r.u32()? as usize;
    elements(r, n, width, each)
}

fn elements<'a, T>(
    r: &mut Reader<'a>,
    n: usize,
    width_min: usize,
    mut each: impl FnMut(&mut Reader<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    if n > r.rest().len() / width_min {
        return Err(Error::corrupt(format!("nvlist: an array of {n} elements in {} bytes", r.rest().len())));
    }
    (0..n).map(|_| each(r)).collect()
}

fn string(r: &mut Reader) -> Result<String> {
    let n = r.u32()? as usize;
    padded(r, n).map(text)
}

fn padded<'a>(r: &mut Reader<'a>, n: usize) -> Result<&'a [u8]> {
    let bytes = r.take(n)?;
    r.take(n.next_multiple_of(4) - n)?;
    Ok(bytes)
}

pub(super) fn encode(list: &NvList, out: &mut Vec<u8>) {
    put(out, 0);
    put(out, 1); // names are unique
    for (name, value) in list.iter() {
        let start = out.len();
        put(out, 0);
        put(out, 0);
        put_bytes_with_length(out, name.as_bytes());
        let (kind, n) = kind_of(value);
        put(out, kind);
        put(out, n as u32);
        put_value(out, value);
        let size = (out.len() - start) as u32;
        out[start..start + 4].copy_from_slice(&size.to_be_bytes());
        // the size in memory: header and name, then the value, each rounded up to 8
        let decoded = (16 + name.len() + 1).next_multiple_of(8) + size_in_memory(value).next_multiple_of(8);
        out[start + 4..start + 8].copy_from_slice(&(decoded as u32).to_be_bytes());
    }
    put(out, 0);
    put(out, 0);
}

fn kind_of(value: &Value) -> (u32, usize) {
    match value {
        Value::Flag => (code::FLAG, 0),
        Value::Bool(_) => (code::BOOL, 1),
        Value::Byte(_) => (code::BYTE, 1),
        Value::I8(_) => (code::I8, 1),
        Value::U8(_) => (code::U8, 1),
        Value::I16(_) => (code::I16, 1),
        Value::U16(_) => (code::U16, 1),
        Value::I32(_) => (code::I32, 1),
        Value::U32(_) => (code::U32, 1),
        Value::I64(_) => (code::I64, 1),
        Value::U64(_) => (code::U64, 1),
        Value::Hrtime(_) => (code::HRTIME, 1),
        Value::Double(_) => (code::DOUBLE, 1),
        Value::Str(_) => (code::STR, 1),
        Value::List(_) => (code::LIST, 1),
        Value::Bytes(v) => (code::BYTES, v.len()),
        Value::Bools(v) => (code::BOOLS, v.len()),
        Value::I8s(v) => (code::I8S, v.len()),
        Value::U8s(v) => (code::U8S, v.len()),
        Value::I16s(v) => (code::I16S, v.len()),
        Value::U16s(v) => (code::U16S, v.len()),
        Value::I32s(v) => (code::I32S, v.len()),
        Value::U32s(v) => (code::U32S, v.len()),
        Value::I64s(v) => (code::I64S, v.len()),
        Value::U64s(v) => (code::U64S, v.len()),
        Value::Strs(v) => (code::STRS, v.len()),
        Value::Lists(v) => (code::LISTS, v.len()),
    }
}

fn size_in_memory(value: &Value) -> usize {
    const LIST: usize = 24;
    match value {
        Value::Flag => 0,
        Value::Bool(_) | Value::I32(_) | Value::U32(_) => 4,
        Value::Byte(_) | Value::I8(_) | Value::U8(_) => 1,
        Value::I16(_) | Value::U16(_) => 2,
        Value::I64(_) | Value::U64(_) | Value::Hrtime(_) | Value::Double(_) => 8,
        Value::Str(s) => s.len() + 1,
        Value::List(_) => LIST,
        Value::Bytes(v) | Value::U8s(v) => v.len(),
        Value::I8s(v) => v.len(),
        Value::Bools(v) => v.len() * 4,
        Value::I16s(v) => v.len() * 2,
        Value::U16s(v) => v.len() * 2,
        Value::I32s(v) => v.len() * 4,
        Value::U32s(v) => v.len() * 4,
        Value::I64s(v) => v.len() * 8,
        Value::U64s(v) => v.len() * 8,
        Value::Strs(v) => v.iter().map(|s| 8 + s.len() + 1).sum(),
        Value::Lists(v) => v.len() * (8 + LIST),
    }
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Flag => {}
        Value::Bool(b) => put(out, (*b).into()),
        Value::Byte(n) | Value::U8(n) => put(out, (*n).into()),
        Value::I8(n) => put(out, *n as u32),
        Value::I16(n) => put(out, *n as u32),
        Value::U16(n) => put(out, (*n).into()),
        Value::I32(n) => put(out, *n as u32),
        Value::U32(n) => put(out, *n),
        Value::I64(n) | Value::Hrtime(n) => put64(out, *n as u64),
        Value::U64(n) => put64(out, *n),
        Value::Double(x) => put64(out, x.to_bits()),
        Value::Str(s) => put_bytes_with_length(out, s.as_bytes()),
        Value::List(list) => encode(list, out),
        Value::Bytes(v) => put_bytes(out, v),
        Value::Bools(v) => put_array(out, v, |out, &b| put(out, b.into())),
        Value::I8s(v) => put_array(out, v, |out, &n| put(out, n as u32)),
        Value::U8s(v) => put_array(out, v, |out, &n| put(out, n.into())),
        Value::I16s(v) => put_array(out, v, |out, &n| put(out, n as u32)),
        Value::U16s(v) => put_array(out, v, |out, &n| put(out, n.into())),
        Value::I32s(v) => put_array(out, v, |out, &n| put(out, n as u32)),
        Value::U32s(v) => put_array(out, v, |out, &n| put(out, n)),
        Value::I64s(v) => put_array(out, v, |out, &n| put64(out, n as u64)),
        Value::U64s(v) => put_array(out, v, |out, &n| put64(out, n)),
        Value::Strs(v) => v.iter().for_each(|s| put_bytes_with_length(out, s.as_bytes())),
        Value::Lists(v) => v.iter().for_each(|list| encode(list, out)),
    }
}

fn put(out: &mut Vec<u8>, n: u32) {
    out.extend_from_slice(&n.to_be_bytes());
}

fn put64(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&n.to_be_bytes());
}

fn put_array<T>(out: &mut Vec<u8>, items: &[T], mut each: impl FnMut(&mut Vec<u8>, &T)) {
    put(out, items.len() as u32);
    items.iter().for_each(|item| each(out, item));
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn put_bytes_with_length(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u32);
    // `out` is a multiple of 4 long here, so padding the whole pads the part
    put_bytes(out, bytes);
}
