//! Faults that a person asks for, to see what a pool makes of them (`zinject`).
//!
//! ```text
//!   a device ────────────────────────────────────────────▶ its bytes but for the labels, or a part of each label; if it is
//!                                                           slow, all
//!   blocks of an object ─▶ their pointers now ─▶ copies ──▶ the bytes of devices where these are, parity among them
//! ```
//!
//! Faults are in memory only. They stay with the places on devices: of a block that is written again, the new place is
//! right, and what comes to the old one is wrong.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use base::{Bookmark, Error, Kind, Result};
use device::{DeviceOp, FaultEffect, InjectedFault, SlowLanes};
use format::blkptr::{BlkPtr, Dva};
use format::ids::{DatasetId, Guid, ObjectId};
use serde::{Deserialize, Serialize};
use vdev::{Aux, Extent, Health, LabelRegion, Tree, VdevId, VdevState};

use super::LivePool;
use super::vdevs::no_such_device;
use crate::errlog::PointerFinder;

/// Nanoseconds of a millisecond.
const NS_PER_MS: u64 = 1_000_000;
/// Blocks that one fault is asked for at most.
const BLOCKS_MAX: u64 = 1 << 20;

/// What is to go wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injection {
    /// Where.
    pub target: InjectionTarget,
    /// What.
    pub effect: InjectedEffect,
    /// With which requests.
    pub requests: InjectedRequests,
    /// With how many of a million of them.
    pub per_million: u32,
}

/// Where something is to go wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InjectionTarget {
    /// With a device.
    Leaf {
        /// Its guid.
        guid: Guid,
        /// The part of its labels; without one, all but the labels, but a slow device is slow everywhere.
        label: Option<LabelRegion>,
    },
    /// With blocks of an object.
    Blocks {
        /// Its dataset, or [`DatasetId::MOS`].
        objset: DatasetId,
        /// Its number; 0 has all dnodes.
        object: ObjectId,
        /// The level of the blocks.
        level: u8,
        /// Numbers of the first and the last block.
        blocks: (u64, u64),
        /// Which copies, a bit each.
        copies: u8,
    },
}

/// What is to go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InjectedEffect {
    /// Requests fail.
    Io,
    /// They fail, and the device cannot be opened again.
    Gone,
    /// They are not done, and succeed.
    Ignored,
    /// One bit is wrong.
    WrongBit,
    /// All bytes are wrong.
    Checksum,
    /// They take at least so many milliseconds, in so many lanes.
    Slow {
        /// These.
        ms: u64,
        /// And these.
        lanes: usize,
    },
}

/// Requests with which something goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InjectedRequests {
    /// Reads.
    Reads,
    /// Writes.
    Writes,
    /// Flushes.
    Flushes,
    /// Discards.
    Discards,
    /// Looks whether a device can be used again.
    Probes,
    /// All of these but the last.
    All,
}

impl InjectedRequests {
    fn ops(self) -> &'static [DeviceOp] {
        match self {
            InjectedRequests::Reads => &[DeviceOp::Read],
            InjectedRequests::Writes => &[DeviceOp::Write],
            InjectedRequests::Flushes => &[DeviceOp::Flush],
            InjectedRequests::Discards => &[DeviceOp::Discard],
            InjectedRequests::Probes => &[DeviceOp::Probe],
            InjectedRequests::All => &[DeviceOp::Read, DeviceOp::Write, DeviceOp::Flush, DeviceOp::Discard],
        }
    }
}

impl InjectedEffect {
    fn effect(self) -> FaultEffect {
        match self {
            InjectedEffect::Io => FaultEffect::Fails,
            InjectedEffect::Gone => FaultEffect::Gone,
            InjectedEffect::Ignored => FaultEffect::Ignored,
            InjectedEffect::WrongBit => FaultEffect::WrongBit,
            InjectedEffect::Checksum => FaultEffect::Noise,
            InjectedEffect::Slow { ms, lanes } => {
                FaultEffect::Slow(SlowLanes::new(ms.saturating_mul(NS_PER_MS), lanes))
            }
        }
    }
}

/// A fault of an open pool, of which its devices have a part each.
#[derive(Debug)]
pub struct ActiveInjection {
    /// What was asked for.
    pub injection: Injection,
    parts: Vec<Arc<InjectedFault>>,
}

impl ActiveInjection {
    /// How many requests it concerned, and how many of them went wrong.
    pub fn counts(&self) -> [u64; 2] {
        self.parts.iter().map(|fault| fault.counts()).fold([0, 0], |sum, new| [sum[0] + new[0], sum[1] + new[1]])
    }

    /// Ends it.
    pub fn end(&self, tree: &Tree) {
        // its leaves may have other guids by now
        for slot in tree.leaves().filter_map(|leaf| leaf.state().device()) {
            self.parts.iter().for_each(|fault| slot.faults().remove(fault));
        }
    }
}

impl LivePool {
    /// Lets something go wrong from now on. Errors: `NotFound` if there is no such device, object or block; `TooBig` for
    /// too many blocks; those of reading.
    pub fn inject(&self, injection: Injection) -> Result<ActiveInjection> {
        let mut places: BTreeMap<VdevId, Vec<Range<u64>>> = BTreeMap::new();
        match injection.target {
            InjectionTarget::Leaf { guid, label } => {
                let leaf = self.tree().leaf(guid).ok_or_else(no_such_device)?;
                // what is read from now on is on disk
                if self.suspended().is_none() {
                    self.sync()?;
                }
                let size = leaf.state().device().map_or(0, device::Device::size);
                let all = label.is_none() && matches!(injection.effect, InjectedEffect::Slow { .. });
                let ranges = if all { std::iter::once(0..size).collect() } else { vdev::region_ranges(size, label) };
                places.insert(leaf.id(), ranges);
            }
            InjectionTarget::Blocks { objset, object, level, blocks, copies } => {
                self.sync()?;
                let view = self.view();
                let mut finder = PointerFinder::of(&view);
                let last = blocks.1.min(finder.last_block(objset, object, level)?);
                if blocks.0 > last {
                    return Err(Error::new(Kind::NotFound, format!("it has no block {}", blocks.0)));
                }
                if last - blocks.0 >= BLOCKS_MAX {
                    return Err(Error::new(Kind::TooBig, format!("more than {BLOCKS_MAX} blocks")));
                }
                for blkid in blocks.0..=last {
                    let place = Bookmark { objset: objset.get(), object: object.get(), level: i64::from(level), blkid };
                    self.add_places(&finder.pointer(&place)?, copies, &mut places)?;
                }
            }
        }
        let make = |(leaf, ranges): (VdevId, Vec<Range<u64>>)| {
            let (effect, ops) = (injection.effect.effect(), injection.requests.ops());
            let fault = Arc::new(InjectedFault::new(self.env(), effect, ops, ranges, injection.per_million));
            self.tree().vdev(leaf).device()?.faults().add(fault.clone());
            Some(fault)
        };
        let parts = places.into_iter().filter_map(make).collect();
        Ok(ActiveInjection { injection, parts })
    }

    /// Adds where the copies of a block are.
    fn add_places(&self, bp: &BlkPtr, copies: u8, places: &mut BTreeMap<VdevId, Vec<Range<u64>>>) -> Result<()> {
        let wanted = |number: usize| copies >> number.min(7) & 1 != 0;
        let extent = |dva: &Dva| Extent {
            top: dva.vdev(),
            offset: dva.offset(),
            // of a gang only the header, without which it cannot be read
            size: if dva.is_gang() { 512 } else { bp.psize() },
            birth_txg: bp.physical_birth(),
        };
        for dva in bp.copies().enumerate().filter(|(number, _)| wanted(*number)).map(|(_, dva)| dva) {
            for (leaf, range) in self.tree().leaf_ranges(extent(dva))? {
                places.entry(leaf).or_default().push(range);
            }
        }
        Ok(())
    }

    /// A device is faulted, or degraded, as if it had had too many errors. Errors: `NotFound`; `Suspended`, those of
    /// writing.
    pub fn set_errors_exceeded(&self, guid: Guid, is_fault: bool) -> Result<()> {
        let leaf = self.tree().leaf(guid).ok_or_else(no_such_device)?;
        let state = match is_fault && self.tree().can_do_without(leaf) {
            true => VdevState::Faulted,
            false => VdevState::Degraded,
        };
        leaf.state().set_health(Health::new(state, Aux::ErrExceeded));
        self.run(|context| context.write_config())
    }

    /// Has nothing in memory that is on disk. Errors: those of writing what is not.
    pub fn forget_cached(&self) -> Result<()> {
        self.sync()?;
        self.cache().empty();
        Ok(())
    }
}
