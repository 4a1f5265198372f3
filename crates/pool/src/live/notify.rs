//! What is told of a pool as events ([`super::events`]): classes and payloads are those of OpenZFS.
//!
//! ```text
//!   sysevent.fs.zfs.*    what was done: by a command, a job, a group
//!   resource.fs.zfs.*    a leaf is in another state
//!   ereport.fs.zfs.*     something went wrong: of a leaf one event for each error, told with the next group
//! ```

use std::ops::Range;
use std::sync::Arc;

use base::{Bookmark, tunables};
use format::ids::ObjectId;
use format::nvlist::{NvList, Value};
use vdev::{Aux, Health, LeafVdev, Vdev, VdevState};

use super::events::{EIO, Events, LeafSeen};
use super::{LivePool, SyncContext};

/// Blocks of a group that are reported as lost, at most.
const LOST_MAX: usize = 20;
/// Files of a dataset that are reported as having lost changes, at most.
const LOST_FILES_MAX: usize = 100;
/// The number of the error for wrong bytes in events: EBADE.
const EBADE: i32 = 52;

/// A kind of errors of leaves that are counted.
struct ErrorKind {
    /// What is behind `ereport.fs.zfs.`.
    class: &'static str,
    /// Where the count is in the payload.
    count: &'static str,
    /// The number of the error.
    error: i32,
}

/// In the order of [`LeafSeen::errors`].
const ERRORS: [ErrorKind; 4] = [
    ErrorKind { class: "io", count: "vdev_read_errors", error: EIO },
    ErrorKind { class: "io", count: "vdev_write_errors", error: EIO },
    ErrorKind { class: "checksum", count: "vdev_cksum_errors", error: EBADE },
    ErrorKind { class: "delay", count: "vdev_delays", error: 0 },
];

impl LivePool {
    /// What has happened to it.
    pub fn events(&self) -> &Arc<Events> {
        self.event_ring()
    }

    /// Tells that something was done, perhaps to a vdev.
    pub(super) fn notify(&self, name: &str, vdev: Option<&Vdev>) {
        self.notify_with(name, vdev, NvList::new());
    }

    pub(super) fn notify_with(&self, name: &str, vdev: Option<&Vdev>, more: NvList) {
        let mut payload = self.about_pool();
        if let Some(vdev) = vdev {
            payload.set("vdev_guid", Value::U64(vdev.guid().get()));
            payload.set("vdev_state", Value::U64(self.tree().health(vdev.id()).state.number()));
            put_paths(&mut payload, vdev);
        }
        more.iter().for_each(|(name, value)| payload.set(name, value.clone()));
        self.events().post(&format!("sysevent.fs.zfs.{name}"), payload);
    }

    /// Tells what leaves are like, if that has changed, and what went wrong with them. A leaf that is seen for the first
    /// time should be healthy.
    pub(super) fn notify_of_leaves(&self) {
        for leaf in self.tree().leaves() {
            let [reads, writes, checksums] = leaf.stats().errors();
            let errors = [reads, writes, checksums, leaf.stats().meter.slow()];
            let now = LeafSeen { health: leaf.state().health(), errors, seen_s: self.env().now_s() };
            let before = self.events().see_leaf(leaf.guid(), now);
            let seconds = before.map_or(1, |before| now.seen_s.saturating_sub(before.seen_s).max(1));
            for (at, kind) in ERRORS.iter().enumerate() {
                // counts are set back when they are cleared
                let known = before.map_or(0, |before| before.errors[at]);
                let most = match kind.class {
                    "delay" if !leaf.state().tells_slow_io() => 0,
                    class => self.events_at_once(class, seconds),
                };
                let new = errors[at].saturating_sub(known).min(most);
                self.report_errors(kind, leaf, known..known.saturating_add(new));
            }
            let last = before.map_or(Health::HEALTHY, |before| before.health);
            if last == now.health {
                continue;
            }
            if now.health.state == VdevState::Unavail {
                self.report(&format!("vdev.{}", why_unavailable(now.health.aux)), leaf, Some(last));
            }
            // what somebody wanted before is no news
            let is_known = before.is_none() && now.health.state == VdevState::Offline;
            if last.state != now.health.state && !is_known {
                self.tell_state(leaf, last);
            }
        }
    }

    /// Events of a class that are posted in so many seconds at most, but one; more than are kept would be of no use.
    fn events_at_once(&self, class: &str, seconds: u64) -> u64 {
        let (env, kept) = (self.env(), self.events().most() as u64);
        let per_second = match class {
            "checksum" => env.tunable(tunables::ZFS_CHECKSUM_EVENTS_PER_SECOND),
            "delay" => env.tunable(tunables::ZFS_SLOW_IO_EVENTS_PER_SECOND),
            _ => u64::MAX,
        };
        per_second.saturating_mul(seconds).min(kept).max(1)
    }

    fn tell_state(&self, leaf: LeafVdev<'_>, last: Health) {
        let mut payload = self.about_pool();
        payload.set("vdev_guid", Value::U64(leaf.guid().get()));
        payload.set("vdev_state", Value::U64(leaf.state().health().state.number()));
        put_paths(&mut payload, leaf.vdev());
        let is_removed = leaf.state().health().state == VdevState::Removed;
        if is_removed {
            self.events().post("resource.fs.zfs.removed", payload.clone());
        }
        payload.set("vdev_laststate", Value::U64(last.state.number()));
        self.events().post("resource.fs.zfs.statechange", payload);
    }

    /// Tells that something went wrong with a leaf.
    pub(super) fn report(&self, class: &str, leaf: LeafVdev<'_>, before: Option<Health>) {
        let mut payload = self.about_fault(leaf);
        match before {
            Some(before) => payload.set("prev_state", Value::U64(before.state.number())),
            None => payload.set("zio_err", Value::I32(0)),
        }
        self.events().post(&format!("ereport.fs.zfs.{class}"), payload);
    }

    /// Tells of errors of a leaf: before each, as many were `counted`.
    fn report_errors(&self, kind: &ErrorKind, leaf: LeafVdev<'_>, counted: Range<u64>) {
        if counted.is_empty() {
            return;
        }
        let mut payload = self.about_fault(leaf);
        payload.set("zio_err", Value::I32(kind.error));
        for count in counted {
            payload.set(kind.count, Value::U64(count + 1));
            self.events().post(&format!("ereport.fs.zfs.{}", kind.class), payload.clone());
        }
    }

    /// What is told of a leaf with all that goes wrong with it.
    fn about_fault(&self, leaf: LeafVdev<'_>) -> NvList {
        let mut payload = self.about_pool();
        self.put_failmode(&mut payload);
        payload.set("vdev_guid", Value::U64(leaf.guid().get()));
        payload.set("vdev_type", Value::Str(leaf.kind().type_name().to_owned()));
        put_paths(&mut payload, leaf.vdev());
        let top = self.tree().top_of(leaf.vdev());
        payload.set("vdev_ashift", Value::U64(top.top_spec().map_or(0, |spec| spec.ashift.into())));
        let [reads, writes, checksums] = leaf.stats().errors();
        payload.set("vdev_read_errors", Value::U64(reads));
        payload.set("vdev_write_errors", Value::U64(writes));
        payload.set("vdev_cksum_errors", Value::U64(checksums));
        payload.set("vdev_delays", Value::U64(leaf.stats().meter.slow()));
        if let Some(parent) = leaf.parent().map(|id| self.tree().vdev(id)) {
            payload.set("parent_guid", Value::U64(parent.guid().get()));
            payload.set("parent_type", Value::Str(parent.kind().type_name().to_owned()));
        }
        let view = self.view();
        let texts = view.spares().iter().filter_map(|spare| spare.opt_str("path").map(str::to_owned)).collect();
        payload.set("vdev_spare_paths", Value::Strs(texts));
        let guids = view.spares().iter().filter_map(|spare| spare.opt_u64("guid")).collect();
        payload.set("vdev_spare_guids", Value::U64s(guids));
        payload
    }

    /// Tells which files lost changes with a process that died: their objects and, of those that are there, their paths. With
    /// `are_all` others of the dataset may have lost some, too. This is no class of OpenZFS.
    pub fn notify_of_lost_files(
        &self,
        dataset: &str,
        lost: impl Iterator<Item = (ObjectId, Option<String>)>,
        are_all: bool,
    ) {
        let about = |object: Option<(ObjectId, Option<String>)>| {
            let mut payload = self.about_pool();
            payload.set("dataset", Value::Str(dataset.to_owned()));
            if let Some((object, path)) = object {
                payload.set("object", Value::U64(object.get()));
                path.into_iter().for_each(|path| payload.set("path", Value::Str(path)));
            }
            payload
        };
        let all = are_all.then(|| about(None));
        for payload in lost.take(LOST_FILES_MAX).map(|object| about(Some(object))).chain(all) {
            self.events().post("ereport.fs.cenote.changes_lost", payload);
        }
    }

    fn about_pool(&self) -> NvList {
        let mut payload = NvList::new();
        payload.set("pool", Value::Str(self.name().to_owned()));
        let (guid, state) = {
            let config = self.config();
            (config.guid, config.state)
        };
        payload.set("pool_guid", Value::U64(guid.get()));
        payload.set("pool_state", Value::U64(state));
        payload.set("pool_context", Value::I32(0));
        payload
    }

    fn put_failmode(&self, payload: &mut NvList) {
        payload.set("pool_failmode", Value::Str(self.suspension().failmode().to_owned()));
    }
}

impl SyncContext<'_> {
    /// Tells that blocks are lost.
    pub(super) fn notify_of_lost(&self, lost: impl Iterator<Item = Bookmark>) {
        for Bookmark { objset, object, level, blkid } in lost.take(LOST_MAX) {
            let mut payload = self.pool.about_pool();
            self.pool.put_failmode(&mut payload);
            payload.set("zio_err", Value::I32(EIO));
            payload.set("zio_objset", Value::U64(objset));
            payload.set("zio_object", Value::U64(object));
            payload.set("zio_level", Value::I64(level));
            payload.set("zio_blkid", Value::U64(blkid));
            self.pool.events().post("ereport.fs.zfs.data", payload);
        }
    }

    /// Tells that a scan has begun, or what has become of it.
    pub(super) fn notify_of_scan(&self, is_resilver: bool, what: &str) {
        let mut more = NvList::new();
        if is_resilver {
            more.set("resilver_type", Value::Str("healing".to_owned()));
        }
        let name = if is_resilver { "resilver" } else { "scrub" };
        self.pool.notify_with(&format!("{name}_{what}"), None, more);
    }
}

fn put_paths(payload: &mut NvList, vdev: &Vdev) {
    let Some(spec) = vdev.leaf_spec() else { return };
    payload.set("vdev_path", Value::Str(vdev.name().to_owned()));
    for (name, text) in [("vdev_devid", &spec.devid), ("vdev_physpath", &spec.phys_path)] {
        if let Some(text) = text {
            payload.set(name, Value::Str(text.clone()));
        }
    }
}

fn why_unavailable(aux: Aux) -> &'static str {
    match aux {
        Aux::CorruptData => "corrupt_data",
        Aux::NoReplicas => "no_replicas",
        Aux::BadGuidSum => "bad_guid_sum",
        Aux::TooSmall => "too_small",
        Aux::BadLabel => "bad_label",
        Aux::BadAshift => "bad_ashift",
        _ => "open_failed",
    }
}
