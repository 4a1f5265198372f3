//! The master node: where everything else in a file system begins, and how its names compare.

use std::sync::Arc;

use base::{Error, Kind, Result};
use dmu::Objset;
use dmu::zap::{Match, Zap, ZapKey};
use format::ids::ObjectId;
use format::sa::Registry;
use format::zap::TextPrep;

pub(crate) const MASTER_NODE: ObjectId = ObjectId::new(1);
/// The flag of a table of names in which case does not count.
pub(crate) const NORM_UPPER: u64 = 0x02;
/// The newest version that is not Oracle's.
const VERSION_MAX: u64 = 5;

/// The entries of the master node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Master {
    /// Version of the file system, 1 to 5.
    pub version: u64,
    /// Object number of the root directory.
    pub root: ObjectId,
    /// Object number of the queue of unlinked files that are to be freed, or 0.
    pub delete_queue: ObjectId,
    /// Object number of the system attributes' tables, or 0.
    pub sa_attrs: ObjectId,
    /// Object number of the table of user id domains, or 0.
    pub fuid: ObjectId,
    /// Whether case counts in names.
    pub case: CaseMode,
    /// How names are brought into form before they are compared.
    pub prep: TextPrep,
    /// The same as the flags that a table of names has.
    pub normflags: u64,
    /// Names are UTF-8.
    pub utf8only: bool,
}

/// Whether case counts in names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CaseMode {
    /// It does.
    #[default]
    Sensitive,
    /// It does not.
    Insensitive,
    /// It does for POSIX, it does not for SMB.
    Mixed,
}

impl Master {
    pub(crate) fn read(objset: &Arc<Objset>) -> Result<Master> {
        let zap = Zap::open(objset.object(MASTER_NODE)?)?;
        let number = |name| Ok::<_, Error>(zap.u64(name)?.unwrap_or(0));
        let object = |name| number(name).map(ObjectId::new);
        let version = zap.require_u64("VERSION")?;
        if !(1..=VERSION_MAX).contains(&version) {
            let what = format!("file system is of version {version}, which is newer than {VERSION_MAX}");
            return Err(Error::new(Kind::Unsupported, what));
        }
        let case = match number("casesensitivity")? {
            1 => CaseMode::Insensitive,
            2 => CaseMode::Mixed,
            _ => CaseMode::Sensitive,
        };
        let normflags = number("normalization")? | if case == CaseMode::Sensitive { 0 } else { NORM_UPPER };
        Ok(Master {
            version,
            root: zap.require_object_id("ROOT")?,
            delete_queue: object("DELETE_QUEUE")?,
            sa_attrs: if version >= 5 { object("SA_ATTRS")? } else { ObjectId::NONE },
            fuid: object("FUID")?,
            case,
            prep: TextPrep::from_flags(normflags),
            normflags,
            utf8only: number("utf8only")? != 0,
        })
    }

    /// Which names a look-up takes as equal.
    pub(crate) fn name_match(&self) -> Match {
        match self.case {
            _ if self.prep.is_exact() => Match::Exact,
            CaseMode::Insensitive => Match::Normalized,
            CaseMode::Sensitive | CaseMode::Mixed => Match::NormalizedCase,
        }
    }

    /// The tables of the system attributes.
    pub(crate) fn registry(&self, objset: &Arc<Objset>) -> Result<Registry> {
        if self.sa_attrs.is_none() {
            return Registry::new([], []);
        }
        let tables = Zap::open(objset.object(self.sa_attrs)?)?;
        let open = |name: &str| match tables.object_id(name)? {
            Some(object) => Zap::open(objset.object(object)?)?.entries(),
            None => Ok(Vec::new()),
        };
        let mut attrs = Vec::new();
        for entry in open("REGISTRY")? {
            attrs.push((entry.name.to_string(), entry.value.first_u64().unwrap_or(0)));
        }
        let mut layouts = Vec::new();
        for entry in open("LAYOUTS")? {
            let number = layout_number(&entry.name)?;
            layouts.push((number, entry.value.u64s().into_iter().map(|attr| attr as u16).collect()));
        }
        Registry::new(attrs, layouts)
    }
}

fn layout_number(name: &ZapKey) -> Result<u16> {
    let name = name.to_string();
    name.parse().map_err(|_| Error::corrupt(format!("SA layout table has the entry '{name}'")))
}
