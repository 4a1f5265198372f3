//! Making a [`PoolReport`] of an open pool, and a [`VdevReport`] of any tree.

pub mod clients;
pub mod damaged;
pub mod io;
pub mod log;
pub mod paths;
pub mod profile;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::Result;
use device::{Device, FileDevice, OpenMode};
use dmu::zap::Zap;
use dsl::PropertyValue;
use format::ids::{DatasetId, Guid, VdevNumber};
use pool::{Candidate, FeatureState, FoundDevice, LabelKind, LivePool, Pool, TopSpace, class_fragmentation};
use protocol::pool_report::*;
use protocol::words::one_line;
use vdev::geometry::{BACK_BYTES, FRONT_BYTES};
use vdev::{Tree, Vdev, VdevKind, VdevSpec};

use crate::mount_plan::MountBounds;

/// What is only known to the process that has the pool open.
pub struct ProcessFacts {
    /// See [`PoolReport::load_guid`].
    pub load_guid: Guid,
    /// Where its file systems are mounted.
    pub bounds: MountBounds,
    /// See [`PoolReport::is_writable`].
    pub is_writable: bool,
    /// When the pool was opened, seconds since 1970.
    pub opened_s: u64,
}

/// Everything about a pool but its history, its dedup tables in detail and the names of damaged files.
pub fn pool(pool: &Pool, session: &ProcessFacts) -> Result<PoolReport> {
    let status = pool.status()?;
    let tops = pool.top_spaces()?;
    let dedup = pool.dedup()?;
    let clones = pool.clones()?;
    let (freeing_bytes, leaked_bytes) = pool.freeing_and_leaked()?;
    let stored = pool.stored_props()?;
    let bootfs = stored.iter().find_map(|(name, value)| match value {
        PropertyValue::Number(id) if name == "bootfs" && *id != 0 => pool.dsl().name_of(DatasetId::new(*id)).ok(),
        _ => None,
    });
    let mut root = tree(pool.tree(), pool.candidate(), &tops);
    root.guid = pool.guid();
    for (number, rebuild) in &status.rebuilds {
        if let Some(top) = root.children.iter_mut().find(|top| top.id == number.get()) {
            top.rebuild = Some(rebuild.clone());
        }
    }
    leaf_activities(pool, &mut root);
    vdev_properties(pool, &mut root);
    let mut report = PoolReport {
        space: space(&tops, pool.tree()),
        error_count: pool.error_count()?,
        scan: status.scan.as_ref().map(|scan| scan_report(scan, &pass_since(scan, session.opened_s))),
        error_scrub: status.error_scrub,
        removal: status.removal,
        expansion: status.expansion.as_ref().map(|expansion| expansion_report(expansion, &tops)),
        checkpoint: status.checkpoint,
        stored,
        bootfs,
        dedup_ratio_percent: dedup.ratio_percent(),
        dedup_table_bytes: dedup.disk_bytes,
        clone_used_bytes: clones.used_bytes,
        clone_saved_bytes: clones.saved_bytes,
        clone_ratio_percent: clones.ratio_percent(),
        freeing_bytes,
        leaked_bytes,
        last_scrubbed_txg: pool.last_scrubbed_txg()?,
        ..opened(pool, session, root)
    };
    identity(pool, &mut report);
    Ok(report)
}

/// What is known of a pool without reading anything of it.
pub fn bare(pool: &Pool, session: &ProcessFacts) -> PoolReport {
    let mut report = opened(pool, session, tree(pool.tree(), pool.candidate(), &[]));
    named(pool, &mut report);
    report
}

/// What the import and the configuration say.
fn opened(pool: &Pool, session: &ProcessFacts, root: VdevReport) -> PoolReport {
    let config_text = |name: &str| pool.config().opt_str(name).map(one_line);
    PoolReport {
        name: pool.name().to_owned(),
        guid: pool.guid(),
        load_guid: session.load_guid,
        is_writable: session.is_writable,
        altroot: session.bounds.altroot.clone(),
        root,
        comment: config_text("comment"),
        compatibility: config_text("compatibility"),
        ..PoolReport::default()
    }
}

/// The vdevs of a tree, leaves with the paths that their devices were found under. `tops` may be empty.
pub fn tree(tree: &Tree, candidate: &Candidate, tops: &[TopSpace]) -> VdevReport {
    let paths = candidate.devices.iter().filter_map(|found| Some((found.guid()?, found.path.as_str())));
    let gathering = Gathering { tree, paths: paths.collect(), tops };
    gathering.vdev(tree.root(), None)
}

/// What is known of a pool without reading much of it: versions, features, errata, spares and cache devices.
pub fn identity(pool: &Pool, report: &mut PoolReport) {
    named(pool, report);
    report.errata = pool.errata();
}

/// The same as far as nothing has to be read.
fn named(pool: &Pool, report: &mut PoolReport) {
    report.version = pool.uberblock().version;
    report.txg = pool.uberblock().txg;
    report.features = features(pool);
    report.unwritable = pool.features().unwritable();
    report.spares = spares(pool, &report.root);
    report.caches = pool.caches().iter().filter_map(|nv| aux_leaf(nv, pool.candidate())).collect();
}

/// Brings the states and error counts in a report of `tree` up to date.
pub fn refresh(report: &mut VdevReport, tree: &Tree) {
    fn one(report: &mut VdevReport, tree: &Tree, vdev: &Vdev) {
        let health = tree.health(vdev.id());
        (report.state, report.aux) = (health.state, health.aux);
        report.errors = vdev.stats().errors();
        refresh_counts(report, vdev);
        // vdevs may have come or gone since
        let children = vdev.children().iter().map(|&child| tree.vdev(child));
        for (report, child) in report.children.iter_mut().zip(children) {
            if report.guid == child.guid() {
                one(report, tree, child);
            }
        }
        if let Some(device) = vdev.device() {
            report.device_bytes = device.size();
            report.is_not_present &= !health.is_readable();
        }
        report.awaits_resilver = tree.is_stale(vdev);
        let is_below_parity = tree.top_of(vdev).kind().nparity() > 0;
        let leaf = vdev.as_leaf().filter(|_| is_below_parity);
        report.sits_out = leaf.map(|leaf| leaf.state().sits_out_until_s() > 0);
        report.is_deferred = vdev.as_leaf().is_some_and(|leaf| leaf.state().resilver_deferred());
    }
    one(report, tree, tree.root());
}

fn refresh_counts(report: &mut VdevReport, vdev: &Vdev) {
    let stats = vdev.stats();
    report.slow_ios = stats.meter.slow();
    report.healed_bytes = stats.healed_bytes.load(Ordering::Relaxed);
    report.operations = [&stats.reads, &stats.writes].map(|count| count.load(Ordering::Relaxed));
    report.bytes = [&stats.read_bytes, &stats.write_bytes].map(|count| count.load(Ordering::Relaxed));
}

/// Brings what is known of cache devices up to date, in a pool that uses them.
pub fn refresh_caches(reports: &mut [VdevReport], pool: &Pool) {
    let known = pool.cache().l2arc().reports();
    for report in reports {
        let Some(cache) = known.iter().find(|cache| cache.guid == report.guid) else {
            if report.state == VdevState::Healthy {
                report.state = VdevState::Offline;
            }
            continue;
        };
        let [size_bytes, allocated_bytes] = cache.bytes;
        report.space = Some(TopSpace { size_bytes, allocated_bytes, ..TopSpace::default() });
        (report.errors, report.device_bytes, report.is_not_present) = (cache.errors, cache.device_bytes, false);
        (report.state, report.aux) = match (cache.is_usable, cache.was_pulled) {
            (true, _) => (VdevState::Healthy, Aux::None),
            (false, true) => (VdevState::Removed, Aux::None),
            (false, false) => (VdevState::Faulted, Aux::ErrExceeded),
        };
    }
}

/// The dedup tables in detail.
pub fn dedup(pool: &Pool) -> Result<DedupReport> {
    let dedup = pool.dedup()?;
    Ok(DedupReport {
        entries: dedup.entries,
        disk_bytes: dedup.disk_bytes,
        core_bytes: dedup.core_bytes,
        histogram: dedup.histogram.iter().map(pool::DedupSums::words).collect(),
        total: dedup.total().words(),
    })
}

struct Gathering<'a> {
    tree: &'a Tree,
    paths: HashMap<Guid, &'a str>,
    tops: &'a [TopSpace],
}

impl Gathering<'_> {
    /// `min_bytes` are those that the vdev above says its children must have.
    fn vdev(&self, vdev: &Vdev, min_bytes: Option<u64>) -> VdevReport {
        let health = self.tree.health(vdev.id());
        let mut report = of_spec(vdev.spec());
        report.state = health.state;
        report.aux = health.aux;
        report.errors = vdev.stats().errors();
        report.awaits_resilver = self.tree.is_stale(vdev);
        report.is_deferred = vdev.as_leaf().is_some_and(|leaf| leaf.state().resilver_deferred());
        if let Some(path) = self.paths.get(&vdev.guid()).filter(|_| vdev.is_leaf()) {
            report.path = Some(one_line(path));
        }
        if let Some(device) = vdev.device() {
            report.device_bytes = device.size();
            report.is_not_present = false;
        }
        let own_min = match vdev.top_spec() {
            Some(top) => Some(top.asize >> top.metaslab_shift << top.metaslab_shift),
            None => min_bytes,
        };
        report.min_bytes = own_min.unwrap_or(0) + if vdev.is_leaf() { FRONT_BYTES + BACK_BYTES } else { 0 };
        let count = vdev.children().len() as u64;
        let child_min = match vdev.kind() {
            VdevKind::Raidz { .. } => own_min.map(|min| min.div_ceil(count.max(1))),
            _ => own_min,
        };
        report.children = vdev.children().iter().map(|&child| self.vdev(self.tree.vdev(child), child_min)).collect();
        report.space = match vdev.kind() {
            VdevKind::Root => self.root_space(),
            _ if vdev.top_spec().is_some() => self.tops.iter().find(|t| t.number == vdev.number()).cloned(),
            _ => None,
        };
        report
    }

    /// Of all that is not for the intent log.
    fn root_space(&self) -> Option<TopSpace> {
        let mut sum = TopSpace::default();
        for top in self.tops.iter().filter(|top| !is_log(self.tree, top.number)) {
            sum.size_bytes += top.size_bytes;
            sum.allocated_bytes += top.allocated_bytes;
            sum.deflated_bytes += top.deflated_bytes;
            sum.checkpoint_bytes += top.checkpoint_bytes;
        }
        (sum.size_bytes > 0).then_some(sum)
    }
}

fn is_log(tree: &Tree, number: VdevNumber) -> bool {
    tree.top(number).is_ok_and(|top| top.top_spec().is_some_and(|spec| spec.is_log))
}

/// What the configuration says of a vdev, without those below it.
fn of_spec(spec: &VdevSpec) -> VdevReport {
    let mut report = VdevReport { id: spec.id, guid: spec.guid, ..VdevReport::default() };
    report.nparity = spec.kind.nparity() as u64;
    if let VdevKind::Draid(shape) = spec.kind {
        report.draid = Some((shape.ndata, shape.nspares));
    }
    report.kind = spec.kind.type_name().to_owned();
    if let Some(top) = &spec.top {
        report.is_log = top.is_log || top.bias == Some(vdev::spec::Bias::Log);
        report.bias = match top.bias {
            Some(vdev::spec::Bias::Special) => Some("special".to_owned()),
            Some(vdev::spec::Bias::Dedup) => Some("dedup".to_owned()),
            Some(vdev::spec::Bias::Log) | None => None,
        };
        report.is_removing = top.removing;
        report.ashift = top.ashift.into();
    }
    if let Some(leaf) = &spec.leaf {
        report.path = leaf.path.as_deref().map(one_line);
        report.phys_path = leaf.phys_path.as_deref().map(one_line);
        report.devid = leaf.devid.as_deref().map(one_line);
        report.is_whole_disk = leaf.whole_disk;
        report.is_not_present = leaf.not_present;
    }
    report
}

/// A spare or cache device from its list in the pool: as the scan found it, or where the list says it is.
fn aux_leaf(nv: &format::nvlist::NvList, candidate: &Candidate) -> Option<VdevReport> {
    let spec = VdevSpec::parse_leaf(nv).ok()?;
    let mut report = of_spec(&spec);
    let scanned = || candidate.aux_devices.iter().find(|found| found.guid() == Some(spec.guid)).cloned();
    let found = look_at(spec.leaf.as_ref()?.path.as_deref()?, spec.guid).or_else(scanned);
    (report.state, report.aux) = match (spec.kind, found) {
        (VdevKind::DraidSpare { .. }, _) => (VdevState::Healthy, Aux::None),
        (_, Some(found)) => {
            report.path = Some(one_line(&found.path));
            report.device_bytes = found.device.size();
            report.is_not_present = false;
            // a spare that another pool uses has a label of that pool
            let is_used = found.kind() == LabelKind::Member && found.pool_guid() != Some(candidate.guid);
            (VdevState::Healthy, if is_used { Aux::Spared } else { Aux::None })
        }
        (_, None) => (VdevState::Unavail, Aux::OpenFailed),
    };
    Some(report)
}

/// The device at a path, if it has the label with that guid. No scan precedes the making of a pool.
fn look_at(path: &str, guid: Guid) -> Option<FoundDevice> {
    let device = FileDevice::open(path, OpenMode::ReadOnlyCached).ok()?;
    FoundDevice::examine(path, Arc::new(device)).ok()?.into_iter().find(|found| found.guid() == Some(guid))
}

/// The spares, as their labels say now; one that is part of the tree stands in for another device.
pub fn spares(pool: &Pool, root: &VdevReport) -> Vec<VdevReport> {
    let in_use: Vec<Guid> = root.all().iter().filter(|vdev| vdev.children.is_empty()).map(|vdev| vdev.guid).collect();
    let mut spares: Vec<VdevReport> = pool.spares().iter().filter_map(|nv| aux_leaf(nv, pool.candidate())).collect();
    for spare in spares.iter_mut().filter(|spare| in_use.contains(&spare.guid)) {
        (spare.state, spare.aux) = (VdevState::Healthy, Aux::Spared);
    }
    spares
}

/// Reads how far the leaves are with being initialized and trimmed. A leaf that cannot tell has no say.
fn leaf_activities(pool: &Pool, vdev: &mut VdevReport) {
    if let Some(zap) = pool.tree().leaf(vdev.guid).and_then(|leaf| leaf.vdev().leaf_spec()).map(|spec| spec.zap)
        && zap.is_some()
        && let Ok(zap) = pool.mos().object(zap).and_then(Zap::open)
    {
        vdev.initialize = activity(&zap, "com.delphix:vdev_initialize_", "com.delphix:next_offset_to_initialize");
        vdev.trim = activity(&zap, "org.zfsonlinux:vdev_trim_", "org.zfsonlinux:next_offset_to_trim");
    }
    vdev.children.iter_mut().for_each(|child| leaf_activities(pool, child));
}

/// Reads the properties of vdevs. One whose table cannot be read has none.
fn vdev_properties(pool: &Pool, report: &mut VdevReport) {
    if let Some(vdev) = pool.tree().iter().find(|vdev| vdev.guid() == report.guid)
        && let Ok(stored) = pool.vdev_properties(vdev)
    {
        report.stored = stored;
    }
    report.children.iter_mut().for_each(|child| vdev_properties(pool, child));
}

fn activity(zap: &Zap, prefix: &str, offset: &str) -> Option<(Activity, u64, u64)> {
    let number = |name: &str| zap.u64(name).ok().flatten().unwrap_or(0);
    let activity = match number(&format!("{prefix}state")) {
        1 => Activity::Active,
        2 => Activity::Canceled,
        3 => Activity::Suspended,
        4 => Activity::Complete,
        _ => return None,
    };
    Some((activity, number(&format!("{prefix}action_time")), number(offset)))
}

/// Devices may have become larger without a group.
pub fn refresh_growth(report: &mut PoolReport, pool: &Pool) {
    let mut sum = 0;
    for known in &mut report.root.children {
        let (Ok(top), Some(space)) = (pool.tree().top(VdevNumber::new(known.id)), &mut known.space) else { continue };
        space.expandable_bytes = pool.expandable_bytes(top);
        let is_normal = top.top_spec().is_some_and(|spec| !spec.is_log && spec.bias.is_none());
        sum += if is_normal { space.expandable_bytes } else { 0 };
    }
    report.space.expandable_bytes = sum;
}

/// What is allocated by now, without reading anything: groups that have not come to disk are not told apart.
pub fn refresh_space(report: &mut PoolReport, pool: &Pool) {
    for (number, [size_bytes, allocated_bytes]) in pool.space_in_memory() {
        let Some(known) = report.root.children.iter_mut().find(|top| top.id == number.get()) else { continue };
        let before = known.space.take().unwrap_or_default();
        known.space = Some(TopSpace { number, size_bytes, allocated_bytes, ..before });
    }
    let data = || report.root.children.iter().filter(|top| !is_log(pool.tree(), VdevNumber::new(top.id)));
    let sum = |bytes: fn(&TopSpace) -> u64| data().filter_map(|top| top.space.as_ref()).map(bytes).sum();
    [report.space.size_bytes, report.space.allocated_bytes] =
        [sum(|space| space.size_bytes), sum(|space| space.allocated_bytes)];
}

fn space(tops: &[TopSpace], tree: &Tree) -> SpaceReport {
    let data = || tops.iter().filter(|top| !is_log(tree, top.number));
    let is_normal = |top: &&TopSpace| {
        tree.top(top.number).is_ok_and(|vdev| vdev.top_spec().is_some_and(|spec| spec.bias.is_none()))
    };
    SpaceReport {
        size_bytes: data().map(|top| top.size_bytes).sum(),
        allocated_bytes: data().map(|top| top.allocated_bytes).sum(),
        expandable_bytes: data().filter(is_normal).map(|top| top.expandable_bytes).sum(),
        checkpoint_bytes: tops.iter().map(|top| top.checkpoint_bytes).sum(),
        fragmentation: class_fragmentation(data().filter(is_normal)),
    }
}

fn features(pool: &Pool) -> Vec<(String, bool)> {
    let features = pool.features();
    let is_active = |guid: &str| features.state(guid) == FeatureState::Active;
    features.guids().map(|guid| (guid.to_owned(), is_active(guid))).collect()
}

/// What was done of a scan since a pool was opened in which nothing is done of it.
fn pass_since(scan: &pool::ScanStatus, opened_s: u64) -> pool::ScanPass {
    let paused_s = if scan.is_paused { opened_s } else { 0 };
    pool::ScanPass { start_s: opened_s, paused_s, ..pool::ScanPass::default() }
}

/// What has changed of the scrub or resilver since the group that is on disk.
pub fn refresh_scan(report: &mut PoolReport, pool: &LivePool) {
    // in this order: one that begins meanwhile is seen
    report.is_resilver_due = pool.needs_resilver();
    if let Some((scan, pass)) = pool.scan_status() {
        report.scan = Some(scan_report(&scan, &pass));
    }
}

/// What has been issued of a scan: before this pass, all that was looked at and not skipped.
fn issued_bytes(scan: &pool::ScanStatus, pass: &pool::ScanPass) -> u64 {
    let skipped_before = scan.skipped_bytes.saturating_sub(pass.skipped_bytes);
    let examined_before = scan.examined_bytes.saturating_sub(pass.examined_bytes);
    examined_before.saturating_sub(skipped_before).saturating_add(pass.issued_bytes)
}

/// A scan, and what was done of it since it was begun or the pool was opened.
fn scan_report(scan: &pool::ScanStatus, pass: &pool::ScanPass) -> ScanReport {
    ScanReport {
        is_resilver: scan.function == pool::ScanFunction::Resilver,
        progress: scan.progress,
        is_paused: scan.is_paused,
        start_s: scan.start_s,
        end_s: scan.end_s,
        to_examine_bytes: scan.to_examine_bytes,
        examined_bytes: scan.examined_bytes,
        skipped_bytes: scan.skipped_bytes,
        processed_bytes: scan.processed_bytes,
        errors: scan.errors,
        issued_bytes: issued_bytes(scan, pass),
        pass_start_s: pass.start_s,
        pass_examined_bytes: pass.examined_bytes,
        pass_issued_bytes: pass.issued_bytes,
        paused_s: pass.paused_s,
        spent_paused_s: pass.spent_paused_s,
    }
}

fn expansion_report(expansion: &pool::ExpansionStatus, tops: &[pool::TopSpace]) -> ExpansionReport {
    let allocated = tops.iter().find(|top| top.number == expansion.vdev).map_or(0, |top| top.allocated_bytes);
    ExpansionReport {
        progress: expansion.progress,
        vdev: expansion.vdev,
        start_s: expansion.start_s,
        end_s: expansion.end_s,
        to_copy_bytes: allocated,
        copied_bytes: expansion.copied_bytes,
    }
}
