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
    pub vdev: Option<u64>,
}

/// The bonus buffer of a space map object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the object that are in use.
    pub length: u64,
    /// Bytes allocated after all runs; txgs missing, in a dirty time log.
    pub allocated: i64,
}

impl Header {
    /// From a bonus buffer.
    pub fn parse(bonus: &[u8]) -> Result<Header> {
        let mut r = Reader::new(bonus, Endian::Little);
        let mut next = || r.u64().map_err(|_| Error::corrupt("space map: bonus buffer too short"));
        next()?;
        Ok(Header { length: next()?, allocated: next()? as i64 })
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
                        vdev: Some(word & 0xff_ffff),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_kinds_of_entries() {
        let words: [u64; 4] = [0b10 << 62 | 7, 100 << 16 | 1 << 15 | 9, 0b11 << 62 | 999 << 24 | 3, 5];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let runs: Vec<Run> = runs(&bytes).map(|run| run.unwrap()).collect();
        let short = Run { allocated: false, offset: 100, len: 10, vdev: None };
        let long = Run { allocated: true, offset: 5, len: 1000, vdev: Some(3) };
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
