//! Space maps: logs of runs allocated and freed. A metaslab's, a log of all metaslabs, or (counting
//! txgs in place of bytes) a leaf's dirty time log.
//!
//! ```text
//!        63 62     60 59                24 23            0
//! debug | 1  0 |    action, pass, txg: no run                |
//! short | 0 |   offset (47)          | type 15 | run - 1 (15)|
//! long  | 1  1 | pad |   run - 1 (36)      |     vdev (24)   |
//!       | type |               offset (63)                   |  second word
//! ```
//!
//! Type 0 allocates, 1 frees. Offsets and runs count units of the map's own size. The object's bonus
//! holds: object u64 | bytes in use u64 | allocated i64 | histogram of free runs.
//!
//! Source: the published ZFS on-disk specification, chapter 5, and OpenZFS's spacemap_v2 feature.

use base::{Endian, Error, Reader, Result};

use crate::ids::{ObjectId, Txg, VdevNumber};

/// A run of a space map, in the map's units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Whether the run was allocated, not freed.
    pub allocated: bool,
    /// First unit.
    pub offset: u64,
    /// Number of units, at least 1.
    pub len: u64,
    /// Top-level vdev, in the log of all metaslabs.
    pub vdev: Option<VdevNumber>,
}

/// The bonus buffer of a space map object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceMapHeader {
    /// Bytes of the object that are in use.
    pub length: u64,
    /// Bytes allocated after all runs; txgs missing, in a dirty time log.
    pub allocated: i64,
}

/// Most bytes of a map, and most that it may count, so that what is added to either has room.
const LENGTH_MAX: u64 = 1 << 48;
const ALLOCATED_MAX: u64 = 1 << 62;

impl SpaceMapHeader {
    /// From a bonus buffer. Errors: it is too short, or holds what no map can have.
    pub fn parse(bonus: &[u8]) -> Result<SpaceMapHeader> {
        let mut r = Reader::new(bonus, Endian::Little);
        let mut next = || r.u64().map_err(|_| Error::corrupt("space map: bonus buffer too short"));
        next()?;
        let header = SpaceMapHeader { length: next()?, allocated: next()? as i64 };
        let is_possible = header.length <= LENGTH_MAX && header.allocated.unsigned_abs() <= ALLOCATED_MAX;
        is_possible.then_some(header).ok_or_else(|| Error::corrupt(format!("space map with the impossible {header:?}")))
    }
}

impl SpaceMapHeader {
    /// Bytes of the bonus buffer with a histogram, and of those from before there were any.
    pub const SIZES: [usize; 2] = [320, 24];

    /// The bonus buffer of the map in that object; without a histogram it is the short one of old pools.
    pub fn bonus(&self, object: ObjectId, histogram: Option<&[u64; HISTOGRAM_BUCKETS]>) -> Vec<u8> {
        let words = [object.get(), self.length, self.allocated as u64];
        let rest = histogram.iter().flat_map(|buckets| [0; 5].iter().chain(*buckets));
        words.iter().chain(rest).flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// Buckets of [`histogram`].
pub const HISTOGRAM_BUCKETS: usize = 32;

/// Number of free runs by the binary logarithm of their length, in the map's units, from a bonus
/// buffer; the last bucket has all longer ones, too. `None` if the map is from before there were any.
pub fn histogram(bonus: &[u8]) -> Option<[u64; HISTOGRAM_BUCKETS]> {
    const AT: usize = 64;
    let words = bonus.get(AT..AT + 8 * HISTOGRAM_BUCKETS)?.chunks_exact(8);
    let mut buckets = [0; HISTOGRAM_BUCKETS];
    for (bucket, raw) in buckets.iter_mut().zip(words) {
        *bucket = Endian::Little.u64(raw)?;
    }
    Some(buckets)
}

/// The runs in a space map's bytes, in the order they were logged. Ends after the first error.
pub fn runs(bytes: &[u8]) -> impl Iterator<Item = Result<Run>> {
    let mut words = bytes.chunks_exact(8).map(|raw| u64::from_le_bytes(*raw.first_chunk().expect("chunks of 8")));
    let mut failed = false;
    std::iter::from_fn(move || {
        while !failed {
            let word = words.next()?;
            match word >> 62 {
                0b10 => continue,
                0b11 => {
                    let Some(second) = words.next() else {
                        failed = true;
                        return Some(Err(Error::corrupt("space map ends within a run")));
                    };
                    return Some(Ok(Run {
                        allocated: second >> 63 == 0,
                        offset: second & (u64::MAX >> 1),
                        len: (word >> 24 & 0xf_ffff_ffff) + 1,
                        vdev: Some(VdevNumber::new(word & 0xff_ffff)),
                    }));
                }
                _ => {
                    return Some(Ok(Run {
                        allocated: word >> 15 & 1 == 0,
                        offset: word >> 16,
                        len: (word & 0x7fff) + 1,
                        vdev: None,
                    }));
                }
            }
        }
        None
    })
}

const DEBUG: u64 = 0b10 << 62;
const LONG: u64 = 0b11 << 62;
const SHORT_RUN_MAX: u64 = 1 << 15;
const SHORT_OFFSETS: u64 = 1 << 47;
const LONG_RUN_MAX: u64 = 1 << 36;
const LONG_OFFSETS: u64 = 1 << 63;

/// Whether a map of so many bytes, in units of `1 << shift`, can be told without feature `spacemap_v2`.
pub fn has_short_offsets(bytes: u64, shift: u32) -> bool {
    bytes >> shift < SHORT_OFFSETS
}

/// Makes the bytes to be added to the end of a map.
#[derive(Debug)]
pub struct Encoder {
    bytes: Vec<u8>,
    /// Length of the map before `bytes`.
    start: u64,
    block_size: u64,
    two_words: bool,
}

impl Encoder {
    /// For a map of `length` bytes in blocks of `block_size`; `two_words` says that the pool has the feature
    /// `spacemap_v2` active. A run takes two words only if it must.
    pub fn new(length: u64, block_size: u64, two_words: bool) -> Encoder {
        Encoder { bytes: Vec::new(), start: length, block_size, two_words }
    }

    /// Notes what the runs that follow are: allocated or freed in which pass of which transaction group.
    pub fn begin(&mut self, allocated: bool, pass: u64, txg: Txg) {
        let action = u64::from(!allocated);
        self.put(DEBUG | action << 60 | (pass & 0x3ff) << 50 | txg.get() & ((1 << 50) - 1));
    }

    /// Adds a run, in as many entries as it takes. Panics on a run that the map cannot hold: of no length,
    /// or one that needs two words where there are none.
    pub fn push(&mut self, run: &Run) {
        let short = run.vdev.is_none() && run.offset < SHORT_OFFSETS && run.len <= SHORT_RUN_MAX;
        let long = self.two_words && !short;
        let (run_max, offsets) = if long { (LONG_RUN_MAX, LONG_OFFSETS) } else { (SHORT_RUN_MAX, SHORT_OFFSETS) };
        assert!(run.len > 0 && (long || run.vdev.is_none()), "space map: {run:?}");
        assert!(run.offset.checked_add(run.len - 1).is_some_and(|last| last < offsets), "space map: {run:?}");
        let (mut offset, mut left) = (run.offset, run.len);
        let freed = u64::from(!run.allocated);
        while left > 0 {
            let len = left.min(run_max);
            if long {
                if (self.length() + 8).is_multiple_of(self.block_size) {
                    // an entry lies in one block
                    self.put(DEBUG);
                }
                self.put(LONG | (len - 1) << 24 | run.vdev.map_or(0, VdevNumber::get) & 0xff_ffff);
                self.put(freed << 63 | offset);
            } else {
                self.put(offset << 16 | freed << 15 | (len - 1));
            }
            offset += len;
            left -= len;
        }
    }

    /// Bytes of the map with what was added.
    pub fn length(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// What goes behind the old end of the map.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn put(&mut self, word: u64) {
        self.bytes.extend_from_slice(&word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neighbouring runs that a split made are one again.
    fn joined(bytes: &[u8]) -> Vec<Run> {
        let mut out: Vec<Run> = Vec::new();
        for run in runs(bytes).map(|run| run.unwrap()) {
            match out.last_mut() {
                Some(last) if (last.offset + last.len, last.allocated) == (run.offset, run.allocated) => {
                    last.len += run.len;
                }
                _ => out.push(run),
            }
        }
        out
    }

    #[test]
    fn what_is_encoded_reads_back() {
        let short = |offset, len, allocated| Run { allocated, offset, len, vdev: None };
        let all = [short(0, 1, true), short(SHORT_OFFSETS - 1, 1, false), short(7, SHORT_RUN_MAX, true)];
        let mut old = Encoder::new(0, 4096, false);
        old.begin(true, 1, Txg::new(77));
        let long_run = short(100, 3 * SHORT_RUN_MAX + 5, false);
        all.iter().chain([&long_run]).for_each(|run| old.push(run));
        assert_eq!(old.length(), 8 * (1 + 3 + 4), "a long run takes four entries");
        assert_eq!(joined(&old.finish()), [&all[..], &[long_run]].concat());

        let long = |offset, len, vdev| Run { allocated: true, offset, len, vdev: Some(VdevNumber::new(vdev)) };
        let more = [long(LONG_OFFSETS - 5, 5, 3), long(9, 2 * LONG_RUN_MAX + 1, 0xff_fffe), long(1, 1, 0)];
        let mut new = Encoder::new(512 - 8, 512, true);
        all.iter().chain(&more).for_each(|run| new.push(run));
        assert_eq!(new.length() - 504, 8 * (3 + 2 + 6 + 2));
        assert_eq!(joined(&new.finish()), [&all[..], &more].concat());
    }

    #[test]
    fn no_entry_straddles_blocks() {
        let mut encoder = Encoder::new(512 - 8, 512, true);
        encoder.push(&Run { allocated: false, offset: 1, len: 1 << 20, vdev: None });
        let bytes = encoder.finish();
        assert_eq!(bytes[..8], DEBUG.to_le_bytes());
        assert_eq!((bytes.len(), joined(&bytes).len()), (24, 1));
        let mut encoder = Encoder::new(0, 512, true);
        encoder.begin(false, 3, Txg::new(0x1234));
        assert_eq!(encoder.finish(), (0b1001 << 60 | 3u64 << 50 | 0x1234).to_le_bytes());
    }

    #[test]
    fn bonus_buffers_read_back() {
        let header = SpaceMapHeader { length: 4096, allocated: -9 };
        let buckets = std::array::from_fn(|i| i as u64 * 3);
        let bonus = header.bonus(ObjectId::new(42), Some(&buckets));
        assert_eq!(
            (bonus.len(), SpaceMapHeader::parse(&bonus).unwrap(), histogram(&bonus)),
            (320, header, Some(buckets))
        );
        for (length, allocated) in [(u64::MAX - 7, 0), (0, i64::MIN), (0, i64::MAX)] {
            assert!(
                SpaceMapHeader::parse(&SpaceMapHeader { length, allocated }.bonus(ObjectId::new(42), None)).is_err()
            );
        }
        let old = header.bonus(ObjectId::new(42), None);
        assert_eq!((old.len(), SpaceMapHeader::parse(&old).unwrap(), histogram(&old)), (24, header, None));
    }

    #[test]
    fn three_kinds_of_entries() {
        let words: [u64; 4] = [0b10 << 62 | 7, 100 << 16 | 1 << 15 | 9, 0b11 << 62 | 999 << 24 | 3, 5];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let runs: Vec<Run> = runs(&bytes).map(|run| run.unwrap()).collect();
        let short = Run { allocated: false, offset: 100, len: 10, vdev: None };
        let long = Run { allocated: true, offset: 5, len: 1000, vdev: Some(VdevNumber::new(3)) };
        assert_eq!(runs, [short, long]);
    }

    #[test]
    fn histograms_came_later() {
        let bonus: Vec<u8> = (0..40u64).flat_map(u64::to_le_bytes).collect();
        let buckets = histogram(&bonus).unwrap();
        assert_eq!((buckets[0], buckets[31]), (8, 39));
        assert!(histogram(&bonus[..24]).is_none());
    }

    #[test]
    fn half_an_entry_is_an_error() {
        let bytes = (0b11u64 << 62).to_le_bytes();
        let all: Vec<_> = runs(&bytes).collect();
        assert!(all.len() == 1 && all[0].is_err());
    }
}
