//! One object: its dnode in a line, and with more verbosity what is in it.
//!
//! ```text
//!   2  the line                              4  flags, bonus buffer, tables, attributes of a file
//!   5  all block pointers, runs of data      6  all copies, checksum and compression
//! ```

mod bonus;

use std::io::{self, Write};
use std::sync::Arc;

use base::{Error, Result};
use dmu::zap::{Zap, ZapEntry};
use dmu::{Keep, Mode, Object, Objset, ReadRequest};
use format::blkptr::BlkPtr;
use format::dnode::{Dnode, SLOT_SIZE};
use format::ids::{ObjectId, Txg};
use format::object_type::{ObjectType, SwapClass};
use protocol::words::{hex, time};
use zpl::{FileKind, Zpl};

use super::args::ZdbArgs;
use super::text::{Short, checksum_name, compress_name, offset_of, type_name};

/// Names under which a table holds bytes that are no text.
const BINARY: [&str; 5] = [
    "DSL_CRYPTO_MASTER_KEY_1",
    "DSL_CRYPTO_HMAC_KEY_1",
    "DSL_CRYPTO_IV",
    "DSL_CRYPTO_MAC",
    "org.illumos:checksum_salt",
];
/// What the header of every large table begins with.
const HEADER_BLOCK_TYPE: u64 = 1 << 63 | 1;
const HEADER_MAGIC: u64 = 0x2_f52a_b2ab;
/// Number that stands for "as the dataset says".
const INHERIT: u8 = 0;

/// Prints the objects of one object set.
pub struct ObjectPrinter<'a> {
    args: &'a ZdbArgs,
    objset: Arc<Objset>,
    verbosity: u32,
    /// The file system in the set, if it is one that can be read.
    zpl: Option<Zpl>,
    needs_header: bool,
}

impl<'a> ObjectPrinter<'a> {
    /// Prints objects of `objset` with so much detail.
    pub fn new(args: &'a ZdbArgs, objset: Arc<Objset>, verbosity: u32) -> ObjectPrinter<'a> {
        // what keeps it from being one is not what was asked
        let zpl = if verbosity >= 4 { Zpl::open(objset.clone()).ok() } else { None };
        ObjectPrinter { args, objset, verbosity, zpl, needs_header: true }
    }

    /// One object. What cannot be read of it is told in its place.
    pub fn print(&mut self, object: &Object, out: &mut dyn Write) -> Result<()> {
        if std::mem::take(&mut self.needs_header) {
            writeln!(
                out,
                "\n{:>10}  {:>3}  {:>5}  {:>5}  {:>5}  {:>6}  {:>5}  {:>6}  type",
                "Object", "lvl", "iblk", "dblk", "dsize", "dnsize", "lsize", "%full"
            )?;
        }
        self.print_line(object, out)?;
        if self.verbosity >= 4 {
            self.print_contents(object, out)?;
            self.needs_header = true;
        }
        if self.verbosity >= 5 {
            writeln!(out, "Indirect blocks:")?;
            self.print_pointers(object, out)?;
            writeln!(out)?;
            self.print_segments(object, out)?;
        }
        Ok(())
    }

    fn print_line(&self, object: &Object, out: &mut dyn Write) -> Result<()> {
        let dnode = object.dnode();
        let number = |n| self.args.number(n);
        let fill: u64 =
            dnode.blkptrs.iter().fold(0, |sum, bp| sum.saturating_add(if bp.is_hole() { 0 } else { bp.fill() }));
        let per_block = if object.id().is_none() { (dnode.block_size / SLOT_SIZE as u64).max(1) } else { 1 };
        let full = 100.0 * fill as f64 * dnode.block_size as f64 / per_block as f64 / dnode.size_max().max(1) as f64;
        let indirect = number(1u64.checked_shl(dnode.indirect_shift.into()).unwrap_or(0));
        let block = number(dnode.block_size);
        let used = number((dnode.used_bytes.saturating_add(256) / 512).saturating_mul(512));
        let (size, length) = (number((dnode.slots * SLOT_SIZE) as u64), number(dnode.size_max()));
        writeln!(
            out,
            "{:>10}  {:>3}  {indirect:>5}  {block:>5}  {used:>5}  {size:>6}  {length:>5}  {full:>6.2}  {}{}",
            object.id().get() as i64,
            dnode.levels,
            type_name(dnode.object_type),
            self.how_written(dnode)
        )?;
        if dnode.bonus_type != ObjectType::NONE && self.verbosity > 3 {
            let bonus = number(dnode.bonus.len() as u64);
            writeln!(out, "{:45}{bonus:>5}  {:>6}  {}", "", "bonus", type_name(dnode.bonus_type))?;
        }
        Ok(())
    }

    /// Checksum and compression, if they are not the dataset's.
    fn how_written(&self, dnode: &Dnode) -> String {
        let mut text = String::new();
        if dnode.checksum != INHERIT || self.verbosity >= 6 {
            text += &format!(" (K={})", checksum_name(dnode.checksum));
        }
        if dnode.compress != INHERIT || self.verbosity >= 6 {
            text += &format!(" (Z={})", compress_name(dnode.compress));
        }
        text
    }

    fn print_contents(&self, object: &Object, out: &mut dyn Write) -> Result<()> {
        let dnode = object.dnode();
        let flags = [
            (Dnode::FLAG_USED_BYTES, "USED_BYTES "),
            (Dnode::FLAG_USERUSED_ACCOUNTED, "USERUSED_ACCOUNTED "),
            (Dnode::FLAG_USEROBJUSED_ACCOUNTED, "USEROBJUSED_ACCOUNTED "),
            (Dnode::FLAG_SPILL, "SPILL_BLKPTR"),
        ];
        let flags: String = flags.iter().filter(|(bit, _)| dnode.flags & bit != 0).map(|(_, name)| *name).collect();
        writeln!(out, "\tdnode flags: {flags}\n\tdnode maxblkid: {}", dnode.block_max)?;
        let encrypted = |kind: ObjectType| self.objset.is_locked() && kind.is_encrypted();
        if encrypted(dnode.bonus_type) {
            writeln!(out, "\t\t(bonus encrypted)")?;
        } else {
            self.told(self.print_bonus(object, out), out)?;
        }
        if encrypted(dnode.object_type) {
            writeln!(out, "\t\t(object encrypted)")?;
        } else if dnode.object_type.swap_class() == Some(SwapClass::Zap) && dnode.object_type != dnode.bonus_type {
            self.told(self.print_zap(object, out), out)?;
        }
        Ok(())
    }

    fn print_bonus(&self, object: &Object, out: &mut dyn Write) -> Result<()> {
        match object.dnode().bonus_type {
            ObjectType::ZNODE | ObjectType::SA => match &self.zpl {
                Some(zpl) => self.print_file(zpl, object.id(), out),
                None => Ok(()),
            },
            kind => bonus::print(self.args, kind, object, out),
        }
    }

    fn print_file(&self, zpl: &Zpl, id: ObjectId, out: &mut dyn Write) -> Result<()> {
        let stat = zpl.stat(id)?;
        if self.verbosity > 4 {
            match zpl.path_of(id) {
                Ok(path) => writeln!(out, "\tpath\t{}", String::from_utf8_lossy(&path))?,
                Err(e) => writeln!(out, "\tpath\tnot found: {e}")?,
            }
        }
        if stat.kind == FileKind::Symlink {
            writeln!(out, "\ttarget\t{}", String::from_utf8_lossy(&zpl.readlink(id)?))?;
        }
        writeln!(out, "\tuid     {}\n\tgid     {}", stat.uid, stat.gid)?;
        let times = [("atime", stat.atime), ("mtime", stat.mtime), ("ctime", stat.ctime), ("crtime", stat.btime)];
        for (name, (seconds, _)) in times {
            writeln!(out, "\t{name}\t{}", u64::try_from(seconds).map_or_else(|_| seconds.to_string(), time::ctime))?;
        }
        let mode = stat.kind.mode_bits() | stat.mode;
        writeln!(out, "\tgen\t{}\n\tmode\t{mode:o}\n\tsize\t{}", stat.generation, stat.size)?;
        writeln!(out, "\tparent\t{}\n\tlinks\t{}\n\tpflags\t{:x}", stat.parent, stat.nlink, stat.flags)?;
        if stat.projid != 0 {
            writeln!(out, "\tprojid\t{}", stat.projid)?;
        }
        if let Some(dir) = zpl.xattr_dir(id)? {
            writeln!(out, "\txattr\t{dir}")?;
        }
        if stat.rdev != 0 {
            writeln!(out, "\trdev\t0x{:016x}", stat.rdev)?;
        }
        let names = zpl.xattr_names(id)?;
        if !names.is_empty() {
            writeln!(out, "\txattrs: {} entries\n", names.len())?;
        }
        for name in names {
            let value = zpl.xattr(id, &name)?;
            writeln!(out, "\t\t{} = {}", String::from_utf8_lossy(&name), escaped(&value))?;
        }
        Ok(())
    }

    fn print_zap(&self, object: &Object, out: &mut dyn Write) -> Result<()> {
        if object.dnode().blkptrs.iter().all(BlkPtr::is_hole) {
            return Ok(());
        }
        let zap = Zap::open(object.clone())?;
        let info = zap.info();
        match &info.fat {
            None => writeln!(out, "\tmicrozap: {} bytes, {} entries", info.block_size, info.entries)?,
            Some(header) => {
                let table = &header.table;
                let elements = 1u64.checked_shl(table.shift).unwrap_or(0);
                writeln!(out, "\tFat ZAP stats:\n\t\tPointer table:\n\t\t\t{elements} elements")?;
                writeln!(out, "\t\t\tzt_blk: {}\n\t\t\tzt_numblks: {}", table.block, table.blocks)?;
                writeln!(out, "\t\t\tzt_shift: {}\n\t\t\tzt_blks_copied: {}", table.shift, table.blocks_copied)?;
                writeln!(out, "\t\t\tzt_nextblk: {}\n\t\tZAP entries: {}", table.next_block, header.entries)?;
                writeln!(out, "\t\tLeaf blocks: {}\n\t\tTotal blocks: {}", header.leaves, header.free_block)?;
                writeln!(out, "\t\tzap_block_type: 0x{HEADER_BLOCK_TYPE:x}\n\t\tzap_magic: 0x{HEADER_MAGIC:x}")?;
                writeln!(out, "\t\tzap_salt: 0x{:x}", header.salt)?;
            }
        }
        writeln!(out)?;
        let mut result = Ok(());
        let kind = object.dnode().object_type;
        zap.for_each_from(0, &mut |entry| {
            result = print_entry(kind, &entry, out);
            if result.is_ok() { std::ops::ControlFlow::Continue(()) } else { std::ops::ControlFlow::Break(()) }
        })?;
        Ok(result?)
    }

    fn print_pointers(&self, object: &Object, out: &mut dyn Write) -> Result<()> {
        let dnode = object.dnode();
        let level = dnode.levels - 1;
        for (blkid, bp) in (0..).zip(&dnode.blkptrs) {
            self.told(self.print_pointer(object, bp, level, blkid, out), out)?;
        }
        if let Some(spill) = dnode.spill.filter(|bp| !bp.is_hole()) {
            writeln!(out, "{:>16} {}", "spill", Short(&spill, self.verbosity > 5))?;
        }
        Ok(())
    }

    /// A pointer and all below it. What was never written is left out.
    fn print_pointer(&self, object: &Object, bp: &BlkPtr, level: u8, blkid: u64, out: &mut dyn Write) -> Result<()> {
        if bp.birth() == Txg::ZERO {
            return Ok(());
        }
        let dnode = object.dnode();
        let bookmark = object.bookmark(level, blkid);
        let (before, behind) = (usize::from(dnode.levels - 1 - level), usize::from(level) + 1);
        let short = Short(bp, self.verbosity > 5);
        writeln!(out, "{:>16x} {:before$}L{level:x}{:behind$}{short}", offset_of(Some(dnode), bookmark), "", "")?;
        if level == 0 || bp.is_hole() {
            return Ok(());
        }
        if bp.level() != level {
            return Err(Error::corrupt(format!("pointer to a level {} block", bp.level())).at_block(bookmark));
        }
        let block = object.objset().cache().get(ReadRequest { bp: *bp, bookmark, mode: Mode::Raw }, Keep::ALL)?;
        let pointers = BlkPtr::slice(&block);
        for (i, below) in (0..).zip(pointers) {
            let blkid = blkid.wrapping_mul(pointers.len() as u64).wrapping_add(i);
            self.told(self.print_pointer(object, below, level - 1, blkid, out), out)?;
        }
        Ok(())
    }

    /// The runs of data between holes.
    fn print_segments(&self, object: &Object, out: &mut dyn Write) -> Result<()> {
        let mut at = 0;
        while let Some(start) = object.next_allocated(at..u64::MAX)? {
            let end = object.next_hole(start..u64::MAX)?;
            let size = self.args.number(end - start);
            writeln!(out, "\t\tsegment [{start:016x}, {end:016x}) size {size:>5}")?;
            at = end;
        }
        Ok(())
    }

    /// Tells of an error where its subject would have been, and goes on; errors of writing go up.
    fn told(&self, result: Result<()>, out: &mut dyn Write) -> Result<()> {
        match result {
            Err(e) if e.place() == &base::ErrorPlace::default() => Err(e),
            Err(e) => Ok(writeln!(out, "\t\t({e})")?),
            Ok(()) => Ok(()),
        }
    }
}

fn print_entry(kind: ObjectType, entry: &ZapEntry, out: &mut dyn Write) -> io::Result<()> {
    let (name, value) = (&entry.name, &entry.value);
    let numbers = value.u64s();
    if kind == ObjectType::DIRECTORY_CONTENTS {
        let number = numbers.first().copied().unwrap_or(0);
        let what = dirent_kind(number >> 60);
        return writeln!(out, "\t\t{name} = {} (type: {what})", number & ((1 << 48) - 1));
    }
    write!(out, "\t\t{name} = ")?;
    match (kind, numbers.first()) {
        (ObjectType::SA_ATTR_REGISTRATION, Some(number)) => {
            let (len, turned, id) = (number >> 24 & 0xffff, number >> 16 & 0xff, number & 0xffff);
            return writeln!(out, " {number:x} : [{len}:{turned}:{id}]");
        }
        (ObjectType::SA_ATTR_LAYOUTS, Some(_)) => {
            let ids: String = numbers.iter().map(|id| format!(" {id} ")).collect();
            return writeln!(out, "[{ids}]");
        }
        _ => {}
    }
    match value.width() {
        1 if BINARY.contains(&&*name.to_string()) => write!(out, "{}", hex(value.bytes()))?,
        1 => write!(out, "{}", value.text())?,
        8 => numbers.iter().try_for_each(|number| write!(out, "{} ", *number as i64))?,
        _ => numbers.iter().try_for_each(|number| write!(out, "{number} "))?,
    }
    writeln!(out)
}

/// Bytes as text, with what is not printable in octal.
fn escaped(bytes: &[u8]) -> String {
    let shown = |&byte: &u8| match byte {
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\{byte:03o}"),
    };
    bytes.iter().map(shown).collect()
}

fn dirent_kind(bits: u64) -> &'static str {
    match bits {
        0 => "not specified",
        1 => "FIFO",
        2 => "Character Device",
        4 => "Directory",
        6 => "Block Device",
        8 => "Regular File",
        10 => "Symbolic Link",
        12 => "Socket",
        13 => "Door",
        14 => "Event Port",
        _ => "invalid",
    }
}
