//! Many small things: made, looked at, removed.

use base::{Error, Kind, Result};
use dmu::INDIRECT_SHIFT;
use dmu::zap::{Editor, ZapValue};
use format::dnode::Dnode;
use format::object_type::ObjectType;
use pool::LivePool;
use zpl::{New, NewKind, Zpl};

use crate::bed::{self, Bed};
use crate::options::{Options, seconds};

const COUNT: usize = 20_000;
/// Bytes of an object's attributes.
const ATTRIBUTES: usize = 168;
/// Bytes of a table's block.
const TABLE_BLOCK: u64 = 16 << 10;
/// Bytes in a small file.
const FILE_BYTES: usize = 4096;

fn name(i: usize) -> Vec<u8> {
    format!("file-{i:08}").into_bytes()
}

/// Objects without data: a dnode with attributes, and a name in a table. There is no POSIX layer here,
/// as in the peer.
pub(crate) fn run_objects(options: &Options, bed: &Bed) -> Result<()> {
    let params = format!("\"files\":{COUNT}");
    let (pool, set) = bed.create(&[("compression", "lz4")])?;
    let table = {
        let tx = pool.txgs().begin()?;
        let dnode = Dnode::new(ObjectType::DIRECTORY_CONTENTS, TABLE_BLOCK, INDIRECT_SHIFT, 1, 1);
        let table = set.allocate(&tx, dnode)?;
        Editor::create(&table.changing(&tx), 0, 0, bed.env.random())?;
        table
    };
    let create = |i: usize| {
        let tx = pool.txgs().begin()?;
        let mut dnode = Dnode::new(ObjectType::PLAIN_FILE_CONTENTS, 512, INDIRECT_SHIFT, 1, 1);
        dnode.bonus_type = ObjectType::U64_OTHER;
        dnode.bonus = vec![i as u8; ATTRIBUTES];
        let id = set.allocate(&tx, dnode)?.id();
        Editor::new(&table.changing(&tx)).add(&name(i), &ZapValue::one(id.get()))
    };
    let find = |i, editor: Editor<'_>| {
        let found = editor.lookup(&name(i))?.and_then(|value| value.first_object());
        found.ok_or_else(|| Error::new(Kind::NotFound, "a name is gone"))
    };
    let stat = |i: usize| {
        let tx = pool.txgs().begin()?;
        let id = find(i, Editor::new(&table.changing(&tx)))?;
        assert!(set.object(id)?.bonus() == [i as u8; ATTRIBUTES], "attributes of {id}");
        Ok(())
    };
    let remove = |i: usize| {
        let tx = pool.txgs().begin()?;
        let changing = table.changing(&tx);
        let editor = Editor::new(&changing);
        let id = find(i, editor)?;
        editor.remove(&name(i))?;
        set.free_object(&tx, id)
    };
    measure(options, &pool, "object", &params, [&create, &stat, &remove])?;
    bed::export(pool.clone())
}

/// Files of a few KiB, as POSIX has them.
pub(crate) fn run_files(options: &Options, bed: &Bed) -> Result<()> {
    let params = format!("\"files\":{COUNT},\"size\":{FILE_BYTES}");
    let (pool, set) = bed.create(&[("compression", "lz4")])?;
    let zpl = Zpl::open_writable(set, pool.txgs().clone(), bed.env.clone(), Default::default(), None)?;
    let root = zpl.root();
    let bytes: Vec<u8> = (0..FILE_BYTES).map(|i| (i * i / 7) as u8).collect();
    let create = |i: usize| {
        let new = New { kind: NewKind::File, mode: 0o644, umask: 0, uid: 0, gid: 0 };
        let file = zpl.create(root, &name(i), &new)?;
        zpl.open_file(file.ino)?.write(0, &bytes).map(drop)
    };
    let stat = |i: usize| {
        let stat = zpl.stat(zpl.lookup(root, &name(i))?)?;
        assert!(stat.size == FILE_BYTES as u64, "size of file {i}");
        Ok(())
    };
    let remove = |i: usize| match zpl.unlink(root, &name(i))? {
        Some(ino) => zpl.reclaim(ino),
        None => Ok(()),
    };
    measure(options, &pool, "file", &params, [&create, &stat, &remove])?;
    bed::export(pool.clone())
}

/// Does each step for all things, one after the other; a step that changes something ends when that is durable.
fn measure(
    options: &Options,
    pool: &LivePool,
    what: &str,
    params: &str,
    steps: [&dyn Fn(usize) -> Result<()>; 3],
) -> Result<()> {
    for (step, name) in steps.into_iter().zip(["create", "stat", "remove"]) {
        let took = seconds(|| {
            (0..COUNT).try_for_each(step)?;
            if name == "stat" { Ok(()) } else { pool.sync() }
        })?;
        options.emit(&format!("{what}-{name}"), params, COUNT as f64 / took, "files/s");
    }
    Ok(())
}
