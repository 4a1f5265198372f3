//! Handing a pool over to a newer program, while programs use its mounts.
//!
//! ```text
//!   cenote upgrade ─▶ no stream runs, each mount is kept ─▶ keeper: which program is started next
//!                     requests wait ─▶ the last group ─▶ this process ends
//!   keeper         ─▶ the new program imports, adopts the mounts; the kernel sends the requests again
//!                     it dies before it serves ─▶ the old program does that
//! ```
//!
//! Nothing is lost: all that was answered is in the last group.

use std::sync::Arc;

use base::{Error, Kind, Result};
use pool::PoolState;

use crate::exports::Exports;
use crate::live::ServedPool;
use crate::revival::Revival;
use crate::streams::RunningStreams;

/// A pool that is about to be handed over, and what uses it.
pub(super) struct HandOver<'a> {
    pub(super) pool: &'a ServedPool,
    pub(super) streams: &'a RunningStreams,
    pub(super) exports: &'a Arc<Exports>,
    pub(super) revival: Option<&'a Revival>,
}

impl HandOver<'_> {
    /// Ends the use of the pool by this process, and has the keeper start the program of `process` for it. Errors: `Busy`, `Unsupported`;
    /// programs are served as before then.
    pub(super) fn to(&self, process: u32) -> Result<()> {
        let name = self.pool.view().name().to_owned();
        let failed = |e: Error| Error::new(e.kind(), format!("cannot upgrade '{name}': {}", e.what()));
        self.streams.check_none(false, "upgrade", &name)?;
        let revival = self.revival.ok_or_else(|| failed(Error::new(Kind::Unsupported, "it has no keeper")))?;
        revival.start_next(Some(process)).map_err(failed)?;
        let closed = self.exports.hold_all().and_then(|()| self.pool.close(PoolState::Active));
        closed.map_err(|error| {
            self.exports.go_on_all();
            if let Err(error) = revival.start_next(None) {
                tracing::debug!("the keeper is gone: {error}");
            }
            failed(error)
        })
    }
}
