//! Scrubs of the error log (`zpool scrub -e`): only blocks are read that are known to be damaged.
//!
//! ```text
//!   entries of both logs ─▶ where is the block still, in the head and its snapshots? ─▶ nowhere: the entry goes
//!                                 └─▶ Zio::scrub in each place ─▶ all are right: the entry goes; else it stays
//! ```
//!
//! What cannot be looked at stays, too. It is a job: how far it is is in memory, and it begins with the first entry again
//! after an import; what is right by then is in the log no more. Format: [`ErrorScrubPhys`].

use base::{Env, Error, Kind, Result, WorkKind, tunables};
use dmu::zap::ZapValue;
use format::feature::HEAD_ERRLOG;
use format::scan::{ErrorScrubPhys, ScanState};
use vdev::Lacking;

use super::{LivePool, SyncContext};
use crate::errlog::{ErrlogEntry, LOOKS_MAX};
use crate::mos::DIRECTORY;
use crate::{FeatureState, Pool};

/// Entry of the object directory.
const ERROR_SCRUB: &str = "error_scrub";

/// What is told if the error log is being scrubbed.
pub(super) fn busy() -> Error {
    Error::new(Kind::Invalid, "currently error scrubbing; use 'zpool scrub -s' to cancel error scrub")
}

impl LivePool {
    /// Begins to scrub the blocks in the error log, or goes on if that is paused. Without such blocks nothing is done.
    /// Errors: `Busy` if a scrub is under way or paused, `Exists` if a resilver is, `Invalid` if this is; those of
    /// `Unsupported` in a pool without feature `head_errlog`; writing.
    pub fn scrub_errors(&self) -> Result<()> {
        if self.view().features().state(HEAD_ERRLOG) == FeatureState::Disabled {
            return Err(Error::new(Kind::Unsupported, "operation not supported on this type of pool"));
        }
        // what readers found meanwhile is in the log then
        self.sync()?;
        self.run(|context| {
            let pool = context.pool;
            match pool.error_scrub().phys().filter(|phys| phys.state == ScanState::Running) {
                Some(phys) if phys.is_paused => return context.pause_error_scrub(phys, false),
                Some(_) => return Err(busy()),
                None => {}
            }
            if let Some(phys) = pool.scan().lock().now.as_ref().map(|stage| stage.phys)
                && phys.state == ScanState::Running
            {
                let (kind, what) =
                    if phys.is_resilver { (Kind::Exists, "resilvering") } else { (Kind::Busy, "scrubbing") };
                return Err(Error::new(kind, format!("currently {what}")));
            }
            let to_examine = pool.view().error_count()?;
            if to_examine == 0 {
                return Ok(());
            }
            context.log_event("error scrub setup", &format!("func=3 mintxg=0 maxtxg={}", context.change.tx.txg()));
            pool.notify("errorscrub_start", None);
            let start_s = context.change.env.now_s();
            let state = ScanState::Running;
            let (cursor, end_s, examined, errors) = (0, 0, 0, 0);
            let phys = ErrorScrubPhys { state, cursor, start_s, end_s, to_examine, examined, errors, is_paused: false };
            context.note_error_scrub(phys, None)
        })
    }

    /// Halts it. Errors: `NotFound` if none runs, `Invalid` if it is paused already; those of writing.
    pub fn pause_error_scrub(&self) -> Result<()> {
        self.run(|context| match context.running_error_scrub()? {
            phys if phys.is_paused => {
                Err(Error::new(Kind::Invalid, "error scrub is paused; use 'zpool scrub -e' to resume error scrub"))
            }
            phys => context.pause_error_scrub(phys, true),
        })
    }

    /// Ends it before its time. Errors: `NotFound` if none runs; those of writing.
    pub fn cancel_error_scrub(&self) -> Result<()> {
        self.run(|context| context.end_error_scrub(context.running_error_scrub()?, ScanState::Canceled))
    }

    /// Whether it is under way, paused or not.
    pub fn is_scrubbing_errors(&self) -> bool {
        self.error_scrub().is_running()
    }

    /// Whether a step would do something.
    pub(super) fn has_error_scrub_work(&self) -> bool {
        self.error_scrub().has_work() && self.errors_per_group() > 0 && !self.is_scan_held()
    }

    /// Entries that are examined in one group.
    fn errors_per_group(&self) -> usize {
        let count = self.env().tunable(tunables::ZFS_SCRUB_ERROR_BLOCKS_PER_TXG);
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    /// Takes up what is on disk of it.
    pub(super) fn load_error_scrub(&self) -> Result<()> {
        let words = crate::object_directory(self.mos())?.lookup(ERROR_SCRUB.as_bytes())?;
        let phys = words.and_then(|words| ErrorScrubPhys::parse(&words.u64s()));
        self.error_scrub().replace(phys, None);
        Ok(())
    }
}

impl SyncContext<'_> {
    fn running_error_scrub(&self) -> Result<ErrorScrubPhys> {
        let phys = self.pool.error_scrub().phys().filter(|phys| phys.state == ScanState::Running);
        phys.ok_or_else(|| Error::new(Kind::NotFound, "there is no active scrub"))
    }

    fn pause_error_scrub(&self, phys: ErrorScrubPhys, is_paused: bool) -> Result<()> {
        self.pool.notify(if is_paused { "errorscrub_paused" } else { "errorscrub_resume" }, None);
        let left = self.pool.error_scrub().take_left();
        self.note_error_scrub(ErrorScrubPhys { is_paused, ..phys }, left)
    }

    fn note_error_scrub(&self, phys: ErrorScrubPhys, left: Option<Vec<ErrlogEntry>>) -> Result<()> {
        self.pool.error_scrub().replace(Some(phys), left);
        self.change.set(DIRECTORY, ERROR_SCRUB, &ZapValue::new(8, &phys.words()))
    }

    fn end_error_scrub(&self, phys: ErrorScrubPhys, state: ScanState) -> Result<()> {
        let what = if state == ScanState::Finished { "error scrub done" } else { "error scrub canceled" };
        self.log_event(what, &format!("errors={}", phys.errors));
        self.pool.notify(if state == ScanState::Finished { "errorscrub_finish" } else { "errorscrub_abort" }, None);
        let end_s = self.change.env.now_s();
        self.note_error_scrub(ErrorScrubPhys { state, end_s, cursor: 0, is_paused: false, ..phys }, None)
    }

    /// All is scanned from now on: what is known of it is forgotten.
    pub(super) fn forget_error_scrub(&self) -> Result<()> {
        if self.pool.error_scrub().phys().is_none() {
            return Ok(());
        }
        if let Ok(phys) = self.running_error_scrub() {
            self.end_error_scrub(phys, ScanState::Canceled)?;
        }
        self.pool.error_scrub().replace(None, None);
        self.change.set(DIRECTORY, ERROR_SCRUB, &ZapValue::new(8, &[0; ErrorScrubPhys::WORDS]))
    }

    /// Examines some entries.
    pub(super) fn step_error_scrub(&self) -> Result<()> {
        let mut phys = self.running_error_scrub()?;
        let view = self.pool.view();
        let mut left = match self.pool.error_scrub().take_left() {
            Some(left) => left,
            None => {
                let entries = view.read_entries()?;
                (phys.to_examine, phys.examined, phys.errors) = (entries.len() as u64, 0, 0);
                entries
            }
        };
        let rest = left.split_off(left.len().min(self.pool.errors_per_group()));
        let mut looks = LOOKS_MAX;
        for entry in &left {
            if self.is_sound(&view, entry, &mut looks) {
                self.remove_entry(entry)?;
            } else {
                phys.errors = phys.errors.saturating_add(1);
            }
        }
        let count = left.len() as u64;
        phys.examined = phys.examined.saturating_add(count);
        phys.to_examine = phys.to_examine.saturating_sub(count);
        match rest.is_empty() {
            true => self.end_error_scrub(phys, ScanState::Finished),
            false => self.note_error_scrub(phys, Some(rest)),
        }
    }

    /// Whether the block of an entry is right wherever it is, or is nowhere any more.
    fn is_sound(&self, view: &Pool, entry: &ErrlogEntry, looks: &mut usize) -> bool {
        let zio = self.pool.cache().zio();
        let found = entry.find(view, looks);
        let mut is_sound = found.are_all;
        for (place, bp) in &found.blocks {
            match Env::doing(WorkKind::Scan, || zio.scrub(bp, *place, Lacking::Leave)) {
                Ok(_) => zio.damage().forget_lost(bp),
                Err(error) => {
                    tracing::warn!(pool = self.pool.name(), %place, "scrub of the error log: {error}");
                    is_sound = false;
                }
            }
        }
        is_sound
    }
}
