//! Bringing file systems to later versions: what `zfs upgrade` and `zfs set version=` ask for.

use base::{Env, Error, Kind, Result};
use dsl::Property;
use dsl::PropertyValue;
use dsl::property::rules::{self, ZPL_VERSION};
use pool::LivePool;
use zpl::{Zpl, ZplOptions};

/// Brings a file system to a version, which is not earlier than its own. What serves it has to be frozen, as its
/// attributes lie elsewhere then; `current` is the latest. Accounts that the pool has features for are made anew, also if the version stays. Errors: `Invalid`, `Unsupported` if the pool has to come to a later version first; those
/// of reading and writing.
pub fn upgrade(live: &LivePool, env: &Env, dataset: &str, value: &str) -> Result<()> {
    let version = if value == "current" { ZPL_VERSION } else { rules::parse_number(value)? };
    let view = live.view();
    let subject = view.dsl().subject(dataset)?;
    let before = match view.dsl().property(&subject, Property::Version, 0)?.map(|sourced| sourced.value) {
        Some(PropertyValue::Number(before)) => before,
        _ => return Err(Error::new(Kind::Invalid, "only file systems have a version")),
    };
    live.check_files_version(before, version)?;
    let head = live.head(view.dsl().find(dataset)?.id)?;
    let txgs = live.txgs().clone();
    if before != version {
        {
            let tx = txgs.begin()?;
            zpl::upgrade_fs(&head, &tx, version, env.random())?;
        }
        live.log_files_version(dataset, before, version)?;
    }
    if head.is_encrypted() {
        return Ok(());
    }
    if !head.knows_owners() {
        // it is not mounted: opened once, it tells to whom its files belong
        drop(Zpl::open_writable(head.clone(), txgs, env.clone(), ZplOptions::default(), None)?);
    }
    live.count_anew_and_wait(head.id())
}
