//! A file written with and without dedup, and with its checksum alone: records of which none is there twice, and half of them.
//! And the same while the table is ten times as large as the RAM for blocks.

use base::Result;

use crate::bed::{self, Bed};
use crate::data::{RECORD, Records};
use crate::options::{Options, seconds};
use crate::seq::{fill, fill_with, new_file};
use bench::random;

/// A file system without dedup.
const PLAIN: &str = "peerbench/plain";

pub(crate) fn run(options: &Options, bed: &Bed) -> Result<()> {
    let mut data = Records::new(1.0);
    let (mib, records) = (options.mib, (options.mib << 20) / RECORD as u64);
    for half in [0, 50] {
        for (switch, properties) in [
            ("off", [("compression", "off"), ("dedup", "off")]),
            ("checksum", [("compression", "off"), ("checksum", "sha256")]),
            ("on", [("compression", "off"), ("dedup", "on")]),
        ] {
            let (pool, set) = bed.create(&properties)?;
            let file = new_file(&pool, &set, RECORD as u64)?;
            let written = (0..records).map(|n| if half == 0 { n } else { odd_ones_again(n) });
            let rate = mib as f64 / seconds(|| fill(&pool, &file, &mut data, written))?;
            let params = format!("\"dedup\":\"{switch}\",\"duplicates_percent\":{half},\"MiB\":{mib}");
            options.emit("dedup-seqwrite", &params, rate, "MiB/s");
            let ratio = pool.view().dedup()?.ratio_percent();
            options.emit("dedupratio", &params, ratio as f64 / 100.0, "x");
            drop((file, set));
            bed::export(pool)?;
        }
    }
    Ok(())
}

/// How many times the RAM a table is that does not fit.
const TIMES_RAM: u64 = 10;
/// Bytes of the blocks that fill a table, and how many of them at a time.
const SMALL: usize = 4096;
const AT_A_TIME: usize = 64 << 10;
/// How often each is measured.
const ROUNDS: u64 = 3;

/// With `-a` MiB of RAM for blocks, and a table that is larger.
pub(crate) fn run_large(options: &Options, bed: &Bed) -> Result<()> {
    let (mut data, ram_bytes) = (Records::new(1.0), options.arc_mib << 20);
    let (pool, set) = bed.create(&[("compression", "off"), ("dedup", "on")])?;
    let (mut numbers, mut table_bytes) = (0.., 0);
    while table_bytes < TIMES_RAM * ram_bytes {
        let file = new_file(&pool, &set, SMALL as u64)?;
        fill_with(SMALL, &pool, &file, &mut data, numbers.by_ref().take(AT_A_TIME))?;
        table_bytes = pool.view().dedup()?.core_bytes;
    }
    bed.create_fs(&pool, PLAIN, &[("compression", "off")])?;
    drop(set);
    bed::export(pool)?;
    let records = (options.mib << 20) / RECORD as u64;
    for _ in 0..ROUNDS {
        for (switch, fs) in [("off", PLAIN), ("on", bed::FS)] {
            let (pool, _) = bed.import_with(&bed.env, Some(ram_bytes))?;
            let set = bed::head(&pool, fs)?;
            let file = new_file(&pool, &set, RECORD as u64)?;
            let written = numbers.by_ref().take(records as usize);
            let rate = options.mib as f64 / seconds(|| fill(&pool, &file, &mut data, written))?;
            let (arc, table) = (options.arc_mib, pool.view().dedup()?.core_bytes >> 20);
            let params =
                format!("\"dedup\":\"{switch}\",\"MiB\":{},\"ram_MiB\":{arc},\"table_MiB\":{table}", options.mib);
            options.emit("ddt-seqwrite", &params, rate, "MiB/s");
            drop((file, set));
            bed::export(pool)?;
        }
    }
    Ok(())
}

/// An even number, itself; an odd one, some even one before it.
fn odd_ones_again(n: u64) -> u64 {
    if n.is_multiple_of(2) { n } else { random(&mut n.clone()) % n & !1 }
}
