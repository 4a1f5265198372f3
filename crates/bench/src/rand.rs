//! One big file, read at random: cold, from RAM, and from RAM that has room for a quarter of it, alone and with a cache
//! device (L2ARC).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::{Env, Error, Kind, Result};
use dmu::{Mode, Object};
use format::ids::ObjectId;
use pool::LivePool;

use crate::bed::{self, Bed, FS};
use crate::data::{RECORD, Records};
use crate::options::{Options, parse_numbers, seconds};
use crate::seq;
use bench::random;

/// Bytes of the file's blocks, and of what is read at a time.
const COLD_AND_WARM: [(u64, &[u64]); 3] =
    [(RECORD as u64, &[4096, 16384, 131_072]), (4096, &[4096]), (16384, &[16384])];
/// Rounds in which the file is read in order, for the cache device.
const PASSES: usize = 10;
/// Between them: the feeder wakes each second.
const FEED: Duration = Duration::from_secs(1);
/// The longest that a rebuild is waited for.
const REBUILD_MAX: Duration = Duration::from_secs(60);

/// Which place of the file a thread's read begins at: of the number of the read among all threads', and a seed.
pub(crate) type ReadPlace = dyn Fn(u64, &mut u64) -> u64 + Sync;

pub(crate) fn run_rand(options: &Options, bed: &Bed) -> Result<()> {
    let bytes = options.mib << 20;
    for (block, sizes) in COLD_AND_WARM {
        let id = make(options, bed, block)?;
        let threads = parse_numbers(&options.threads)?;
        let each = || sizes.iter().flat_map(|size| threads.iter().map(|threads| (*size, *threads)));
        let params = |size, threads| {
            format!("\"size\":{size},\"recordsize\":{block},\"threads\":{threads},\"MiB\":{}", options.mib)
        };
        for (size, threads) in each() {
            let reader = bed.open_cold()?;
            let file = reader.dsl().objset(&reader.dsl().find(FS)?, Mode::Plain)?.object(id)?;
            let blocks = bytes / block;
            // an odd factor: each block is visited once
            let place = move |n: u64, seed: &mut u64| {
                let within = random(seed) % (block / size).max(1) * size;
                n.wrapping_mul(2_654_435_761) % blocks * block + within
            };
            let rate = measure(options, &file, threads, size, blocks, &place)?;
            options.emit("randread-cold", &params(size, threads), rate, "reads/s");
        }
        let reader = bed.open_cold()?;
        let file = reader.dsl().objset(&reader.dsl().find(FS)?, Mode::Plain)?.object(id)?;
        seq::read(&file, bytes / RECORD as u64, |_, _| ())?;
        for (size, threads) in each() {
            let rate = measure(options, &file, threads, size, u64::MAX, &anywhere(bytes, size))?;
            options.emit("randread-warm", &params(size, threads), rate, "reads/s");
        }
    }
    Ok(())
}

/// Of blocks that are read whole, more than RAM has room for.
pub(crate) fn run_l2arc(options: &Options, bed: &Bed) -> Result<()> {
    // the feeder does what it can, as the peer's does
    let env = Env::real().with_tunables(|name| match name {
        "l2arc_write_max" | "l2arc_write_boost" => Some(256 << 20),
        "l2arc_feed_min_ms" => Some(50),
        "l2arc_rebuild_blocks_min_l2size" => Some(1),
        "l2arc_headroom" | "l2arc_noprefetch" | "l2arc_dwpd_limit" | "l2arc_learn" => Some(0),
        _ => None,
    });
    for block in parse_numbers(&options.blocks)? {
        let id = make(options, bed, block)?;
        let test = L2arcBench { options, block, cache: false };
        let ram = Some(options.mib << 18);
        let (pool, set) = bed.import_with(&env, ram)?;
        let file = set.object(id)?;
        seq::read(&file, (options.mib << 20) / RECORD as u64, |_, _| ())?;
        test.measure("l2arc-randread", &pool, &file)?;
        drop((file, set));
        bed::export(pool)?;

        let test = L2arcBench { cache: true, ..test };
        // with nothing in RAM that the device would not be given
        let (pool, set) = bed.import_with(&env, ram)?;
        let has_cache = bed.add_cache(&pool)?;
        let file = set.object(id)?;
        if has_cache {
            test.fill(&pool, &file)?;
            test.measure("l2arc-randread", &pool, &file)?;
        }
        drop((file, set));
        bed::export(pool)?;

        if has_cache {
            let start = Instant::now();
            let (pool, set) = bed.import_with(&env, ram)?;
            while stat(&pool, "l2_rebuild_success") == 0 && start.elapsed() < REBUILD_MAX {
                std::thread::sleep(Duration::from_millis(1));
            }
            options.emit("l2arc-rebuild", &test.params(""), start.elapsed().as_secs_f64(), "s");
            let file = set.object(id)?;
            test.measure("l2arc-randread-again", &pool, &file)?;
            drop((file, set));
            bed::export(pool)?;
        }
    }
    Ok(())
}

struct L2arcBench<'a> {
    options: &'a Options,
    /// Bytes of a block.
    block: u64,
    /// Whether there is a cache device.
    cache: bool,
}

impl L2arcBench<'_> {
    fn params(&self, more: &str) -> String {
        let L2arcBench { options: Options { mib, .. }, block, cache } = self;
        format!("\"cache\":{cache},\"size\":{block}{more},\"MiB\":{mib},\"arc_MiB\":{}", mib / 4)
    }

    /// Reads the file in order, until the cache device has all but a little of it.
    fn fill(&self, pool: &LivePool, file: &Object) -> Result<()> {
        let mib = self.options.mib;
        for _ in 0..PASSES {
            seq::read(file, (mib << 20) / RECORD as u64, |_, _| ())?;
            std::thread::sleep(FEED);
            if stat(pool, "l2_size") >= (mib << 20) / 100 * 98 {
                break;
            }
        }
        let records = stat(pool, "l2_size") / self.block;
        let params = self.params("");
        self.options.emit("l2arc-holds", &params, stat(pool, "l2_asize") as f64 / (1 << 20) as f64, "MiB");
        let index = stat(pool, "l2_hdr_size") as f64 / records.max(1) as f64;
        self.options.emit("l2arc-index", &params, index, "B/record");
        Ok(())
    }

    fn measure(&self, test: &str, pool: &LivePool, file: &Object) -> Result<()> {
        for threads in parse_numbers(&self.options.threads)? {
            let place = anywhere(self.options.mib << 20, self.block);
            let (before, start) = (stat(pool, "l2_hits"), Instant::now());
            let rate = measure(self.options, file, threads, self.block, u64::MAX, &place)?;
            let reads = rate * start.elapsed().as_secs_f64();
            let params = self.params(&format!(",\"threads\":{threads}"));
            self.options.emit(test, &params, rate, "reads/s");
            if self.cache {
                let hits = (stat(pool, "l2_hits") - before) as f64 / reads * 100.0;
                self.options.emit(&format!("{test}-hits"), &params, hits, "%");
            }
        }
        Ok(())
    }
}

/// A pool with the file, exported. Its object.
pub(crate) fn make(options: &Options, bed: &Bed, block: u64) -> Result<ObjectId> {
    let (pool, set) = bed.create(&[("compression", "lz4")])?;
    let file = seq::new_file(&pool, &set, block)?;
    seq::fill(&pool, &file, &mut Records::new(2.0), 0..(options.mib << 20) / RECORD as u64)?;
    let id = file.id();
    drop((file, set));
    bed::export(pool)?;
    Ok(id)
}

pub(crate) fn anywhere(bytes: u64, size: u64) -> impl Fn(u64, &mut u64) -> u64 + Sync {
    move |_, seed| random(seed) % (bytes / size) * size
}

/// Reads a second of all threads together, of at most so many.
pub(crate) fn measure(
    options: &Options,
    file: &Object,
    threads: u64,
    size: u64,
    most: u64,
    place: &ReadPlace,
) -> Result<f64> {
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let work = |thread: u64| -> Result<()> {
        let (mut seed, mut buf) = (thread + 1, vec![0; size as usize]);
        for n in (thread..most).step_by(threads as usize) {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            file.read(place(n, &mut seed), &mut buf)?;
            // counted in lots, so that counting is not what threads wait for
            if n / threads % 16 == 15 {
                done.fetch_add(16, Ordering::Relaxed);
            }
        }
        Ok(())
    };
    let mut rate = 0.0;
    seconds(|| {
        std::thread::scope(|scope| {
            let (work, start) = (&work, Instant::now());
            let working: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
            while start.elapsed().as_secs_f64() < options.seconds && !working.iter().all(|thread| thread.is_finished())
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            rate = done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
            is_over.store(true, Ordering::Relaxed);
            working
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| Error::new(Kind::Io, "a thread has panicked"))?)
        })
    })?;
    Ok(rate)
}

/// One of the pool's arcstats.
fn stat(pool: &LivePool, name: &str) -> u64 {
    pool.view().cache().arcstats().into_iter().find(|(of, _)| *of == name).map_or(0, |(_, value)| value)
}
