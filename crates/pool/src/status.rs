//! What a pool's own records say of its past: scrubs and resilvers, removed devices, the checkpoint.
//!
//! Each is an array of numbers in the pool's object directory, or in the ZAP of a top-level vdev:
//!
//! ```text
//!   scan                          see format::scan
//!   error_scrub                   function state cursor start end to-examine examined errors flags
//!   com.delphix:removing          state vdev previous start end to-copy copied
//!   com.delphix:zpool_checkpoint  an uberblock, its time in the fifth word
//!   org.openzfs:vdev_rebuild      see format::rebuild
//! ```
//!
//! The expansion of a raidz has an entry for each number there: `org.openzfs:raidz_expand_state`, `_start_time`,
//! `_end_time`, `_bytes_copied`.
//!
//! Arrays may be longer or shorter than drawn: other versions know more fields, or fewer.

use base::{Result, ResultExt};
use dmu::zap::Zap;
use format::ids::VdevNumber;
use format::rebuild::{RebuildPhys, VDEV_REBUILD};
use format::scan::{ErrorScrubPhys, ScanPhys, ScanState};
use serde::{Deserialize, Serialize};

use crate::{FeatureState, Pool, mos, object_directory};

/// What happened to a pool, and what is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The last scrub or resilver.
    pub scan: Option<ScanStatus>,
    /// The last scrub of known errors only.
    pub error_scrub: Option<ErrorScrub>,
    /// The last removal of a top-level vdev.
    pub removal: Option<Removal>,
    /// The expansion of a raidz that is under way, or the last one.
    pub expansion: Option<ExpansionStatus>,
    /// The checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// The last sequential resilver of each top-level vdev that had one, by its number.
    pub rebuilds: Vec<(VdevNumber, Rebuild)>,
}

/// What a scan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanFunction {
    /// Verify every block.
    Scrub,
    /// Bring devices up to date.
    Resilver,
}

/// How far something is that runs for a long time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Progress {
    /// It runs, or is paused.
    #[default]
    Running,
    /// It was finished.
    Finished,
    /// It was stopped.
    Canceled,
}

/// A scrub or resilver. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the documentation
pub struct ScanStatus {
    pub function: ScanFunction,
    pub progress: Progress,
    pub start_s: u64,
    pub end_s: u64,
    pub to_examine_bytes: u64,
    pub examined_bytes: u64,
    pub skipped_bytes: u64,
    /// Bytes repaired.
    pub processed_bytes: u64,
    pub errors: u64,
    /// A scrub that somebody halted.
    pub is_paused: bool,
}

/// A scrub of the blocks in the error log. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are the documentation
pub struct ErrorScrub {
    pub progress: Progress,
    pub start_s: u64,
    pub end_s: u64,
    pub to_examine_blocks: u64,
    pub examined_blocks: u64,
    pub is_paused: bool,
}

/// The removal of a top-level vdev. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are the documentation
pub struct Removal {
    pub progress: Progress,
    /// Number of the vdev.
    pub vdev: VdevNumber,
    pub start_s: u64,
    pub end_s: u64,
    pub to_copy_bytes: u64,
    pub copied_bytes: u64,
    /// Bytes of memory that the tables of all removed devices take up.
    pub mapping_bytes: u64,
}

/// A disk that is taken into a raidz. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the documentation
pub struct ExpansionStatus {
    pub progress: Progress,
    /// Number of the vdev.
    pub vdev: VdevNumber,
    pub start_s: u64,
    pub end_s: u64,
    pub copied_bytes: u64,
}

/// A state of the pool that is kept to return to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// When it was made, seconds since 1970; `None` while it is being discarded.
    pub created_s: Option<u64>,
    /// Bytes that would be free without it.
    pub bytes: u64,
}

/// A sequential resilver of one top-level vdev. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are the documentation
pub struct Rebuild {
    pub progress: Progress,
    pub start_s: u64,
    pub end_s: u64,
    pub time_ms: u64,
    pub scanned_bytes: u64,
    pub issued_bytes: u64,
    pub rebuilt_bytes: u64,
    pub estimate_bytes: u64,
    pub errors: u64,
}

/// An array of numbers, in which what is missing is 0.
struct NumberArray(Vec<u64>);

impl NumberArray {
    fn read(zap: &Zap, name: &str) -> Result<Option<NumberArray>> {
        Ok(zap.lookup(name.as_bytes())?.map(|value| NumberArray(value.u64s())))
    }

    fn at(&self, index: usize) -> u64 {
        self.0.get(index).copied().unwrap_or(0)
    }

    /// Progress as scans and removals number it.
    fn progress(&self, index: usize) -> Option<Progress> {
        match self.at(index) {
            1 => Some(Progress::Running),
            2 => Some(Progress::Finished),
            3 => Some(Progress::Canceled),
            _ => None,
        }
    }
}

impl Pool {
    /// What the pool's records say of its past. Errors: of reading them.
    pub fn status(&self) -> Result<Status> {
        self.read_status().in_pool(self.name())
    }

    fn read_status(&self) -> Result<Status> {
        let directory = object_directory(self.mos())?;
        let mut status = Status {
            scan: NumberArray::read(&directory, "scan")?.and_then(|words| scan_of(&words)),
            error_scrub: NumberArray::read(&directory, "error_scrub")?.and_then(|words| error_scrub_of(&words)),
            removal: NumberArray::read(&directory, "com.delphix:removing")?.and_then(|words| removal_of(&words)),
            ..Status::default()
        };
        let created = NumberArray::read(&directory, "com.delphix:zpool_checkpoint")?.map(|uberblock| uberblock.at(4));
        let (mut checkpoint_bytes, mut mapping_bytes) = (0_u64, 0_u64);
        for top in self.tops() {
            let Some(spec) = top.top_spec() else { continue };
            if let Some(indirect) = spec.indirect.filter(|_| top.kind() == vdev::VdevKind::Indirect) {
                let bytes = mos::indirect_mapping_bytes(self.mos(), indirect.mapping_object)?;
                mapping_bytes = mapping_bytes.saturating_add(bytes);
            }
            if spec.zap.is_none() {
                continue;
            }
            let zap = Zap::open(self.mos().object(spec.zap)?)?;
            if let Some(map) = zap.object_id("com.delphix:pool_checkpoint_sm")? {
                // what the checkpoint holds on to is logged as freed
                let held = mos::space_map_header(self.mos(), map)?.allocated.unsigned_abs();
                checkpoint_bytes = checkpoint_bytes.saturating_add(held);
            }
            status.expansion = status
                .expansion
                .into_iter()
                .chain(expansion_of(&zap, top.number())?)
                .max_by_key(|expansion| (expansion.progress == Progress::Running, expansion.end_s));
            let rebuild = NumberArray::read(&zap, VDEV_REBUILD)?.and_then(|words| rebuild_of(&words));
            status.rebuilds.extend(rebuild.map(|rebuild| (top.number(), rebuild)));
        }
        status.removal.iter_mut().for_each(|removal| removal.mapping_bytes = mapping_bytes);
        if created.is_some() || self.features().state(format::feature::ZPOOL_CHECKPOINT) == FeatureState::Active {
            status.checkpoint = Some(Checkpoint { created_s: created, bytes: checkpoint_bytes });
        }
        Ok(status)
    }
}

impl ScanStatus {
    /// What the record of a scan says.
    pub(crate) fn of(scan: &ScanPhys) -> ScanStatus {
        ScanStatus {
            function: if scan.is_resilver { ScanFunction::Resilver } else { ScanFunction::Scrub },
            progress: progress_of(scan.state),
            start_s: scan.start_s,
            end_s: scan.end_s,
            to_examine_bytes: scan.to_examine_bytes,
            examined_bytes: scan.examined_bytes,
            skipped_bytes: scan.skipped_bytes,
            processed_bytes: scan.processed_bytes,
            errors: scan.errors,
            is_paused: !scan.is_resilver && scan.flags & ScanPhys::FLAG_PAUSED != 0,
        }
    }
}

fn scan_of(words: &NumberArray) -> Option<ScanStatus> {
    // one of a kind that is not known is none
    ScanPhys::parse(&words.0).ok().flatten().map(|scan| ScanStatus::of(&scan))
}

fn error_scrub_of(words: &NumberArray) -> Option<ErrorScrub> {
    let phys = ErrorScrubPhys::parse(&words.0)?;
    Some(ErrorScrub {
        progress: progress_of(phys.state),
        start_s: phys.start_s,
        end_s: phys.end_s,
        to_examine_blocks: phys.to_examine,
        examined_blocks: phys.examined,
        is_paused: phys.is_paused,
    })
}

fn removal_of(words: &NumberArray) -> Option<Removal> {
    Some(Removal {
        progress: words.progress(0)?,
        vdev: VdevNumber::new(words.at(1)),
        start_s: words.at(3),
        end_s: words.at(4),
        to_copy_bytes: words.at(5),
        copied_bytes: words.at(6),
        mapping_bytes: 0,
    })
}

fn expansion_of(zap: &Zap, vdev: VdevNumber) -> Result<Option<ExpansionStatus>> {
    let number = |name: &str| -> Result<u64> { Ok(zap.u64(&format!("org.openzfs:raidz_expand_{name}"))?.unwrap_or(0)) };
    let progress = NumberArray(vec![number("state")?]).progress(0);
    let (start_s, end_s, copied_bytes) = (number("start_time")?, number("end_time")?, number("bytes_copied")?);
    Ok(progress.map(|progress| ExpansionStatus { progress, vdev, start_s, end_s, copied_bytes }))
}

fn rebuild_of(words: &NumberArray) -> Option<Rebuild> {
    RebuildPhys::parse(&words.0).map(|phys| Rebuild {
        progress: progress_of(phys.state),
        start_s: phys.start_s,
        end_s: phys.end_s,
        time_ms: phys.time_ms,
        scanned_bytes: phys.found_bytes,
        issued_bytes: phys.read_bytes,
        rebuilt_bytes: phys.written_bytes,
        estimate_bytes: phys.to_find_bytes,
        errors: phys.errors,
    })
}

fn progress_of(state: ScanState) -> Progress {
    match state {
        ScanState::Running => Progress::Running,
        ScanState::Finished => Progress::Finished,
        ScanState::Canceled => Progress::Canceled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_any_length() {
        assert_eq!(scan_of(&NumberArray(vec![])), None);
        assert_eq!(scan_of(&NumberArray(vec![1, 0])), None);
        let mut words: Vec<u64> = (0..24).collect();
        (words[0], words[1]) = (1, 2);
        let scan = scan_of(&NumberArray(words)).unwrap();
        assert_eq!((scan.function, scan.progress), (ScanFunction::Scrub, Progress::Finished));
        assert_eq!((scan.start_s, scan.end_s, scan.errors, scan.is_paused), (7, 8, 13, true));
        assert_eq!(removal_of(&NumberArray(vec![2, 7])).unwrap().vdev, VdevNumber::new(7));
        assert_eq!(rebuild_of(&NumberArray(vec![2])).unwrap().progress, Progress::Canceled);
    }
}
