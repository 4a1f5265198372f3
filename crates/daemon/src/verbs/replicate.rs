//! What an incremental package of a whole tree says beside its streams: what the sender renamed gets its new names here,
//! clones that it promoted are promoted, and properties of snapshots that are there already are received. With `-F`,
//! snapshots and datasets that the sender has not are destroyed.
//!
//! Datasets are known by their snapshots: two are the same if they have one in common. All are gone through again as
//! long as that changes something: a snapshot may go when its clone has gone, and two datasets can change their names.

use std::collections::{BTreeSet, HashMap};

use base::{Error, Kind, Result};
use dsl::Subject;
use format::ids::{DatasetId, Guid, Txg};
use format::nvlist::NvList;
use protocol::datasets::{Failure, RenameChange};

use super::around::{failure, words};
use super::change::rename;
use super::host::{DatasetChange, Folders, Host, SnapshotChange};
use super::received::receive_of_snapshot;

/// What may be done.
#[derive(Clone, Copy)]
pub(super) struct Following {
    /// Destroy what the sender has not.
    pub(super) destroys: bool,
    /// Unmount what is in use.
    pub(super) force_unmount: bool,
}

/// A dataset of the sender, as the list has it.
struct SentDataset<'a> {
    name: &'a str,
    origin: Option<Guid>,
    snaps: Vec<(&'a str, Guid)>,
    properties: Option<&'a NvList>,
}

/// A dataset that is here.
struct LocalDataset {
    name: String,
    origin: Option<Guid>,
    snaps: Vec<LocalSnapshot>,
}

struct LocalSnapshot {
    own: String,
    guid: Guid,
    created: Txg,
}

/// Once through all datasets.
struct Pass<'a> {
    host: &'a dyn Host,
    top: &'a str,
    /// The name of the sender's first dataset.
    root: &'a str,
    sent: &'a [SentDataset<'a>],
    how: Following,
    /// Whether something has changed.
    has_changed: bool,
    /// What could not be done yet.
    left: Vec<Failure>,
    /// Datasets whose names others have.
    stuck: Vec<String>,
}

/// Brings the tree below `top` to the names that the sender has, and destroys what it has not. Returns what could not be
/// done. Errors: of reading.
pub(super) fn follow(host: &dyn Host, top: &str, list: &NvList, how: Following) -> Result<Vec<Failure>> {
    let Some(fss) = list.opt_list("fss") else { return Ok(Vec::new()) };
    let sent: Vec<SentDataset<'_>> = fss.iter().filter_map(|(guid, _)| sent_of(fss.opt_list(guid)?)).collect();
    // the shortest name is that of the top
    let Some(root) = sent.iter().map(|one| one.name).min_by_key(|name| name.len()) else { return Ok(Vec::new()) };
    let mut out_of_the_way = BTreeSet::new();
    loop {
        let (left, stuck) = (Vec::new(), Vec::new());
        let mut pass = Pass { host, top, root, sent: &sent, how, has_changed: false, left, stuck };
        pass.go_through()?;
        if pass.left.is_empty() {
            return Ok(pass.left);
        }
        if !pass.has_changed {
            let stuck = std::mem::take(&mut pass.stuck);
            let Some(one) = stuck.iter().find(|name| out_of_the_way.insert((*name).clone())) else {
                return Ok(pass.left);
            };
            let above = one.rsplit_once('/').map_or(top, |(above, _)| above);
            if !pass.rename(one, &format!("{above}/recv-{}", out_of_the_way.len()))? {
                return Ok(pass.left);
            }
        }
    }
}

impl Pass<'_> {
    fn go_through(&mut self) -> Result<()> {
        if self.host.pool().dsl().subject(self.top).is_err() {
            return Ok(());
        }
        for name in names_below(self.host, self.top)? {
            let Some(local) = local_of(self.host, &name)? else { continue };
            let is_same = |one: &&SentDataset<'_>| {
                one.snaps.iter().any(|(_, guid)| local.snaps.iter().any(|own| own.guid == *guid))
            };
            match self.sent.iter().find(is_same) {
                Some(sent) => {
                    if self.promote(&local, sent)? {
                        // its snapshots are other ones now
                        continue;
                    }
                    self.follow_snapshots(&local, sent)?;
                    self.follow_name(&local, sent)?;
                }
                None if name == self.top || !self.how.destroys => {}
                None => self.destroy(&local)?,
            }
        }
        Ok(())
    }

    /// Notes how a step ended.
    fn note(&mut self, what: &str, outcome: Result<()>) -> bool {
        let is_done = outcome.is_ok();
        match outcome {
            Ok(()) => self.has_changed = true,
            Err(error) => self.left.push(failure(what, format!("cannot receive: {what}: {}", words(&error)))),
        }
        is_done
    }

    /// Promotes a clone that the sender promoted; whether it did.
    fn promote(&mut self, local: &LocalDataset, sent: &SentDataset<'_>) -> Result<bool> {
        let Some(origin) = local.origin.filter(|origin| Some(*origin) != sent.origin) else { return Ok(false) };
        let created = created_below(self.host, self.top)?;
        let Some(since) = created.get(&origin) else { return Ok(false) };
        let is_earlier = match sent.origin {
            None => true,
            Some(theirs) => created.get(&theirs).is_some_and(|theirs| theirs > since),
        };
        if !is_earlier {
            return Ok(false);
        }
        let refused = self.host.change_snapshots(&SnapshotChange::Promote { name: local.name.clone() });
        let outcome = refused.and_then(|refused| refused.into_iter().next().map_or(Ok(()), |(_, error)| Err(error)));
        Ok(self.note(&local.name, outcome))
    }

    fn follow_snapshots(&mut self, local: &LocalDataset, sent: &SentDataset<'_>) -> Result<()> {
        let mut gone = Vec::new();
        for LocalSnapshot { own, guid, .. } in &local.snaps {
            let name = format!("{}@{own}", local.name);
            let Some((wanted, _)) = sent.snaps.iter().find(|(_, other)| other == guid) else {
                gone.push(name);
                continue;
            };
            if let Some(list) = sent.properties.and_then(|all| all.opt_list(wanted)) {
                self.left
                    .extend(receive_of_snapshot(self.host, &name, list).into_iter().map(|line| failure(&name, line)));
            }
            if wanted != own {
                let change = SnapshotChange::Rename {
                    from: name.clone(),
                    to: format!("{}@{wanted}", local.name),
                    recursive: false,
                };
                let outcome = self.host.change_snapshots(&change).map(|_| ());
                self.note(&name, outcome);
            }
        }
        match self.how.destroys {
            true => self.destroy_snapshots(gone).map(|_| ()),
            false => Ok(()),
        }
    }

    /// Destroys those of the snapshots that can be; whether all are gone.
    fn destroy_snapshots(&mut self, mut names: Vec<String>) -> Result<bool> {
        let mut is_done = true;
        while !names.is_empty() {
            let change = SnapshotChange::Destroy { names: names.clone(), defer: false };
            let refused = self.host.change_snapshots(&change)?;
            self.has_changed |= refused.is_empty();
            if refused.is_empty() {
                break;
            }
            is_done = false;
            let before = names.len();
            // then none of them was
            names.retain(|name| !refused.iter().any(|(one, _)| one == name));
            for (name, error) in refused {
                let line = format!("cannot receive: cannot destroy '{name}': {}", error.what());
                self.left.push(failure(&name, line));
            }
            if names.len() == before {
                break;
            }
        }
        Ok(is_done)
    }

    fn destroy(&mut self, local: &LocalDataset) -> Result<()> {
        let name = &local.name;
        let unmounted = match self.host.unmount(name, self.how.force_unmount, Folders::Remove) {
            Err(error) if error.kind() == Kind::NotFound => Ok(()),
            outcome => outcome,
        };
        if unmounted.is_err() {
            self.note(name, unmounted);
            return Ok(());
        }
        if self.destroy_snapshots(local.snaps.iter().map(|one| format!("{name}@{}", one.own)).collect())? {
            let outcome = self.host.change(&DatasetChange::Destroy { name: name.clone() });
            self.note(name, outcome);
        }
        Ok(())
    }

    fn follow_name(&mut self, local: &LocalDataset, sent: &SentDataset<'_>) -> Result<()> {
        let wanted = format!("{}{}", self.top, sent.name.strip_prefix(self.root).unwrap_or_default());
        if wanted == local.name || local.name == self.top {
            return Ok(());
        }
        if self.host.pool().dsl().subject(&wanted).is_ok() {
            self.stuck.push(local.name.clone());
            self.note(&local.name, Err(Error::new(Kind::Invalid, format!("there is a dataset '{wanted}'"))));
            return Ok(());
        }
        self.rename(&local.name, &wanted).map(|_| ())
    }

    /// Renames a dataset, which is mounted at its new place then; whether it did.
    fn rename(&mut self, from: &str, to: &str) -> Result<bool> {
        let (from, to) = (from.to_owned(), to.to_owned());
        let change = RenameChange { from, to, parents: false, no_unmount: false, force: self.how.force_unmount };
        let failures = rename(self.host, &change)?;
        let is_done = failures.is_empty();
        self.has_changed |= is_done;
        self.left.extend(failures);
        Ok(is_done)
    }
}

fn sent_of(list: &NvList) -> Option<SentDataset<'_>> {
    let snaps = list.opt_list("snaps")?;
    let snaps = snaps.iter().filter_map(|(name, _)| Some((name, snaps.opt_guid(name)?))).collect();
    let (origin, properties) = (list.opt_guid("origin"), list.opt_list("snapprops"));
    Some(SentDataset { name: list.opt_str("name")?, origin, snaps, properties })
}

/// Names of a dataset and all below it, those that are deepest first.
fn names_below(host: &dyn Host, top: &str) -> Result<Vec<String>> {
    let pool = host.pool();
    let mut names: Vec<String> =
        pool.dsl().walk_from(pool.dsl().find_dir(top)?)?.into_iter().map(|dir| dir.name).collect();
    names.reverse();
    Ok(names)
}

/// What is known of a dataset, if it is there still.
fn local_of(host: &dyn Host, name: &str) -> Result<Option<LocalDataset>> {
    let pool = host.pool();
    let dsl = pool.dsl();
    let Ok(subject) = dsl.subject(name) else { return Ok(None) };
    let subject: Subject = subject;
    let Some(head) = subject.dataset() else { return Ok(None) };
    let origin = match subject.dir().phys.origin {
        DatasetId::NONE => None,
        origin => Some(dsl.dataset(origin, name)?.phys.guid),
    };
    let local = |one: &dsl::Dataset| LocalSnapshot {
        own: one.name.split_once('@').map_or("", |(_, own)| own).to_owned(),
        guid: one.phys.guid,
        created: one.phys.creation_txg,
    };
    let snaps = dsl.snapshots(head)?.iter().map(local).collect();
    Ok(Some(LocalDataset { name: name.to_owned(), origin, snaps }))
}

/// When each snapshot of a dataset, and of those below it, was taken.
fn created_below(host: &dyn Host, top: &str) -> Result<HashMap<Guid, Txg>> {
    let mut created = HashMap::new();
    for name in names_below(host, top)? {
        let snaps = local_of(host, &name)?.map_or_else(Vec::new, |local| local.snaps);
        created.extend(snaps.into_iter().map(|one| (one.guid, one.created)));
    }
    Ok(created)
}
