//! How long reads and writes of users took, by object set, counted while somebody asks for them.
//!
//! ```text
//!   Objset::time_request ─▶ nobody asks: nothing         one relaxed load
//!                        └▶ a timer ─▶ dropped: one more in the bucket of its time
//! ```

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Env, UserOp};

/// Buckets of times: as many as those of devices have.
pub const REQUEST_BUCKETS: usize = 37;

/// How often reads, and writes, took so long: of each bucket up to twice the time of the one before, in nanoseconds.
pub type RequestHistograms = [[u64; REQUEST_BUCKETS]; 2];

/// The counters of an object set; nothing as long as no request was timed.
#[derive(Default)]
pub(crate) struct UserTimes(OnceLock<Box<[[AtomicU64; REQUEST_BUCKETS]; 2]>>);

impl UserTimes {
    fn count(&self, op: UserOp, time_ns: u64) {
        let kind = match op {
            UserOp::Read => 0,
            UserOp::Write => 1,
            UserOp::Sync => return,
        };
        let bucket = time_ns.checked_ilog2().unwrap_or(0) as usize;
        let none = || Box::new([const { [const { AtomicU64::new(0) }; REQUEST_BUCKETS] }; 2]);
        self.0.get_or_init(none)[kind][bucket.min(REQUEST_BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted; `None` if nothing was.
    pub(crate) fn all(&self) -> Option<RequestHistograms> {
        let of_kind = |kind: &[AtomicU64; REQUEST_BUCKETS]| kind.each_ref().map(|count| count.load(Ordering::Relaxed));
        self.0.get().map(|kinds| kinds.each_ref().map(of_kind))
    }
}

/// Counts the time from when it was made until it is dropped, if somebody asks for such times.
#[must_use]
pub struct RequestTimer<'a>(Option<StartedRequest<'a>>);

struct StartedRequest<'a> {
    times: &'a UserTimes,
    env: &'a Env,
    op: UserOp,
    began_ns: u64,
}

impl<'a> RequestTimer<'a> {
    #[inline]
    pub(crate) fn start(times: &'a UserTimes, env: &'a Env, op: UserOp) -> RequestTimer<'a> {
        RequestTimer(env.are_times_asked_for().then(|| StartedRequest { times, env, op, began_ns: env.ticks_ns() }))
    }
}

impl Drop for RequestTimer<'_> {
    fn drop(&mut self) {
        if let Some(StartedRequest { times, env, op, began_ns }) = self.0.take() {
            times.count(op, env.ticks_ns().saturating_sub(began_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_buckets() {
        let times = UserTimes::default();
        times.count(UserOp::Sync, 5);
        assert!(times.all().is_none());
        [0, 1, 7, 1 << 20, u64::MAX].into_iter().for_each(|time_ns| times.count(UserOp::Write, time_ns));
        times.count(UserOp::Read, 3);
        let [reads, writes] = times.all().unwrap();
        assert_eq!((reads[1], reads.iter().sum::<u64>()), (1, 1));
        assert_eq!([writes[0], writes[2], writes[20], writes[REQUEST_BUCKETS - 1]], [2, 1, 1, 1]);
    }
}
