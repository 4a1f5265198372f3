//! The log in memory of a pool's process: that of the process before, or a new one, which the keeper has.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use base::Env;
use base::tunables::{CENOTE_DEATHS_MAX, CENOTE_MEMORY_LOG_MAX};
use format::uberblock::Uberblock;
use fuse::Helper;
use zil::MemoryLog;

use crate::live::ServedPool;

/// That of the process before, in a pool that is about to be written of which this is the newest root.
pub(super) fn take_over(file: OwnedFd, newest: &Uberblock) -> Option<MemoryLog> {
    let taken = MemoryLog::take_over(file, newest.txg);
    taken.inspect_err(|error| tracing::warn!("what the process before left cannot be read: {error}")).ok()
}

/// Has all changes of a pool told to the log that was taken over, which is returned, or to a new one, unless nobody keeps it or
/// no other process is to come.
pub(super) fn begin(pool: &ServedPool, taken: Option<MemoryLog>, helper: &Helper, env: &Env) -> Option<Arc<MemoryLog>> {
    let live = pool.live().ok()?;
    let is_taken = taken.is_some();
    let log = match taken {
        Some(log) => log,
        None => {
            let room = env.tunable(CENOTE_MEMORY_LOG_MAX);
            if room == 0 || env.tunable(CENOTE_DEATHS_MAX) == 0 {
                return None;
            }
            let made = MemoryLog::new(room).and_then(|log| helper.keep_memory(log.as_fd()).map(|()| log));
            made.inspect_err(|error| tracing::debug!("there is no log in memory: {error}")).ok()?
        }
    };
    let log = Arc::new(log);
    live.keep_memory(&log);
    is_taken.then_some(log)
}
