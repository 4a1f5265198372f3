//! A disk in memory.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use base::{AlignedBuf, Block, Condvar, Data, Error, Kind, Mutex, Piece, Result};

use crate::target::{Lun, TargetAccess, Targets};

pub(super) const DISK_BYTES: u64 = 1 << 20;
pub(super) const TARGET: &str = "iqn.2025-11.org.cenote:disk:1234";
const GUID: u64 = 0x1234_5678_9abc_def0;
const GRAIN: u64 = 4096;

/// The one target with its disk.
#[derive(Default)]
pub(super) struct MemoryTargets {
    disk: Arc<MemoryDisk>,
    access: Mutex<TargetAccess>,
    /// How often it is told of beside the first time.
    twins: AtomicUsize,
    /// It cannot be read who may use the first.
    is_closed: AtomicBool,
}

pub(super) struct MemoryDisk {
    state: Mutex<DiskState>,
    changed: Condvar,
}

struct DiskState {
    bytes: Vec<u8>,
    is_read_only: bool,
    is_suspended: bool,
    kept: Option<String>,
}

impl Default for MemoryDisk {
    fn default() -> MemoryDisk {
        let bytes = vec![0; DISK_BYTES as usize];
        let state = DiskState { bytes, is_read_only: false, is_suspended: false, kept: None };
        MemoryDisk { state: Mutex::new(state), changed: Condvar::default() }
    }
}

impl MemoryTargets {
    pub(super) fn set_access(&self, access: TargetAccess) {
        *self.access.lock() = access;
    }

    pub(super) fn set_twins(&self, twins: usize) {
        self.twins.store(twins, Ordering::Relaxed);
    }

    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    pub(super) fn disk(&self) -> &MemoryDisk {
        &self.disk
    }

    pub(super) fn guid(&self) -> u64 {
        GUID
    }
}

impl MemoryDisk {
    pub(super) fn set_suspended(&self, is_suspended: bool) {
        self.state.lock().is_suspended = is_suspended;
        self.changed.notify_all();
    }

    pub(super) fn set_read_only(&self, is_read_only: bool) {
        self.state.lock().is_read_only = is_read_only;
    }

    pub(super) fn set_size(&self, bytes: u64) {
        self.state.lock().bytes.resize(bytes as usize, 0);
    }

    pub(super) fn kept(&self) -> Option<String> {
        self.state.lock().kept.clone()
    }

    fn change(&self, at: u64, len: usize, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let mut state = self.state.lock();
        if state.is_suspended {
            return Err(Error::new(Kind::Suspended, "suspended"));
        }
        if state.is_read_only {
            return Err(Error::new(Kind::ReadOnly, "read-only"));
        }
        change(&mut state.bytes[at as usize..at as usize + len]);
        Ok(())
    }

    /// The next whole grain that is, or is not, of zeros.
    fn next(&self, at: u64, zeros: bool) -> u64 {
        let state = self.state.lock();
        let is_zero = |grain: u64| state.bytes[(grain * GRAIN) as usize..][..GRAIN as usize].iter().all(|b| *b == 0);
        let end = state.bytes.len() as u64;
        if at < end && is_zero(at / GRAIN) == zeros {
            return at;
        }
        (at / GRAIN + 1..end / GRAIN).find(|grain| is_zero(*grain) == zeros).map_or(end, |grain| grain * GRAIN)
    }
}

impl Lun for MemoryDisk {
    fn guid(&self) -> u64 {
        GUID
    }

    fn target_name(&self) -> String {
        TARGET.to_owned()
    }

    fn volume_name(&self) -> String {
        "tank/disk".to_owned()
    }

    fn sizes(&self) -> Result<(u64, u64)> {
        Ok((self.state.lock().bytes.len() as u64, GRAIN))
    }

    fn is_read_only(&self) -> Result<bool> {
        Ok(self.state.lock().is_read_only)
    }

    fn read(&self, offset: u64, len: usize) -> Result<Vec<Piece>> {
        let bytes = &self.state.lock().bytes[offset as usize..offset as usize + len];
        // in pieces, as from blocks
        let piece = |bytes: &[u8]| Piece::of(Block::from(AlignedBuf::from(bytes)), 0..bytes.len());
        Ok(bytes.chunks(700).map(piece).collect())
    }

    fn write(&self, offset: u64, data: Data<'_>, _: bool) -> Result<()> {
        self.change(offset, data.len(), |bytes| data.copy_to(bytes))
    }

    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        self.change(offset, len as usize, |bytes| bytes.fill(0))
    }

    fn flush(&self) -> Result<()> {
        self.change(0, 0, |_| ())
    }

    fn prefetch(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn next_data(&self, bytes: Range<u64>) -> Result<Option<u64>> {
        Ok(Some(self.next(bytes.start, false)).filter(|next| *next < bytes.end))
    }

    fn next_hole(&self, bytes: Range<u64>) -> Result<u64> {
        Ok(self.next(bytes.start, true).min(bytes.end))
    }

    fn reservations(&self) -> Result<Option<String>> {
        Ok(self.kept())
    }

    fn keep_reservations(&self, text: &str) -> Result<()> {
        self.state.lock().kept = Some(text.to_owned());
        Ok(())
    }
}

impl Targets for MemoryTargets {
    fn all(&self) -> Result<Vec<Arc<dyn Lun>>> {
        let one = || self.disk.clone() as Arc<dyn Lun>;
        Ok(std::iter::repeat_with(one).take(1 + self.twins.load(Ordering::Relaxed)).collect())
    }

    fn find(&self, target_name: &str) -> Result<Option<Arc<dyn Lun>>> {
        Ok((target_name == TARGET).then(|| self.disk.clone() as Arc<dyn Lun>))
    }

    fn access(&self, _: &dyn Lun) -> Result<TargetAccess> {
        if self.is_closed.swap(false, Ordering::Relaxed) {
            return Err(Error::new(Kind::NotFound, "no such file"));
        }
        Ok(self.access.lock().clone())
    }

    fn wait_resumed(&self) -> Result<()> {
        drop(self.disk.changed.wait_while(self.disk.state.lock(), |state| state.is_suspended));
        Ok(())
    }
}
