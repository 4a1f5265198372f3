//! A new file system: the master node, its tables, and the root directory.
//!
//! ```text
//!   1  master node ─┬─ VERSION, normalization, utf8only, casesensitivity
//!                   ├─ SA_ATTRS ──▶ 2 ─┬─ REGISTRY ──▶ every attribute's number and length
//!                   │                  └─ LAYOUTS ───▶ the root directory's list of attributes
//!                   ├─ DELETE_QUEUE ──▶ nothing yet
//!                   └─ ROOT ──▶ the root directory
//! ```

use std::sync::Arc;

use base::{Error, Kind, Result, RwLock};
use dmu::INDIRECT_SHIFT;
use dmu::zap::{Editor, ZapValue};
use dmu::{Object, Objset, Tx};
use format::dnode::Dnode;
use format::object_type::ObjectType;
use format::sa::{Registry, build};

use crate::attr_tables::{add_layouts, register};
use crate::change::NewFs;
use crate::create::{Birth, TABLE_BLOCK_SIZE, new_directory};
use crate::master::{MASTER_NODE, NORM_UPPER};
use crate::owners::owners_of;
use crate::{CaseMode, FileKind};

/// Makes an empty file system in a set that has no objects. Errors: `Unsupported` for another version than
/// 5; `Invalid` for flags that are no normalization.
pub fn create_fs(objset: &Arc<Objset>, tx: &Tx<'_>, new: &NewFs) -> Result<()> {
    if new.version != 5 {
        let what = format!("file systems of version {} are not made, only of version 5", new.version);
        return Err(Error::new(Kind::Unsupported, what));
    }
    let case = match new.case {
        CaseMode::Sensitive => 0,
        CaseMode::Insensitive => 1,
        CaseMode::Mixed => 2,
    };
    let mut salts = 0u64;
    let mut salt = || {
        salts += 1;
        new.salt.wrapping_add(salts.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    };
    let master = objset.allocate_at(tx, MASTER_NODE, table_dnode(ObjectType::MASTER_NODE))?;
    Editor::create(&master.changing(tx), 0, 0, salt())?;
    let mut table = |kind| {
        let object = objset.allocate(tx, table_dnode(kind))?;
        Editor::create(&object.changing(tx), 0, 0, salt())?;
        Ok::<_, Error>(object)
    };
    let sa = table(ObjectType::SA_MASTER_NODE)?;
    let queue = table(ObjectType::UNLINKED_SET)?;
    let registrations = table(ObjectType::SA_ATTR_REGISTRATION)?;
    let layouts = table(ObjectType::SA_ATTR_LAYOUTS)?;
    set(&sa, tx, "REGISTRY", registrations.id())?;
    set(&sa, tx, "LAYOUTS", layouts.id())?;

    let normflags = new.normalization | if case == 0 { 0 } else { NORM_UPPER };
    let root = make_root(objset, tx, new, [registrations.id(), layouts.id()], normflags, salt())?;
    let entries = [
        ("normalization", new.normalization),
        ("utf8only", new.utf8only.into()),
        ("casesensitivity", case),
        ("VERSION", new.version),
        ("SA_ATTRS", sa.id()),
        ("DELETE_QUEUE", queue.id()),
        ("ROOT", root),
    ];
    entries.into_iter().try_for_each(|(name, value)| set(&master, tx, name, value))
}

fn make_root(
    objset: &Arc<Objset>,
    tx: &Tx<'_>,
    new: &NewFs,
    tables: [u64; 2],
    normflags: u64,
    salt: u64,
) -> Result<u64> {
    let mut registry = Registry::new([], [])?;
    register(objset, tx, tables[0], &mut registry)?;
    let mut dnode = new_directory(new.dnode_slots);
    let root = objset.allocate(tx, dnode.clone())?;
    let birth = Birth {
        place: None,
        kind: FileKind::Directory,
        mode: new.mode & 0o7777,
        uid: new.uid.into(),
        gid: new.gid.into(),
        parent: root.id(),
        links: 2,
        size: 2,
        flags: 0,
        rdev: 0,
        projid: objset.counts_projects().then_some(0),
        generation: tx.txg(),
        now: [new.now.0, new.now.1.into()],
    };
    let list: Vec<(u16, Vec<u8>)> = birth.numbered(&registry);
    let attrs: Vec<(u16, &[u8])> = list.iter().map(|(number, value)| (*number, &value[..])).collect();
    let mut built = build(&registry, &attrs, dnode.bonus_size_max(false), dnode.bonus_size_max(true))?;
    add_layouts(objset, tx, tables[1], &mut registry, &mut built)?;
    dnode.bonus = built.bonus;
    root.update(tx, |at| at.bonus.clone_from(&dnode.bonus))?;
    Editor::create(&root.changing(tx), 0, normflags, salt)?;
    objset.set_owners_of(owners_of(Arc::new(RwLock::new(Arc::new(registry)))))?;
    Ok(root.id())
}

fn table_dnode(kind: ObjectType) -> Dnode {
    Dnode::new(kind, TABLE_BLOCK_SIZE, INDIRECT_SHIFT, 3, 1)
}

fn set(table: &Object, tx: &Tx<'_>, name: &str, value: u64) -> Result<()> {
    Editor::new(&table.changing(tx)).set(name.as_bytes(), &ZapValue::one(value))
}
