//! What was foretold, and what follows from it.

use arc::miniature::{Foretold, HitShare};
use protocol::words::nicenum::nicenum;

use crate::advise::sizes::DAY_S;

/// What was foretold, and for which cache.
pub struct CacheAnswer {
    /// Bytes of the cache in RAM that there is.
    pub ram: u64,
    pub foretold: Foretold,
    /// Requests a second that were assumed, as the trace has no times.
    pub assumed_rate: Option<u64>,
    /// Of a pool in use, what was seen there.
    pub live: Option<LiveSeen>,
}

/// What was seen of a pool in use.
#[derive(Clone, Copy, Debug)]
pub struct LiveSeen {
    /// How long it was watched.
    pub seconds: f64,
    /// How much of that the simulated caches were only filled.
    pub warm_up_s: f64,
    /// Bytes of the blocks that were asked for meanwhile: larger caches were not full.
    pub warm_bytes: u64,
    /// Seconds more after which the largest would be full, as far as that matters.
    pub warm_in_s: Option<f64>,
    /// Hardly any block was seen for the first time.
    pub is_settled: bool,
    /// The share of reads that RAM really served.
    pub hits: Option<f64>,
    /// Accesses for which there was no room.
    pub lost: u64,
    /// Bytes that programs read of mounted file systems, and how many of them the kernel's page cache keeps.
    pub read_bytes: u64,
    pub page_cache_bytes: u64,
}

impl LiveSeen {
    /// Whether what a cache of that size would serve is known.
    pub fn is_warm(&self, bytes: u64) -> bool {
        self.is_settled || bytes <= self.warm_bytes
    }
}

impl CacheAnswer {
    /// Seconds that it took.
    pub fn seconds(&self) -> f64 {
        self.foretold.elapsed_ns as f64 / 1e9
    }

    /// Reads a second.
    pub fn reads_a_second(&self) -> f64 {
        self.foretold.reads as f64 / self.seconds().max(1e-9)
    }

    /// Reads a second that are left for the disks.
    pub fn disk_reads(&self, hits: HitShare) -> f64 {
        (1.0 - hits.value) * self.reads_a_second()
    }

    /// Bytes a day of so many in all.
    pub fn a_day(&self, bytes: u64) -> u64 {
        (bytes as f64 / self.seconds().max(1e-9) * DAY_S) as u64
    }

    /// The share that the cache in RAM serves that there is.
    pub fn now(&self) -> HitShare {
        let same = self.foretold.rams.iter().min_by_key(|ram| ram.bytes.abs_diff(self.ram));
        same.map_or(HitShare::default(), |ram| ram.hits)
    }
}

/// A share in words.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A rate in words.
pub fn rate(a_second: f64) -> String {
    if a_second < 100.0 { format!("{a_second:.1}") } else { nicenum(a_second as u64) }
}
