//! `zdb -b` and `-c`: every block of the pool, counted and verified.

use std::io::{self, Write};

use base::{Bookmark, Error, Kind, Result};
use dmu::traverse::Visit;
use pool::Pool;
use pool::check::{BlockKind, CheckOptions, CheckReport, Damaged, Leak, Observer, SpaceClass, SpaceSums, Verify};
use protocol::words::nicenum::nicenum;

use super::args::ZdbArgs;
use super::text::Pointer;
use crate::progress::ProgressDisplay;

/// Exit code: space is leaked, or claimed twice.
const LEAKS: u8 = 2;
/// Exit code: there are blocks that cannot be read.
const ERRORS: u8 = 3;
/// Levels that the table tells apart.
const LEVELS: usize = 7;
/// Bins of the histogram of sizes: 512 bytes to 16 MiB.
const BINS: std::ops::Range<usize> = 9..25;

pub fn print(args: &ZdbArgs, pool: &Pool, out: &mut dyn Write) -> Result<u8> {
    let space = !args.no_leaks;
    let words = |on: bool, text| if on { text } else { "" };
    writeln!(
        out,
        "\nTraversing all blocks {}{}{}{}{}...\n",
        words(args.checksums > 0 || space, "to verify "),
        words(args.checksums == 1, "metadata "),
        words(args.checksums > 0, "checksums "),
        words(args.checksums > 0 && space, "and verify "),
        words(space, "nothing leaked "),
    )?;
    out.flush()?;
    let verify = match args.checksums {
        0 => Verify::Nothing,
        1 => Verify::Metadata,
        _ => Verify::All,
    };
    let total = pool.space().ok().map(|space| space.allocated_on(|_| true));
    let mut watcher = Watcher { args, out, progress: ProgressDisplay::new(total), result: Ok(()) };
    let report = pool.check(CheckOptions { verify, space }, &mut watcher)?;
    let Watcher { result, progress, .. } = watcher;
    drop(progress);
    result?;
    print_errors(&report, out)?;
    let leaks = space && print_leaks(&report, out)?;
    if report.tally.total().count == 0 {
        return Ok(LEAKS);
    }
    print_sums(args, &report, out)?;
    if args.blocks >= 2 {
        print_table(args, &report, out)?;
        print_histogram(args, &report, out)?;
    }
    writeln!(out)?;
    Ok(match () {
        () if leaks => LEAKS,
        () if !report.lost_blocks.is_empty() || report.lost_parts > 0 => ERRORS,
        () => 0,
    })
}

/// Prints what is found while the check goes on.
struct Watcher<'a> {
    args: &'a ZdbArgs,
    out: &'a mut dyn Write,
    progress: ProgressDisplay,
    result: io::Result<()>,
}

impl Watcher<'_> {
    fn print(&mut self, line: std::fmt::Arguments<'_>) {
        if self.result.is_ok() {
            let (out, result) = (&mut self.out, &mut self.result);
            self.progress.aside(|| *result = writeln!(out, "{line}").and_then(|()| out.flush()));
        }
    }
}

impl Observer for Watcher<'_> {
    fn block(&mut self, visit: &Visit<'_>, kind: BlockKind) {
        if self.args.blocks < 5 {
            return;
        }
        let pointer = Pointer(visit.bp);
        if kind == BlockKind::DeferredFree {
            self.print(format_args!("[deferred free] {pointer}"));
        } else {
            let Bookmark { objset, object, level, .. } = visit.bookmark;
            let offset = super::text::offset_of(visit.dnode, visit.bookmark);
            self.print(format_args!("objset {objset} object {object} level {level} offset 0x{offset:x} {pointer}"));
        }
    }

    fn damaged(&mut self, damaged: &Damaged) {
        let Bookmark { objset, object, level, blkid } = damaged.bookmark;
        let place = format!("<{objset}, {object}, {level}, {blkid:x}>");
        let pointer = if self.args.blocks >= 2 { Pointer(&damaged.bp).to_string() } else { String::new() };
        if let Some(error) = damaged.lost() {
            let errno = number(error.kind());
            self.print(format_args!(
                "zdb_blkptr_cb: Got error {errno} reading {place} {pointer} -- skipping\n\t{error}"
            ));
            return;
        }
        for (copy, (dva, result)) in damaged.bp.copies().zip(&damaged.copies).enumerate() {
            if let Err(e) = result {
                self.print(format_args!("copy {copy} of {place} is bad, <{dva:?}>: {e}"));
            }
        }
    }

    fn lost(&mut self, error: &Error) {
        self.print(format_args!("cannot go below: {error}"));
    }

    fn unallocated(&mut self, bookmark: Bookmark, missing: &Leak) {
        let Bookmark { objset, object, level, blkid } = bookmark;
        let Leak { vdev, range } = missing;
        self.print(format_args!(
            "block <{objset}, {object}, {level}, {blkid:x}> is in space that is free or another's: \
             vdev {vdev}, offset 0x{:x}, size {}",
            range.start,
            range.end.saturating_sub(range.start)
        ));
    }

    fn progress(&mut self, bytes: u64) {
        self.progress.add(bytes);
    }
}

/// The number that zdb has for an error: Linux's, with two of its own.
fn number(kind: Kind) -> i32 {
    match kind {
        // ECKSUM is EBADE in OpenZFS on Linux
        Kind::Checksum => libc::EBADE,
        kind => Error::new(kind, "").errno(),
    }
}

fn print_errors(report: &CheckReport, out: &mut dyn Write) -> Result<()> {
    if !report.lost_blocks.is_empty() || report.lost_parts > 0 {
        writeln!(out, "\nError counts:\n\n\terrno  count")?;
        let mut counts: Vec<(i32, u64)> = report.lost_blocks.iter().map(|(kind, n)| (number(*kind), *n)).collect();
        counts.sort_unstable();
        for (errno, count) in counts {
            writeln!(out, "\t{errno:5}  {count}")?;
        }
    }
    if report.damaged_blocks > 0 {
        writeln!(out, "\n\t{} blocks have bad copies, and good ones", report.damaged_blocks)?;
    }
    Ok(())
}

/// Tells of leaks; true if there are any.
fn print_leaks(report: &CheckReport, out: &mut dyn Write) -> Result<bool> {
    for Leak { vdev, range } in &report.leaks {
        writeln!(out, "leaked space: vdev {vdev}, offset 0x{:x}, size {}", range.start, range.end - range.start)?;
    }
    let (found, allocated) = (report.found_bytes, report.allocated_bytes);
    if found == allocated {
        writeln!(out, "\n\tNo leaks (block sum matches space maps exactly)")?;
    } else {
        let leaked = i128::from(allocated) - i128::from(found);
        writeln!(out, "block traversal size {found} != alloc {allocated} (leaked {leaked})")?;
    }
    Ok(found != allocated || report.unallocated_blocks > 0)
}

fn print_sums(args: &ZdbArgs, report: &CheckReport, out: &mut dyn Write) -> Result<()> {
    let SpaceSums { count, lsize, psize, asize, gangs } = report.tally.total();
    let ratio = |a: u64, b: u64| Float(a as f64 / b as f64, 6);
    writeln!(out)?;
    writeln!(out, "\t{:<16} {count:>14}", "bp count:")?;
    writeln!(out, "\t{:<16} {gangs:>14}", "ganged count:")?;
    writeln!(out, "\t{:<16} {lsize:>14}      avg: {:>6}", "bp logical:", lsize / count)?;
    for (name, bytes) in [("bp physical:", psize), ("bp allocated:", asize)] {
        let (average, compression) = (bytes / count, ratio(lsize, bytes));
        writeln!(out, "\t{name:<16} {bytes:>14}      avg: {average:>6}     compression: {compression}")?;
    }
    let dedup = Float(report.dedup_bytes as f64 / asize as f64 + 1.0, 6);
    let (bytes, blocks) = (report.dedup_bytes, report.dedup_blocks);
    writeln!(out, "\t{:<16} {bytes:>14}    ref>1: {blocks:>6}   deduplication: {dedup}", "bp deduped:")?;
    if report.clone_blocks > 0 {
        let (bytes, blocks) = (report.clone_bytes, report.clone_blocks);
        writeln!(out, "\t{:<16} {bytes:>14}    count: {blocks:>6}", "bp cloned:")?;
    }
    for (class, name) in [
        (SpaceClass::Normal, "Normal class:"),
        (SpaceClass::Special, "Special class"),
        (SpaceClass::Dedup, "Dedup class"),
        (SpaceClass::EmbeddedLog, "Embedded log class"),
    ] {
        let sums = report.classes[class as usize];
        if sums.exists || class == SpaceClass::Normal {
            let used = Float(100.0 * sums.allocated as f64 / sums.space as f64, 5);
            writeln!(out, "\t{name:<16} {:>14}     used: {used}%", sums.allocated)?;
        }
    }
    for (kind, blocks) in report.tally.embedded.iter().enumerate().filter(|(_, blocks)| **blocks > 0) {
        writeln!(out, "\n\tadditional, non-pointer bps of type {kind}: {blocks:>10}")?;
        if args.blocks >= 3 && kind == 0 {
            writeln!(out, "\t number of (compressed) bytes:  number of bps")?;
            print_bars(&report.tally.embedded_sizes, out)?;
        }
    }
    if report.tally.same_vdev > 0 {
        writeln!(out, "\tDittoed blocks on same vdev: {}", report.tally.same_vdev)?;
    }
    if report.tally.same_slab > 0 {
        writeln!(out, "\tDittoed blocks in same metaslab: {}", report.tally.same_slab)?;
    }
    for removed in &report.removed {
        let (vdev, entries) = (removed.vdev, removed.entries);
        let memory = nicenum(entries);
        writeln!(out, "\tindirect vdev id {vdev} has {entries} segments ({memory} in memory)")?;
    }
    Ok(())
}

/// A bar for each count from the first to the last that is not 0.
fn print_bars(counts: &[u64], out: &mut dyn Write) -> Result<()> {
    const WIDTH: u64 = 40;
    let used = |count: &u64| *count > 0;
    let (Some(first), Some(last)) = (counts.iter().position(used), counts.iter().rposition(used)) else {
        return Ok(());
    };
    let highest = counts.iter().copied().max().unwrap_or(0).max(WIDTH);
    for (i, &count) in counts.iter().enumerate().take(last + 1).skip(first) {
        let bar = WIDTH - (highest - count).saturating_mul(WIDTH) / highest;
        writeln!(out, "\t\t\t{i:3}: {count:6} {}", "*".repeat(bar as usize))?;
    }
    Ok(())
}

/// The table by types, with `-bbb` by levels too.
fn print_table(args: &ZdbArgs, report: &CheckReport, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "\nBlocks\tLSIZE\tPSIZE\tASIZE\t  avg\t comp\t%Total\tType")?;
    let tally = &report.tally;
    let total = tally.total();
    let kinds = BlockKind::all().map(Some).chain([None]);
    for kind in kinds {
        let (name, all) = match kind {
            Some(kind) => (kind.name(), tally.of(kind)),
            None => ("Total", total),
        };
        if all.asize == 0 {
            writeln!(out, "     -\t    -\t    -\t    -\t    -\t    -\t     -\t{name}")?;
            continue;
        }
        let levels = (0..LEVELS).rev().filter(|_| args.blocks >= 3);
        let rows = levels.map(|level| (Some(level), kind.map_or_else(|| tally.level(level), |k| tally.at(k, level))));
        for (level, sums) in rows.chain([(None, all)]) {
            if sums.asize == 0 || level == Some(0) && sums.asize == all.asize {
                continue;
            }
            let [count, lsize, psize, asize, average] =
                [sums.count, sums.lsize, sums.psize, sums.asize, sums.asize / sums.count].map(|n| args.number(n));
            let compression = Float(sums.lsize as f64 / sums.psize as f64, 5);
            let share = Float(100.0 * sums.asize as f64 / total.asize as f64, 6);
            write!(out, "{count:>6}\t{lsize:>5}\t{psize:>5}\t{asize:>5}\t{average:>5}\t{compression}\t{share}\t")?;
            match level {
                Some(level) => writeln!(out, "    L{level} {name}")?,
                None => writeln!(out, "{name}")?,
            }
            if args.blocks >= 3 && sums.gangs > 0 {
                writeln!(out, "\t number of ganged blocks: {}", args.number(sums.gangs))?;
            }
        }
    }
    Ok(())
}

fn print_histogram(args: &ZdbArgs, report: &CheckReport, out: &mut dyn Write) -> Result<()> {
    let tally = &report.tally;
    writeln!(out, "\nBlock Size Histogram")?;
    let columns = [&tally.psizes, &tally.lsizes, &tally.asizes];
    if args.parseable {
        writeln!(out, "\nblock\tpsize\t\t\tlsize\t\t\t  asize")?;
        writeln!(out, "size\t{}", "Count\tSize\tCum.\t".repeat(3))?;
    } else {
        writeln!(out, "\n  block   {:<7}              {:<7}              asize", "psize", "lsize")?;
        writeln!(out, "   size {}", "  Count   Size   Cum.".repeat(3))?;
    }
    let mut sums = [0u64; 3];
    for bin in BINS {
        let size = args.number(1 << bin);
        if args.parseable {
            write!(out, "{size}")?
        } else {
            write!(out, "{size:>7}:")?
        };
        for (sum, bins) in sums.iter_mut().zip(columns) {
            *sum = sum.saturating_add(bins[bin].bytes);
            for n in [bins[bin].count, bins[bin].bytes, *sum].map(|n| args.number(n)) {
                if args.parseable {
                    write!(out, "\t{n}")?
                } else {
                    write!(out, "{n:>7}")?
                };
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// A number with two decimals in a field, as C prints it: what comes of 0/0 has a sign there.
struct Float(f64, usize);

impl std::fmt::Display for Float {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Float(value, width) = *self;
        if value.is_nan() { write!(f, "{:>width$}", "-nan") } else { write!(f, "{value:>width$.2}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_c_prints_them() {
        assert_eq!(Float(1.005, 6).to_string(), "  1.00");
        assert_eq!(Float(f64::NAN, 5).to_string(), " -nan");
        assert_eq!(Float(f64::INFINITY, 6).to_string(), "   inf");
    }
}
