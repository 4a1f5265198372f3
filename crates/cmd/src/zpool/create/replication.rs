//! Whether the vdevs of a new pool are equally redundant, and made of devices of one kind and size: a pool
//! is as good as its worst vdev, so that a difference is most often a mistake.

use std::fs::File;
use std::io::{Seek, SeekFrom};

use pool::{NewVdev, NewVdevShape};
use vdev::spec::Bias;

/// Differences in size that do not count, in bytes.
const FUZZ_BYTES: u64 = 16 << 20;

/// How redundant a vdev is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ReplicationLevel {
    kind: &'static str,
    leaves: usize,
    parity: usize,
}

impl ReplicationLevel {
    /// Whether it bears losses by parity: those of a raidz and a draid are as good as each other.
    fn has_parity(self) -> bool {
        self.parity > 0
    }
}

/// What is uneven, each a line for the user. `size_of` tells the size of a device in bytes, if it can.
pub fn complaints(vdevs: &[NewVdev], size_of: &dyn Fn(&str) -> Option<u64>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut last = None;
    for vdev in vdevs.iter().filter(|vdev| vdev.bias != Some(Bias::Log)) {
        let level = level(vdev);
        if vdev.shape != NewVdevShape::Single {
            lines.extend(uneven_leaves(vdev, level.kind, size_of));
        }
        if let Some(last) = last {
            lines.extend(difference(last, level));
        }
        last = Some(level);
    }
    lines
}

/// What is uneven in `new` vdevs and between them and those of a pool. A pool that is uneven itself may have
/// anything.
pub fn mismatches(pool: &[NewVdev], new: &[NewVdev], size_of: &dyn Fn(&str) -> Option<u64>) -> Vec<String> {
    let counts = |vdevs: &'_ [NewVdev]| vdevs.iter().rfind(|vdev| vdev.bias != Some(Bias::Log)).map(level);
    let (Some(now), Some(then)) = (counts(pool), counts(new)) else { return Vec::new() };
    if !complaints(pool, size_of).is_empty() {
        return Vec::new();
    }
    let lines = complaints(new, size_of);
    if !lines.is_empty() {
        return lines;
    }
    let what = match parity_and_mirror(now, then) {
        Some((parity, mirror)) if parity.parity == mirror.leaves - 1 => return lines,
        Some((parity, mirror)) => format!(
            "pool and new vdev with different redundancy, {} and mirror vdevs, {} vs. {} ({}-way)",
            parity.kind,
            parity.parity,
            mirror.leaves - 1,
            mirror.leaves
        ),
        None if now.has_parity() && then.has_parity() && now.parity == then.parity => return lines,
        None if now.has_parity() && then.has_parity() => format!(
            "pool and new vdev with different redundancy, {} and {} vdevs, {} vs. {}",
            now.kind, then.kind, now.parity, then.parity
        ),
        _ if now.kind != then.kind => format!("pool uses {} and new vdev is {}", now.kind, then.kind),
        _ if now.leaves != then.leaves => {
            format!("pool uses {}-way {} and new vdev uses {}-way {}", now.leaves, now.kind, then.leaves, then.kind)
        }
        _ => return lines,
    };
    vec![format!("mismatched replication level: {what}")]
}

/// The size of a file or disk in bytes.
pub fn size(path: &str) -> Option<u64> {
    File::open(path).ok()?.seek(SeekFrom::End(0)).ok().filter(|size| *size != 0)
}

fn level(vdev: &NewVdev) -> ReplicationLevel {
    let leaves = vdev.leaves.len();
    match vdev.shape {
        NewVdevShape::Mirror => ReplicationLevel { kind: "mirror", leaves, parity: 0 },
        NewVdevShape::Raidz(parity) => ReplicationLevel { kind: "raidz", leaves, parity },
        NewVdevShape::Draid(shape) => ReplicationLevel { kind: "draid", leaves, parity: shape.nparity as usize },
        NewVdevShape::Single => {
            ReplicationLevel { kind: kind_of(vdev.leaves.iter().all(|leaf| leaf.is_file)), leaves, parity: 0 }
        }
    }
}

fn kind_of(is_file: bool) -> &'static str {
    if is_file { "file" } else { "disk" }
}

fn uneven_leaves(vdev: &NewVdev, kind: &str, size_of: &dyn Fn(&str) -> Option<u64>) -> Option<String> {
    let mut last: Option<(bool, u64)> = None;
    for leaf in &vdev.leaves {
        if last.is_some_and(|(is_file, _)| is_file != leaf.is_file) {
            return Some(format!("mismatched replication level: {kind} contains both files and devices"));
        }
        let Some(size) = size_of(&leaf.path) else { continue };
        if last.is_some_and(|(_, before)| before.abs_diff(size) > FUZZ_BYTES) {
            return Some(format!("{kind} contains devices of different sizes"));
        }
        last = Some((leaf.is_file, size));
    }
    None
}

/// Of two vdevs that with parity, and the mirror, if they are one of each.
fn parity_and_mirror(one: ReplicationLevel, two: ReplicationLevel) -> Option<(ReplicationLevel, ReplicationLevel)> {
    let both = [one, two];
    let parity = both.into_iter().find(|level| level.has_parity())?;
    both.into_iter().find(|level| level.kind == "mirror").map(|mirror| (parity, mirror))
}

fn difference(last: ReplicationLevel, level: ReplicationLevel) -> Option<String> {
    let what = match parity_and_mirror(last, level) {
        Some((parity, mirror)) if parity.parity == mirror.leaves - 1 => return None,
        Some((parity, mirror)) => format!(
            "{} and mirror vdevs with different redundancy, {} vs. {} ({}-way) are present",
            parity.kind,
            parity.parity,
            mirror.leaves - 1,
            mirror.leaves
        ),
        // any number of columns bears the same losses
        None if last.has_parity() && level.has_parity() && last.parity == level.parity => return None,
        None if last.has_parity() && level.has_parity() => format!(
            "{} and {} vdevs with different redundancy, {} vs. {} are present",
            last.kind, level.kind, last.parity, level.parity
        ),
        _ if last.kind != level.kind => format!("both {} and {} vdevs are present", last.kind, level.kind),
        _ if last.leaves != level.leaves => {
            format!("both {}-way and {}-way {} vdevs are present", last.leaves, level.leaves, level.kind)
        }
        _ => return None,
    };
    Some(format!("mismatched replication level: {what}"))
}
