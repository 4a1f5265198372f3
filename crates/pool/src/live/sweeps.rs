//! Sweeps of leaves: what is known of each while the pool is open, and how it is kept on disk.
//!
//! ```text
//!   table of the leaf   com.delphix:    vdev_initialize_state, vdev_initialize_action_time, next_offset_to_initialize
//!                       org.zfsonlinux: vdev_trim_state, vdev_trim_action_time, next_offset_to_trim, vdev_trim_rate,
//!                                       vdev_trim_partial, vdev_trim_secure
//! ```
//!
//! An offset is one of the leaf's device, its labels included. Source: the behaviour of OpenZFS.

use std::collections::BTreeMap;

use base::{Mutex, MutexGuard, Result};
use dmu::zap::Zap;
use dsl::write::Change;
use format::ids::{Guid, ObjectId, Txg};
use serde::{Deserialize, Serialize};

/// What is done with all that is free on a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SweepKind {
    /// It is written to once.
    Initialize,
    /// The device is told that nobody needs it.
    Trim,
}

/// What is to become of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SweepAction {
    /// It begins, or goes on if it was suspended.
    Start {
        /// Bytes a second at most; 0: as many as there can be. Only of trims.
        rate: u64,
        /// No copy of what was there may be left. Only of trims.
        secure: bool,
    },
    /// It ends.
    Cancel,
    /// It halts.
    Suspend,
    /// It is as if it had never been. Only of those that write.
    Forget,
}

/// How far a sweep is. The numbers are those on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SweepState {
    #[default]
    None = 0,
    Active = 1,
    Canceled = 2,
    Suspended = 3,
    Complete = 4,
}

/// The sweep of a leaf.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sweep {
    pub(super) state: SweepState,
    /// When that was, seconds since 1970.
    pub(super) action_s: u64,
    /// How far it is on the device, in bytes.
    pub(super) offset: u64,
    /// The same in the address space of the top-level vdev.
    pub(super) cursor: u64,
    pub(super) rate: u64,
    pub(super) secure: bool,
    /// Metaslabs are left out in which nothing has ever been.
    pub(super) partial: bool,
    /// Bytes since then, for the rate.
    pub(super) pass_bytes: u64,
    pub(super) pass_start_ns: u64,
    /// It goes on from that group on: what was freed before it began can be lent then.
    pub(super) from_txg: Txg,
}

/// All sweeps of a pool, by kind and the guid of the leaf.
#[derive(Default)]
pub(super) struct Sweeps(Mutex<SweepsInMemory>);

/// See [`Sweeps`].
#[derive(Default)]
pub(super) struct SweepsInMemory {
    pub(super) by_leaf: BTreeMap<(SweepKind, Guid), Sweep>,
    /// Something could not be read.
    pub(super) is_stalled: bool,
    /// Up to that group, much that has become free is trimmed by itself.
    pub(super) trims_until_txg: Txg,
}

impl Sweeps {
    pub(super) fn lock(&self) -> MutexGuard<'_, SweepsInMemory> {
        self.0.lock()
    }

    pub(super) fn stall(&self) {
        self.lock().is_stalled = true;
    }

    pub(super) fn wake(&self) {
        self.lock().is_stalled = false;
    }

    /// Those that are under way, unless they cannot go on.
    pub(super) fn active(&self) -> Vec<((SweepKind, Guid), Sweep)> {
        let all = self.lock();
        let active = all.by_leaf.iter().filter(|(_, sweep)| !all.is_stalled && sweep.state == SweepState::Active);
        active.map(|(key, sweep)| (*key, *sweep)).collect()
    }
}

impl SweepKind {
    pub(super) const ALL: [SweepKind; 2] = [SweepKind::Initialize, SweepKind::Trim];

    /// Its name in the history and in events.
    pub(super) fn name(self) -> &'static str {
        match self {
            SweepKind::Initialize => "initialize",
            SweepKind::Trim => "trim",
        }
    }

    /// Names in the table of a leaf: the state, when that was, and how far it is.
    fn entries(self) -> [&'static str; 3] {
        match self {
            SweepKind::Initialize => [
                "com.delphix:vdev_initialize_state",
                "com.delphix:vdev_initialize_action_time",
                "com.delphix:next_offset_to_initialize",
            ],
            SweepKind::Trim => [
                "org.zfsonlinux:vdev_trim_state",
                "org.zfsonlinux:vdev_trim_action_time",
                "org.zfsonlinux:next_offset_to_trim",
            ],
        }
    }
}

const RATE: &str = "org.zfsonlinux:vdev_trim_rate";
const PARTIAL: &str = "org.zfsonlinux:vdev_trim_partial";
const SECURE: &str = "org.zfsonlinux:vdev_trim_secure";

impl Sweep {
    /// What the table of a leaf tells of both kinds.
    pub(super) fn read(table: &Zap) -> Result<Vec<(SweepKind, Sweep)>> {
        let mut found = Vec::new();
        for kind in SweepKind::ALL {
            let number = |name: &str| table.u64(name).map(|number| number.unwrap_or(0));
            let [state, action_s, offset] = kind.entries().map(number);
            let state = match state? {
                1 => SweepState::Active,
                2 => SweepState::Canceled,
                3 => SweepState::Suspended,
                4 => SweepState::Complete,
                _ => continue,
            };
            let is_trim = kind == SweepKind::Trim;
            let rate = if is_trim { number(RATE)? } else { 0 };
            let secure = is_trim && number(SECURE)? != 0;
            let partial = is_trim && number(PARTIAL)? != 0;
            let sweep =
                Sweep { state, action_s: action_s?, offset: offset?, rate, secure, partial, ..Sweep::default() };
            found.push((kind, sweep));
        }
        Ok(found)
    }

    /// Writes it into the table of a leaf.
    pub(super) fn write(&self, change: &Change<'_>, table: ObjectId, kind: SweepKind) -> Result<()> {
        let numbers = [self.state as u64, self.action_s, self.offset];
        if self.state == SweepState::None {
            return kind.entries().into_iter().try_for_each(|name| change.remove(table, name).map(drop));
        }
        let mut entries: Vec<(&str, u64)> = kind.entries().into_iter().zip(numbers).collect();
        if kind == SweepKind::Trim {
            entries.extend([(RATE, self.rate), (PARTIAL, self.partial.into()), (SECURE, self.secure.into())]);
        }
        entries.into_iter().try_for_each(|(name, number)| change.set(table, name, &dmu::zap::ZapValue::one(number)))
    }
}
