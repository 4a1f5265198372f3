//! Where the dedup tables of a checksum are, and the form of their values.
//!
//! ```text
//!   object directory
//!     ├─ DDT-sha256-zap-duplicate, -unique ──▶ tables; their values are traditional
//!     └─ DDT-sha256 ──▶ ZAP: version = 1                             (feature fast_dedup, one use of it each)
//!                            flags: 1 values are flat, 2 there may be logs
//!                            DDT-sha256-zap-duplicate, ... ──▶ tables
//!                            DDT-log-sha256-0, -1 ──▶ logs
//! ```
//!
//! Tables stay as they are until their last entry has gone: only then is it the features of the pool that choose.
//!
//! Source: OpenZFS's description of fast dedup, and its behaviour (ddt.c).

use std::sync::Arc;

use base::{Error, Kind, Result};
use codec::checksum::Checksum;
use dmu::Objset;
use dmu::zap::Zap;
use format::feature::FAST_DEDUP;
use format::ids::ObjectId;

use super::packed::DdtForm;
use super::{CLASSES, table_name};
use crate::mos::DIRECTORY;

/// Names in a directory of tables, and what a new one has.
pub(crate) const VERSION: (&str, u64) = ("version", 1);
pub(crate) const FLAGS: (&str, u64) = ("flags", FLAT | LOGGED);
const FLAT: u64 = 1;
const LOGGED: u64 = 1 << 1;
/// Logs of a checksum: one grows while the other goes into the tables.
pub(crate) const LOGS: usize = 2;

/// The tables of a checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DdtDirectory {
    /// The table that names them; none if it is to be made with the first of them.
    pub(crate) names: Option<ObjectId>,
    /// The form of their values.
    pub(crate) form: DdtForm,
    /// In the order of [`CLASSES`].
    pub(crate) tables: [Option<ObjectId>; CLASSES.len()],
    /// What may have entries that tables do not have yet.
    pub(crate) logs: [Option<ObjectId>; LOGS],
}

impl DdtDirectory {
    /// Finds it. Errors: `Unsupported` if it is of a version or has flags that are not known; those of reading.
    pub(crate) fn find(mos: &Arc<Objset>, checksum: Checksum) -> Result<DdtDirectory> {
        let directory = Zap::open(mos.object(DIRECTORY)?)?;
        let tables_in = |names: &Zap| -> Result<[Option<ObjectId>; CLASSES.len()]> {
            let mut tables = [None; CLASSES.len()];
            for (table, class) in tables.iter_mut().zip(CLASSES) {
                *table = names.object_id(&table_name(checksum, class))?;
            }
            Ok(tables)
        };
        if let Some(id) = directory.object_id(&folder_name(checksum))? {
            let names = Zap::open(mos.object(id)?)?;
            let (version, flags) = (names.require_u64(VERSION.0)?, names.require_u64(FLAGS.0)?);
            if version != VERSION.1 || flags & !FLAGS.1 != 0 {
                let what = format!("dedup tables of {} of version {version} with flags {flags:#x}", checksum.name());
                return Err(Error::new(Kind::Unsupported, what));
            }
            let form = if flags & FLAT != 0 { DdtForm::Flat } else { DdtForm::Traditional };
            let mut logs = [None; LOGS];
            for (number, log) in logs.iter_mut().enumerate() {
                *log = names.object_id(&log_name(checksum, number))?;
            }
            return Ok(DdtDirectory { names: Some(id), form, tables: tables_in(&names)?, logs });
        }
        let tables = tables_in(&directory)?;
        let is_new = tables.iter().all(Option::is_none);
        let (names, form) = match is_new && is_fast(mos, &directory)? {
            true => (None, DdtForm::Flat),
            false => (Some(DIRECTORY), DdtForm::Traditional),
        };
        Ok(DdtDirectory { names, form, tables, logs: [None; LOGS] })
    }

    /// Whether it is a table of its own.
    pub(crate) fn is_folder(&self) -> bool {
        self.names.is_none_or(|names| names != DIRECTORY)
    }
}

/// The checksums that may have tables, in the order of their numbers.
pub(crate) fn checksums() -> impl Iterator<Item = Checksum> {
    (0..u8::MAX).filter_map(Checksum::from_u8).filter(|checksum| checksum.is_concrete())
}

/// The name of the directory of a checksum's tables: `DDT-sha256`.
pub(crate) fn folder_name(checksum: Checksum) -> String {
    format!("DDT-{}", checksum.name())
}

/// The name of a log: `DDT-log-sha256-0`.
pub(crate) fn log_name(checksum: Checksum, number: usize) -> String {
    format!("DDT-log-{}-{number}", checksum.name())
}

/// Whether the pool has feature fast_dedup.
fn is_fast(mos: &Arc<Objset>, directory: &Zap) -> Result<bool> {
    let Some(listed) = directory.object_id("features_for_write")? else { return Ok(false) };
    Ok(Zap::open(mos.object(listed)?)?.u64(FAST_DEDUP)?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dedup::{is_folder, is_table, log::is_log};

    #[test]
    fn names() {
        assert!(is_folder(&folder_name(Checksum::Skein)) && is_log(&log_name(Checksum::Skein, 1)));
        assert_eq!(log_name(Checksum::Sha256, 0), "DDT-log-sha256-0");
        assert!(is_table(&table_name(Checksum::Sha256, CLASSES[1])));
    }
}
