//! Values of attributes, and the tables by which they are found in buffers: a number for each attribute, and a layout
//! for each list of attributes that a file has.

use std::sync::Arc;

use base::{Error, Mutex, Result};
use dmu::zap::{Editor, Zap, ZapValue as TableValue};
use dmu::{INDIRECT_SHIFT, Objset, Tx};
use format::dnode::Dnode;
use format::ids::ObjectId;
use format::object_type::ObjectType;
use format::sa::{Attr, Built, Registry, build};

use crate::nodes::Nodes;

/// Bytes of the blocks of a table.
pub(crate) const TABLE_BLOCK_SIZE: u64 = 512;
/// Makes hashes of tables differ.
const SALT: u64 = 0x9e37_79b9_7f4a_7c15;

/// The new value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttrValue {
    Word([u8; 8]),
    Time([u8; 16]),
    Bytes(Vec<u8>),
}

/// An attribute and its new value.
pub(crate) type AttrChange = (Attr, AttrValue);

pub(crate) fn word(attr: Attr, number: u64) -> AttrChange {
    (attr, AttrValue::Word(number.to_le_bytes()))
}

pub(crate) fn time(attr: Attr, at: [u64; 2]) -> AttrChange {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&at[0].to_le_bytes());
    bytes[8..].copy_from_slice(&at[1].to_le_bytes());
    (attr, AttrValue::Time(bytes))
}

impl AttrValue {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            AttrValue::Word(bytes) => bytes,
            AttrValue::Time(bytes) => bytes,
            AttrValue::Bytes(bytes) => bytes,
        }
    }
}

/// The tables of a file system that is changed.
pub(crate) struct AttrTables {
    nodes: Nodes,
    /// The object that leads to the tables.
    sa_attrs: ObjectId,
    /// Held while one of the tables is changed.
    objects: Mutex<TableObjects>,
}

/// Objects of the numbers and of the layouts. A file system that has just come to version 5 has none yet: OpenZFS takes
/// no empty table of layouts.
struct TableObjects {
    numbers: Option<ObjectId>,
    layouts: Option<ObjectId>,
}

impl AttrTables {
    /// The tables that object `sa_attrs` leads to. Errors: those of reading it.
    pub(crate) fn open(nodes: &Nodes, sa_attrs: ObjectId) -> Result<AttrTables> {
        let tables = Zap::open(nodes.objset().object(sa_attrs)?)?;
        let objects = TableObjects { numbers: tables.object_id("REGISTRY")?, layouts: tables.object_id("LAYOUTS")? };
        Ok(AttrTables { nodes: nodes.clone(), sa_attrs, objects: Mutex::new(objects) })
    }

    /// A table that is not there yet.
    fn make(&self, tx: &Tx<'_>, name: &str, kind: ObjectType) -> Result<ObjectId> {
        let objset = self.nodes.objset();
        let table = objset.allocate(tx, table_dnode(kind))?;
        Editor::create(&table.changing(tx), 0, 0, tx.txg().get().wrapping_mul(SALT).wrapping_add(table.id().get()))?;
        let leads = objset.object(self.sa_attrs)?;
        Editor::new(&leads.changing(tx)).set(name.as_bytes(), &TableValue::one(table.id().get()))?;
        Ok(table.id())
    }

    /// The number of an attribute, which is registered if it was not.
    pub(crate) fn number(&self, tx: &Tx<'_>, attr: Attr) -> Result<u16> {
        if let Some(number) = self.nodes.registry().number(attr) {
            return Ok(number);
        }
        let mut objects = self.objects.lock();
        let table = match objects.numbers {
            Some(table) => table,
            None => self.make(tx, "REGISTRY", ObjectType::SA_ATTR_REGISTRATION)?,
        };
        objects.numbers = Some(table);
        let mut registry = (*self.nodes.registry()).clone();
        register(self.nodes.objset(), tx, table, &mut registry)?;
        let number = registry.number(attr);
        self.nodes.set_registry(registry);
        number.ok_or_else(|| Error::corrupt(format!("no number for attribute {attr:?}")))
    }

    /// Attributes under their numbers.
    pub(crate) fn numbered<'v>(&self, tx: &Tx<'_>, list: &'v [AttrChange]) -> Result<Vec<(u16, &'v [u8])>> {
        let mut numbered = Vec::with_capacity(list.len());
        for (attr, value) in list {
            numbered.push((self.number(tx, *attr)?, value.bytes()));
        }
        Ok(numbered)
    }

    /// Makes buffers, and adds the layouts that they need.
    pub(crate) fn build(
        &self,
        tx: &Tx<'_>,
        attrs: &[(u16, &[u8])],
        max: usize,
        max_with_spill: usize,
    ) -> Result<Built> {
        let built = build(&self.nodes.registry(), attrs, max, max_with_spill)?;
        if built.new_layouts.is_empty() {
            return Ok(built);
        }
        let mut objects = self.objects.lock();
        let table = match objects.layouts {
            Some(table) => table,
            None => self.make(tx, "LAYOUTS", ObjectType::SA_ATTR_LAYOUTS)?,
        };
        objects.layouts = Some(table);
        // they may have been added meanwhile, or others under their numbers
        let mut registry = (*self.nodes.registry()).clone();
        let mut built = build(&registry, attrs, max, max_with_spill)?;
        add_layouts(self.nodes.objset(), tx, table, &mut registry, &mut built)?;
        self.nodes.set_registry(registry);
        Ok(built)
    }
}

/// A new table.
pub(crate) fn table_dnode(kind: ObjectType) -> Dnode {
    Dnode::new(kind, TABLE_BLOCK_SIZE, INDIRECT_SHIFT, 3, 1)
}

/// Adds layouts to the table in object `layouts`, and to the registry.
pub(crate) fn add_layouts(
    objset: &Arc<Objset>,
    tx: &Tx<'_>,
    layouts: ObjectId,
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
pub(crate) fn register(objset: &Arc<Objset>, tx: &Tx<'_>, table: ObjectId, registry: &mut Registry) -> Result<()> {
    let object = objset.object(table)?;
    for (name, value) in registry.register_all() {
        Editor::new(&object.changing(tx)).set(name.as_bytes(), &TableValue::one(value))?;
    }
    Ok(())
}
