//! `zpool status -j`.

use daemon::import::features;
use protocol::pool_report::*;
use serde_json::{Map, Value};

use super::json::{self, NumberStyle};
use super::pools::Timestamp;
use super::status_options::{PoolStatus, StatusOptions, article};
use super::{names::NameStyle, reason, reason::Reason};

/// The whole output.
pub fn all(subjects: &[PoolStatus], options: &StatusOptions, timestamp: Timestamp) -> Value {
    let mut out = json::head("status", timestamp, options.json_int);
    let mut pools = Map::new();
    for subject in subjects {
        let is_skipped = options.only_problems && reason::of(&subject.pool, None).is_healthy();
        if !is_skipped {
            pools.insert(json::pool_key(&subject.pool, options.json_guid_keys), one(subject, options));
        }
    }
    out.insert("pools".into(), pools.into());
    out.into()
}

fn one(subject: &PoolStatus, options: &StatusOptions) -> Value {
    let pool = &subject.pool;
    let numbers = NumberStyle::of(options.json_int, options.literal);
    let mut out = json::pool(pool, false, options.json_int);
    add_reason(pool, &mut out);
    let scan = scan(pool, numbers);
    if !scan.is_empty() {
        out.insert("scan_stats".into(), scan.into());
    }
    if let Some(removal) = &pool.removal {
        out.insert("removal_stats".into(), removal_json(removal, pool, options, numbers));
    }
    if let Some(checkpoint) = &pool.checkpoint {
        let mut map = Map::new();
        let state = if checkpoint.created_s.is_some() { "EXISTS" } else { "DISCARDING" };
        map.insert("state".into(), state.into());
        map.insert("start_time".into(), numbers.time(checkpoint.created_s.unwrap_or(0)));
        map.insert("space".into(), numbers.bytes(checkpoint.bytes));
        out.insert("checkpoint_stats".into(), map.into());
    }
    if let Some(expansion) = &pool.expansion {
        out.insert("raidz_expand_stats".into(), expansion_json(expansion, pool, options, numbers));
    }
    add_vdevs(pool, options, numbers, &mut out);
    if let Some(dedup) = &subject.dedup {
        out.insert("dedup_stats".into(), dedup_json(dedup, numbers));
    }
    out.insert("error_count".into(), numbers.count(pool.error_count));
    if options.verbose && pool.error_count != 0 {
        out.insert("errlist".into(), subject.damaged.clone().into());
    }
    out.into()
}

fn add_reason(pool: &PoolReport, out: &mut Map<String, Value>) {
    let reason = reason::of(pool, None);
    if let Some((mut status, action)) = reason.words() {
        if reason == Reason::UnsupFeatWrite {
            status += &features::lines(&pool.unwritable);
        }
        out.insert("status".into(), status.into());
        if !action.is_empty() {
            out.insert("action".into(), action.into());
        }
    }
    if let Some(id) = reason.message_id() {
        out.insert("msgid".into(), id.into());
        out.insert("moreinfo".into(), article(id).into());
    }
}

fn add_vdevs(pool: &PoolReport, options: &StatusOptions, numbers: NumberStyle, out: &mut Map<String, Value>) {
    let vdevs = Vdevs { pool: &pool.name, is_resilvering: pool.is_resilvering(), options, numbers };
    let mut tree = Map::new();
    vdevs.add(&pool.root, VdevPosition { depth: 0, is_spare: false, class: "normal", parent: None }, &mut tree);
    let mut groups: Vec<(&str, Vec<(&VdevReport, &str)>)> = Vec::new();
    for (key, class) in [("dedup", "dedup"), ("special", "special"), ("logs", "log")] {
        let tops = pool.root.children.iter().filter(|top| json::class_of(top) == class && !top.is_indirect());
        groups.push((key, tops.map(|top| (top, class)).collect()));
    }
    groups.push(("l2cache", pool.caches.iter().map(|vdev| (vdev, "l2cache")).collect()));
    groups.push(("spares", pool.spares.iter().map(|vdev| (vdev, "spare")).collect()));
    let position = |class| VdevPosition { depth: 2, is_spare: class == "spare", class, parent: None };
    if options.json_flat {
        let members = groups.iter().flat_map(|(_, members)| members);
        members.for_each(|(vdev, class)| vdevs.add(vdev, position(class), &mut tree));
        out.insert("vdevs".into(), tree.into());
        return;
    }
    out.insert("vdevs".into(), tree.into());
    for (key, members) in groups {
        let mut group = Map::new();
        members.iter().for_each(|(vdev, class)| vdevs.add(vdev, position(class), &mut group));
        if !group.is_empty() {
            out.insert(key.into(), group.into());
        }
    }
}

struct Vdevs<'a> {
    pool: &'a str,
    is_resilvering: bool,
    options: &'a StatusOptions,
    numbers: NumberStyle,
}

#[derive(Clone, Copy)]
struct VdevPosition<'a> {
    depth: usize,
    is_spare: bool,
    class: &'a str,
    /// Name of the vdev above, if it is to be told.
    parent: Option<&'a str>,
}

impl Vdevs<'_> {
    fn add(&self, vdev: &VdevReport, at: VdevPosition, out: &mut Map<String, Value>) {
        if self.options.hides(vdev, at.depth) {
            return;
        }
        let name = self.options.style.name(vdev, self.pool);
        let mut map = json::vdev(vdev, self.pool, self.options.style, at.class, self.options.json_int);
        if let Some(parent) = at.parent {
            map.insert("parent".into(), parent.into());
        }
        match at.is_spare {
            true => spare_state(vdev, &mut map),
            false => self.add_numbers(vdev, &mut map),
        }
        self.add_remarks(vdev, &mut map);
        let mut below = Map::new();
        for child in vdev.children.iter().filter(|child| child.is_normal()) {
            let class = if at.depth == 0 { json::class_of(child) } else { at.class };
            let position = VdevPosition { depth: at.depth + 2, class, parent: None, ..at };
            if self.options.json_flat {
                self.add(child, VdevPosition { parent: Some(&name), ..position }, out);
            }
            self.add(child, VdevPosition { parent: self.options.json_flat.then_some(&*name), ..position }, &mut below);
        }
        if !below.is_empty() {
            map.insert("vdevs".into(), below.into());
        }
        out.shift_remove(&name);
        out.insert(name, map.into());
    }

    fn add_numbers(&self, vdev: &VdevReport, map: &mut Map<String, Value>) {
        let numbers = self.numbers;
        let space = vdev.space.clone().unwrap_or_default();
        let device_bytes = if vdev.children.is_empty() { vdev.device_bytes } else { 0 };
        for (key, bytes) in [
            ("alloc_space", space.allocated_bytes),
            ("total_space", space.size_bytes),
            ("def_space", space.deflated_bytes),
            ("rep_dev_size", vdev.min_bytes),
            ("ex_dev_size", space.expandable_bytes),
            ("phys_space", device_bytes),
        ] {
            if bytes != 0 {
                map.insert(key.into(), numbers.bytes(bytes));
            }
        }
        for (key, count) in ["read_errors", "write_errors", "checksum_errors"].iter().zip(vdev.errors) {
            map.insert((*key).into(), numbers.count(count));
        }
        if space.checkpoint_bytes != 0 {
            map.insert("checkpoint_space".into(), numbers.bytes(space.checkpoint_bytes));
        }
        if vdev.children.is_empty() {
            map.insert("slow_ios".into(), numbers.count(0));
        }
    }

    fn add_remarks(&self, vdev: &VdevReport, map: &mut Map<String, Value>) {
        let numbers = self.numbers;
        if self.options.direct {
            map.insert("dio_verify_errors".into(), numbers.count(0));
        }
        if vdev.is_not_present {
            map.insert("not_present".into(), numbers.exact(1));
            map.insert("was".into(), vdev.path.clone().unwrap_or_default().into());
        } else if vdev.aux != Aux::None {
            map.insert("aux".into(), vdev.aux.json_name().into());
        }
        if vdev.awaits_resilver && (!self.is_resilvering || vdev.is_deferred) {
            map.insert("resilver_deferred".into(), numbers.exact(1));
        }
        if vdev.is_removing {
            map.insert("removing".into(), numbers.exact(1));
        }
        if vdev.children.is_empty() && self.options.initialize {
            let keys = ["init_state", "initialized", "to_initialize", "init_time", "init_errors", "UNINITIALIZED"];
            add_activity(vdev.initialize, vdev, keys, numbers, map);
        }
        if vdev.children.is_empty() && self.options.trim {
            let keys = ["trim_state", "trimmed", "to_trim", "trim_time", "trim_errors", "UNTRIMMED"];
            add_activity(vdev.trim, vdev, keys, numbers, map);
            map.insert("trim_notsup".into(), numbers.exact(0));
        }
    }
}

fn spare_state(vdev: &VdevReport, map: &mut Map<String, Value>) {
    let state = match (vdev.aux, vdev.state) {
        (Aux::Spared, _) => "INUSE",
        (_, VdevState::Healthy) => "AVAIL",
        _ => return,
    };
    map.shift_remove("state");
    map.insert("state".into(), state.into());
}

fn add_activity(
    activity: Option<(Activity, u64, u64)>,
    vdev: &VdevReport,
    keys: [&str; 6],
    numbers: NumberStyle,
    map: &mut Map<String, Value>,
) {
    let [state, done, total, time, errors, never] = keys;
    let Some((activity, time_s, bytes)) = activity else {
        map.insert(state.into(), never.into());
        return;
    };
    let word = match activity {
        Activity::Active => "ACTIVE",
        Activity::Canceled => "CANCELED",
        Activity::Suspended => "SUSPENDED",
        Activity::Complete => "COMPLETE",
    };
    map.insert(state.into(), word.into());
    map.insert(done.into(), numbers.bytes(bytes));
    map.insert(total.into(), numbers.bytes(vdev.device_bytes));
    map.insert(time.into(), numbers.time(time_s));
    map.insert(errors.into(), numbers.count(0));
}

fn progress_word(progress: Progress) -> &'static str {
    match progress {
        Progress::Running => "SCANNING",
        Progress::Finished => "FINISHED",
        Progress::Canceled => "CANCELED",
    }
}

fn scan(pool: &PoolReport, numbers: NumberStyle) -> Map<String, Value> {
    let mut map = Map::new();
    if let Some(scan) = &pool.scan {
        map.insert("function".into(), if scan.is_resilver { "RESILVER" } else { "SCRUB" }.into());
        map.insert("state".into(), progress_word(scan.progress).into());
        map.insert("start_time".into(), numbers.time(scan.start_s));
        map.insert("end_time".into(), numbers.time(scan.end_s));
        map.insert("to_examine".into(), numbers.bytes(scan.to_examine_bytes));
        map.insert("examined".into(), numbers.bytes(scan.examined_bytes));
        map.insert("skipped".into(), numbers.bytes(scan.skipped_bytes));
        map.insert("processed".into(), numbers.bytes(scan.processed_bytes));
        map.insert("errors".into(), numbers.count(scan.errors));
        map.insert("bytes_per_scan".into(), numbers.bytes(scan.pass_examined_bytes));
        map.insert("pass_start".into(), numbers.exact(scan.pass_start_s));
        map.insert("scrub_pause".into(), numbers.time(scan.paused_s));
        map.insert("scrub_spent_paused".into(), numbers.exact(scan.spent_paused_s));
        map.insert("issued_bytes_per_scan".into(), numbers.bytes(scan.pass_issued_bytes));
        map.insert("issued".into(), numbers.bytes(scan.issued_bytes));
    }
    let scan_start_s = pool.scan.as_ref().map_or(0, |scan| scan.start_s);
    if let Some(scrub) = pool.error_scrub.as_ref().filter(|scrub| scrub.start_s > scan_start_s) {
        let state = if scrub.progress == Progress::Running { "ERRORSCRUBBING" } else { progress_word(scrub.progress) };
        map.insert("err_scrub_func".into(), "ERRORSCRUB".into());
        map.insert("err_scrub_state".into(), state.into());
        map.insert("err_scrub_start_time".into(), numbers.time(scrub.start_s));
        map.insert("err_scrub_end_time".into(), numbers.time(scrub.end_s));
        map.insert("err_scrub_examined".into(), numbers.count(scrub.examined_blocks));
        map.insert("err_scrub_to_examine".into(), numbers.count(scrub.to_examine_blocks));
        map.insert("err_scrub_pause".into(), numbers.exact(0));
    }
    let mut rebuilds = Map::new();
    for top in &pool.root.children {
        if let Some(rebuild) = &top.rebuild {
            let name = NameStyle::default().name(top, &pool.name);
            rebuilds.insert(name, rebuild_json(rebuild, top, pool, numbers));
        }
    }
    if !rebuilds.is_empty() {
        map.insert("rebuild_stats".into(), rebuilds.into());
    }
    map
}

fn rebuild_json(rebuild: &Rebuild, top: &VdevReport, pool: &PoolReport, numbers: NumberStyle) -> Value {
    let int = numbers == NumberStyle::Int;
    let mut map = json::vdev(top, &pool.name, NameStyle::default(), json::class_of(top), int);
    let state = match rebuild.progress {
        Progress::Running => "ACTIVE",
        Progress::Finished => "COMPLETE",
        Progress::Canceled => "CANCELED",
    };
    map.shift_remove("state");
    map.insert("state".into(), state.into());
    map.insert("start_time".into(), numbers.time(rebuild.start_s));
    map.insert("end_time".into(), numbers.time(rebuild.end_s));
    map.insert("scan_time".into(), numbers.millis(rebuild.time_ms));
    map.insert("scanned".into(), numbers.bytes(rebuild.scanned_bytes));
    map.insert("issued".into(), numbers.bytes(rebuild.issued_bytes));
    map.insert("rebuilt".into(), numbers.bytes(rebuild.rebuilt_bytes));
    map.insert("to_scan".into(), numbers.bytes(rebuild.estimate_bytes));
    map.insert("errors".into(), numbers.count(rebuild.errors));
    map.insert("pass_time".into(), numbers.millis(0));
    for key in ["pass_scanned", "pass_issued", "pass_skipped"] {
        map.insert(key.into(), numbers.bytes(0));
    }
    map.into()
}

fn expansion_json(
    expansion: &ExpansionReport,
    pool: &PoolReport,
    options: &StatusOptions,
    numbers: NumberStyle,
) -> Value {
    let mut map = match pool.top(expansion.vdev) {
        Some(top) => json::vdev(top, &pool.name, NameStyle::default(), json::class_of(top), options.json_int),
        None => Map::new(),
    };
    map.shift_remove("state");
    map.insert("state".into(), progress_word(expansion.progress).into());
    map.insert("expanding_vdev".into(), numbers.exact(expansion.vdev.get()));
    map.insert("start_time".into(), numbers.time(expansion.start_s));
    map.insert("end_time".into(), numbers.time(expansion.end_s));
    map.insert("to_reflow".into(), numbers.bytes(expansion.to_copy_bytes));
    map.insert("reflowed".into(), numbers.bytes(expansion.copied_bytes));
    map.insert("waiting_for_resilver".into(), numbers.exact(0));
    map.into()
}

fn removal_json(removal: &Removal, pool: &PoolReport, options: &StatusOptions, numbers: NumberStyle) -> Value {
    let style = NameStyle { whole_paths: true, ..NameStyle::default() };
    let mut map = match pool.top(removal.vdev) {
        Some(top) => json::vdev(top, &pool.name, style, json::class_of(top), options.json_int),
        None => Map::new(),
    };
    map.shift_remove("state");
    map.insert("state".into(), progress_word(removal.progress).into());
    map.insert("removing_vdev".into(), numbers.exact(removal.vdev.get()));
    map.insert("start_time".into(), numbers.time(removal.start_s));
    map.insert("end_time".into(), numbers.time(removal.end_s));
    map.insert("to_copy".into(), numbers.bytes(removal.to_copy_bytes));
    map.insert("copied".into(), numbers.bytes(removal.copied_bytes));
    map.insert("mapping_memory".into(), numbers.bytes(removal.mapping_bytes));
    map.into()
}

fn dedup_json(dedup: &DedupReport, numbers: NumberStyle) -> Value {
    let mut map = Map::new();
    map.insert("obj_count".into(), numbers.count(dedup.entries));
    if dedup.entries == 0 {
        map.insert("ddt_object_stats".into(), Map::new().into());
        return map.into();
    }
    map.insert("dspace".into(), numbers.count(dedup.disk_bytes));
    map.insert("mspace".into(), numbers.count(dedup.core_bytes));
    map.insert("cspace".into(), numbers.count(0));
    let sums = |sums: &[u64; 8]| {
        let keys = ["blocks", "logical_size", "physical_size", "deflated_size"];
        let ref_keys = ["ref_blocks", "ref_lsize", "ref_psize", "ref_dsize"];
        let mut map = Map::new();
        for (i, key) in keys.iter().chain(&ref_keys).enumerate() {
            let value = if i % 4 == 0 { numbers.count(sums[i]) } else { numbers.bytes(sums[i]) };
            map.insert((*key).into(), value);
        }
        Value::from(map)
    };
    let mut stats = Map::new();
    stats.insert("total".into(), sums(&dedup.total));
    let mut histogram = Map::new();
    for (i, bucket) in dedup.histogram.iter().enumerate().filter(|(_, bucket)| bucket[0] != 0) {
        histogram.insert(i.to_string(), sums(bucket));
    }
    if !histogram.is_empty() {
        stats.insert("histogram".into(), histogram.into());
    }
    map.insert("ddt_stats".into(), stats.into());
    map.into()
}
