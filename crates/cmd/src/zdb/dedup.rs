//! `zdb -D`: the dedup tables, their histograms and entries; `-S`: what they would be if everything were deduplicated.

use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::ControlFlow;

use base::Result;
use codec::checksum::Checksum;
use dmu::traverse::Visit;
use format::ddt::DdtKey;
use pool::check::{BlockKind, CheckOptions, Observer, Verify};
use pool::{DEDUP_BUCKETS, DedupEntry, DedupLog, DedupSums, DedupTable, DedupTables, Pool, TableSize};

use super::args::ZdbArgs;
use super::text::Pointer;
use crate::histogram::dedup_histogram;
use crate::progress::ProgressDisplay;

/// Flags by their bits, as zdb calls them.
const TABLE_FLAGS: [&str; 2] = ["FLAT", "LOG"];
const LOG_FLAGS: [&str; 2] = ["FLUSHING", "CHECKPOINT"];

/// The tables that are there.
pub fn print(args: &ZdbArgs, pool: &Pool, out: &mut dyn Write) -> Result<()> {
    for of in pool.dedup_tables()? {
        let DedupTables { version, flags, names, .. } = of;
        let word = if version == 0 { "LEGACY" } else { "FDT" };
        let (name, flags) = (of.checksum.name(), flag_words(flags, TABLE_FLAGS));
        writeln!(out, "DDT-{name}: version={version} [{word}]; flags={flags}; rootobj={names}")?;
        for table in &of.tables {
            print_table(args, pool, (&of, table), out)?;
        }
        for log in &of.logs {
            print_log(args, pool, (&of, log), out)?;
        }
    }
    let dedup = pool.dedup()?;
    let total = dedup.total();
    if total.blocks == 0 {
        return Ok(writeln!(out, "All DDTs are empty")?);
    }
    writeln!(out)?;
    if args.dedup > 1 {
        writeln!(out, "DDT histogram (aggregated over all DDTs):\n")?;
        print_histogram(&dedup.histogram, Some(&total), out)?;
    }
    Ok(print_ratios(&total, out)?)
}

fn print_table(args: &ZdbArgs, pool: &Pool, table: (&DedupTables, &DedupTable), out: &mut dyn Write) -> Result<()> {
    let (of, table) = table;
    let (name, TableSize { disk_bytes, core_bytes, entries }) = (&table.name, table.size);
    writeln!(out, "{name}: dspace={disk_bytes}; mspace={core_bytes}; entries={entries}")?;
    if args.dedup < 3 {
        return Ok(());
    }
    writeln!(out, "{name}: object={}\n", table.object)?;
    print_histogram(&table.histogram, None, out)?;
    if args.dedup < if table.is_unique { 5 } else { 4 } {
        return Ok(());
    }
    writeln!(out, "{name} contents:\n")?;
    let mut printed = Ok(());
    pool.dedup_entries(of, table, &mut |entry| flow_of(&mut printed, print_entry(&entry, out)))?;
    printed?;
    Ok(writeln!(out)?)
}

/// The line of a log; its checkpoint is that on disk, where zdb prints zeros.
fn print_log(args: &ZdbArgs, pool: &Pool, log: (&DedupTables, &DedupLog), out: &mut dyn Write) -> Result<()> {
    let (of, log) = log;
    let DedupLog { name, len, first_txg, entries, .. } = log;
    let flags = u64::from(log.is_flushing) | u64::from(log.checkpoint.is_some()) << 1;
    let (flags, object) = (flag_words(flags, LOG_FLAGS), log.object.map_or(0, |id| id.get()));
    writeln!(out, "{name}: flags={flags}; obj={object}; len={len}; txg={first_txg}; entries={entries}")?;
    if let Some([a, b, c, d, e]) = log.checkpoint {
        writeln!(out, "    checkpoint: {a:016x}:{b:016x}:{c:016x}:{d:016x}:{e:016x}")?;
    }
    if args.dedup < 4 {
        return Ok(());
    }
    let mut printed = Ok(());
    pool.dedup_log_entries(of, log, &mut |entry| flow_of(&mut printed, print_entry(&entry, out)))?;
    Ok(printed?)
}

fn print_entry(entry: &DedupEntry, out: &mut dyn Write) -> io::Result<()> {
    let index = entry.index;
    entry.blocks.iter().try_for_each(|(number, references, bp)| {
        writeln!(out, "index {index:x} refcnt {references} phys {number} {}", Pointer(bp))
    })
}

/// Keeps what came of a step, and stops at an error.
fn flow_of(kept: &mut io::Result<()>, result: io::Result<()>) -> ControlFlow<()> {
    *kept = result;
    if kept.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

fn print_histogram(histogram: &[DedupSums], total: Option<&DedupSums>, out: &mut dyn Write) -> io::Result<()> {
    let rows: Vec<[u64; 8]> = histogram.iter().map(DedupSums::words).collect();
    writeln!(out, "{}", dedup_histogram(&rows, total.map(DedupSums::words).as_ref()))
}

fn print_ratios(total: &DedupSums, out: &mut dyn Write) -> io::Result<()> {
    let ratio = |a: u64, b: u64| a as f64 / b as f64;
    let dedup = ratio(total.ref_dsize_bytes, total.dsize_bytes);
    let compress = ratio(total.ref_lsize_bytes, total.ref_psize_bytes);
    let copies = ratio(total.ref_dsize_bytes, total.ref_psize_bytes);
    let all = dedup * compress / copies;
    writeln!(
        out,
        "dedup = {dedup:.2}, compress = {compress:.2}, copies = {copies:.2}, dedup * compress / copies = {all:.2}\n"
    )
}

/// As in `0x03 [FLAT LOG]`.
fn flag_words(flags: u64, words: [&str; 2]) -> String {
    let set: Vec<&str> =
        words.into_iter().enumerate().filter(|(bit, _)| flags >> bit & 1 == 1).map(|(_, w)| w).collect();
    if set.is_empty() { format!("0x{flags:02x}") } else { format!("0x{flags:02x} [{}]", set.join(" ")) }
}

/// What the tables would be if everything were deduplicated. All different blocks are in memory meanwhile.
pub fn print_simulated(pool: &Pool, out: &mut dyn Write) -> Result<()> {
    let total = pool.space().ok().map(|space| space.allocated_on(|_| true));
    let mut simulated = SimulatedTable { pool, blocks: HashMap::new(), progress: ProgressDisplay::new(total) };
    pool.check(CheckOptions { verify: Verify::Nothing, space: false }, &mut simulated)?;
    let SimulatedTable { blocks, progress, .. } = simulated;
    drop(progress);
    let (mut histogram, mut total) = (vec![DedupSums::default(); DEDUP_BUCKETS], DedupSums::default());
    for (key, block) in blocks {
        let sums = block.sums(&key);
        total.add(&sums);
        histogram[block.pointers.ilog2() as usize].add(&sums);
    }
    writeln!(out, "Simulated DDT histogram:\n")?;
    print_histogram(&histogram, Some(&total), out)?;
    if total.blocks > 0 {
        print_ratios(&total, out)?;
    }
    Ok(())
}

/// The different blocks of a pool.
struct SimulatedTable<'a> {
    pool: &'a Pool,
    blocks: HashMap<DdtKey, SimulatedBlock>,
    progress: ProgressDisplay,
}

/// A block as often as it is there.
#[derive(Default)]
struct SimulatedBlock {
    pointers: u64,
    /// Bytes on devices, for all pointers.
    dsize_bytes: u64,
}

impl SimulatedBlock {
    fn sums(&self, key: &DdtKey) -> DedupSums {
        let times = |bytes: u64| bytes.saturating_mul(self.pointers);
        DedupSums {
            blocks: 1,
            lsize_bytes: key.lsize(),
            psize_bytes: key.psize(),
            dsize_bytes: self.dsize_bytes / self.pointers.max(1),
            ref_blocks: self.pointers,
            ref_lsize_bytes: times(key.lsize()),
            ref_psize_bytes: times(key.psize()),
            ref_dsize_bytes: self.dsize_bytes,
        }
    }
}

impl Observer for SimulatedTable<'_> {
    fn block(&mut self, visit: &Visit<'_>, kind: BlockKind) {
        let bp = visit.bp;
        if !kind.is_placed_data(bp) || Checksum::from_u8(bp.checksum_kind()) == Some(Checksum::Off) {
            return;
        }
        let block = self.blocks.entry(DdtKey::of(bp)).or_default();
        block.pointers += 1;
        block.dsize_bytes = block.dsize_bytes.saturating_add(dmu::dsize(self.pool.cache(), bp));
    }

    fn progress(&mut self, bytes: u64) {
        self.progress.add(bytes);
    }
}
