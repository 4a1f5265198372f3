//! Files of file systems of versions 1 to 4, whose attributes lie in a fixed znode.
//!
//! ```text
//!   bonus buffer:  znode, 264 bytes │ target of a symbolic link, if it fits
//! ```
//!
//! Each attribute has its place, so it is changed there. An ACL that says what the mode does always fits; the object that
//! a longer one was in is freed when that takes its place. There are no packed extended attributes, and no projects.

use base::{Error, Kind, Result};
use dmu::Object;
use format::acl::Acl;
use format::dnode::Dnode;
use format::ids::ObjectId;
use format::object_type::ObjectType;
use format::sa::Attr;
use format::znode::Znode;

use crate::attr_tables::AttrChange;
use crate::op::Op;

/// Before that version entries of ACLs have 12 bytes.
const VERSION_OF_NEW_ACLS: u64 = 3;
/// Bytes of a bonus buffer that all versions can read.
const BONUS_MAX: usize = 320;

/// The version of ACLs in file systems of a version.
fn acl_version(files_version: u64) -> u16 {
    u16::from(files_version >= VERSION_OF_NEW_ACLS)
}

/// Puts attributes into a bonus buffer. Errors: `Unsupported` for what a znode has no place for.
fn put(bonus: &mut [u8], files_version: u64, changes: &[AttrChange]) -> Result<()> {
    for (attr, value) in changes {
        let bytes = value.bytes();
        match (attr, Znode::place_of(*attr)) {
            (_, Some((at, len))) if bytes.len() == len && bonus.len() >= at + len => {
                bonus[at..at + len].copy_from_slice(bytes);
            }
            // it comes with its entries
            (Attr::DaclCount, _) => {}
            (Attr::DaclAces, _) if Acl::parse(1, bytes)?.put_into_znode(bonus, acl_version(files_version)) => {}
            (Attr::Symlink, _) => {}
            _ => {
                let what = format!("files of file systems of version {files_version} have no attribute {attr:?}");
                return Err(Error::new(Kind::Unsupported, what));
            }
        }
    }
    Ok(())
}

/// The bonus buffer of a new file, and what of a symbolic link does not fit there.
pub(crate) fn new_bonus(files_version: u64, attrs: &[AttrChange]) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
    let mut bonus = vec![0; Znode::SIZE];
    put(&mut bonus, files_version, attrs)?;
    let target = attrs.iter().find(|(attr, _)| *attr == Attr::Symlink).map(|(_, target)| target.bytes().to_vec());
    match target {
        Some(target) if Znode::SIZE + target.len() <= BONUS_MAX => {
            bonus.extend(target);
            Ok((bonus, None))
        }
        target => Ok((bonus, target)),
    }
}

/// Makes a dnode that of a file with a fixed znode.
pub(crate) fn to_fixed(dnode: &mut Dnode, bonus: Vec<u8>) {
    (dnode.bonus_type, dnode.bonus) = (ObjectType::ZNODE, bonus);
}

impl Op<'_> {
    /// Changes attributes of a file with a fixed znode. Errors: `Unsupported` for what that has no place for.
    pub(crate) fn change_fixed(&self, object: &Object, changes: &[AttrChange]) -> Result<()> {
        let mut bonus = object.bonus().to_vec();
        let before = Znode::parse(&bonus)?.acl.object;
        put(&mut bonus, self.zpl().version(), changes)?;
        object.update(self.tx(), |dnode| dnode.bonus = bonus)?;
        match before {
            ObjectId::NONE => Ok(()),
            _ if Znode::parse(object.fresh()?.bonus())?.acl.object == before => Ok(()),
            before => self.free_acl(before),
        }
    }

    /// Frees the object of a long ACL.
    pub(crate) fn free_acl(&self, id: ObjectId) -> Result<()> {
        match self.zpl().objset().free_object(self.tx(), id) {
            Err(error) if error.kind() == Kind::NotFound => Ok(()),
            freed => freed,
        }
    }
}
