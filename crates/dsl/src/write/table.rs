//! Objects and tables of the MOS: making, changing, freeing them.

use base::{Error, Kind, Result};
use dmu::INDIRECT_SHIFT;
use dmu::Object;
use dmu::zap::{Editor, Zap, ZapValue};
use format::dnode::Dnode;
use format::feature::EXTENSIBLE_DATASET;
use format::object_type::ObjectType;

use super::Change;

/// Bytes of a block of a new object or table.
const BLOCK_SIZE: u64 = 512;

impl Change<'_> {
    /// Makes an object without contents.
    pub(super) fn create_object(&self, kind: ObjectType, bonus: (ObjectType, Vec<u8>)) -> Result<Object> {
        let mut dnode = Dnode::new(kind, BLOCK_SIZE, INDIRECT_SHIFT, 1, 1);
        (dnode.bonus_type, dnode.bonus) = bonus;
        self.mos.allocate(self.tx, dnode)
    }

    /// Makes an empty table, and returns its object number.
    pub fn create_table(&self, kind: ObjectType) -> Result<u64> {
        self.create_table_with(kind, (ObjectType::NONE, Vec::new()), 0)
    }

    /// The same, with a bonus buffer, and flags of how names are compared.
    pub(super) fn create_table_with(
        &self,
        kind: ObjectType,
        bonus: (ObjectType, Vec<u8>),
        normflags: u64,
    ) -> Result<u64> {
        let object = self.create_object(kind, bonus)?;
        Editor::create(&object.changing(self.tx), 0, normflags, self.env.random())?;
        Ok(object.id())
    }

    /// Makes the table with the number of the caller's choice, if there is no such object.
    pub fn create_table_at(&self, id: u64, kind: ObjectType) -> Result<()> {
        match self.mos.object(id) {
            Err(e) if e.kind() == Kind::NotFound => {
                let dnode = Dnode::new(kind, BLOCK_SIZE, INDIRECT_SHIFT, 1, 1);
                let object = self.mos.allocate_at(self.tx, id, dnode)?;
                Editor::create(&object.changing(self.tx), 0, 0, self.env.random()).map(drop)
            }
            result => result.map(drop),
        }
    }

    /// Adds an entry to a table. Errors: `Exists`.
    pub fn add(&self, table: u64, name: &str, number: u64) -> Result<()> {
        let object = self.mos.object(table)?;
        Editor::new(&object.changing(self.tx)).add(name.as_bytes(), &ZapValue::one(number))
    }

    /// Adds an entry to a table that is a set of numbers.
    pub fn add_number(&self, table: u64, number: u64) -> Result<()> {
        self.add(table, &format!("{number:x}"), number)
    }

    /// Adds an entry, or changes its value.
    pub fn set(&self, table: u64, name: &str, value: &ZapValue) -> Result<()> {
        let object = self.mos.object(table)?;
        Editor::new(&object.changing(self.tx)).set(name.as_bytes(), value)
    }

    /// Removes an entry, if it is there; whether it was.
    pub fn remove(&self, table: u64, name: &str) -> Result<bool> {
        let object = self.mos.object(table)?;
        match Editor::new(&object.changing(self.tx)).remove(name.as_bytes()) {
            Err(e) if e.kind() == Kind::NotFound => Ok(false),
            result => result.map(|()| true),
        }
    }

    /// Number of entries of a table.
    pub fn entries_of(&self, table: u64) -> Result<u64> {
        let object = self.mos.object(table)?;
        Editor::new(&object.changing(self.tx)).len()
    }

    /// The number of that name in a table; in one with number 0 there is none.
    pub fn number(&self, table: u64, name: &str) -> Result<Option<u64>> {
        if table == 0 { Ok(None) } else { Zap::open(self.mos.object(table)?)?.u64(name) }
    }

    /// The number of that name in the object directory. Errors: `Corrupt` if there is none.
    pub fn in_directory(&self, name: &str) -> Result<u64> {
        let absent = || Error::corrupt(format!("no '{name}' in the object directory"));
        self.number(super::DIRECTORY, name)?.ok_or_else(absent)
    }

    /// All entries of a table whose names are numbers in hex.
    pub fn by_number(&self, table: u64) -> Result<Vec<(u64, u64)>> {
        let mut entries = Vec::new();
        for entry in Zap::open(self.mos.object(table)?)?.entries()? {
            let key = u64::from_str_radix(&entry.name.to_string(), 16);
            let (Ok(key), Some(number)) = (key, entry.value.first_u64()) else {
                return Err(Error::corrupt(format!("entry '{}' of table {table} is no number", entry.name)));
            };
            entries.push((key, number));
        }
        entries.sort_unstable();
        Ok(entries)
    }

    /// Frees an object or table; number 0 is none.
    pub fn free_object(&self, id: u64) -> Result<()> {
        if id == 0 { Ok(()) } else { self.mos.free_object(self.tx, id) }
    }

    /// Frees the object of a directory or dataset, which may be a table, too.
    pub(super) fn free_record(&self, id: u64) -> Result<()> {
        if self.mos.object(id)?.dnode().object_type == ObjectType::ZAP_METADATA {
            self.count_feature(EXTENSIBLE_DATASET, -1)?;
        }
        self.free_object(id)
    }

    /// Makes the object of a directory or dataset a table too, for later additions to it.
    pub(super) fn zapify(&self, id: u64) -> Result<()> {
        let object = self.mos.object(id)?;
        if object.dnode().object_type == ObjectType::ZAP_METADATA {
            return Ok(());
        }
        object.update(self.tx, |dnode| dnode.object_type = ObjectType::ZAP_METADATA)?;
        self.count_feature(EXTENSIBLE_DATASET, 1)?;
        Editor::create(&self.mos.object(id)?.changing(self.tx), 0, 0, self.env.random()).map(drop)
    }
}
