//! One measurement: so many threads, writes of one size, for a fixed time.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use base::{AlignedBuf, Env, Error, Kind, Result};

use super::target::Target;

/// Bytes of which each write takes others.
const SPARE_BYTES: usize = 1 << 20;
/// What is written begins at multiples of this, as direct access to devices demands.
const STEP: usize = 4096;

/// What came of it.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Bytes of a write.
    pub size: u64,
    pub threads: u32,
    /// How many writes lasted, in how many seconds.
    pub count: u64,
    pub seconds: f64,
    /// Nanoseconds that half, 99 of 100 and 999 of 1000 writes took at most.
    pub percentiles_ns: [u64; 3],
}

impl Measured {
    /// Writes a second.
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.seconds
    }
}

/// Measures for that long at least, and one write of each thread. Errors: those of the target.
pub fn measure(target: &Target, size: u64, threads: u32, seconds: f64) -> Result<Measured> {
    let lanes: Vec<_> = (0..threads).map(|thread| target.lane(thread, threads, size)).collect::<Result<_>>()?;
    let length = Duration::from_secs_f64(seconds);
    let begin = Barrier::new(threads as usize);
    let bytes = noise(size as usize + SPARE_BYTES, Env::real().random());
    let work = |thread: usize| -> Result<(Vec<u64>, Duration)> {
        let mut took_ns = Vec::new();
        begin.wait();
        let start = Instant::now();
        let mut last = start;
        for n in 0.. {
            let from = (n as usize * 31 + thread * 17) * STEP % SPARE_BYTES;
            lanes[thread].put(n, &bytes[from..from + size as usize])?;
            let now = Instant::now();
            took_ns.push((now - last).as_nanos() as u64);
            last = now;
            if now - start >= length {
                break;
            }
        }
        Ok((took_ns, last - start))
    };
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..lanes.len()).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let (mut all_ns, mut longest) = (Vec::new(), Duration::ZERO);
    for outcome in outcomes {
        let (took_ns, length) = outcome.map_err(|_| Error::new(Kind::Io, "a thread that measures has panicked"))??;
        all_ns.extend(took_ns);
        longest = longest.max(length);
    }
    all_ns.sort_unstable();
    Ok(Measured {
        size,
        threads,
        count: all_ns.len() as u64,
        seconds: longest.as_secs_f64(),
        percentiles_ns: [500, 990, 999].map(|per_mille| percentile(&all_ns, per_mille)),
    })
}

/// The least of some sorted numbers that so many of a thousand are not above.
fn percentile(sorted: &[u64], per_mille: usize) -> u64 {
    let rank = (sorted.len() * per_mille).div_ceil(1000).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

/// Bytes that do not compress: SplitMix64.
fn noise(len: usize, mut seed: u64) -> AlignedBuf {
    let mut bytes = AlignedBuf::zeroed(len);
    for word in bytes.chunks_mut(8) {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = seed;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word.copy_from_slice(&(z ^ z >> 31).to_le_bytes()[..word.len()]);
    }
    bytes
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
    fn noise_does_not_compress() {
        let bytes = noise(100_003, 5);
        let mut counts = [0; 256];
        bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        assert!(counts.iter().all(|count| (200..600).contains(count)), "{counts:?}");
        assert!(bytes[..50_000] != noise(100_003, 6)[..50_000]);
    }

    #[test]
    fn all_threads_count() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target::open(dir.path(), false, false).unwrap();
        let measured = measure(&target, 100, 3, 0.01).unwrap();
        assert!(measured.count >= 3 && measured.seconds >= 0.01, "{measured:?}");
        assert!(measured.percentiles_ns.is_sorted() && measured.percentiles_ns[0] > 0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
