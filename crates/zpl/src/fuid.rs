//! Domains of foreign user ids.
//!
//! An owner whose upper half is not 0 came over SMB: the upper half is the number of a Windows domain
//! in this table, the lower half the id within it. Linux, and so [`crate::Stat`], shows the lower half.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use base::{Endian, Error, Result};
use dmu::Objset;
use format::ids::ObjectId;
use format::nvlist::NvList;

/// Largest table that is read.
const TABLE_SIZE_MAX: u64 = 16 << 20;

/// Domain numbers and their names, such as `S-1-5-21-1-2-3`.
pub(crate) type DomainNames = HashMap<u32, String>;

/// The table of one file system, read at its first use.
pub(crate) struct Domains {
    objset: Arc<Objset>,
    /// The table's object; 0 if there is none.
    table: ObjectId,
    names: OnceLock<DomainNames>,
}

impl Domains {
    /// The table in object `table`.
    pub(crate) fn new(objset: Arc<Objset>, table: ObjectId) -> Domains {
        Domains { objset, table, names: OnceLock::new() }
    }

    /// The name of a domain number. Errors: those of reading the table.
    pub(crate) fn name(&self, number: u32) -> Result<Option<String>> {
        Ok(self.names()?.get(&number).cloned())
    }

    /// The number of a domain, if the table has it. Errors: those of reading the table.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u32>> {
        Ok(self.names()?.iter().find(|(_, known)| *known == name).map(|(number, _)| *number))
    }

    fn names(&self) -> Result<&DomainNames> {
        if let Some(names) = self.names.get() {
            return Ok(names);
        }
        let names = self.read()?;
        Ok(self.names.get_or_init(|| names))
    }

    fn read(&self) -> Result<DomainNames> {
        if self.table.is_none() {
            return Ok(DomainNames::new());
        }
        let object = self.objset.object(self.table)?;
        let size = Endian::Little.u64(object.bonus()).ok_or_else(|| Error::corrupt("FUID table without a size"))?;
        if size == 0 {
            return Ok(DomainNames::new());
        }
        named_domains(&object.read_whole(size, TABLE_SIZE_MAX)?)
    }
}

/// Reads a packed table: an array of lists of a number and a name.
pub(crate) fn named_domains(packed: &[u8]) -> Result<DomainNames> {
    let list = NvList::unpack(packed)?;
    let mut domains = DomainNames::new();
    for entry in list.lists("fuid_nvlist")? {
        domains.insert(entry.u64("fuid_idx")? as u32, entry.str("fuid_domain")?.to_owned());
    }
    Ok(domains)
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::nvlist::Value;

    #[test]
    fn a_packed_table() {
        let entry = |number, name: &str| {
            let mut list = NvList::new();
            list.set("fuid_idx", Value::U64(number));
            list.set("fuid_offset", Value::U64(0));
            list.set("fuid_domain", Value::Str(name.to_owned()));
            list
        };
        let mut table = NvList::new();
        table.set("fuid_nvlist", Value::Lists(vec![entry(1, "S-1-5-21-1"), entry(2, "S-1-5-21-2")]));
        let domains = named_domains(&table.pack()).unwrap();
        assert_eq!((domains.len(), domains[&2].as_str()), (2, "S-1-5-21-2"));
        assert!(named_domains(&NvList::new().pack()).is_err());
    }
}
