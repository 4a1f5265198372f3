//! What an incremental package of a whole tree says beside its streams: clones that the sender promoted are promoted here,
//! what it renamed gets its new names, and properties of snapshots that are there already are received. With `-F`,
//! snapshots and datasets that the sender has not are destroyed.
//!
//! Datasets are known by their snapshots: one here is that of the sender's which has its newest snapshot that any of the
//! sender's has, as a promotion gives away only older ones. All are gone through again as long as that changes
//! something: a snapshot may go when its clone has gone.
//!
//! ```text
//!   promote ─▶ read again ─▶ snapshots ─▶ destroy ─▶ names, those above first
//!                                                      ├─ its place is taken: what has it goes out of the way, `TOP/recv-N`
//!                                                      └─ no parent yet: it may come with the streams, and then again
//! ```
//!
//! Invariants: a snapshot is destroyed only if no dataset of the sender has it. Nothing goes out of the way twice, and
//! nothing is promoted twice from the same snapshot, so that there is an end. What is renamed is unmounted, and not
//! mounted again here: what it is to be mounted in may be still to come.

use std::collections::{HashMap, HashSet};

use base::{Error, Kind, Result};
use dsl::{Dataset, Dsl, Subject};
use format::ids::{DatasetId, Guid, Txg};
use format::nvlist::NvList;
use protocol::datasets::Failure;

use super::around::{failure, unmount_to_rename, words};
use super::host::{DatasetChange, Folders, Host, SnapshotChange};
use super::mount::is_at_or_below_name;
use super::received::receive_of_snapshot;

/// What may be done.
#[derive(Clone, Copy)]
pub(super) struct Following {
    /// Destroy what the sender has not.
    pub(super) destroys: bool,
    /// Unmount what is in use.
    pub(super) force_unmount: bool,
}

/// The datasets of the sender, as the list has them, those above first.
struct SentTree<'a> {
    all: Vec<SentDataset<'a>>,
    /// Where each snapshot is; in several places, if the sender has copies of its own.
    places: HashMap<Guid, Vec<SentSnapshot<'a>>>,
}

struct SentDataset<'a> {
    /// Its name here.
    wanted: String,
    origin: Option<Guid>,
    properties: Option<&'a NvList>,
}

#[derive(Clone, Copy)]
struct SentSnapshot<'a> {
    /// Its dataset, as an index.
    dataset: usize,
    own: &'a str,
}

/// A dataset that is here.
struct LocalDataset {
    id: DatasetId,
    name: String,
    origin: Option<Guid>,
    snaps: Vec<LocalSnapshot>,
    /// The same one of the sender, as an index.
    sent: Option<usize>,
}

struct LocalSnapshot {
    own: String,
    guid: Guid,
    created: Txg,
}

/// What is not to be done twice.
#[derive(Default)]
struct DoneOnce {
    promoted: HashSet<(DatasetId, Guid)>,
    out_of_the_way: HashSet<DatasetId>,
}

/// Once through all datasets.
struct Pass<'a> {
    host: &'a dyn Host,
    top: &'a str,
    sent: &'a SentTree<'a>,
    how: Following,
    done: &'a mut DoneOnce,
    /// Those above first.
    locals: Vec<LocalDataset>,
    /// Whether something has changed.
    has_changed: bool,
    /// What could not be done yet.
    left: Vec<Failure>,
}

/// Brings the tree below `top` to the names that the sender has, and destroys what it has not. Returns what could not be
/// done. Errors: of reading.
pub(super) fn follow(host: &dyn Host, top: &str, list: &NvList, how: Following) -> Result<Vec<Failure>> {
    let sent = SentTree::of(list, top);
    let mut done = DoneOnce::default();
    loop {
        let locals = locals_below(host, top, &sent)?;
        let (left, done) = (Vec::new(), &mut done);
        let mut pass = Pass { host, top, sent: &sent, how, done, locals, has_changed: false, left };
        if pass.promote_one()? {
            // snapshots are elsewhere now
            continue;
        }
        pass.follow_snapshots()?;
        pass.destroy_what_is_gone()?;
        pass.follow_names()?;
        if pass.left.is_empty() || !pass.has_changed {
            return Ok(pass.left);
        }
    }
}

impl<'a> SentTree<'a> {
    fn of(list: &'a NvList, top: &str) -> SentTree<'a> {
        let fss = list.opt_list("fss");
        let lists = fss.iter().flat_map(|fss| fss.iter().filter_map(|(guid, _)| fss.opt_list(guid)));
        let mut named: Vec<(&str, &NvList)> = lists.filter_map(|one| Some((one.opt_str("name")?, one))).collect();
        named.sort_by_key(|(name, _)| name.matches('/').count());
        let root = named.first().map_or("", |(name, _)| *name);
        let mut tree = SentTree { all: Vec::new(), places: HashMap::new() };
        for (dataset, (name, one)) in named.into_iter().enumerate() {
            if let Some(snaps) = one.opt_list("snaps") {
                for (own, guid) in snaps.iter().filter_map(|(own, _)| Some((own, snaps.opt_guid(own)?))) {
                    tree.places.entry(guid).or_default().push(SentSnapshot { dataset, own });
                }
            }
            let wanted = format!("{top}{}", name.strip_prefix(root).unwrap_or_default());
            tree.all.push(SentDataset {
                wanted,
                origin: one.opt_guid("origin"),
                properties: one.opt_list("snapprops"),
            });
        }
        tree
    }

    /// Where a snapshot is; rather in the dataset that is meant.
    fn place(&self, guid: Guid, is_meant: impl Fn(usize) -> bool) -> Option<SentSnapshot<'a>> {
        let places = self.places.get(&guid)?;
        places.iter().find(|place| is_meant(place.dataset)).or(places.first()).copied()
    }

    /// The dataset that one here is.
    fn same_as(&self, local: &LocalDataset) -> Option<usize> {
        let newest = local.snaps.iter().rev().find(|one| self.places.contains_key(&one.guid))?;
        self.place(newest.guid, |at| self.all[at].wanted == local.name).map(|place| place.dataset)
    }
}

impl Pass<'_> {
    /// Notes how a step ended.
    fn note(&mut self, what: &str, outcome: Result<()>) -> bool {
        let is_done = outcome.is_ok();
        match outcome {
            Ok(()) => self.has_changed = true,
            Err(error) => self.left.push(failure(what, format!("cannot receive: {what}: {}", words(&error)))),
        }
        is_done
    }

    /// Promotes the first clone that the sender promoted; whether there was one.
    fn promote_one(&mut self) -> Result<bool> {
        let created: HashMap<Guid, Txg> =
            self.locals.iter().flat_map(|local| &local.snaps).map(|one| (one.guid, one.created)).collect();
        let is_promoted = |local: &LocalDataset| {
            let (sent, origin) = local.sent.zip(local.origin)?;
            let since = created.get(&origin)?;
            let has_origin = self.sent.place(origin, |at| at == sent).is_some_and(|place| place.dataset == sent);
            // what it was a clone of may have gone since then
            let is_earlier = |theirs: Guid| created.get(&theirs).is_some_and(|theirs| theirs < since);
            let is_wanted = has_origin || self.sent.all[sent].origin.is_none_or(is_earlier);
            let key = (local.id, origin);
            (is_wanted && !self.done.promoted.contains(&key)).then(|| (key, local.name.clone()))
        };
        let promoted: Vec<((DatasetId, Guid), String)> = self.locals.iter().filter_map(is_promoted).collect();
        for (key, name) in promoted {
            let refused = self.host.change_snapshots(&SnapshotChange::Promote { name: name.clone() });
            let outcome =
                refused.and_then(|refused| refused.into_iter().next().map_or(Ok(()), |(_, error)| Err(error)));
            if self.note(&name, outcome) {
                self.done.promoted.insert(key);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn follow_snapshots(&mut self) -> Result<()> {
        for at in (0..self.locals.len()).rev() {
            let local = &self.locals[at];
            // one that the sender has not goes as a whole
            let Some(same) = local.sent else { continue };
            let dataset = local.name.clone();
            let (mut gone, mut renamed) = (Vec::new(), Vec::new());
            for LocalSnapshot { own, guid, .. } in &local.snaps {
                let name = format!("{dataset}@{own}");
                let Some(SentSnapshot { dataset: sent, own: wanted }) = self.sent.place(*guid, |at| at == same) else {
                    gone.push(name);
                    continue;
                };
                if let Some(list) = self.sent.all[sent].properties.and_then(|all| all.opt_list(wanted)) {
                    let lines = receive_of_snapshot(self.host, &name, list);
                    self.left.extend(lines.into_iter().map(|line| failure(&name, line)));
                }
                if wanted != own {
                    renamed.push((name, format!("{dataset}@{wanted}")));
                }
            }
            for (from, to) in renamed {
                let change = SnapshotChange::Rename { from: from.clone(), to, recursive: false };
                let outcome = self.host.change_snapshots(&change).map(|_| ());
                self.note(&from, outcome);
            }
            if self.how.destroys {
                self.destroy_snapshots(gone)?;
            }
        }
        Ok(())
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

    /// Destroys the datasets that the sender has not, but for those that others are below.
    fn destroy_what_is_gone(&mut self) -> Result<()> {
        if !self.how.destroys {
            return Ok(());
        }
        let mut stay: HashSet<String> = HashSet::new();
        for at in (0..self.locals.len()).rev() {
            let local = &self.locals[at];
            let name = local.name.clone();
            let is_gone = local.sent.is_none() && name != self.top;
            if is_gone && stay.contains(&name) {
                self.note(&name, Err(Error::new(Kind::Invalid, "filesystem has children")));
            } else if is_gone && self.destroy(at)? {
                self.locals.remove(at);
                continue;
            }
            stay.extend(name.rsplit_once('/').map(|(above, _)| above.to_owned()));
        }
        Ok(())
    }

    /// Destroys a dataset; whether it did.
    fn destroy(&mut self, at: usize) -> Result<bool> {
        let LocalDataset { name, snaps, .. } = &self.locals[at];
        let (name, snaps) = (name.clone(), snaps.iter().map(|one| format!("{name}@{}", one.own)).collect());
        let unmounted = match self.host.unmount(&name, self.how.force_unmount, Folders::Remove) {
            Err(error) if error.kind() == Kind::NotFound => Ok(()),
            outcome => outcome,
        };
        if unmounted.is_err() {
            return Ok(self.note(&name, unmounted));
        }
        if !self.destroy_snapshots(snaps)? {
            return Ok(false);
        }
        let outcome = self.host.change(&DatasetChange::Destroy { name: name.clone() });
        Ok(self.note(&name, outcome))
    }

    /// Brings each dataset to the place that the sender has it at, and makes room for what is to come.
    fn follow_names(&mut self) -> Result<()> {
        let sent = self.sent;
        for (at, SentDataset { wanted, .. }) in sent.all.iter().enumerate() {
            let (own, holder) = (self.local_of(at), self.named(wanted));
            if wanted == self.top || own == holder {
                continue;
            }
            let is_free = holder.map_or(Ok(true), |holder| self.put_out_of_the_way(holder))?;
            let Some(own) = own else { continue };
            let name = self.locals[own].name.clone();
            let refused = |why: String| Err(Error::new(Kind::Invalid, why));
            if !is_free {
                self.note(&name, refused(format!("there is a dataset '{wanted}'")));
            } else if !self.has_its_parent(wanted) {
                self.note(&name, refused(format!("there is nothing that '{wanted}' would be in")));
            } else {
                self.rename(own, wanted)?;
            }
        }
        Ok(())
    }

    /// The dataset here that one of the sender is: rather the one at its place, if there are copies.
    fn local_of(&self, sent: usize) -> Option<usize> {
        let is_same = |local: &LocalDataset| local.sent == Some(sent);
        let at_its_place = self.named(&self.sent.all[sent].wanted).filter(|at| is_same(&self.locals[*at]));
        at_its_place.or_else(|| self.locals.iter().position(is_same))
    }

    fn named(&self, name: &str) -> Option<usize> {
        self.locals.iter().position(|local| local.name == name)
    }

    /// Whether what is above a name is what the sender has there, or stays there anyway.
    fn has_its_parent(&self, wanted: &str) -> bool {
        let Some((above, _)) = wanted.rsplit_once('/') else { return false };
        let Some(at) = self.named(above) else { return false };
        let is_right =
            |sent: Option<usize>| sent.map_or(!self.how.destroys, |sent| self.sent.all[sent].wanted == above);
        above == self.top || is_right(self.locals[at].sent)
    }

    /// Gives a dataset a name that nobody wants, unless it is one that stays; whether it did.
    fn put_out_of_the_way(&mut self, at: usize) -> Result<bool> {
        let LocalDataset { id, sent, .. } = self.locals[at];
        let may_go = match sent {
            // a copy of what is elsewhere stays
            Some(sent) => self.local_of(sent) == Some(at),
            None => self.how.destroys,
        };
        if !may_go || !self.done.out_of_the_way.insert(id) {
            return Ok(false);
        }
        let is_free = |name: &String| {
            self.named(name).is_none() && self.sent.all.iter().all(|SentDataset { wanted, .. }| wanted != name)
        };
        let name = (1..).map(|n| format!("{}/recv-{n}", self.top)).find(is_free);
        self.rename(at, &name.unwrap_or_default())
    }

    /// Renames a dataset, with those below it; whether it did.
    fn rename(&mut self, at: usize, to: &str) -> Result<bool> {
        let from = self.locals[at].name.clone();
        if let Some(failed) = unmount_to_rename(self.host, &from, self.how.force_unmount).1 {
            self.left.push(failed);
            return Ok(false);
        }
        let change = DatasetChange::Rename { from: from.clone(), to: to.to_owned() };
        let outcome = self.host.change(&change);
        let is_done = self.note(&from, outcome);
        if is_done {
            for local in self.locals.iter_mut().filter(|local| is_at_or_below_name(&local.name, &from)) {
                local.name = format!("{to}{}", &local.name[from.len()..]);
            }
        }
        Ok(is_done)
    }
}

/// What is known of a dataset and all below it, those above first.
fn locals_below(host: &dyn Host, top: &str, sent: &SentTree<'_>) -> Result<Vec<LocalDataset>> {
    let pool = host.pool();
    let dsl = pool.dsl();
    let Ok(top) = dsl.find_dir(top) else { return Ok(Vec::new()) };
    let mut locals = Vec::new();
    for dir in dsl.walk_from(top)? {
        let Ok(subject) = dsl.subject(&dir.name) else { continue };
        locals.extend(local_of(dsl, &subject, sent)?);
    }
    Ok(locals)
}

fn local_of(dsl: &Dsl, subject: &Subject, sent: &SentTree<'_>) -> Result<Option<LocalDataset>> {
    let Some(head) = subject.dataset() else { return Ok(None) };
    let name = subject.name().to_owned();
    let origin = match subject.dir().phys.origin {
        DatasetId::NONE => None,
        origin => Some(dsl.dataset(origin, &name)?.phys.guid),
    };
    let snapshot = |one: &Dataset| LocalSnapshot {
        own: one.name.split_once('@').map_or("", |(_, own)| own).to_owned(),
        guid: one.phys.guid,
        created: one.phys.creation_txg,
    };
    let snaps = dsl.snapshots(head)?.iter().map(snapshot).collect();
    let mut local = LocalDataset { id: head.id, name, origin, snaps, sent: None };
    local.sent = sent.same_as(&local);
    Ok(Some(local))
}
