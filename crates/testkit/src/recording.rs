//! What was written and flushed, in order, and what a power cut may leave of it.
//!
//! ```text
//!   pool ─▶ RecordingDevice ─┬─▶ its bytes now
//!                            └─▶ Recording: write 0, write 1, flush 2, write 3, ...   one sequence for all devices
//!                                   │
//!   Player::advance(at) ────────────┘ ─▶ lasting: what each device had flushed     ─▶ Player::cut ─▶ devices after
//!                                        loose: what it had been given since                         the cut
//! ```
//!
//! A device promises that what was written before a flush outlives a power cut. Of what was written since,
//! anything may be there: all, nothing, some writes, some sectors of a write.

use std::sync::Arc;

use base::{Mutex, MutexGuard, Result};
use device::Device;

use crate::rng::Rng;
use crate::sparse::SparseDevice;

/// Why no write fails.
const FITS: &str = "it was within the device when it was recorded";

/// A write that may be lost: where, and what.
type Loose = (u64, Arc<[u8]>);

/// What a device was asked to do.
#[derive(Clone, Debug)]
enum Event {
    Write { device: usize, offset: u64, bytes: Arc<[u8]> },
    Flush { device: usize },
}

/// All writes and flushes of some devices, in order.
pub struct Recording {
    base: Vec<SparseDevice>,
    events: Mutex<Vec<Event>>,
}

/// A device whose writes and flushes are recorded.
pub struct RecordingDevice {
    bytes: SparseDevice,
    number: usize,
    recording: Arc<Recording>,
}

/// What becomes of writes that no flush followed, when the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// All are there.
    Nothing,
    /// None is there.
    Everything,
    /// Each is there or not.
    Some,
    /// Each is there or not, and of those that overlap any may have been the last.
    Shuffled,
    /// All up to one are there; of that one some sectors, as if it was being written.
    Torn,
    /// Each of their sectors is there or not.
    Sectors,
    /// Each device loses in a way of its own.
    Mixed,
}

impl Loss {
    /// All ways.
    pub const ALL: [Loss; 7] =
        [Loss::Nothing, Loss::Everything, Loss::Some, Loss::Shuffled, Loss::Torn, Loss::Sectors, Loss::Mixed];
}

impl Recording {
    /// Begins a recording of devices that hold what `base` holds.
    pub fn new(base: Vec<SparseDevice>) -> Arc<Recording> {
        Arc::new(Recording { base, events: Mutex::default() })
    }

    /// The devices that are recorded: those of the base, in order. To be called once.
    pub fn devices(self: &Arc<Self>) -> Vec<Arc<RecordingDevice>> {
        let device = |(number, base): (usize, &SparseDevice)| {
            Arc::new(RecordingDevice { bytes: base.copy(), number, recording: self.clone() })
        };
        self.base.iter().enumerate().map(device).collect()
    }

    /// Number of writes and flushes so far.
    pub fn len(&self) -> usize {
        self.events().len()
    }

    /// Whether nothing was written or flushed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that were written so far.
    pub fn bytes(&self) -> u64 {
        let len = |event: &Event| if let Event::Write { bytes, .. } = event { bytes.len() as u64 } else { 0 };
        self.events().iter().map(len).sum()
    }

    /// The numbers of the flushes.
    pub fn flushes(&self) -> Vec<usize> {
        let events = self.events();
        (0..events.len()).filter(|&at| matches!(events[at], Event::Flush { .. })).collect()
    }

    /// The devices after a power cut when `at` writes and flushes had been done.
    pub fn cut(&self, at: usize, rng: &mut Rng, loss: Loss) -> Vec<SparseDevice> {
        let mut player = self.play();
        player.advance(at);
        player.cut(rng, loss)
    }

    /// For many cuts, from the first on.
    pub fn play(&self) -> Player {
        Player {
            events: self.events().clone(),
            at: 0,
            lasting: self.base.iter().map(SparseDevice::copy).collect(),
            loose: vec![Vec::new(); self.base.len()],
        }
    }

    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock()
    }
}

/// Goes through a recording.
pub struct Player {
    events: Vec<Event>,
    at: usize,
    lasting: Vec<SparseDevice>,
    loose: Vec<Vec<Loose>>,
}

impl Player {
    /// Goes on until `at` writes and flushes have been done. Panics if it is beyond that already.
    pub fn advance(&mut self, at: usize) {
        assert!(self.at <= at && at <= self.events.len(), "a recording is played forwards");
        for event in &self.events[self.at..at] {
            match event {
                Event::Write { device, offset, bytes } => self.loose[*device].push((*offset, bytes.clone())),
                Event::Flush { device } => {
                    for (offset, bytes) in self.loose[*device].drain(..) {
                        put(&self.lasting[*device], offset, &bytes);
                    }
                }
            }
        }
        self.at = at;
    }

    /// Writes that may be lost now.
    pub fn loose_writes(&self) -> usize {
        self.loose.iter().map(Vec::len).sum()
    }

    /// The devices after a power cut at this moment.
    pub fn cut(&self, rng: &mut Rng, loss: Loss) -> Vec<SparseDevice> {
        let after = |(lasting, loose): (&SparseDevice, &Vec<Loose>)| {
            let device = lasting.copy();
            lose(&device, loose, rng, loss);
            device
        };
        self.lasting.iter().zip(&self.loose).map(after).collect()
    }
}

/// Puts on a device what is left of writes that may be lost.
fn lose(device: &SparseDevice, loose: &[Loose], rng: &mut Rng, loss: Loss) {
    match loss {
        Loss::Nothing => loose.iter().for_each(|(offset, bytes)| put(device, *offset, bytes)),
        Loss::Everything => {}
        Loss::Some => {
            loose.iter().filter(|_| rng.below(2) == 0).for_each(|(offset, bytes)| put(device, *offset, bytes));
        }
        Loss::Shuffled => {
            // often nearly all or nearly none: few missing writes are what hurts
            let odds = *rng.pick(&[1, 8, 15]);
            let mut kept: Vec<_> = loose.iter().filter(|_| rng.below(16) < odds).collect();
            while !kept.is_empty() {
                let (offset, bytes) = kept.swap_remove(rng.below(kept.len() as u64) as usize);
                put(device, *offset, bytes);
            }
        }
        Loss::Torn => {
            if loose.is_empty() {
                return;
            }
            let last = rng.below(loose.len() as u64) as usize;
            loose[..last].iter().for_each(|(offset, bytes)| put(device, *offset, bytes));
            put_sectors(device, &loose[last], rng);
        }
        Loss::Sectors => loose.iter().for_each(|write| put_sectors(device, write, rng)),
        Loss::Mixed => {
            let loss = *rng.pick(&Loss::ALL[..Loss::ALL.len() - 1]);
            lose(device, loose, rng, loss);
        }
    }
}

fn put_sectors(device: &SparseDevice, (offset, bytes): &Loose, rng: &mut Rng) {
    device.write_torn(*offset, bytes, rng).expect(FITS);
}

fn put(device: &SparseDevice, offset: u64, bytes: &[u8]) {
    device.write_at(offset, bytes).expect(FITS);
}

impl RecordingDevice {
    fn note(&self, event: Event) {
        self.recording.events().push(event);
    }
}

impl std::fmt::Debug for RecordingDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RecordingDevice({})", self.path())
    }
}

impl Device for RecordingDevice {
    fn path(&self) -> &str {
        self.bytes.path()
    }

    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.bytes.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.bytes.write_at(offset, buf)?;
        self.note(Event::Write { device: self.number, offset, bytes: buf.into() });
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.note(Event::Flush { device: self.number });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
