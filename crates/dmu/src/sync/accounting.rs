//! How much of a file system users, groups and projects use, by bytes and by objects.
//!
//! ```text
//!   dnode before ─▶ owner ─▶ - (its bytes + 512), - 1 object ─┐
//!   dnode after  ─▶ owner ─▶ + (its bytes + 512), + 1 object ─┴▶ tables of the set's head: "3e8", "obj-3e8"
//! ```
//!
//! What is counted, the head's flags say; which dnodes have been counted, theirs. Objects that belong to
//! nobody have the flags, and count for nobody.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, Kind, Result};
use format::dnode::Dnode;
use format::ids::ObjectId;
use format::object_type::ObjectType;
use format::objset::ObjsetPhys;

use crate::node::Node;
use crate::owners::{BYTES_COUNTED, OBJECTS_COUNTED, OwnersOf};
use crate::policy::INDIRECT_SHIFT;
use crate::recount::GroupCounts;
use crate::zap::Editor;
use crate::{Object, Objset, Tx};

/// Bytes that a dnode counts for.
const DNODE_BYTES: i64 = 512;
/// Sums of a group: by table and owner, bytes and objects.
#[derive(Default)]
pub(super) struct AccountingSums(BTreeMap<(usize, u64), (i64, i64)>);

impl AccountingSums {
    /// Counts a dnode that changed, and gives it the flags of what was counted.
    pub(super) fn count(
        &mut self,
        owners_of: &OwnersOf,
        counting: &GroupCounts,
        id: ObjectId,
        before: &Dnode,
        after: Option<&mut Dnode>,
    ) {
        let flags = counting.flags;
        if flags & BYTES_COUNTED == 0 {
            return;
        }
        self.add(owners_of, id.get() < counting.projects.start, before, -1);
        if let Some(after) = after {
            after.flags |= Dnode::FLAG_USERUSED_ACCOUNTED;
            if flags & OBJECTS_COUNTED != 0 {
                after.flags |= Dnode::FLAG_USEROBJUSED_ACCOUNTED;
            }
            self.add(owners_of, id.get() < counting.projects.end, after, 1);
        }
    }

    fn add(&mut self, owners_of: &OwnersOf, by_project: bool, dnode: &Dnode, sign: i64) {
        let has = |flag| dnode.flags & flag != 0;
        let Some(owners) = owners_of(dnode).filter(|_| has(Dnode::FLAG_USERUSED_ACCOUNTED)) else { return };
        let used = i64::try_from(dnode.used_bytes).unwrap_or(i64::MAX);
        let bytes = sign * used.saturating_add(DNODE_BYTES);
        let objects = if has(Dnode::FLAG_USEROBJUSED_ACCOUNTED) { sign } else { 0 };
        let project = by_project.then_some(owners.project);
        for (table, owner) in [Some(owners.user), Some(owners.group), project].into_iter().enumerate() {
            let Some(owner) = owner else { continue };
            let sum = self.0.entry((table, owner)).or_default();
            *sum = (sum.0.saturating_add(bytes), sum.1 + objects);
        }
    }

    /// Brings the sums to the tables.
    pub(super) fn apply(self, objset: &Arc<Objset>, tx: &Tx<'_>) -> Result<()> {
        for ((table, owner), (bytes, objects)) in self.0 {
            let object = objset.accounting(tx, table)?;
            let store = object.changing(tx);
            let editor = Editor::new(&store);
            for (name, delta) in [(format!("{owner:x}"), bytes), (format!("obj-{owner:x}"), objects)] {
                if delta != 0 {
                    editor.increment(name.as_bytes(), delta)?;
                }
            }
        }
        Ok(())
    }
}

/// The number that stands for a table of accounts.
pub(super) fn table_id(table: usize) -> ObjectId {
    ObjectId::new(u64::MAX - table as u64)
}

impl Objset {
    /// Frees a table of accounts.
    pub(super) fn free_table(self: &Arc<Self>, tx: &Tx<'_>, table: usize) -> Result<()> {
        self.free(tx, &self.accounting(tx, table)?)
    }

    /// A table of accounts: of users (0), groups or projects. Made if there is none.
    fn accounting(self: &Arc<Self>, tx: &Tx<'_>, table: usize) -> Result<Object> {
        let live = self.live()?;
        let id = table_id(table);
        let on_disk = || {
            let absent = || Error::new(Kind::NotFound, "no accounts yet");
            let phys = self.phys();
            phys.accounting[table].as_ref().map(|dnode| Node::new(id, Arc::new(dnode.clone()))).ok_or_else(absent)
        };
        match live.node(id, on_disk) {
            Ok(node) => Object::of_node(self.clone(), node).ok_or_else(|| Error::corrupt("accounts were freed")),
            Err(e) if e.kind() == Kind::NotFound => {
                let object =
                    self.allocate_at(tx, id, Dnode::new(ObjectType::USERGROUP_USED, 512, INDIRECT_SHIFT, 1, 1))?;
                let salt = self.cache().zio().env().random();
                Editor::create(&object.changing(tx), 0, 0, salt)?;
                Ok(object)
            }
            Err(e) => Err(e),
        }
    }
}

/// Puts the dnodes of the tables into the head.
pub(super) fn put_into_head(phys: &mut ObjsetPhys, dnodes: &mut BTreeMap<ObjectId, (usize, Option<Arc<Dnode>>)>) {
    for table in 0..3 {
        if let Some((_, dnode)) = dnodes.remove(&table_id(table)) {
            phys.accounting[table] = dnode.map(Arc::unwrap_or_clone);
        }
    }
}
