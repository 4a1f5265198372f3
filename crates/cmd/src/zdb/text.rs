//! How block pointers and name-value lists are written.

use std::fmt;
use std::io::{self, Write};

use base::{Bookmark, Endian};
use codec::checksum::Checksum;
use codec::compress::Compress;
use format::blkptr::{BlkPtr, Embedded};
use format::dnode::Dnode;
use format::nvlist::{NvList, Value};
use format::object_type::{ObjectType, SwapClass};

/// A block pointer in full.
pub struct Pointer<'a>(pub &'a BlkPtr);

/// A block pointer in short, as in the list of an object's blocks; with all copies, or the first only.
pub struct Short<'a>(pub &'a BlkPtr, pub bool);

impl fmt::Display for Pointer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bp = self.0;
        let (level, kind, lsize, birth) = (bp.level(), pointer_type_name(bp.object_type()), bp.lsize(), bp.birth());
        if bp.is_hole() {
            write!(f, "HOLE [L{level} {kind}] size={lsize:x}L birth={birth}L")?;
            return Ok(());
        }
        if bp.is_embedded() {
            let (etype, compress, psize) = (embedded_type(bp), compress_name(bp.compress()), bp.psize());
            if bp.embedded() == Embedded::Redacted {
                return write!(f, "REDACTED [L{level} {kind}] size={lsize:x}L birth={birth}L");
            }
            return write!(
                f,
                "EMBEDDED [L{level} {kind}] et={etype} {compress} size={lsize:x}L/{psize:x}P birth={birth}L"
            );
        }
        for (i, dva) in bp.copies().enumerate() {
            write!(f, "DVA[{i}]=<{dva:?}> ")?;
        }
        if bp.is_encrypted() {
            let ([salt, iv], iv2) = (bp.dvas()[2].words(), bp.iv2());
            write!(f, "salt={salt:x} iv={iv:x}:{iv2:x} ")?;
        }
        let crypt = match (bp.uses_crypt(), bp.is_encrypted(), bp.level()) {
            (false, ..) => "unencrypted",
            (true, true, _) => "encrypted",
            (true, false, 0) => "authenticated",
            _ => "indirect-MAC",
        };
        let endian = if bp.endian() == Endian::Little { "LE" } else { "BE" };
        let gang = if bp.is_gang() { "gang" } else { "contiguous" };
        let dedup = if bp.is_dedup() { "dedup" } else { "unique" };
        // of a gang block whose header alone was written once more, that does not count
        let [_, second, third] = bp.dvas();
        let only_header = bp.is_gang() && third.asize() <= second.asize() / 2;
        let copies =
            ["zero", "single", "double", "triple"][bp.copies().count().saturating_sub(usize::from(only_header))];
        let (checksum, compress) = (checksum_name(bp.checksum_kind()), compress_name(bp.compress()));
        let (psize, physical, fill) = (bp.psize(), bp.physical_birth(), bp.fill());
        let [a, b, c, d] = bp.checksum();
        write!(
            f,
            "[L{level} {kind}] {checksum} {compress} {crypt} {endian} {gang} {dedup} {copies} \
             size={lsize:x}L/{psize:x}P birth={birth}L/{physical}P fill={fill} cksum={a:016x}:{b:016x}:{c:016x}:{d:016x}"
        )
    }
}

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Short(bp, all) = *self;
        let (lsize, psize, birth) = (bp.lsize(), bp.psize(), bp.birth());
        if bp.is_embedded() {
            return write!(f, "EMBEDDED et={} {lsize:x}L/{psize:x}P B={birth}", embedded_type(bp));
        }
        if bp.is_hole() {
            return write!(f, "0:0:0 {lsize:x}L B={birth}");
        }
        for dva in bp.copies().take(if all { 3 } else { 1 }) {
            write!(f, "{dva:?} ")?;
        }
        let [a, b, c, d] = bp.checksum();
        let (fill, physical) = (bp.fill(), bp.physical_birth());
        write!(f, "{lsize:x}L/{psize:x}P F={fill} B={birth}/{physical} cksum={a:016x}:{b:016x}:{c:016x}:{d:016x}")
    }
}

/// Name of an object's type; those without a name go by how their blocks are turned.
pub fn type_name(kind: ObjectType) -> &'static str {
    match turned_name(kind) {
        Some(name) => name,
        None => kind.name(),
    }
}

/// Name of an object's type in a pointer to one of its blocks.
fn pointer_type_name(kind: ObjectType) -> String {
    match turned_name(kind) {
        Some(name) => format!("bswap {} {name}", if kind.is_metadata() { "metadata" } else { "data" }),
        None => kind.name().to_owned(),
    }
}

fn turned_name(kind: ObjectType) -> Option<&'static str> {
    let class = kind.swap_class().filter(|_| kind.0 >= 0x80)?;
    Some(match class {
        SwapClass::U8 => "uint8",
        SwapClass::U16 => "uint16",
        SwapClass::U32 => "uint32",
        SwapClass::U64 => "uint64",
        SwapClass::Zap => "zap",
        SwapClass::Dnode => "dnode",
        SwapClass::Objset => "objset",
        SwapClass::Znode => "znode",
        SwapClass::OldAcl => "oldacl",
        SwapClass::Acl => "acl",
    })
}

/// Name of a checksum by its number.
pub fn checksum_name(n: u8) -> String {
    Checksum::from_u8(n).map_or_else(|| format!("unknown-{n}"), |kind| kind.name().to_owned())
}

/// Name of a compression by its number.
pub fn compress_name(n: u8) -> String {
    Compress::from_u8(n).map_or_else(|| format!("unknown-{n}"), |kind| kind.name().to_owned())
}

fn embedded_type(bp: &BlkPtr) -> u8 {
    match bp.embedded() {
        Embedded::Data => 0,
        Embedded::Redacted => 2,
        Embedded::Unknown(n) => n,
    }
}

/// Where in its object a block's data begin, in bytes; in the meta dnode, which object.
pub fn offset_of(dnode: Option<&Dnode>, bookmark: Bookmark) -> u64 {
    let Some(dnode) = dnode else { return bookmark.blkid };
    let levels = u32::try_from(bookmark.level).unwrap_or(0);
    let shift = if levels == 0 { 0 } else { levels * dnode.pointers_shift() };
    bookmark.blkid.checked_shl(shift).unwrap_or(0).wrapping_mul(dnode.block_size)
}

/// A list, one value a line, nested ones further in.
pub fn print_nvlist(list: &NvList, indent: usize, out: &mut dyn Write) -> io::Result<()> {
    for (name, value) in list.iter() {
        print_value(name, value, indent, out)?;
    }
    Ok(())
}

fn print_value(name: &str, value: &Value, indent: usize, out: &mut dyn Write) -> io::Result<()> {
    macro_rules! one {
        ($value:expr) => {
            writeln!(out, "{:indent$}{name}: {}", "", $value)
        };
    }
    macro_rules! many {
        ($values:expr) => {
            $values.iter().enumerate().try_for_each(|(i, v)| writeln!(out, "{:indent$}{name}[{i}]: {v}", ""))
        };
    }
    match value {
        Value::Flag => writeln!(out, "{:indent$}{name}", ""),
        Value::Bool(v) => one!(v),
        Value::Byte(v) | Value::U8(v) => one!(v),
        Value::I8(v) => one!(v),
        Value::I16(v) => one!(v),
        Value::U16(v) => one!(v),
        Value::I32(v) => one!(v),
        Value::U32(v) => one!(v),
        Value::I64(v) | Value::Hrtime(v) => one!(v),
        Value::U64(v) => one!(v),
        Value::Double(v) => one!(v),
        Value::Str(v) => one!(format_args!("'{v}'")),
        Value::List(list) => {
            writeln!(out, "{:indent$}{name}:", "")?;
            print_nvlist(list, indent + 4, out)
        }
        Value::Lists(lists) => lists.iter().enumerate().try_for_each(|(i, list)| {
            writeln!(out, "{:indent$}{name}[{i}]:", "")?;
            print_nvlist(list, indent + 4, out)
        }),
        Value::Bytes(v) | Value::U8s(v) => many!(v),
        Value::Bools(v) => many!(v),
        Value::I8s(v) => many!(v),
        Value::I16s(v) => many!(v),
        Value::U16s(v) => many!(v),
        Value::I32s(v) => many!(v),
        Value::U32s(v) => many!(v),
        Value::I64s(v) => many!(v),
        Value::U64s(v) => many!(v),
        Value::Strs(v) => many!(v.iter().map(|text| format!("'{text}'")).collect::<Vec<_>>()),
    }
}
