//! Space and objects used by users, groups and projects of a file system, and their quotas.
//!
//! ```text
//!   head of the object set ── dnode of users    ── ZAP: "3e8" ─▶ bytes    "obj-3e8" ─▶ objects
//!                          ── dnode of groups   ── the same
//!                          ── dnode of projects ── the same
//!   master node: "userquota@", "groupobjquota@", ... ─▶ ZAP: "3e8" ─▶ limit
//!                "defaultuserquota", ...             ─▶ limit of all that have none there
//! ```
//!
//! Keys are numbers in hex. The upper half of a number is the index of its domain in the file system's
//! table of domains, for users from Windows; the system's own have no domain.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base::{Endian, Error, Kind, Result};
use dmu::zap::{Zap, ZapValue};
use dmu::{Object, Objset};
use format::ids::ObjectId;
use format::nvlist::NvList;
use format::object_type::ObjectType;
use format::objset::ObjsetType;
pub use format::objset::Owner;

use crate::Property;
use crate::contents::{MASTER_NODE, of_file_system};
use crate::write::Change;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counted {
    /// Bytes.
    Bytes,
    /// Objects: files, directories and so on.
    Objects,
}

/// What one user, group or project uses and may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes; `None` if there are none on the books.
    pub used_bytes: Option<u64>,
    /// Limit of bytes, if one was set.
    pub quota_bytes: Option<u64>,
    /// Objects; `None` if there are none on the books.
    pub objects_used: Option<u64>,
    /// Limit of objects, if one was set.
    pub objects_quota: Option<u64>,
}

/// A user, group or project: its domain, empty for the system's own, and its number there.
pub type OwnerId = (String, u64);

/// The numbers of the objects by which bookmarks and errors name the tables of use.
const USER_USED: ObjectId = ObjectId::new(u64::MAX);
const GROUP_USED: ObjectId = ObjectId::new(u64::MAX - 1);
const PROJECT_USED: ObjectId = ObjectId::new(u64::MAX - 2);
/// Flags of an object set.
const FLAG_USED_COMPLETE: u64 = 1;
const FLAG_OBJECTS_COMPLETE: u64 = 2;
const FLAG_PROJECTS_COMPLETE: u64 = 4;

/// The first version of file systems that count by user.
const FILES_VERSION: u64 = 4;

const OBJECTS_PREFIX: &str = "obj-";
/// Most bytes of a table of domains.
const DOMAINS_SIZE_MAX: u64 = 1 << 20;

/// The accounts of one file system or snapshot.
pub struct Accounts {
    objset: Arc<Objset>,
    domains: HashMap<u64, String>,
}

/// Whether the file system in `objset` is of a version that counts by user. Errors: those of reading it.
pub fn has_version_of_accounts(objset: &Arc<Objset>) -> Result<bool> {
    Ok(of_file_system(objset, Property::Version)?.is_some_and(|version| version >= FILES_VERSION))
}

impl Accounts {
    /// The accounts in `objset`. Errors: `Unsupported` if it is no file system or keeps none.
    pub fn open(objset: Arc<Objset>) -> Result<Accounts> {
        if objset.kind() != ObjsetType::Zfs || objset.phys().flags & FLAG_USED_COMPLETE == 0 {
            return Err(Error::new(Kind::Unsupported, "the dataset does not account for space by user"));
        }
        let domains = domains(&objset)?;
        Ok(Accounts { objset, domains })
    }

    /// Whether it keeps such accounts.
    pub fn has(&self, owner: Owner, counted: Counted) -> bool {
        let flags = self.objset.phys().flags;
        (owner != Owner::Project || flags & FLAG_PROJECTS_COMPLETE != 0)
            && (counted != Counted::Objects || flags & FLAG_OBJECTS_COMPLETE != 0)
    }

    /// All that use something or have a limit of their own, by domain and number; the others are shown with the
    /// limit that all have.
    pub fn all(&self, owner: Owner) -> Result<BTreeMap<OwnerId, Usage>> {
        let mut all: BTreeMap<OwnerId, Usage> = BTreeMap::new();
        for counted in [Counted::Bytes, Counted::Objects] {
            if !self.has(owner, counted) {
                continue;
            }
            for (id, number) in self.used(owner, counted)? {
                let usage = all.entry(id).or_default();
                *usage.used_mut(counted) = Some(number);
            }
            for (id, number) in self.quotas(owner, counted)? {
                let usage = all.entry(id).or_default();
                *usage.quota_mut(counted) = Some(number);
            }
            let default = self.default_limit(owner, counted)?;
            if default != 0 {
                all.values_mut().for_each(|usage| {
                    usage.quota_mut(counted).get_or_insert(default);
                });
            }
        }
        Ok(all)
    }

    /// What one of them uses; 0 if there is nothing on the books. `None` if it keeps no such accounts.
    pub fn used_by(&self, owner: Owner, counted: Counted, id: &OwnerId) -> Result<Option<u64>> {
        if !self.has(owner, counted) {
            return Ok(None);
        }
        Ok(Some(self.used(owner, counted)?.get(id).copied().unwrap_or(0)))
    }

    /// The limit of one of them; 0 if there is none. `None` if it keeps no such accounts.
    pub fn quota_of(&self, owner: Owner, counted: Counted, id: &OwnerId) -> Result<Option<u64>> {
        if !self.has(owner, counted) {
            return Ok(None);
        }
        Ok(Some(self.quotas(owner, counted)?.get(id).copied().unwrap_or(0)))
    }

    /// Whether anybody has a limit.
    pub fn has_limits(&self) -> Result<bool> {
        for (owner, counted) in QUOTAS {
            if !self.has(owner, counted) {
                continue;
            }
            let has_own = self.limits(owner, counted)?.is_some_and(|limits| !limits.is_empty());
            if has_own || self.default_limit(owner, counted)? != 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether one of them, by its key, uses as much as it may, or more.
    pub fn is_used_up(&self, owner: Owner, counted: Counted, key: u64) -> Result<bool> {
        Ok(self.used_and_limit(owner, counted, key)?.is_some_and(|(used, limit)| used >= limit))
    }

    /// What one of them, by its key, uses and may use; `None` if it has no limit.
    pub fn used_and_limit(&self, owner: Owner, counted: Counted, key: u64) -> Result<Option<(u64, u64)>> {
        if !self.has(owner, counted) {
            return Ok(None);
        }
        let own = match self.limits(owner, counted)? {
            Some(limits) => limits.u64(&format!("{key:x}"))?,
            None => None,
        };
        let limit = own.map_or_else(|| self.default_limit(owner, counted), Ok)?;
        if limit == 0 {
            return Ok(None);
        }
        let name = match counted {
            Counted::Bytes => format!("{key:x}"),
            Counted::Objects => format!("{OBJECTS_PREFIX}{key:x}"),
        };
        let used = self.book(owner)?.map_or(Ok(None), |book| book.u64(&name))?;
        Ok(Some((used.unwrap_or(0), limit)))
    }

    /// The key of a user, group or project. `None` for one of a domain that the file system does not know.
    pub fn key_of(&self, id: &OwnerId) -> Option<u64> {
        let (domain, number) = id;
        match domain.as_str() {
            "" => Some(*number),
            _ => self.domains.iter().find(|(_, known)| *known == domain).map(|(index, _)| index << 32 | number),
        }
    }

    /// What is used.
    fn book(&self, owner: Owner) -> Result<Option<Zap>> {
        let (index, object) = match owner {
            Owner::User => (0, USER_USED),
            Owner::Group => (1, GROUP_USED),
            Owner::Project => (2, PROJECT_USED),
        };
        let dnode = self.objset.phys().accounting[index].clone();
        dnode.map(|dnode| Zap::open(Object::outside(self.objset.clone(), object, dnode))).transpose()
    }

    fn used(&self, owner: Owner, counted: Counted) -> Result<BTreeMap<OwnerId, u64>> {
        let Some(book) = self.book(owner)? else { return Ok(BTreeMap::new()) };
        self.numbers(&book, counted == Counted::Objects)
    }

    /// The table of limits.
    fn limits(&self, owner: Owner, counted: Counted) -> Result<Option<Zap>> {
        match Zap::open(self.objset.object(MASTER_NODE)?)?.object_id(limits_name(owner, counted))? {
            None | Some(ObjectId::NONE) => Ok(None),
            Some(object) => Zap::open(self.objset.object(object)?).map(Some),
        }
    }

    /// The limit of all that have none of their own; 0 if there is none.
    pub fn default_limit(&self, owner: Owner, counted: Counted) -> Result<u64> {
        let master = Zap::open(self.objset.object(MASTER_NODE)?)?;
        Ok(master.u64(default_name(owner, counted).name())?.unwrap_or(0))
    }

    fn quotas(&self, owner: Owner, counted: Counted) -> Result<BTreeMap<OwnerId, u64>> {
        let Some(limits) = self.limits(owner, counted)? else { return Ok(BTreeMap::new()) };
        self.numbers(&limits, false)
    }

    /// The entries of a table, of objects or of bytes.
    fn numbers(&self, zap: &Zap, objects: bool) -> Result<BTreeMap<OwnerId, u64>> {
        let mut numbers = BTreeMap::new();
        for entry in zap.entries()? {
            let name = entry.name.to_string();
            let hex = match name.strip_prefix(OBJECTS_PREFIX) {
                Some(hex) if objects => hex,
                None if !objects => &name,
                _ => continue,
            };
            let id = u64::from_str_radix(hex, 16);
            let (Ok(id), Some(number)) = (id, entry.value.first_u64()) else {
                return Err(Error::corrupt(format!("accounts of '{name}', which is no number")));
            };
            let domain = self.domains.get(&(id >> 32)).cloned().unwrap_or_default();
            numbers.insert((domain, id & u64::from(u32::MAX)), number);
        }
        Ok(numbers)
    }
}

/// All kinds of limits.
const QUOTAS: [(Owner, Counted); 6] = [
    (Owner::User, Counted::Bytes),
    (Owner::User, Counted::Objects),
    (Owner::Group, Counted::Bytes),
    (Owner::Group, Counted::Objects),
    (Owner::Project, Counted::Bytes),
    (Owner::Project, Counted::Objects),
];

/// The master node's name for a table of limits.
fn limits_name(owner: Owner, counted: Counted) -> &'static str {
    match (owner, counted) {
        (Owner::User, Counted::Bytes) => "userquota@",
        (Owner::User, Counted::Objects) => "userobjquota@",
        (Owner::Group, Counted::Bytes) => "groupquota@",
        (Owner::Group, Counted::Objects) => "groupobjquota@",
        (Owner::Project, Counted::Bytes) => "projectquota@",
        (Owner::Project, Counted::Objects) => "projectobjquota@",
    }
}

/// The property that limits all that have no limit of their own, which is also the master node's name for it.
fn default_name(owner: Owner, counted: Counted) -> Property {
    match (owner, counted) {
        (Owner::User, Counted::Bytes) => Property::Defaultuserquota,
        (Owner::User, Counted::Objects) => Property::Defaultuserobjquota,
        (Owner::Group, Counted::Bytes) => Property::Defaultgroupquota,
        (Owner::Group, Counted::Objects) => Property::Defaultgroupobjquota,
        (Owner::Project, Counted::Bytes) => Property::Defaultprojectquota,
        (Owner::Project, Counted::Objects) => Property::Defaultprojectobjquota,
    }
}

/// Sets such a property in the head that `change` is about; 0 is no limit. Errors: those of reading and writing.
pub fn set_default_limit(change: &Change<'_>, property: Property, limit: u64) -> Result<()> {
    match limit {
        0 => change.remove(MASTER_NODE, property.name()).map(drop),
        _ => change.set(MASTER_NODE, property.name(), &ZapValue::one(limit)),
    }
}

/// What kind of owner is limited by a property of that kind, and in what.
pub fn limited_by(property: Property) -> Option<(Owner, Counted)> {
    QUOTAS.into_iter().find(|(owner, counted)| default_name(*owner, *counted) == property)
}

/// Sets the limit of a user, group or project, by its key, in the head that `change` is about; 0 takes it
/// away. Errors: those of reading and writing.
pub fn set_limit(change: &Change<'_>, owner: Owner, counted: Counted, key: u64, limit: u64) -> Result<()> {
    let name = limits_name(owner, counted);
    let table = match change.object_id(MASTER_NODE, name)? {
        Some(table) if table.is_some() => table,
        _ if limit == 0 => return Ok(()),
        _ => {
            let table = change.create_table(ObjectType::USERGROUP_QUOTA)?;
            change.set(MASTER_NODE, name, &ZapValue::one(table.get()))?;
            table
        }
    };
    match limit {
        0 => change.remove(table, &format!("{key:x}")).map(drop),
        _ => change.set(table, &format!("{key:x}"), &ZapValue::one(limit)),
    }
}

impl Usage {
    fn used_mut(&mut self, counted: Counted) -> &mut Option<u64> {
        match counted {
            Counted::Bytes => &mut self.used_bytes,
            Counted::Objects => &mut self.objects_used,
        }
    }

    fn quota_mut(&mut self, counted: Counted) -> &mut Option<u64> {
        match counted {
            Counted::Bytes => &mut self.quota_bytes,
            Counted::Objects => &mut self.objects_quota,
        }
    }
}

/// The file system's table of domains, by index.
fn domains(objset: &Arc<Objset>) -> Result<HashMap<u64, String>> {
    let object = match Zap::open(objset.object(MASTER_NODE)?)?.object_id("FUID")? {
        None | Some(ObjectId::NONE) => return Ok(HashMap::new()),
        Some(object) => objset.object(object)?,
    };
    let len = Endian::Little.u64(object.bonus()).ok_or_else(|| Error::corrupt("table of domains without a length"))?;
    if len == 0 {
        return Ok(HashMap::new());
    }
    let table = NvList::unpack(&object.read_whole(len, DOMAINS_SIZE_MAX)?)?;
    let mut domains = HashMap::new();
    for domain in table.lists("fuid_nvlist")? {
        domains.insert(domain.u64("fuid_idx")?, domain.str("fuid_domain")?.to_owned());
    }
    Ok(domains)
}
