//! `zdb -d`: the datasets of a pool, and with more `d` what is in them.

use std::io::Write;
use std::sync::Arc;

use base::{Error, Kind, Result, ResultExt};
use dmu::zap::Zap;
use dmu::{Mode, Object, Objset};
use dsl::{Dataset, Dir};
use format::ids::{DatasetId, DirId, ObjectId, Txg};
use pool::Pool;
use zil::ZilHeader;

use super::args::ZdbArgs;
use super::object::ObjectPrinter;
use super::text::Pointer;
use crate::keys::KeyRing;

/// How deep the tree of datasets may be.
const DEPTH_MAX: usize = 128;
/// Object numbers that zdb gives the dnodes of space accounting.
const ACCOUNTING: [i64; 3] = [-1, -2, -3];

/// One dataset, or some objects of it.
pub fn print_one(args: &ZdbArgs, pool: &Pool, name: &str, objects: &[String], out: &mut dyn Write) -> Result<u8> {
    let dataset = pool.dsl().find(name)?;
    let args = ZdbArgs { datasets: args.datasets.max(1), ..args.clone() };
    let objset = keys_of(&args).objset(pool, &dataset, Mode::Raw)?;
    print_objset(&args, &objset, &About::dataset(&dataset), objects, out)?;
    Ok(0)
}

/// The MOS, or some objects of it, and then all datasets: of each, those below it first.
pub fn print_all(args: &ZdbArgs, pool: &Pool, objects: &[String], out: &mut dyn Write) -> Result<()> {
    let mos_bytes = pool.dsl().child_ids(&pool.dsl().root()?)?.into_iter().find(|(name, _)| name == "$MOS");
    let mos_bytes = mos_bytes.and_then(|(_, id)| pool.dsl().dir(id, "$MOS").ok()).map_or(0, |dir| dir.phys.used_bytes);
    let about =
        About { name: "mos", creation_txg: Txg::new(4), bytes: mos_bytes, is_inconsistent: false, is_head: false };
    print_objset(args, pool.mos(), &about, objects, out)?;
    if objects.is_empty() {
        print_dir(args, &mut keys_of(args), pool, &pool.dsl().root()?, 0, out)?;
    }
    Ok(())
}

/// The keys that were given.
fn keys_of(args: &ZdbArgs) -> KeyRing {
    KeyRing::new(args.key.as_slice())
}

fn print_dir(
    args: &ZdbArgs,
    keys: &mut KeyRing,
    pool: &Pool,
    dir: &Dir,
    depth: usize,
    out: &mut dyn Write,
) -> Result<()> {
    let dsl = pool.dsl();
    if depth > DEPTH_MAX {
        return Err(Error::corrupt("dataset tree is no tree").in_dataset(&dir.name));
    }
    for (name, id) in table(pool, dir.phys.child_zap)? {
        if !name.starts_with('$') {
            let dir = dsl.dir(DirId::new(id), &format!("{}/{name}", dir.name))?;
            print_dir(args, keys, pool, &dir, depth + 1, out)?;
        }
    }
    let head = dsl.head(dir)?;
    let snapshots = table(pool, head.phys.snapnames_zap)?;
    let open = |(name, id): (String, u64)| dsl.dataset(DatasetId::new(id), &format!("{}@{name}", head.name));
    let snapshots = snapshots.into_iter().map(open);
    for dataset in snapshots.chain([Ok(head.clone())]) {
        let dataset = dataset?;
        match keys.objset(pool, &dataset, Mode::Raw) {
            Ok(objset) => print_objset(args, &objset, &About::dataset(&dataset), &[], out)?,
            Err(e) => writeln!(out, "Could not open {}, error {}: {e}", dataset.name, e.errno())?,
        }
    }
    Ok(())
}

/// Names and numbers in the order of the table, which is zdb's; table 0 is an empty one.
fn table(pool: &Pool, id: ObjectId) -> Result<Vec<(String, u64)>> {
    if id.is_none() {
        return Ok(Vec::new());
    }
    let entries = Zap::open(pool.mos().object(id)?)?.entries()?;
    Ok(entries.into_iter().filter_map(|entry| Some((entry.name.to_string(), entry.value.first_u64()?))).collect())
}

/// What is known of an object set from outside.
struct About<'a> {
    name: &'a str,
    creation_txg: Txg,
    bytes: u64,
    is_inconsistent: bool,
    /// Whether it has a log.
    is_head: bool,
}

impl About<'_> {
    fn dataset(dataset: &Dataset) -> About<'_> {
        let phys = &dataset.phys;
        About {
            name: &dataset.name,
            creation_txg: phys.creation_txg,
            bytes: phys.referenced_bytes,
            is_inconsistent: phys.flags & format::dsl::DatasetPhys::FLAG_INCONSISTENT != 0,
            is_head: !dataset.is_snapshot(),
        }
    }
}

fn print_objset(
    args: &ZdbArgs,
    objset: &Arc<Objset>,
    about: &About<'_>,
    objects: &[String],
    out: &mut dyn Write,
) -> Result<()> {
    let root = objset.rootbp();
    let (kind, id, txg) = (objset.kind().name(), objset.id(), about.creation_txg);
    let (size, count) = (args.number(about.bytes), root.fill());
    let pointer = if args.datasets >= 4 { format!(", rootbp {}", Pointer(&root)) } else { String::new() };
    let inconsistent = if about.is_inconsistent { " (inconsistent)" } else { "" };
    let name = about.name;
    writeln!(out, "Dataset {name} [{kind}], ID {id}, cr_txg {txg}, {size}, {count} objects{pointer}{inconsistent}")?;

    let mut printer = ObjectPrinter::new(args, objset.clone(), args.datasets);
    if !objects.is_empty() {
        for text in objects {
            printer.print(&accounting_or_object(objset, number(text)?)?, out)?;
        }
        return Ok(writeln!(out)?);
    }
    if args.datasets < 2 {
        return Ok(());
    }
    if about.is_head {
        print_log_header(&ZilHeader::parse(&objset.phys().log_header)?, out)?;
    }
    printer.print(&objset.meta(), out)?;
    for (id, dnode) in ACCOUNTING.into_iter().zip(&objset.phys().accounting) {
        if let Some(dnode) = dnode {
            printer.print(&Object::outside(objset.clone(), ObjectId::new(id as u64), dnode.clone()), out)?;
        }
    }
    print_objects(objset, &mut printer, out).in_dataset(name)
}

fn print_objects(objset: &Arc<Objset>, printer: &mut ObjectPrinter<'_>, out: &mut dyn Write) -> Result<()> {
    let (mut id, mut used, mut last) = (ObjectId::META_DNODE, 0, 0);
    while let Some(next) = objset.next_object(id)? {
        id = next;
        let object = objset.object(id)?;
        let slots = object.dnode().slots as u64;
        printer.print(&object, out)?;
        used += slots;
        last = id.plus(slots - 1).get();
    }
    let empty = last.saturating_sub(used) as f64 * 100.0 / last.max(1) as f64;
    writeln!(out, "\n    Dnode slots:")?;
    writeln!(out, "\tTotal used:    {used:>10}")?;
    writeln!(out, "\tMax used:      {last:>10}")?;
    writeln!(out, "\tPercent empty: {empty:>10.6}\n")?;
    Ok(())
}

fn print_log_header(header: &ZilHeader, out: &mut dyn Write) -> Result<()> {
    if header.first.is_hole() {
        return Ok(());
    }
    let ZilHeader { claim_txg, claim_block_seq, claim_record_seq, replay_seq, flags, .. } = header;
    writeln!(
        out,
        "\n    ZIL header: claim_txg {claim_txg}, claim_blk_seq {claim_block_seq}, \
         claim_lr_seq {claim_record_seq} replay_seq {replay_seq}, flags 0x{flags:x}\n"
    )?;
    Ok(())
}

/// Object `id`; 0 is the meta dnode, and the highest numbers are space accounting.
pub fn accounting_or_object(objset: &Arc<Objset>, id: ObjectId) -> Result<Object> {
    match ACCOUNTING.iter().position(|&number| ObjectId::new(number as u64) == id) {
        _ if id.is_none() => Ok(objset.meta()),
        Some(which) => {
            let dnode = objset.phys().accounting[which].clone();
            let absent = || Error::new(Kind::NotFound, "there is no space accounting");
            Ok(Object::outside(objset.clone(), id, dnode.ok_or_else(absent)?))
        }
        None => objset.object(id),
    }
}

/// An object number; those of space accounting are negative.
fn number(text: &str) -> Result<ObjectId> {
    let number = text.parse::<u64>().ok().or_else(|| text.parse::<i64>().ok().map(|id| id as u64));
    number.map(ObjectId::new).ok_or_else(|| Error::new(Kind::Invalid, format!("'{text}' is no object number")))
}
