//! Changing attributes.
//!
//! What keeps its length is changed where it lies; anything else makes the buffers of the file anew, in the
//! old order, with new attributes at the end, as OpenZFS does; but a project has a place of its own. A list of attributes that no file had before
//! becomes a new layout in the same transaction. A file that still has the fixed znode of older versions
//! gets system attributes with its first change.

use base::{Error, Kind, Result, ResultExt};
use dmu::Object;
use format::object_type::ObjectType;
use format::sa::{Attr, Attrs, Built};

use crate::attr_tables::{AttrChange, AttrValue, time, word};
use crate::nodes::FileNode;
use crate::op::Op;

/// Attributes before which no other lies, in their order: OpenZFS reads owners, flags and project at fixed places to count
/// by them.
const PLACED: [Attr; 13] = [
    Attr::Mode,
    Attr::Size,
    Attr::Gen,
    Attr::Uid,
    Attr::Gid,
    Attr::Parent,
    Attr::Flags,
    Attr::Atime,
    Attr::Mtime,
    Attr::Ctime,
    Attr::Crtime,
    Attr::Links,
    Attr::Projid,
];

impl Op<'_> {
    /// Changes attributes of a file that this operation has locked.
    pub(crate) fn change(&self, object: &Object, changes: &[AttrChange]) -> Result<()> {
        let object = object.fresh()?;
        if self.zpl().has_fixed_znodes() {
            return self.change_fixed(&object, changes);
        }
        match self.patches(&object, changes)? {
            Some(patches) => object.update(self.tx(), |dnode| {
                for (at, (_, value)) in patches.iter().zip(changes) {
                    let bytes = value.bytes();
                    dnode.bonus[*at..*at + bytes.len()].copy_from_slice(bytes);
                }
            }),
            None => self.rebuild(object, changes),
        }
    }

    /// Where in the bonus buffer each value goes, if they all have a place of their length there.
    fn patches(&self, object: &Object, changes: &[AttrChange]) -> Result<Option<Vec<usize>>> {
        if object.dnode().bonus_type != ObjectType::SA {
            return Ok(None);
        }
        let registry = self.zpl().registry();
        let bonus = object.bonus();
        let attrs = Attrs::parse(bonus, &registry).at_block(object.bookmark(0, 0))?;
        let place = |(attr, value): &AttrChange| {
            let old = attrs.get(&registry, *attr)?;
            let same = value.bytes().len() == old.len();
            // values of a buffer of foreign byte order are not in the buffer itself
            let inside = bonus.as_ptr_range().contains(&old.as_ptr());
            (same && inside).then(|| old.as_ptr() as usize - bonus.as_ptr() as usize)
        };
        Ok(changes.iter().map(place).collect())
    }

    fn rebuild(&self, object: Object, changes: &[AttrChange]) -> Result<()> {
        let node = self.zpl().node_of(object)?;
        let object = node.object();
        let mut all = match object.dnode().bonus_type {
            ObjectType::SA => self.zpl().attributes(&node)?.all()?,
            _ => self.converted(&node)?,
        };
        if let Some(acl) =
            self.zpl().attributes(&node)?.fixed().map(|znode| znode.acl.object).filter(|&id| id.is_some())
        {
            self.free_acl(acl)?;
        }
        for (attr, value) in changes {
            let number = self.live().tables()?.number(self.tx(), *attr)?;
            match all.iter_mut().find(|(other, _)| *other == number) {
                Some((_, old)) => *old = value.bytes().to_vec(),
                None => all.push((number, value.bytes().to_vec())),
            }
        }
        if changes.iter().any(|(attr, _)| *attr == Attr::Projid) {
            self.put_in_place(&mut all)?;
        }
        let built = self.build(&all, object)?;
        if built.spill.is_none() && object.dnode().spill.is_some() {
            object.set_spill(self.tx(), None)?;
        }
        object.update(self.tx(), |dnode| {
            dnode.bonus_type = ObjectType::SA;
            dnode.bonus = built.bonus;
        })?;
        match built.spill {
            Some(spill) => object.set_spill(self.tx(), Some(&spill)),
            None => Ok(()),
        }
    }

    /// Brings the attributes that [`PLACED`] names into their order, before all others.
    fn put_in_place(&self, all: &mut [(u16, Vec<u8>)]) -> Result<()> {
        let placed =
            PLACED.iter().map(|attr| self.live().tables()?.number(self.tx(), *attr)).collect::<Result<Vec<u16>>>()?;
        all.sort_by_key(|(number, _)| placed.iter().position(|other| other == number).unwrap_or(placed.len()));
        Ok(())
    }

    fn build(&self, all: &[(u16, Vec<u8>)], object: &Object) -> Result<Built> {
        let dnode = object.dnode();
        let attrs: Vec<(u16, &[u8])> = all.iter().map(|(number, value)| (*number, &value[..])).collect();
        self.live().tables()?.build(self.tx(), &attrs, dnode.bonus_size_max(false), dnode.bonus_size_max(true))
    }

    /// The attributes that a file gets in place of its fixed znode.
    fn converted(&self, node: &FileNode) -> Result<Vec<(u16, Vec<u8>)>> {
        let attrs = self.zpl().attributes(node)?;
        let Some(old) = attrs.fixed() else { return Ok(Vec::new()) };
        let acl = self.zpl().acl_of(node)?.unwrap_or_default();
        if acl.entries.iter().any(|ace| ace.kind > 3) {
            return Err(Error::new(Kind::Unsupported, "a file of an older version with an ACL for SMB"));
        }
        let mut list = vec![
            word(Attr::Mode, old.mode),
            word(Attr::Size, old.size),
            word(Attr::Gen, old.generation),
            word(Attr::Uid, old.uid),
            word(Attr::Gid, old.gid),
            word(Attr::Parent, old.parent.get()),
            word(Attr::Flags, old.flags),
            time(Attr::Atime, old.atime),
            time(Attr::Mtime, old.mtime),
            time(Attr::Ctime, old.ctime),
            time(Attr::Crtime, old.crtime),
            word(Attr::Links, old.links),
        ];
        let kind = old.mode >> 12 & 0xf;
        if matches!(kind, 2 | 6) {
            list.push(word(Attr::Rdev, old.rdev));
        }
        list.push(word(Attr::DaclCount, acl.entries.len() as u64));
        list.push((Attr::DaclAces, AttrValue::Bytes(acl.bytes())));
        if old.xattr.is_some() {
            list.push(word(Attr::Xattr, old.xattr.get()));
        }
        if kind == 10 {
            list.push((Attr::Symlink, AttrValue::Bytes(self.zpl().target_of(node)?)));
        }
        Ok(self
            .live()
            .tables()?
            .numbered(self.tx(), &list)?
            .into_iter()
            .map(|(number, value)| (number, value.to_vec()))
            .collect())
    }
}
