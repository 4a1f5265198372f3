//! To whom a file's space is charged.

use std::sync::Arc;

use base::RwLock;
use dmu::sync::{Owners, OwnersOf};
use format::dnode::Dnode;
use format::object_type::ObjectType;
use format::sa::{Attr, Attrs, Registry};
use format::znode::{FLAG_PROJID, Znode};

/// What finds out to whom an object belongs, by attributes that `registry` knows.
pub(crate) fn owners_of(registry: Arc<RwLock<Arc<Registry>>>) -> Arc<OwnersOf> {
    Arc::new(move |dnode| {
        let registry = registry.read().clone();
        owners(dnode, &registry)
    })
}

pub(crate) fn owners(dnode: &Dnode, registry: &Registry) -> Option<Owners> {
    match dnode.bonus_type {
        ObjectType::ZNODE => {
            let znode = Znode::parse(&dnode.bonus).ok()?;
            Some(Owners { user: znode.uid, group: znode.gid, project: 0 })
        }
        ObjectType::SA => {
            let attrs = Attrs::parse(&dnode.bonus, registry).ok()?;
            let word = |attr| attrs.get(registry, attr)?.first_chunk().map(|raw| u64::from_le_bytes(*raw));
            let has_project = word(Attr::Flags)? & FLAG_PROJID != 0;
            let project = if has_project { word(Attr::Projid).unwrap_or(0) } else { 0 };
            Some(Owners { user: word(Attr::Uid)?, group: word(Attr::Gid)?, project })
        }
        _ => None,
    }
}
