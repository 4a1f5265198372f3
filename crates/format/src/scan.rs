//! The state of a scrub or resilver: entry `scan` of the pool's object directory.
//!
//! ```text
//!   word  0  function: 1 scrub, 2 resilver          12  bytes repaired
//!         1  state: 1 runs, 2 finished, 3 canceled  13  errors
//!         2  object of the queue of datasets        14  last class of dedup entries that is scanned first
//!         3  only blocks born after this txg        15  dedup entries: class, type, checksum, cursor
//!         4  and before this one                    19  next block: object set, object, level, number
//!         5  the same, in the dataset that it is at 23  flags: 1 visit the dataset again, 2 paused
//!         7  start; 8 end: seconds since 1970
//!         9  bytes to examine, 10 examined, 11 skipped
//! ```
//!
//! The queue is a ZAP: object of a dataset that is yet to be visited (in hexadecimal digits), and the txg after which
//! its blocks are born; 0 stands for that of its previous snapshot. A dataset that is done puts its next snapshot and
//! its clones into the queue. Object set 0 is the MOS, which comes first; [`ScanPhys::DESTROYED`] is a dataset that was
//! destroyed meanwhile. Words may be missing at the end: they are 0.
//!
//! Source: `dsl_scan_phys_t` of OpenZFS.

use base::{Bookmark, Error, Result};

use crate::ids::{DatasetId, ObjectId, Txg};

/// See the top of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // see the drawing
pub struct ScanPhys {
    pub is_resilver: bool,
    pub state: ScanState,
    pub queue: ObjectId,
    pub min_txg: Txg,
    pub max_txg: Txg,
    pub dataset_min_txg: Txg,
    pub dataset_max_txg: Txg,
    pub start_s: u64,
    pub end_s: u64,
    pub to_examine_bytes: u64,
    pub examined_bytes: u64,
    pub skipped_bytes: u64,
    pub processed_bytes: u64,
    pub errors: u64,
    /// Words 14 to 18.
    pub dedup: [u64; 5],
    pub next: Bookmark,
    pub flags: u64,
}

/// How far a scan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanState {
    /// It runs, or is paused.
    Running,
    /// It was finished.
    Finished,
    /// It was stopped.
    Canceled,
}

impl ScanPhys {
    /// Words in the entry.
    pub const WORDS: usize = 24;
    /// The dataset has to be visited again, as it was a snapshot's that was destroyed meanwhile.
    pub const FLAG_AGAIN: u64 = 1;
    /// A scrub is paused.
    pub const FLAG_PAUSED: u64 = 2;
    /// Number of an object set that was destroyed.
    pub const DESTROYED: DatasetId = DatasetId::new(u64::MAX);
    /// The start of everything, and no place.
    pub const START: Bookmark = Bookmark { objset: 0, object: 0, level: 0, blkid: 0 };

    /// From the words of the entry; `None` if there never was a scan. Errors: `Corrupt` for an unknown function or state.
    pub fn parse(words: &[u64]) -> Result<Option<ScanPhys>> {
        let at = |index: usize| words.get(index).copied().unwrap_or(0);
        let is_resilver = match at(0) {
            0 => return Ok(None),
            1 => false,
            2 => true,
            other => return Err(Error::corrupt(format!("scan with function {other}"))),
        };
        let state = match at(1) {
            0 => return Ok(None),
            1 => ScanState::Running,
            2 => ScanState::Finished,
            3 => ScanState::Canceled,
            other => return Err(Error::corrupt(format!("scan in state {other}"))),
        };
        Ok(Some(ScanPhys {
            is_resilver,
            state,
            queue: ObjectId::new(at(2)),
            min_txg: Txg::new(at(3)),
            max_txg: Txg::new(at(4)),
            dataset_min_txg: Txg::new(at(5)),
            dataset_max_txg: Txg::new(at(6)),
            start_s: at(7),
            end_s: at(8),
            to_examine_bytes: at(9),
            examined_bytes: at(10),
            skipped_bytes: at(11),
            processed_bytes: at(12),
            errors: at(13),
            dedup: [at(14), at(15), at(16), at(17), at(18)],
            next: Bookmark { objset: at(19), object: at(20), level: at(21) as i64, blkid: at(22) },
            flags: at(23),
        }))
    }

    /// The words of the entry.
    pub fn words(&self) -> [u64; ScanPhys::WORDS] {
        let state = match self.state {
            ScanState::Running => 1,
            ScanState::Finished => 2,
            ScanState::Canceled => 3,
        };
        let [class_max, class, kind, checksum, cursor] = self.dedup;
        let Bookmark { objset, object, level, blkid } = self.next;
        [
            if self.is_resilver { 2 } else { 1 },
            state,
            self.queue.get(),
            self.min_txg.get(),
            self.max_txg.get(),
            self.dataset_min_txg.get(),
            self.dataset_max_txg.get(),
            self.start_s,
            self.end_s,
            self.to_examine_bytes,
            self.examined_bytes,
            self.skipped_bytes,
            self.processed_bytes,
            self.errors,
            class_max,
            class,
            kind,
            checksum,
            cursor,
            objset,
            object,
            level as u64,
            blkid,
            self.flags,
        ]
    }

    /// The dataset that it is in, or the MOS.
    pub fn dataset(&self) -> DatasetId {
        DatasetId::new(self.next.objset)
    }

    /// The dataset that it is in has become another: it goes on there, where it is.
    pub fn set_dataset(&mut self, dataset: DatasetId) {
        self.next.objset = dataset.get();
    }

    /// It begins with a dataset.
    pub fn enter(&mut self, dataset: DatasetId) {
        self.next = Bookmark { objset: dataset.get(), ..ScanPhys::START };
    }

    /// Whether it runs, and is not paused.
    pub fn is_active(&self) -> bool {
        self.state == ScanState::Running && !self.is_paused()
    }

    /// Whether a scrub is paused.
    pub fn is_paused(&self) -> bool {
        self.state == ScanState::Running && self.flags & ScanPhys::FLAG_PAUSED != 0
    }
}

/// The state of a scrub of the blocks in the error log: entry `error_scrub` of the pool's object directory.
///
/// Nine words: function 3, state as that of a scan (4 while it runs), cursor in the log, start and end in seconds since
/// 1970, entries to examine, examined, errors, and whether it is paused. Source: `dsl_errorscrub_phys_t` of OpenZFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // see above
pub struct ErrorScrubPhys {
    pub state: ScanState,
    /// 0: the first entry is next.
    pub cursor: u64,
    pub start_s: u64,
    pub end_s: u64,
    pub to_examine: u64,
    pub examined: u64,
    pub errors: u64,
    pub is_paused: bool,
}

impl ErrorScrubPhys {
    /// Words in the entry.
    pub const WORDS: usize = 9;
    const FUNCTION: u64 = 3;
    const RUNNING: u64 = 4;

    /// From the words of the entry, of which the last may be missing; `None` if they tell of none.
    pub fn parse(words: &[u64]) -> Option<ErrorScrubPhys> {
        let at = |index: usize| words.get(index).copied().unwrap_or(0);
        let state = match (at(0), at(1)) {
            (ErrorScrubPhys::FUNCTION, 1 | ErrorScrubPhys::RUNNING) => ScanState::Running,
            (ErrorScrubPhys::FUNCTION, 2) => ScanState::Finished,
            (ErrorScrubPhys::FUNCTION, 3) => ScanState::Canceled,
            _ => return None,
        };
        Some(ErrorScrubPhys {
            state,
            cursor: at(2),
            start_s: at(3),
            end_s: at(4),
            to_examine: at(5),
            examined: at(6),
            errors: at(7),
            is_paused: at(8) != 0,
        })
    }

    /// The words of the entry.
    pub fn words(&self) -> [u64; ErrorScrubPhys::WORDS] {
        let state = match self.state {
            ScanState::Running => ErrorScrubPhys::RUNNING,
            ScanState::Finished => 2,
            ScanState::Canceled => 3,
        };
        let ErrorScrubPhys { cursor, start_s, end_s, to_examine, examined, errors, is_paused, .. } = *self;
        let function = ErrorScrubPhys::FUNCTION;
        [function, state, cursor, start_s, end_s, to_examine, examined, errors, is_paused.into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_error_scrubs_come_back() {
        let words = [3, 4, 2, 30, 40, 5, 6, 7, 1];
        let phys = ErrorScrubPhys::parse(&words).unwrap();
        assert_eq!((phys.words(), phys.state, phys.examined), (words, ScanState::Running, 6));
        assert_eq!(ErrorScrubPhys::parse(&[0; ErrorScrubPhys::WORDS]), None);
        assert_eq!(ErrorScrubPhys::parse(&[3, 2]).unwrap().state, ScanState::Finished);
    }

    #[test]
    fn words_come_back() {
        let mut words: [u64; ScanPhys::WORDS] = std::array::from_fn(|i| i as u64);
        (words[0], words[1]) = (1, 1);
        let scan = ScanPhys::parse(&words).unwrap().unwrap();
        assert_eq!(scan.words(), words);
        assert_eq!((scan.queue.get(), scan.errors, scan.next.objset, scan.next.blkid, scan.flags), (2, 13, 19, 22, 23));
        assert!(scan.is_paused() && !scan.is_active());
    }

    #[test]
    fn short_and_strange_ones() {
        assert_eq!(ScanPhys::parse(&[]).unwrap(), None);
        assert_eq!(ScanPhys::parse(&[1]).unwrap(), None);
        assert_eq!(ScanPhys::parse(&[2, 3, 7]).unwrap().unwrap().queue, ObjectId::new(7));
        assert!(ScanPhys::parse(&[4, 1]).is_err() && ScanPhys::parse(&[1, 4]).is_err());
    }
}
