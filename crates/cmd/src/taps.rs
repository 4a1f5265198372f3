//! What happens in a pool in use, taken from its process again and again (`protocol::tap`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use protocol::client::{self, Connection};
use protocol::pool_names;
use protocol::tap::{TapOrder, TapSubject, Tapped};
use protocol::wire::{PoolReply, Request};
use protocol::words::unhex;

use crate::output;

/// How often entries are taken, and how often when there are many.
const EVERY: Duration = Duration::from_secs(1);
const EVERY_OF_MANY: Duration = Duration::from_millis(200);
/// Bytes of entries at one take that are many.
const MANY_BYTES: usize = 512 << 10;
/// How often is looked for an interrupt.
const LOOK: Duration = Duration::from_millis(50);

/// How long something is watched: seconds, or with a unit, as `90`, `10m` or `2h`. Errors: the words are no such time.
pub fn watch_time(text: &str) -> Result<Duration, String> {
    let units = [("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];
    let found = units.into_iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let (number, unit) = found.unwrap_or((text, 1.0));
    let seconds = number.parse().ok().map(|number: f64| number * unit).filter(|s| (0.01..=31.0 * 86_400.0).contains(s));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "not a time of at most 31 days, as 90, 10m or 2h".to_owned())
}

/// Until when a command watches: for some time, or until it is interrupted.
pub struct WatchEnd {
    until: Option<Instant>,
    is_interrupted: Arc<AtomicBool>,
}

impl WatchEnd {
    /// SIGINT and SIGTERM are taken for the end from now on.
    pub fn after(time: Option<Duration>) -> WatchEnd {
        WatchEnd { until: time.map(|time| Instant::now() + time), is_interrupted: output::interruption() }
    }

    /// Whether it has come.
    pub fn has_come(&self) -> bool {
        self.is_interrupted.load(Ordering::Relaxed) || self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Sleeps so long, or until the end.
    fn sleep(&self, time: Duration) {
        let wake = Instant::now() + time;
        while Instant::now() < wake && !self.has_come() {
            std::thread::sleep(LOOK.min(wake.saturating_duration_since(Instant::now())));
        }
    }
}

/// What was taken at once.
pub struct TapBatch {
    /// Entries, one behind the other.
    pub entries: Vec<u8>,
    /// What the process says of them.
    pub sums: Tapped,
}

/// A tap that is open in a pool's process.
pub struct OpenTap {
    pool: String,
    connection: Connection,
    subject: TapSubject,
    session: u64,
}

impl OpenTap {
    /// Opens a tap of a pool. Errors: for the user.
    pub fn open(pool: &str, subject: TapSubject) -> Result<OpenTap, String> {
        pool_names::check(pool).map_err(|why| format!("cannot open '{pool}': {why}"))?;
        let connection = client::connect(pool).map_err(|error| of_pool(pool, &error))?;
        let connection = connection.ok_or_else(|| format!("cannot open '{pool}': no such pool is in use"))?;
        let mut tap = OpenTap { pool: pool.to_owned(), connection, subject, session: 0 };
        tap.session = tap.ask(TapOrder::Open)?.sums.session;
        Ok(tap)
    }

    /// What was noted since the last time. Errors: for the user.
    pub fn take(&mut self, shift: u32) -> Result<TapBatch, String> {
        self.ask(TapOrder::Take { session: self.session, shift })
    }

    /// Gives each batch to `note`, which returns the part of all blocks to be noted from then on, until the end has come.
    /// Errors: for the user; those of `note`.
    pub fn follow(
        mut self,
        end: &WatchEnd,
        mut note: impl FnMut(TapBatch) -> Result<u32, String>,
    ) -> Result<(), String> {
        let mut shift = 0;
        loop {
            let is_last = end.has_come();
            let batch = self.take(shift)?;
            let every = if batch.entries.len() >= MANY_BYTES { EVERY_OF_MANY } else { EVERY };
            shift = note(batch)?;
            if is_last {
                return Ok(());
            }
            end.sleep(every);
        }
    }

    fn ask(&mut self, order: TapOrder) -> Result<TapBatch, String> {
        let (mut entries, mut is_well) = (Vec::new(), true);
        let request = Request::Tap { subject: self.subject, order };
        let reply = self.connection.ask_in_parts(&request, |part| match part {
            PoolReply::Tapped(part) => match unhex(&part.entries) {
                Some(more) => entries.extend(more),
                None => is_well = false,
            },
            _ => is_well = false,
        });
        match reply.map_err(|error| of_pool(&self.pool, &error))? {
            PoolReply::Tapped(sums) if is_well => Ok(TapBatch { entries, sums }),
            _ => Err(format!("cannot open '{}': its process answers another question", self.pool)),
        }
    }
}

impl Drop for OpenTap {
    fn drop(&mut self) {
        // the pool's process closes it by itself, if it does not hear this
        let _ = self.ask(TapOrder::Close { session: self.session });
    }
}

fn of_pool(pool: &str, error: &base::Error) -> String {
    format!("cannot open '{pool}': {}", error.what())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_watch() {
        let seconds = |text| watch_time(text).map(|time| time.as_secs_f64());
        assert_eq!(["90", "1.5s", "10m", "2h", "1d"].map(seconds), [90.0, 1.5, 600.0, 7200.0, 86_400.0].map(Ok));
        assert!(["", "m", "-1", "0", "nan", "inf", "1y", "32d"].iter().all(|text| watch_time(text).is_err()));
    }
}
