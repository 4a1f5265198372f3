//! Records of each size, made of the same pieces.

use codec::compress::Compress;

use crate::advise::ratio::{Interval, RatioSum};
use crate::advise::sizes::RECORDS;

/// Bytes of a piece.
pub const CHUNK_BYTES: u64 = 1 << 20;
/// What files have if nothing else was said.
pub const RECORD_DEFAULT: u64 = 128 << 10;
/// The smallest block of a file.
const BLOCK_BYTES_MIN: usize = 512;

/// Which pieces are drawn, and where.
#[derive(Clone, Copy, Debug)]
pub struct RecordPlan {
    /// Binary logarithm of the sector size, where no pool tells it.
    pub ashift: u32,
    /// Pieces to draw.
    pub pieces: usize,
    /// What they are drawn by.
    pub seed: u64,
}

/// Bytes on disks that a compressed block takes up, in the accounts of space.
pub type TakenBytes = dyn Fn(u64) -> u64;

/// What all sizes of records made of some pieces.
pub struct RecordTrials {
    compression: (Compress, i32),
    taken: Box<TakenBytes>,
    sector: usize,
    /// In the order of [`RECORDS`].
    pub trials: Vec<RecordTrial>,
    /// Pieces.
    pub pieces: u64,
}

/// What one size of records made of them.
#[derive(Clone, Debug, Default)]
pub struct RecordTrial {
    pub record: u64,
    /// Bytes taken over bytes of pieces.
    space: RatioSum,
    /// Records of full length with contents; bytes of them when compressed; bytes that they take.
    full: u64,
    packed: u64,
    taken: u64,
}

impl RecordTrials {
    /// Records with that compression and level that take what `taken` says; `ashift` as in [`RecordPlan`].
    pub fn new(compression: (Compress, i32), taken: Box<TakenBytes>, ashift: u32) -> RecordTrials {
        let trials = RECORDS.iter().map(|record| RecordTrial { record: *record, ..RecordTrial::default() }).collect();
        RecordTrials { compression, taken, sector: 1 << ashift, trials, pieces: 0 }
    }

    /// Cuts a piece into records of each size; it stands for `weight` bytes; `is_whole`: it is a whole file.
    pub fn add(&mut self, weight: f64, piece: &[u8], is_whole: bool) {
        if piece.is_empty() {
            return;
        }
        self.pieces += 1;
        let (kind, level) = self.compression;
        for trial in &mut self.trials {
            let record = trial.record as usize;
            let block = match is_whole && piece.len() <= record {
                true => piece.len().next_multiple_of(BLOCK_BYTES_MIN),
                false => record,
            };
            let mut taken_bytes = 0;
            for part in piece.chunks(block) {
                let padded;
                let bytes = match part.len() < block {
                    true => {
                        padded = [part, &vec![0; block - part.len()]].concat();
                        &padded
                    }
                    false => part,
                };
                let packed = zio::stored_bytes(bytes, kind, level, self.sector) as u64;
                let taken = if packed == 0 { 0 } else { (self.taken)(packed) };
                taken_bytes += taken;
                if part.len() == record && packed > 0 {
                    trial.full += 1;
                    trial.packed += packed;
                    trial.taken += taken;
                }
            }
            trial.space.add(weight * taken_bytes as f64 / piece.len() as f64, weight);
        }
    }

    /// The trial of records of the usual size.
    pub fn usual(&self) -> &RecordTrial {
        self.of(RECORD_DEFAULT)
    }

    /// The trial of a size of [`RECORDS`].
    pub fn of(&self, record: u64) -> &RecordTrial {
        let at = RECORDS.iter().position(|size| *size == record).unwrap_or(0);
        &self.trials[at]
    }
}

impl RecordTrial {
    /// Bytes that a byte of data takes.
    pub fn space(&self) -> Interval {
        self.space.interval()
    }

    /// Bytes that are read for a record; `None` if there was none of full length.
    pub fn read_bytes(&self) -> Option<f64> {
        (self.full > 0).then(|| self.packed as f64 / self.full as f64)
    }

    /// Bytes on disks that are written for a record, parity left out as the accounts of space have it.
    pub fn written_bytes(&self) -> Option<f64> {
        (self.full > 0).then(|| self.taken as f64 / self.full as f64)
    }

    /// Bytes that a random write of so many bytes reads and writes: a record that is longer has to be read first.
    pub fn random_write(&self, bytes: u64) -> Option<[f64; 2]> {
        let records = bytes.div_ceil(self.record) as f64;
        let (read, written) = (self.read_bytes()?, self.written_bytes()?);
        Some([if self.record > bytes { read } else { 0.0 }, written * records])
    }

    /// Bytes of the pointers to a TiB of records.
    pub fn pointer_bytes(&self) -> u64 {
        (1u64 << 40) / self.record * format::blkptr::BlkPtr::SIZE as u64
    }
}
