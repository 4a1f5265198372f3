//! Bonus buffers of the pool's own objects.

use std::io::Write;

use base::{Endian, Reader, Result};
use dmu::Object;
use format::dsl::{DatasetPhys, DirPhys};
use format::object_type::ObjectType;
use format::space_map;
use protocol::words::time;

use crate::zdb::args::ZdbArgs;
use crate::zdb::text::Pointer;

/// Prints a bonus buffer whose type is known here; nothing of others.
pub fn print(args: &ZdbArgs, kind: ObjectType, object: &Object, out: &mut dyn Write) -> Result<()> {
    let place = |e: base::Error| e.at_block(object.bookmark(0, 0));
    match kind {
        ObjectType::DSL_DIR => dir(args, object.bonus(), out).map_err(place),
        ObjectType::DSL_DATASET => dataset(args, object.bonus(), out).map_err(place),
        ObjectType::PACKED_NVLIST_SIZE => nvlist(object, out),
        ObjectType::BPOBJ_HEADER => numbers(object, &BPOBJ_FIELDS, out),
        ObjectType::SPA_HISTORY_OFFSETS => numbers(object, &HISTORY_FIELDS, out),
        ObjectType::SPACE_MAP_HEADER => {
            let header = space_map::SpaceMapHeader::parse(object.bonus()).map_err(place)?;
            Ok(writeln!(out, "\t\tsmp_length = {}\n\t\tsmp_alloc = {}", header.length, header.allocated)?)
        }
        _ => Ok(()),
    }
}

const BPOBJ_FIELDS: [&str; 7] = ["num_blkptrs", "bytes", "comp", "uncomp", "subobjs", "num_subobjs", "num_freed"];
const HISTORY_FIELDS: [&str; 5] = ["pool_create_len", "phys_max_off", "bof", "eof", "records_lost"];

/// As many of the fields as the buffer is long for.
fn numbers(object: &Object, fields: &[&str], out: &mut dyn Write) -> Result<()> {
    let words = object.bonus().chunks_exact(8).filter_map(|raw| Endian::Little.u64(raw));
    for (name, number) in fields.iter().zip(words) {
        writeln!(out, "\t\t{name} = {number}")?;
    }
    Ok(())
}

/// The list that the object holds, whose length the bonus tells.
fn nvlist(object: &Object, out: &mut dyn Write) -> Result<()> {
    const SIZE_MAX: u64 = 64 << 20;
    let len = Reader::new(object.bonus(), Endian::Little).u64()?;
    let list = format::nvlist::NvList::unpack(&object.read_whole(len, SIZE_MAX)?);
    let list = list.map_err(|e| e.at_block(object.bookmark(0, 0)))?;
    Ok(crate::zdb::text::print_nvlist(&list, 8, out)?)
}

fn dir(args: &ZdbArgs, bonus: &[u8], out: &mut dyn Write) -> Result<()> {
    let phys = DirPhys::parse(bonus)?;
    let created = Endian::Little.u64(bonus).unwrap_or(0);
    writeln!(out, "\t\tcreation_time = {}", time::ctime(created))?;
    let links = [
        ("head_dataset_obj", phys.head_dataset.get()),
        ("parent_dir_obj", phys.parent.get()),
        ("origin_obj", phys.origin.get()),
        ("child_dir_zapobj", phys.child_zap.get()),
    ];
    for (name, id) in links {
        writeln!(out, "\t\t{name} = {id}")?;
    }
    let sizes = [
        ("used_bytes", phys.used_bytes),
        ("compressed_bytes", phys.compressed_bytes),
        ("uncompressed_bytes", phys.uncompressed_bytes),
        ("quota", phys.quota),
        ("reserved", phys.reserved),
    ];
    for (name, bytes) in sizes {
        writeln!(out, "\t\t{name} = {}", args.number(bytes))?;
    }
    writeln!(out, "\t\tprops_zapobj = {}\n\t\tdeleg_zapobj = {}", phys.props_zap, phys.deleg_zap)?;
    writeln!(out, "\t\tflags = {:x}", phys.flags)?;
    for (name, bytes) in ["HEAD", "SNAP", "CHILD", "CHILD_RSRV", "REFRSRV"].iter().zip(phys.used_breakdown) {
        writeln!(out, "\t\tused_breakdown[{name}] = {}", args.number(bytes))?;
    }
    Ok(writeln!(out, "\t\tclones = {}", phys.clones_zap)?)
}

fn dataset(args: &ZdbArgs, bonus: &[u8], out: &mut dyn Write) -> Result<()> {
    let phys = DatasetPhys::parse(bonus)?;
    let links = [
        ("dir_obj", phys.dir.get()),
        ("prev_snap_obj", phys.prev_snap.get()),
        ("prev_snap_txg", phys.prev_snap_txg.get()),
        ("next_snap_obj", phys.next_snap.get()),
        ("snapnames_zapobj", phys.snapnames_zap.get()),
        ("num_children", phys.num_children),
        ("userrefs_obj", phys.userrefs_zap.get()),
    ];
    for (name, id) in links {
        writeln!(out, "\t\t{name} = {id}")?;
    }
    writeln!(out, "\t\tcreation_time = {}", time::ctime(phys.creation_time_s))?;
    writeln!(out, "\t\tcreation_txg = {}\n\t\tdeadlist_obj = {}", phys.creation_txg, phys.deadlist)?;
    let sizes = [
        ("used_bytes", phys.referenced_bytes),
        ("compressed_bytes", phys.compressed_bytes),
        ("uncompressed_bytes", phys.uncompressed_bytes),
        ("unique", phys.unique_bytes),
    ];
    for (name, bytes) in sizes {
        writeln!(out, "\t\t{name} = {}", args.number(bytes))?;
    }
    writeln!(out, "\t\tfsid_guid = {}\n\t\tguid = {}\n\t\tflags = {:x}", phys.fsid_guid, phys.guid, phys.flags)?;
    writeln!(out, "\t\tnext_clones_obj = {}\n\t\tprops_obj = {}", phys.next_clones_zap, phys.props_zap)?;
    Ok(writeln!(out, "\t\tbp = {}", Pointer(&phys.bp))?)
}
