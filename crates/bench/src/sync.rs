//! Small synchronous writes without a mount: what the intent log and its device take, and nothing else.
//!
//! ```text
//!   thread 1  ─ write ─ sync_object ─ write ─ ...      a file for each, for a fixed time
//!   thread N  ─ write ─ sync_object ─ write ─ ...
//! ```

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::{Error, Kind, Result};
use pool::LivePool;
use zpl::{New, NewKind, Zpl};

use crate::bed::{self, Bed, FS};
use crate::data::{RECORD, Records};
use crate::options::{Options, parse_numbers};

/// Bytes of a thread's file, at the end of which it begins anew.
const FILE_BYTES: u64 = 64 << 20;

pub(crate) fn run(options: &Options, bed: &Bed) -> Result<()> {
    let (pool, set) = bed.create(&[("compression", "off")])?;
    let id = pool.view().dsl().find(FS)?.id;
    let zpl = Zpl::open_writable(set, pool.txgs().clone(), bed.env.clone(), Default::default(), Some(pool.log(id)?))?;
    for threads in parse_numbers(&options.threads)? {
        for size in parse_numbers(&options.sizes)? {
            let before = counts(&pool);
            let rate = measure(&zpl, options.seconds, threads, size)?;
            let [commits, batches, blocks] = std::array::from_fn(|at| counts(&pool)[at] - before[at]);
            let params = format!(
                "\"size\":{size},\"threads\":{threads},\"slog\":{},\"commits\":{commits},\"batches\":{batches},\"blocks\":{blocks}",
                options.log.is_some()
            );
            options.emit("syncwrite", &params, rate, "tx/s");
            pool.sync()?;
        }
    }
    pool.close_log(id)?;
    drop(zpl);
    bed::export(pool)
}

/// Commits a second that all threads have together.
fn measure(zpl: &Zpl, seconds: f64, threads: u64, size: u64) -> Result<f64> {
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let begin = Barrier::new(threads as usize + 1);
    let bytes = vec![Records::new(1.0).record(0); size.div_ceil(RECORD as u64) as usize].concat();
    let work = |thread: u64| -> Result<()> {
        let new = New { kind: NewKind::File, mode: 0o644, umask: 0, uid: 0, gid: 0 };
        let name = format!("{thread}");
        let made = zpl.create(zpl.root(), name.as_bytes(), &new)?;
        let file = zpl.open_file(made.ino)?;
        let ready = zpl.sync_object(made.ino);
        begin.wait();
        ready?;
        for n in 0.. {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            file.write(n * size % (FILE_BYTES - FILE_BYTES % size), &bytes[..size as usize])?;
            zpl.sync_object(made.ino)?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        match zpl.unlink(zpl.root(), name.as_bytes())? {
            Some(ino) => zpl.reclaim(ino),
            None => Ok(()),
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        let working: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        begin.wait();
        let start = Instant::now();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let rate = done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        for thread in working {
            thread.join().map_err(|_| Error::new(Kind::Io, "a thread has panicked"))??;
        }
        Ok(rate)
    })
}

/// Commits, batches they were written in, and blocks of these, of all logs.
fn counts(pool: &LivePool) -> [u64; 3] {
    let names = ["zil_commit_count", "zil_commit_writer_count", "zil_itx_metaslab_"];
    let logs = pool.log_stats();
    names.map(|name| {
        let all = logs.iter().flat_map(|(_, stats)| stats);
        let of_it = all.filter(|(of, _)| *of == name || of.starts_with(name) && of.ends_with("_count"));
        of_it.map(|(_, count)| count).sum()
    })
}
