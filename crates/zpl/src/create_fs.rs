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
use dmu::zap::{Editor, Zap, ZapValue};
use dmu::{Object, Objset, Tx};
use format::ids::ObjectId;
use format::object_type::ObjectType;
use format::sa::{Registry, build};

use crate::attr_tables::{add_layouts, register, table_dnode};
use crate::change::NewFs;
use crate::create::{Birth, new_directory};
use crate::fixed;
use crate::master::{MASTER_NODE, NORM_UPPER};
use crate::owners::owners_of;
use crate::{CaseMode, FileKind};

/// The newest version.
const VERSION: u64 = 5;
/// The first version that knows forms of names.
const VERSION_OF_FORMS: u64 = 3;

/// Makes an empty file system in a set that has no objects. Errors: `Unsupported` for a version that is none, or has no
/// place for what is asked of it; `Invalid` for flags that are no normalization.
pub fn create_fs(objset: &Arc<Objset>, tx: &Tx<'_>, new: &NewFs) -> Result<()> {
    if !(1..=VERSION).contains(&new.version) {
        let what = format!("file systems of version {} are not made", new.version);
        return Err(Error::new(Kind::Unsupported, what));
    }
    if new.version < VERSION_OF_FORMS && (new.normalization != 0 || new.utf8only || new.case != CaseMode::Sensitive) {
        let what = format!("file systems of version {} compare names as they are", new.version);
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
    let has_attrs = new.version >= VERSION;
    let sa = if has_attrs { Some(make_attr_tables(tx, &mut table)?) } else { None };
    let queue = table(ObjectType::UNLINKED_SET)?;
    let normflags = new.normalization | if case == 0 { 0 } else { NORM_UPPER };
    let root = make_root(objset, tx, new, sa.map(|(_, tables)| tables), normflags, salt())?;
    let forms = [("normalization", new.normalization), ("utf8only", new.utf8only.into()), ("casesensitivity", case)];
    let forms = forms.into_iter().filter(|_| new.version >= VERSION_OF_FORMS);
    let entries = [("VERSION", new.version), ("DELETE_QUEUE", queue.id().get()), ("ROOT", root.get())];
    let attrs = sa.map(|(sa, _)| ("SA_ATTRS", sa.get()));
    forms.chain(entries).chain(attrs).try_for_each(|(name, value)| set(&master, tx, name, value))
}

/// Makes the tables of attributes, without any in them: the one that leads to the others, and these.
fn make_attr_tables(
    tx: &Tx<'_>,
    table: &mut dyn FnMut(ObjectType) -> Result<Object>,
) -> Result<(ObjectId, [ObjectId; 2])> {
    let sa = table(ObjectType::SA_MASTER_NODE)?;
    let registrations = table(ObjectType::SA_ATTR_REGISTRATION)?;
    let layouts = table(ObjectType::SA_ATTR_LAYOUTS)?;
    set(&sa, tx, "REGISTRY", registrations.id().get())?;
    set(&sa, tx, "LAYOUTS", layouts.id().get())?;
    Ok((sa.id(), [registrations.id(), layouts.id()]))
}

/// Brings a file system to a later version: 2 to 5. Its files stay as they are, until they are changed. Errors:
/// `Invalid` for an earlier version, or one that there is not; those of reading the master node.
pub fn upgrade_fs(objset: &Arc<Objset>, tx: &Tx<'_>, version: u64, salt: u64) -> Result<()> {
    let master = objset.object(MASTER_NODE)?;
    let entries = Zap::open(master.clone())?;
    let before = entries.require_u64("VERSION")?;
    if !(before..=VERSION).contains(&version) {
        return Err(Error::new(Kind::Invalid, format!("Can not downgrade; already at version {before}")));
    }
    if version >= VERSION && entries.u64("SA_ATTRS")?.is_none() {
        // the tables come with the first file that needs them
        let sa = objset.allocate(tx, table_dnode(ObjectType::SA_MASTER_NODE))?;
        Editor::create(&sa.changing(tx), 0, 0, salt)?;
        set(&master, tx, "SA_ATTRS", sa.id().get())?;
    }
    set(&master, tx, "VERSION", version)
}

fn make_root(
    objset: &Arc<Objset>,
    tx: &Tx<'_>,
    new: &NewFs,
    tables: Option<[ObjectId; 2]>,
    normflags: u64,
    salt: u64,
) -> Result<ObjectId> {
    let mut registry = Registry::new([], [])?;
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
        projid: (tables.is_some() && objset.counts_projects()).then_some(0),
        generation: tx.txg().get(),
        now: [new.now.0, new.now.1.into()],
    };
    if let Some([registrations, layouts]) = tables {
        register(objset, tx, registrations, &mut registry)?;
        let list: Vec<(u16, Vec<u8>)> = birth.numbered(&registry);
        let attrs: Vec<(u16, &[u8])> = list.iter().map(|(number, value)| (*number, &value[..])).collect();
        let mut built = build(&registry, &attrs, dnode.bonus_size_max(false), dnode.bonus_size_max(true))?;
        add_layouts(objset, tx, layouts, &mut registry, &mut built)?;
        dnode.bonus = built.bonus;
    } else {
        let (bonus, _) = fixed::new_bonus(new.version, &birth.attributes())?;
        fixed::to_fixed(&mut dnode, bonus);
    }
    root.update(tx, |at| (at.bonus_type, at.bonus) = (dnode.bonus_type, dnode.bonus.clone()))?;
    Editor::create(&root.changing(tx), 0, normflags, salt)?;
    objset.set_owners_of(owners_of(Arc::new(RwLock::new(Arc::new(registry)))))?;
    Ok(root.id())
}

fn set(table: &Object, tx: &Tx<'_>, name: &str, value: u64) -> Result<()> {
    Editor::new(&table.changing(tx)).set(name.as_bytes(), &ZapValue::one(value))
}
