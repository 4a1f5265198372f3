//! Changing attributes.
//!
//! What keeps its length is changed where it lies; anything else makes the buffers of the file anew, in the
//! old order, with new attributes at the end, as OpenZFS does; but a project has a place of its own. A list of attributes that no file had before
//! becomes a new layout in the same transaction. A file that still has the fixed znode of older versions
//! gets system attributes with its first change.

use std::sync::Arc;

use base::{Error, Kind, Result, ResultExt};
use dmu::zap::{Editor, Value as TableValue};
use dmu::{Object, Objset, Tx};
use format::object_type::ObjectType;
use format::sa::{Attr, Attrs, Built, Registry, build};

use crate::Zpl;
use crate::live::Op;
use crate::node::Node;

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

/// The new value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Word([u8; 8]),
    Time([u8; 16]),
    Bytes(Vec<u8>),
}

/// An attribute and its new value.
pub(crate) type Change = (Attr, Value);

pub(crate) fn word(attr: Attr, number: u64) -> Change {
    (attr, Value::Word(number.to_le_bytes()))
}

pub(crate) fn time(attr: Attr, at: [u64; 2]) -> Change {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&at[0].to_le_bytes());
    bytes[8..].copy_from_slice(&at[1].to_le_bytes());
    (attr, Value::Time(bytes))
}

impl Value {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Value::Word(bytes) => bytes,
            Value::Time(bytes) => bytes,
            Value::Bytes(bytes) => bytes,
        }
    }
}

impl Op<'_> {
    /// Changes attributes of a file that this operation has locked.
    pub(crate) fn change(&self, object: &Object, changes: &[Change]) -> Result<()> {
        let object = object.fresh()?;
        match self.patches(&object, changes)? {
            Some(patches) => object.update(&self.tx, |dnode| {
                for (at, (_, value)) in patches.iter().zip(changes) {
                    let bytes = value.bytes();
                    dnode.bonus[*at..*at + bytes.len()].copy_from_slice(bytes);
                }
            }),
            None => self.rebuild(object, changes),
        }
    }

    /// Where in the bonus buffer each value goes, if they all have a place of their length there.
    fn patches(&self, object: &Object, changes: &[Change]) -> Result<Option<Vec<usize>>> {
        if object.dnode().bonus_type != ObjectType::SA {
            return Ok(None);
        }
        let registry = self.zpl.registry();
        let bonus = object.bonus();
        let attrs = Attrs::parse(bonus, &registry).at_block(object.bookmark(0, 0))?;
        let place = |(attr, value): &Change| {
            let old = attrs.get(&registry, *attr)?;
            let same = value.bytes().len() == old.len();
            // values of a buffer of foreign byte order are not in the buffer itself
            let inside = bonus.as_ptr_range().contains(&old.as_ptr());
            (same && inside).then(|| old.as_ptr() as usize - bonus.as_ptr() as usize)
        };
        Ok(changes.iter().map(place).collect())
    }

    fn rebuild(&self, object: Object, changes: &[Change]) -> Result<()> {
        let node = self.zpl.node_of(object)?;
        let object = node.object();
        let mut all = match object.dnode().bonus_type {
            ObjectType::SA => self.zpl.attributes(&node)?.all()?,
            _ => self.converted(&node)?,
        };
        for (attr, value) in changes {
            let number = self.number(*attr)?;
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
            object.set_spill(&self.tx, None)?;
        }
        object.update(&self.tx, |dnode| {
            dnode.bonus_type = ObjectType::SA;
            dnode.bonus = built.bonus;
        })?;
        match built.spill {
            Some(spill) => object.set_spill(&self.tx, Some(&spill)),
            None => Ok(()),
        }
    }

    /// Brings the attributes that [`PLACED`] names into their order, before all others.
    fn put_in_place(&self, all: &mut [(u16, Vec<u8>)]) -> Result<()> {
        let placed = PLACED.iter().map(|attr| self.number(*attr)).collect::<Result<Vec<u16>>>()?;
        all.sort_by_key(|(number, _)| placed.iter().position(|other| other == number).unwrap_or(placed.len()));
        Ok(())
    }

    fn build(&self, all: &[(u16, Vec<u8>)], object: &Object) -> Result<Built> {
        let dnode = object.dnode();
        let attrs: Vec<(u16, &[u8])> = all.iter().map(|(number, value)| (*number, &value[..])).collect();
        self.built(&attrs, dnode.bonus_size_max(false), dnode.bonus_size_max(true))
    }

    /// Makes buffers, and adds the layouts that they need.
    pub(crate) fn built(&self, attrs: &[(u16, &[u8])], max: usize, max_with_spill: usize) -> Result<Built> {
        let built = build(&self.zpl.registry(), attrs, max, max_with_spill)?;
        if built.new_layouts.is_empty() {
            return Ok(built);
        }
        let tables = self.live.tables();
        // somebody may have added them meanwhile, or others under their numbers
        let mut registry = (*self.zpl.registry()).clone();
        let mut built = build(&registry, attrs, max, max_with_spill)?;
        add_layouts(&self.zpl.objset, &self.tx, tables[1], &mut registry, &mut built)?;
        self.zpl.set_registry(registry);
        Ok(built)
    }

    /// The number of an attribute, which is registered if it was not.
    pub(crate) fn number(&self, attr: Attr) -> Result<u16> {
        if let Some(number) = self.zpl.registry().number(attr) {
            return Ok(number);
        }
        let tables = self.live.tables();
        let mut registry = (*self.zpl.registry()).clone();
        register(&self.zpl.objset, &self.tx, tables[0], &mut registry)?;
        let number = registry.number(attr);
        self.zpl.set_registry(registry);
        number.ok_or_else(|| Error::corrupt(format!("no number for attribute {attr:?}")))
    }

    /// The attributes that a file gets in place of its fixed znode.
    fn converted(&self, node: &Node) -> Result<Vec<(u16, Vec<u8>)>> {
        let attrs = self.zpl.attributes(node)?;
        let Some(old) = attrs.fixed() else { return Ok(Vec::new()) };
        let acl = self.zpl.acl_of(node)?.unwrap_or_default();
        if acl.entries.iter().any(|ace| ace.kind > 3) {
            return Err(Error::new(Kind::Unsupported, "a file of an older version with an ACL for SMB"));
        }
        let mut list = vec![
            word(Attr::Mode, old.mode),
            word(Attr::Size, old.size),
            word(Attr::Gen, old.generation),
            word(Attr::Uid, old.uid),
            word(Attr::Gid, old.gid),
            word(Attr::Parent, old.parent),
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
        list.push((Attr::DaclAces, Value::Bytes(acl.bytes())));
        if old.xattr != 0 {
            list.push(word(Attr::Xattr, old.xattr));
        }
        if kind == 10 {
            list.push((Attr::Symlink, Value::Bytes(self.zpl.target_of(node)?)));
        }
        Ok(self.numbered(&list)?.into_iter().map(|(number, value)| (number, value.to_vec())).collect())
    }

    /// The same attributes under the file system's numbers.
    pub(crate) fn numbered<'v>(&self, list: &'v [Change]) -> Result<Vec<(u16, &'v [u8])>> {
        let mut numbered = Vec::with_capacity(list.len());
        for (attr, value) in list {
            numbered.push((self.number(*attr)?, value.bytes()));
        }
        Ok(numbered)
    }
}

impl Zpl {
    fn set_registry(&self, registry: Registry) {
        *self.registry.write() = Arc::new(registry);
    }
}

/// Adds layouts to the table in object `layouts`, and to the registry.
pub(crate) fn add_layouts(
    objset: &Arc<Objset>,
    tx: &Tx<'_>,
    layouts: u64,
    registry: &mut Registry,
    built: &mut Built,
) -> Result<()> {
    let table = objset.object(layouts)?;
    for (number, attrs) in std::mem::take(&mut built.new_layouts) {
        let numbers: Vec<u64> = attrs.iter().map(|&attr| attr.into()).collect();
        Editor::new(&table.changing(tx)).add(number.to_string().as_bytes(), &TableValue::new(2, &numbers))?;
        registry.add_layout(number, attrs);
    }
    Ok(())
}

/// Adds all attributes that are not registered to the table in object `table`.
pub(crate) fn register(objset: &Arc<Objset>, tx: &Tx<'_>, table: u64, registry: &mut Registry) -> Result<()> {
    let object = objset.object(table)?;
    for (name, value) in registry.register_all() {
        Editor::new(&object.changing(tx)).set(name.as_bytes(), &TableValue::one(value))?;
    }
    Ok(())
}
