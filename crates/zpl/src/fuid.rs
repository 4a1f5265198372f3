//! Domains of foreign user ids.
//!
//! An owner whose upper half is not 0 came over SMB: the upper half is the number of a Windows domain
//! in this table, the lower half the id within it. Linux, and so [`crate::Stat`], shows the lower half.

use std::collections::HashMap;

use base::{Endian, Error, Result};
use format::acl::Acl;
use format::nvlist::NvList;

use crate::Zpl;

/// Largest table that is read.
const TABLE_SIZE_MAX: u64 = 16 << 20;

/// Domain numbers and their names, such as `S-1-5-21-1-2-3`.
pub(crate) type Domains = HashMap<u32, String>;

impl Zpl {
    /// The name of a domain number. Errors: those of reading the table.
    pub fn domain(&self, number: u32) -> Result<Option<String>> {
        if let Some(domains) = self.domains.get() {
            return Ok(domains.get(&number).cloned());
        }
        let domains = self.read_domains()?;
        Ok(self.domains.get_or_init(|| domains).get(&number).cloned())
    }

    /// The number of a domain, if the table has it. Errors: those of reading the table.
    pub(crate) fn domain_number(&self, name: &str) -> Result<Option<u32>> {
        self.domain(0)?;
        let domains = self.domains.get();
        Ok(domains.and_then(|domains| domains.iter().find(|(_, known)| *known == name)).map(|(number, _)| *number))
    }

    /// The text of an ACL, one entry a line, with the names of domains where the table has them.
    pub fn acl_text(&self, acl: &Acl) -> String {
        acl.text(&|number| self.domain(number).ok().flatten())
    }

    fn read_domains(&self) -> Result<Domains> {
        if self.master.fuid == 0 {
            return Ok(Domains::new());
        }
        let object = self.objset.object(self.master.fuid)?;
        let size = Endian::Little.u64(object.bonus()).ok_or_else(|| Error::corrupt("FUID table without a size"))?;
        if size == 0 {
            return Ok(Domains::new());
        }
        named_domains(&object.read_whole(size, TABLE_SIZE_MAX)?)
    }
}

/// Reads a packed table: an array of lists of a number and a name.
pub(crate) fn named_domains(packed: &[u8]) -> Result<Domains> {
    let list = NvList::unpack(packed)?;
    let mut domains = Domains::new();
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
