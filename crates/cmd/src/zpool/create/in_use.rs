//! Whether the devices of a new pool are free: not part of another pool, not used by the system, and
//! without a file system or partitions.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::Arc;

use device::{FileDevice, OpenMode};
use format::nvlist::NvList;
use pool::FoundDevice;
use protocol::wire::Hello;
use protocol::words::one_line;

use super::signature::{Looked, Signature, look};
use super::spec::NewPoolSpec;

/// What a label says of the pool that its device belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// How far the pool is in use.
    pub state: MemberState,
    /// Name of the pool.
    pub pool: String,
}

/// How far a pool is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It is imported on this machine.
    Active,
    /// Nobody exported it; perhaps it is in use elsewhere.
    PotentiallyActive,
    /// It was exported.
    Exported,
    /// The device is a spare of a pool that is imported.
    Spare,
    /// The device is a cache device of a pool that is imported.
    Cache,
}

impl Membership {
    /// Reads a label; `None` if the device is free as far as that goes. What has the label of a pool that is imported, and
    /// is not in it, is free: it was removed while it was away, or came after the checkpoint that the pool has gone back
    /// to. The labels of spares and cache devices do not tell the pool: they are free unless a pool that is imported has
    /// them.
    pub fn of(config: &NvList, imported: &[Hello]) -> Option<Membership> {
        let name = config.opt_str("name").map(one_line).unwrap_or_default();
        let (pool_guid, guid) = (config.opt_guid("pool_guid"), config.opt_guid("guid"));
        let of_pool = || imported.iter().find(|hello| Some(hello.guid) == pool_guid);
        let with_aux = || imported.iter().find(|hello| guid.is_some_and(|guid| hello.aux.contains(&guid)));
        let (state, active) = match config.opt_u64("state")? {
            // it has left its pool, or never came to be in it
            0 | 1 if config.opt_u64("txg").is_none_or(|txg| txg == 0) => return None,
            state @ (0 | 1) => match of_pool() {
                Some(hello) if guid.is_some_and(|guid| !hello.vdevs.contains(&guid)) => return None,
                Some(hello) => (MemberState::Active, Some(hello)),
                None if state == 0 => (MemberState::PotentiallyActive, None),
                None => (MemberState::Exported, None),
            },
            3 => (MemberState::Spare, Some(with_aux()?)),
            4 => (MemberState::Cache, Some(with_aux()?)),
            _ => return None,
        };
        Some(Membership { state, pool: active.map_or(name, |hello| hello.pool.clone()) })
    }
}

/// The label of a file or disk, or of a partition in it; `None` if it has none, or cannot be read.
pub fn label_of(path: &str) -> Option<NvList> {
    let device = FileDevice::open(path, OpenMode::ReadOnlyCached).ok()?;
    let found = FoundDevice::examine(path, Arc::new(device)).ok()?;
    found.into_iter().next().map(|found| found.config)
}

/// Why a device cannot be used: a line for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Complaint {
    /// It belongs to another pool, or has something in it.
    Taken(String),
    /// The system uses it.
    InUse(String),
}

/// What stands in the way of using the devices. With `force`, only what no force can put aside.
pub fn complaints(spec: &NewPoolSpec, imported: &[Hello], force: bool) -> Vec<Complaint> {
    let mut lines = Vec::new();
    let mut lacks_blkid = false;
    let mut signature = |path: &str| {
        let Looked { found, lacks_blkid: lacks } = look(path);
        lacks_blkid |= lacks;
        found
    };
    for leaf in spec.leaves() {
        let path = &leaf.path;
        if !leaf.is_file && is_used_by_system(path) {
            let kind = match signature(path) {
                Some(Signature::FileSystem(kind)) => kind,
                _ => "unknown".to_owned(),
            };
            lines.push(Complaint::InUse(format!("{path} is in use and contains a {kind} filesystem.")));
            continue;
        }
        let label = label_of(path);
        if let Some(member) = label.as_ref().and_then(|config| Membership::of(config, imported)) {
            let is_shared_spare = member.state == MemberState::Spare && spec.spares.contains(leaf);
            let line = if is_shared_spare { None } else { member_line(path, &member, force) };
            lines.extend(line.map(Complaint::Taken));
        } else if !force && let Some(found) = signature(path) {
            // the partitions of a pool that has gone are as free as the pool is
            let is_left = label.is_some() && matches!(found, Signature::Partitions(_));
            lines.extend((!is_left).then(|| Complaint::Taken(found.line(path))));
        }
    }
    if lacks_blkid {
        eprintln!("warning: 'blkid' is not installed: only the most usual signatures on devices are looked for");
    }
    lines
}

fn member_line(path: &str, member: &Membership, force: bool) -> Option<String> {
    let pool = &member.pool;
    let word = match member.state {
        MemberState::Spare => return Some(format!("{path} is reserved as a hot spare for pool {pool}")),
        MemberState::Active => "active",
        _ if force => return None,
        MemberState::Exported => "exported",
        MemberState::PotentiallyActive => "potentially active",
        MemberState::Cache => "unknown",
    };
    Some(format!("{path} is part of {word} pool '{pool}'"))
}

/// Whether a device is named twice, under whatever names.
pub fn has_twins(spec: &NewPoolSpec) -> bool {
    let mut seen = std::collections::HashSet::new();
    let identity = |path: &str| {
        let metadata = std::fs::metadata(path).ok()?;
        // a disk may have several nodes, but one number
        Some(if metadata.rdev() != 0 { (0, metadata.rdev()) } else { (metadata.dev(), metadata.ino()) })
    };
    spec.leaves().filter_map(|leaf| identity(&leaf.path)).any(|identity| !seen.insert(identity))
}

/// Whether the kernel has a disk: mounted, as swap, or as part of another disk.
fn is_used_by_system(path: &str) -> bool {
    let opened = File::options().read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK).open(path);
    opened.is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY))
}
