//! One measurement: so many threads that do the same, for a fixed time.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::{Error, Kind, Result};
use serde_json::{Value, json};

/// Times that a thread keeps at most: of more operations than that, those of every second, fourth and so on.
const TIMES_MAX: usize = 1 << 20;

/// What came of it.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Bytes of an operation.
    pub size: u64,
    pub threads: u32,
    /// How many operations were done, in how many seconds.
    pub count: u64,
    pub seconds: f64,
    /// Nanoseconds that half, 99 of 100 and 999 of 1000 operations took at most.
    pub percentiles_ns: [u64; 3],
}

impl Measured {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.seconds
    }

    /// Bytes a second.
    pub fn bytes_rate(&self) -> f64 {
        self.rate() * self.size as f64
    }

    /// Everything; `what` names the operations.
    pub fn json(&self, what: &str) -> Value {
        let [p50, p99, p999] = self.percentiles_ns;
        json!({
            "size": self.size, "threads": self.threads, what: self.count, "seconds": self.seconds,
            (format!("{what}_per_s")): self.rate(), "bytes_per_s": self.bytes_rate(),
            "p50_ns": p50, "p99_ns": p99, "p99.9_ns": p999,
        })
    }
}

/// How long is measured.
#[derive(Clone, Copy)]
pub struct MeasureTime<'a> {
    pub seconds: f64,
    /// Set when somebody is tired of waiting.
    pub is_interrupted: &'a AtomicBool,
}

/// Has each of the `hands` work in a thread of its own, for that long at least, and once each. What `work` gets is
/// how often this thread has worked before. `None`: interrupted. Errors: those of `work`.
pub fn measure<H: Send>(
    size: u64,
    hands: Vec<H>,
    pace: MeasureTime,
    work: impl Fn(&mut H, u64) -> Result<()> + Sync,
) -> Result<Option<Measured>> {
    let threads = hands.len();
    let length = Duration::from_secs_f64(pace.seconds);
    let begin = Barrier::new(threads);
    let run = |mut hand: H| -> Result<RequestTimes> {
        let mut times = RequestTimes::new();
        begin.wait();
        let start = Instant::now();
        let mut last = start;
        for n in 0.. {
            work(&mut hand, n)?;
            let now = Instant::now();
            times.add((now - last).as_nanos() as u64);
            last = now;
            if now - start >= length || pace.is_interrupted.load(Ordering::Relaxed) {
                break;
            }
        }
        times.length = last - start;
        Ok(times)
    };
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = hands.into_iter().map(|hand| scope.spawn(move || run(hand))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut all = Vec::with_capacity(threads);
    for outcome in outcomes {
        all.push(outcome.map_err(|_| Error::new(Kind::Io, "a thread that measures has panicked"))??);
    }
    if pace.is_interrupted.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let longest = all.iter().map(|times| times.length).max().unwrap_or_default();
    let count = all.iter().map(|times| times.count).sum();
    let sorted_ns = RequestTimes::gathered(all);
    Ok(Some(Measured {
        size,
        threads: threads as u32,
        count,
        seconds: longest.as_secs_f64(),
        percentiles_ns: [500, 990, 999].map(|per_mille| percentile(&sorted_ns, per_mille)),
    }))
}

/// What the operations of a thread took.
pub struct RequestTimes {
    count: u64,
    /// Nanoseconds of every so many operations, the first among them.
    kept_ns: Vec<u64>,
    every: u64,
    length: Duration,
}

impl Default for RequestTimes {
    fn default() -> RequestTimes {
        RequestTimes::new()
    }
}

impl RequestTimes {
    /// None so far.
    pub fn new() -> RequestTimes {
        RequestTimes { count: 0, kept_ns: Vec::new(), every: 1, length: Duration::ZERO }
    }

    /// One took so many nanoseconds.
    pub fn add(&mut self, ns: u64) {
        if self.count.is_multiple_of(self.every) {
            self.kept_ns.push(ns);
            if self.kept_ns.len() == TIMES_MAX {
                self.thin(2);
            }
        }
        self.count += 1;
    }

    /// Keeps one of so many.
    fn thin(&mut self, factor: u64) {
        self.every *= factor;
        let mut n = 0u64;
        self.kept_ns.retain(|_| {
            n += 1;
            (n - 1).is_multiple_of(factor)
        });
    }

    /// Those of all threads, sorted, each thread as dense as the others.
    pub fn gathered(mut all: Vec<RequestTimes>) -> Vec<u64> {
        let every = all.iter().map(|times| times.every).max().unwrap_or(1);
        all.iter_mut().for_each(|times| times.thin(every / times.every));
        let mut sorted_ns: Vec<u64> = all.into_iter().flat_map(|times| times.kept_ns).collect();
        sorted_ns.sort_unstable();
        sorted_ns
    }
}

/// The least of some sorted numbers that so many of a thousand are not above.
pub fn percentile(sorted: &[u64], per_mille: usize) -> u64 {
    let rank = (sorted.len() * per_mille).div_ceil(1000).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_there_was() {
        let sorted: Vec<u64> = (1..=1000).collect();
        assert_eq!([500, 990, 999].map(|per_mille| percentile(&sorted, per_mille)), [500, 990, 999]);
        assert_eq!([500, 999].map(|per_mille| percentile(&[7, 9], per_mille)), [7, 9]);
        assert_eq!(percentile(&[], 500), 0);
    }

    #[test]
    fn very_many_times_are_thinned() {
        let of = |count: u64| {
            let mut times = RequestTimes::new();
            (0..count).for_each(|n| times.add(n));
            times
        };
        let many = of(5 * TIMES_MAX as u64);
        assert!(many.kept_ns.len() < TIMES_MAX && many.count == 5 * TIMES_MAX as u64);
        assert!(many.kept_ns.windows(2).all(|pair| pair[1] - pair[0] == many.every));
        let (len, every) = (many.kept_ns.len(), many.every as usize);
        assert_eq!(RequestTimes::gathered(vec![many, of(10 * every as u64)]).len(), len + 10);
    }

    #[test]
    fn all_threads_count() {
        let is_interrupted = AtomicBool::new(false);
        let pace = MeasureTime { seconds: 0.01, is_interrupted: &is_interrupted };
        let measured = measure(100, vec![(); 3], pace, |_, _| Ok(())).unwrap().unwrap();
        assert!(measured.count >= 3 && measured.seconds >= 0.01, "{measured:?}");
        assert_eq!((measured.threads, measured.size), (3, 100));
        assert!(measured.percentiles_ns.is_sorted());
        let failed = measure(1, vec![1, 2], pace, |hand, n| match (*hand, n) {
            (2, 5) => Err(Error::new(Kind::Io, "five")),
            _ => Ok(()),
        });
        assert!(failed.unwrap_err().to_string().contains("five"));
    }

    #[test]
    fn interrupted_threads_end() {
        let is_interrupted = AtomicBool::new(false);
        let pace = MeasureTime { seconds: 3600.0, is_interrupted: &is_interrupted };
        let measured = measure(1, vec![(); 2], pace, |_, n| {
            is_interrupted.fetch_or(n == 10, Ordering::Relaxed);
            Ok(())
        });
        assert!(measured.unwrap().is_none());
    }
}
