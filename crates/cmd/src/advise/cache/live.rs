//! A pool in use: the accesses to blocks that its process gives out, simulated as they come.
//!
//! The simulated caches are empty when it begins. So what comes of the first quarter to half is left out, and a size that
//! less was touched than it has room for is marked: of the blocks that were first seen since, it may have had some.

use std::time::Duration;

use arc::TappedAccess;
use arc::miniature::{AccessKind, Foretold, Miniature, MiniaturePlan, WarmUp};
use base::Env;
use l2arc::Tunables;
use protocol::tap::{ACCESS_BYTES, TapSubject, TappedCache};
use protocol::{client, kstat};

use super::answer::{CacheAnswer, LiveSeen};
use crate::taps::{OpenTap, TapBatch, WatchEnd};

/// When the warm-up ends for the first time; then at each doubling.
const WARM_FIRST_NS: u64 = 5_000_000_000;
/// The most that a cache may take beside its blocks, as a part of these.
const BESIDE_MAX: f64 = 2.0;
/// The part of reads of blocks never seen before below which it does not matter whether a cache had them.
const FIRST_READS_FEW: f64 = 0.02;

/// Watches a pool in use for that time, or until interrupted. Errors: for the user.
pub fn watch(pool: &str, time: Option<Duration>, (ram, blocks): (Option<u64>, u64)) -> Result<CacheAnswer, String> {
    let tap = OpenTap::open(pool, TapSubject::Blocks)?;
    let end = WatchEnd::after(time);
    let mut seen: Option<LiveCache> = None;
    let pages = PageCounts::now(pool);
    tap.follow(&end, |batch| {
        let seen = seen.get_or_insert_with(|| LiveCache::new(&batch, ram, blocks));
        seen.add(&batch)?;
        Ok(seen.miniature.shift())
    })?;
    let seen = seen.ok_or_else(|| format!("pool '{pool}' said nothing"))?;
    Ok(seen.answer(PageCounts::now(pool).since(&pages)))
}

/// The end of a warm-up.
#[derive(Clone, Default)]
struct Mark {
    at_ns: u64,
    warm: WarmUp,
    touched: u64,
    /// What the pool's own cache was asked for, and had not.
    reads: u64,
    misses: u64,
}

/// The simulation of a pool in use.
struct LiveCache {
    miniature: Miniature,
    /// The sizes that are meant. Those that are simulated are smaller by what a cache takes beside its blocks.
    plan: MiniaturePlan,
    begin_ns: u64,
    now_ns: u64,
    /// The last marks, at a time and at twice that time.
    marks: [Mark; 2],
    cache: TappedCache,
    lost: u64,
}

impl LiveCache {
    fn new(batch: &TapBatch, ram: Option<u64>, blocks: u64) -> LiveCache {
        let cache = batch.sums.cache.unwrap_or_default();
        let ram = ram.unwrap_or(cache.limit).max(1);
        let plan = MiniaturePlan { blocks_max: blocks as usize, ..MiniaturePlan::around(ram) };
        // of a cache that is nearly empty, that is no measure
        let is_known = cache.blocks >= cache.limit / 4 && cache.blocks > 0;
        let beside = if is_known { (cache.size as f64 / cache.blocks as f64).clamp(1.0, BESIDE_MAX) } else { 1.0 };
        let smaller = |bytes: &u64| ((*bytes as f64 / beside) as u64).max(1);
        let simulated =
            MiniaturePlan { ram: smaller(&plan.ram), rams: plan.rams.iter().map(smaller).collect(), ..plan.clone() };
        LiveCache {
            miniature: Miniature::new(simulated, Tunables::of(&Env::real())),
            plan,
            begin_ns: batch.sums.now_ns,
            now_ns: batch.sums.now_ns,
            marks: Default::default(),
            cache: TappedCache { reads: 0, misses: 0, ..cache },
            lost: 0,
        }
    }

    /// Simulates what came since the last batch. Errors: entries that are none.
    fn add(&mut self, batch: &TapBatch) -> Result<(), String> {
        let (Some(cache), chunks) = (batch.sums.cache, batch.entries.chunks(ACCESS_BYTES)) else {
            return Err("the pool's process answers another question".to_owned());
        };
        self.miniature.thin_to(cache.shift);
        let (from_ns, count) = (self.now_ns, chunks.len().max(1) as u128);
        let passed_ns = batch.sums.now_ns.saturating_sub(from_ns);
        let half = || "the pool's process gave out half an access";
        let mut demands = 0;
        for (number, entry) in chunks.enumerate() {
            let at_ns = from_ns + (u128::from(passed_ns) * number as u128 / count) as u64;
            let (more, access) = entry.split_last().ok_or_else(half)?;
            let access = TappedAccess::decode(access, at_ns).ok_or_else(half)?;
            let times = 1 + u64::from(*more);
            demands += if access.kind == AccessKind::Demand { times } else { 0 };
            (0..times).for_each(|_| self.miniature.access(&access));
        }
        let reads = cache.reads.saturating_sub(self.cache.reads);
        self.now_ns = from_ns + passed_ns;
        self.miniature.pass_others(reads.saturating_sub(demands), self.now_ns);
        self.cache = cache;
        self.lost += batch.sums.lost;
        self.mark();
        Ok(())
    }

    /// Ends the warm-up anew, when twice as much time has passed as at the last one.
    fn mark(&mut self) {
        let passed_ns = self.now_ns - self.begin_ns;
        if passed_ns < (2 * self.marks[1].at_ns).max(WARM_FIRST_NS) {
            return;
        }
        let (warm, touched) = (self.miniature.mark(), self.miniature.touched());
        let (reads, misses) = (self.cache.reads, self.cache.misses);
        let [_, last] = std::mem::take(&mut self.marks);
        self.marks = [last, Mark { at_ns: passed_ns, warm, touched, reads, misses }];
    }

    /// What came of it. The warm-up ends at the mark before the last, so that half of the time or more counts.
    fn answer(&self, pages: PageCounts) -> CacheAnswer {
        let [before, last] = &self.marks;
        let passed_ns = self.now_ns - self.begin_ns;
        // until there are two marks, there is one that may have just been made
        let is_old = before.at_ns == 0 && 2 * last.at_ns <= passed_ns;
        let mark = if is_old { last } else { before };
        let mut foretold = self.miniature.foretold_after(&mark.warm);
        let warm_in_s = self.widen(&mut foretold, mark);
        let (reads, misses) = (self.cache.reads - mark.reads, self.cache.misses - mark.misses);
        let live = LiveSeen {
            seconds: passed_ns as f64 / 1e9,
            warm_up_s: mark.at_ns as f64 / 1e9,
            warm_bytes: mark.touched,
            warm_in_s,
            is_settled: foretold.endless.value > 1.0 - FIRST_READS_FEW,
            hits: (reads > 0).then(|| 1.0 - misses as f64 / reads as f64),
            lost: self.lost,
            read_bytes: pages.read,
            page_cache_bytes: pages.filled,
        };
        CacheAnswer { ram: self.plan.ram, foretold, assumed_rate: None, live: Some(live) }
    }

    /// Gives sizes the names that they have for the user, and those that were not full when the warm-up ended the room for
    /// what they may have had. How many seconds more until the largest would be full, if that matters.
    fn widen(&self, foretold: &mut Foretold, mark: &Mark) -> Option<f64> {
        let first_reads = 1.0 - foretold.endless.value;
        let widen = |hits: &mut arc::miniature::HitShare| hits.high = (hits.high + first_reads).min(1.0);
        for (one, bytes) in foretold.rams.iter_mut().zip(&self.plan.rams) {
            if one.bytes > mark.touched {
                widen(&mut one.hits);
            }
            one.bytes = *bytes;
        }
        for one in &mut foretold.devices {
            if one.bytes.saturating_add(self.plan.ram) > mark.touched {
                widen(&mut one.hits);
            }
        }
        let largest =
            self.plan.devices.iter().map(|device| device + self.plan.ram).chain(self.plan.rams.clone()).max()?;
        let more = self.miniature.touched().saturating_sub(mark.touched) as f64;
        let a_second = more / (foretold.elapsed_ns as f64 / 1e9).max(1e-9);
        let missing = largest.saturating_sub(self.miniature.touched()) as f64;
        (first_reads > FIRST_READS_FEW && missing > 0.0 && a_second > 0.0).then(|| 2.0 * missing / a_second)
    }
}

/// Bytes that programs have read of mounted file systems, and how many of them are in the kernel's page cache then.
#[derive(Clone, Copy, Default)]
struct PageCounts {
    read: u64,
    filled: u64,
}

impl PageCounts {
    /// As counters of the pool say it, which are renewed each second.
    fn now(pool: &str) -> PageCounts {
        let Ok(Some(run)) = client::folder() else { return PageCounts::default() };
        let tables = kstat::read(&run, pool).unwrap_or_default();
        let of_datasets = || tables.iter().filter(|table| table.dataset.is_some());
        let sum = |name: &str| of_datasets().map(|table| table.get(name)).fold(0, u64::saturating_add);
        PageCounts { read: sum("nread"), filled: sum("page_cache_fill") }
    }

    fn since(self, before: &PageCounts) -> PageCounts {
        PageCounts { read: self.read.saturating_sub(before.read), filled: self.filled.saturating_sub(before.filled) }
    }
}
