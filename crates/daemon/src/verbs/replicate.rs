//! What an incremental package of a whole tree says beside its streams: with `-F`, snapshots and datasets that the sender
//! has destroyed since go here, too, and those that it renamed get their new names.
//!
//! Datasets are known by their snapshots: two are the same if they have one in common.

use base::{Error, Kind, Result};
use dsl::Subject;
use format::ids::Guid;
use format::nvlist::NvList;

use super::host::{DatasetChange, Host, SnapshotChange};

/// A dataset of the sender, as the list has it.
struct SentDataset<'a> {
    name: &'a str,
    snaps: Vec<(&'a str, Guid)>,
}

/// Brings the tree below `top` to the names that the sender has, and destroys what it has not. Errors: of what cannot be
/// destroyed or renamed; `Busy` if it is in use, and not unmounted by `force`.
pub(super) fn follow(host: &dyn Host, top: &str, list: &NvList, force: bool) -> Result<()> {
    let Some(fss) = list.opt_list("fss") else { return Ok(()) };
    let sent: Vec<SentDataset<'_>> = fss.iter().filter_map(|(guid, _)| sent_of(fss.opt_list(guid)?)).collect();
    // the shortest name is that of the top
    let Some(root) = sent.iter().map(|one| one.name).min_by_key(|name| name.len()) else { return Ok(()) };
    if host.pool().dsl().subject(top).is_err() {
        return Ok(());
    }
    for name in names_below(host, top)? {
        let here = snapshots_of(host, &name)?;
        let same = sent.iter().find(|one| one.snaps.iter().any(|(_, guid)| here.iter().any(|(_, own)| own == guid)));
        match same {
            Some(same) => {
                follow_snapshots(host, &name, &here, same)?;
                let wanted = format!("{top}{}", same.name.strip_prefix(root).unwrap_or_default());
                if wanted != name && host.pool().dsl().subject(&wanted).is_err() && !same.name.is_empty() {
                    rename(host, &name, &wanted, force)?;
                }
            }
            // what was made here only
            None if name == top || here.is_empty() => {}
            None => destroy(host, &name, &here, force)?,
        }
    }
    Ok(())
}

fn sent_of(list: &NvList) -> Option<SentDataset<'_>> {
    let snaps = list.opt_list("snaps")?;
    let snaps = snaps.iter().filter_map(|(name, _)| Some((name, snaps.opt_guid(name)?))).collect();
    Some(SentDataset { name: list.opt_str("name")?, snaps })
}

/// Names of a dataset and all below it, those that are deepest first.
fn names_below(host: &dyn Host, top: &str) -> Result<Vec<String>> {
    let pool = host.pool();
    let mut names: Vec<String> =
        pool.dsl().walk_from(pool.dsl().find_dir(top)?)?.into_iter().map(|dir| dir.name).collect();
    names.reverse();
    Ok(names)
}

/// Names and guids of the snapshots of a dataset, if it is there still.
fn snapshots_of(host: &dyn Host, name: &str) -> Result<Vec<(String, Guid)>> {
    let pool = host.pool();
    let Ok(subject) = pool.dsl().subject(name) else { return Ok(Vec::new()) };
    let subject: Subject = subject;
    let Some(head) = subject.dataset() else { return Ok(Vec::new()) };
    let own = |name: &str| name.split_once('@').map_or("", |(_, own)| own).to_owned();
    Ok(pool.dsl().snapshots(head)?.into_iter().map(|one| (own(&one.name), one.phys.guid)).collect())
}

fn follow_snapshots(host: &dyn Host, name: &str, here: &[(String, Guid)], sent: &SentDataset<'_>) -> Result<()> {
    let mut gone = Vec::new();
    for (own, guid) in here {
        match sent.snaps.iter().find(|(_, other)| other == guid) {
            None => gone.push(format!("{name}@{own}")),
            Some((wanted, _)) if wanted != own => {
                let (from, to) = (format!("{name}@{own}"), format!("{name}@{wanted}"));
                host.change_snapshots(&SnapshotChange::Rename { from, to, recursive: false })?;
            }
            Some(_) => {}
        }
    }
    destroy_snapshots(host, gone)
}

fn destroy_snapshots(host: &dyn Host, names: Vec<String>) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let refused = host.change_snapshots(&SnapshotChange::Destroy { names, defer: false })?;
    match refused.into_iter().next() {
        None => Ok(()),
        Some((name, error)) => Err(Error::new(error.kind(), format!("cannot destroy '{name}': {}", error.what()))),
    }
}

fn unmount(host: &dyn Host, name: &str, force: bool) -> Result<()> {
    match host.unmount(name, force) {
        Err(error) if error.kind() == Kind::NotFound => Ok(()),
        outcome => outcome,
    }
}

fn destroy(host: &dyn Host, name: &str, here: &[(String, Guid)], force: bool) -> Result<()> {
    unmount(host, name, force)?;
    destroy_snapshots(host, here.iter().map(|(own, _)| format!("{name}@{own}")).collect())?;
    match host.change(&DatasetChange::Destroy { name: name.to_owned() }) {
        // something of ours is below it
        Err(error) if error.kind() == Kind::NotEmpty => Ok(()),
        outcome => outcome,
    }
}

fn rename(host: &dyn Host, from: &str, to: &str, force: bool) -> Result<()> {
    unmount(host, from, force)?;
    host.change(&DatasetChange::Rename { from: from.to_owned(), to: to.to_owned() })
}
