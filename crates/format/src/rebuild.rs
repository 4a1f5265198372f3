//! The state of a sequential resilver: entry `org.openzfs:vdev_rebuild` in the table of a top-level vdev.
//!
//! ```text
//!   word  0  state: 1 runs, 2 canceled, 3 finished       6  milliseconds that it ran
//!         1  all before this place has been copied       7  bytes found, 8 read, 9 written
//!         2  first group that was missing, 3 last       10  bytes to find
//!         4  start; 5 end: seconds since 1970           11  errors
//! ```
//!
//! Words may be missing at the end: they are 0. Source: `vdev_rebuild_phys_t` of OpenZFS.

use crate::ids::Txg;
use crate::scan::ScanState;

/// The entry's name.
pub const VDEV_REBUILD: &str = "org.openzfs:vdev_rebuild";

/// See the top of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // see the drawing
pub struct RebuildPhys {
    pub state: ScanState,
    pub offset: u64,
    pub min_txg: Txg,
    pub max_txg: Txg,
    pub start_s: u64,
    pub end_s: u64,
    pub time_ms: u64,
    pub found_bytes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub to_find_bytes: u64,
    pub errors: u64,
}

impl RebuildPhys {
    /// What the words say; `None` if there was no such resilver, or it is in a state that nobody knows.
    pub fn parse(words: &[u64]) -> Option<RebuildPhys> {
        let at = |index: usize| words.get(index).copied().unwrap_or(0);
        // numbered otherwise than scans are
        let state = match at(0) {
            1 => ScanState::Running,
            2 => ScanState::Canceled,
            3 => ScanState::Finished,
            _ => return None,
        };
        Some(RebuildPhys {
            state,
            offset: at(1),
            min_txg: Txg::new(at(2)),
            max_txg: Txg::new(at(3)),
            start_s: at(4),
            end_s: at(5),
            time_ms: at(6),
            found_bytes: at(7),
            read_bytes: at(8),
            written_bytes: at(9),
            to_find_bytes: at(10),
            errors: at(11),
        })
    }

    /// The words.
    pub fn words(&self) -> [u64; 12] {
        let state = match self.state {
            ScanState::Running => 1,
            ScanState::Canceled => 2,
            ScanState::Finished => 3,
        };
        [
            state,
            self.offset,
            self.min_txg.get(),
            self.max_txg.get(),
            self.start_s,
            self.end_s,
            self.time_ms,
            self.found_bytes,
            self.read_bytes,
            self.written_bytes,
            self.to_find_bytes,
            self.errors,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_was_parsed() {
        for state in [1, 2, 3] {
            let words: Vec<u64> = std::iter::once(state).chain(100..111).collect();
            let phys = RebuildPhys::parse(&words).unwrap();
            assert_eq!((phys.offset, phys.errors), (100, 110));
            assert_eq!(phys.words(), *words);
        }
        assert_eq!(RebuildPhys::parse(&[2]).unwrap().words()[1..], [0; 11]);
        assert!(RebuildPhys::parse(&[]).is_none() && RebuildPhys::parse(&[0, 1]).is_none());
        assert!(RebuildPhys::parse(&[4]).is_none());
    }
}
