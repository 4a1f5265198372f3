//! To whom objects of a file system belong that is still on its way: what tells where attributes are may not have come.
//!
//! Files of OpenZFS have these attributes in places of their own, behind the header of attributes.

use std::sync::Arc;

use dmu::sync::{Owners, OwnersOf};
use format::dnode::Dnode;
use format::object_type::ObjectType;
use format::znode::{FLAG_PROJID, Znode};

const MAGIC: u32 = 0x2f_505a;
const USER_OFFSET: usize = 24;
const GROUP_OFFSET: usize = 32;
const FLAGS_OFFSET: usize = 48;
const PROJECT_OFFSET: usize = 128;

/// What finds out to whom an object belongs.
pub fn owners_by_place() -> Arc<OwnersOf> {
    Arc::new(owners)
}

fn owners(dnode: &Dnode) -> Option<Owners> {
    match dnode.bonus_type {
        ObjectType::ZNODE => {
            let znode = Znode::parse(&dnode.bonus).ok()?;
            Some(Owners { user: znode.uid, group: znode.gid, project: 0 })
        }
        ObjectType::SA => {
            let magic = u32::from_le_bytes(*dnode.bonus.first_chunk()?);
            // an object with attributes that has none yet
            if magic != MAGIC {
                return None;
            }
            let info = u16::from_le_bytes(*dnode.bonus.get(4..)?.first_chunk()?);
            let attributes = dnode.bonus.get(usize::from(info >> 10) * 8..)?;
            let word = |at: usize| attributes.get(at..)?.first_chunk().map(|raw| u64::from_le_bytes(*raw));
            let has_project = word(FLAGS_OFFSET)? & FLAG_PROJID != 0;
            let project = if has_project { word(PROJECT_OFFSET)? } else { 0 };
            Some(Owners { user: word(USER_OFFSET)?, group: word(GROUP_OFFSET)?, project })
        }
        _ => None,
    }
}
