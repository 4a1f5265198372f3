//! Streams that programs send and receive at the moment: the pool is in use by them.

use std::sync::Arc;
use std::time::Duration;

use base::{Error, Kind, Result};

/// How long one whose program has just ended may take to find out.
const ENDING_LOOKS: u32 = 60;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The streams of a pool that are on their way.
#[derive(Default)]
pub struct RunningStreams(Arc<()>);

impl RunningStreams {
    /// Does `work`, with one more of them meanwhile if it is one.
    pub fn during<T>(&self, is_stream: bool, work: impl FnOnce() -> T) -> T {
        let _running = is_stream.then(|| self.0.clone());
        work()
    }

    /// Errors: `Busy` if there are any, and go on, unless they are to be cut off; it says what cannot be done to a pool.
    pub fn check_none(&self, force: bool, verb: &str, pool: &str) -> Result<()> {
        if force {
            return Ok(());
        }
        for _ in 0..ENDING_LOOKS {
            if Arc::strong_count(&self.0) == 1 {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(Error::new(Kind::Busy, format!("cannot {verb} '{pool}': pool is busy")))
    }
}
