//! `cenote advise layout`: the pools that some disks can be, side by side.
//!
//! ```text
//!   disks ─▶ candidates ─▶ trial: the pool is made in memory ─▶ space, exactly
//!                       └▶ estimate: formulas over the disk   ─▶ requests, rates, resilver, odds
//! ```

mod candidates;
mod disks;
mod estimate;
mod trial;

use std::cmp::Ordering;

use clap::ValueEnum;
use protocol::words::nicenum::nicebytes;
use protocol::words::time::span;
use serde_json::{Value, json};

use super::sizes::{MIB, block_size};
use candidates::{PlannedLayout, candidates};
use disks::DiskKind;
use estimate::{LayoutEstimate, PoolLoad, estimate};
use trial::{LayoutSpace, try_out};

/// Layouts that are shown, if nobody asks for all.
const SHOWN_DEFAULT: usize = 20;
/// Odds of losing the pool that are called high: in ten years.
const LOSS_HIGH: f64 = 0.01;
/// Part of the space that volumes may lose to padding before that is said.
const PADDING_HIGH: f64 = 0.1;

/// Compare the pools that some disks can be: space, requests, rates, resilver, odds of loss
///
/// Disks are sizes, as 12x4TB (makers' terabytes) or 8x16T, or devices and files, which are only looked at. Each pool is
/// made in memory, so AVAIL is what `zfs list` shows of it when it is new. RECORDS and VOLUMES are how much of
/// that data fills, if they are incompressible records of --recordsize, or blocks of volumes of --volblocksize. READS are
/// random reads a second of blocks of --volblocksize from all disks at work, READ and WRITE sequential MiB/s of records.
/// RESILVER is how long a failed disk takes when the pool is as full as --full says. LOSS is the odds that more disks
/// fail at a time than the pool can stand, within ten years; DAMAGE also counts disks that cannot read a sector
/// in a resilver when nothing else has it. `cenote advise layout --formulas` shows how they are reckoned.
#[derive(clap::Parser)]
#[command(name = "cenote advise layout", no_binary_name = true)]
pub struct LayoutArgs {
    /// Disks: COUNTxSIZE, SIZE, or paths
    #[arg(required_unless_present = "formulas")]
    disks: Vec<String>,
    /// The kind of the disks; of paths, disks that do not turn are ssd
    #[arg(long, value_enum)]
    disk: Option<DiskKind>,
    /// Random requests a second of one disk
    #[arg(long, value_parser = positive)]
    iops: Option<f64>,
    /// Sequential MiB/s of one disk
    #[arg(long, value_parser = positive)]
    rate: Option<f64>,
    /// Percent of disks that fail in a year
    #[arg(long, value_parser = percent)]
    afr: Option<f64>,
    /// Binary logarithm of the sector size
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(9..=16))]
    ashift: u32,
    /// Records of file systems
    #[arg(long, default_value = "128K", value_parser = block_size)]
    recordsize: u64,
    /// Blocks of volumes
    #[arg(long, default_value = "16K", value_parser = block_size)]
    volblocksize: u64,
    /// How full the pool is when a disk fails, in percent
    #[arg(long, default_value_t = 70.0, value_parser = percent)]
    full: f64,
    /// Hours until a failed disk is replaced where there is no spare
    #[arg(long, default_value_t = 24.0, value_parser = positive)]
    replaced_in: f64,
    /// What the best ones come first by
    #[arg(long, value_enum, default_value_t = LayoutWish::Avail)]
    sort: LayoutWish,
    /// Show all layouts, also those that others beat in everything
    #[arg(short, long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show how the figures are reckoned
    #[arg(long)]
    formulas: bool,
}

/// What one of the layouts is to be best at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LayoutWish {
    Avail,
    Volumes,
    Reads,
    Read,
    Write,
    Resilver,
    Loss,
    Damage,
}

/// A layout and all that is known of it.
struct LayoutRow {
    layout: PlannedLayout,
    space: LayoutSpace,
    estimate: LayoutEstimate,
}

fn positive(text: &str) -> Result<f64, String> {
    let parsed = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    parsed.ok_or_else(|| "not a positive number".to_owned())
}

fn percent(text: &str) -> Result<f64, String> {
    let parsed = text.trim_end_matches('%').parse().ok().filter(|number| (0.0..=100.0).contains(number));
    parsed.ok_or_else(|| "not a number from 0 to 100".to_owned())
}

/// Runs the command.
pub fn run(args: &LayoutArgs) -> Result<(), String> {
    if args.formulas {
        print!("{}", estimate::FORMULAS);
        return Ok(());
    }
    let found = disks::parse(&args.disks)?;
    let kind = args.disk.unwrap_or(found.kind);
    let mut disk = kind.disk();
    disk.iops = args.iops.unwrap_or(disk.iops);
    disk.rate = args.rate.map_or(disk.rate, |rate| rate * MIB);
    disk.failures_a_year = args.afr.map_or(disk.failures_a_year, |percent| percent / 100.0);
    let load = PoolLoad {
        record_bytes: args.recordsize,
        block_bytes: args.volblocksize,
        full: args.full / 100.0,
        replaced_in_s: args.replaced_in * 3600.0,
    };
    let mut rows = Vec::new();
    for layout in candidates(found.sizes.len()) {
        let space = try_out(&layout, &found.sizes, args.ashift, &load)
            .map_err(|error| format!("{}: {}", layout.words(), error.what()))?;
        let estimate = estimate(&layout, &found.sizes, &disk, args.ashift, &load);
        rows.push(LayoutRow { layout, space, estimate });
    }
    if !args.all {
        rows = worth_showing(rows);
    }
    rows.sort_by(|a, b| args.sort.order(a, b));
    if args.json {
        println!("{}", json_of(&rows));
        return Ok(());
    }
    if !args.all {
        rows.truncate(SHOWN_DEFAULT);
    }
    let told = format!(
        "{} disks of kind {}: {} requests a second, {:.0} MiB/s, {:.2} % of them fail in a year\n\n",
        found.sizes.len(),
        kind.name(),
        disk.iops.round(),
        disk.rate / MIB,
        disk.failures_a_year * 100.0,
    );
    print!("{told}{}\n{}", table(&rows), verdict(&rows, args));
    Ok(())
}

impl LayoutWish {
    /// The better one comes first.
    fn order(self, a: &LayoutRow, b: &LayoutRow) -> Ordering {
        let key = |row: &LayoutRow| match self {
            LayoutWish::Avail => -(row.space.available_bytes as f64),
            LayoutWish::Volumes => -row.space.volume_bytes,
            LayoutWish::Reads => -row.estimate.reads_per_s,
            LayoutWish::Read => -row.estimate.read_rate,
            LayoutWish::Write => -row.estimate.write_rate,
            LayoutWish::Resilver => row.estimate.resilver_s.unwrap_or(f64::INFINITY),
            LayoutWish::Loss => row.estimate.loss,
            LayoutWish::Damage => row.estimate.damage,
        };
        let by_space = b.space.available_bytes.cmp(&a.space.available_bytes);
        key(a).total_cmp(&key(b)).then(by_space)
    }
}

/// Those that no other one beats in space, requests and safety at once.
fn worth_showing(rows: Vec<LayoutRow>) -> Vec<LayoutRow> {
    let figures = |row: &LayoutRow| {
        [row.space.available_bytes as f64, row.space.volume_bytes, row.estimate.reads_per_s, -row.estimate.damage]
    };
    let all: Vec<[f64; 4]> = rows.iter().map(figures).collect();
    let is_beaten =
        |own: &[f64; 4]| all.iter().any(|other| other != own && other.iter().zip(own).all(|(other, own)| other >= own));
    let keep: Vec<bool> = all.iter().map(|own| !is_beaten(own)).collect();
    rows.into_iter().zip(keep).filter_map(|(row, keep)| keep.then_some(row)).collect()
}

/// Odds as people read them.
fn odds(part: f64) -> String {
    match part {
        part if part >= 0.1 => format!("{:.0} %", part * 100.0),
        part if part >= 0.0001 => format!("{:.2} %", part * 100.0),
        part if part >= 1e-12 => format!("1:{:.0e}", 1.0 / part),
        _ => "none".to_owned(),
    }
}

fn table(rows: &[LayoutRow]) -> String {
    let heads =
        ["LAYOUT", "AVAIL", "RECORDS", "VOLUMES", "READS", "READ", "WRITE", "RESILVER", "STANDS", "LOSS", "DAMAGE"];
    let mut lines = vec![heads.map(str::to_owned)];
    for LayoutRow { layout, space, estimate } in rows {
        lines.push([
            layout.words(),
            nicebytes(space.available_bytes),
            nicebytes(space.record_bytes as u64),
            nicebytes(space.volume_bytes as u64),
            format!("{:.0}", estimate.reads_per_s),
            format!("{:.0}", estimate.read_rate / MIB),
            format!("{:.0}", estimate.write_rate / MIB),
            estimate.resilver_s.map_or_else(|| "-".to_owned(), |seconds| span(seconds as u64)),
            format!("{}", layout.tolerance()),
            odds(estimate.loss),
            odds(estimate.damage),
        ]);
    }
    let widths: Vec<usize> =
        (0..heads.len()).map(|at| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        for (at, cell) in line.iter().enumerate() {
            let width = widths[at];
            text += &if at == 0 { format!("{cell:width$}") } else { format!("  {cell:>width$}") };
        }
        text.push('\n');
    }
    text
}

/// The first row in words, with what speaks against it.
fn verdict(rows: &[LayoutRow], args: &LayoutArgs) -> String {
    let Some(best) = rows.first() else { return String::new() };
    let mut text = format!(
        "First by {}: {}.\n",
        args.sort.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned()),
        best.layout.words()
    );
    text += &format!("  zpool create -o ashift={} POOL {}\n", args.ashift, best.layout.command());
    if best.layout.tolerance() == 0 {
        text += "Do not put there what you cannot lose: the first disk that fails takes all of it.\n";
    } else if best.estimate.loss > LOSS_HIGH {
        text += &format!(
            "Its odds of loss are high ({} in ten years): take more parity, or smaller vdevs.\n",
            odds(best.estimate.loss)
        );
    }
    let padded = 1.0 - best.space.volume_bytes / best.space.record_bytes.max(1.0);
    if padded > PADDING_HIGH {
        text += &format!(
            "Volumes with blocks of {} lose {:.0} % of the space to parity and padding that records do not; larger blocks, or mirrors, do not.\n",
            nicebytes(args.volblocksize),
            padded * 100.0
        );
    }
    let safe = rows.iter().filter(|row| row.estimate.loss <= LOSS_HIGH && row.layout.tolerance() > 0);
    let safest = safe.max_by(|a, b| a.space.available_bytes.cmp(&b.space.available_bytes));
    if let Some(safest) = safest
        .filter(|safe| safe.layout != best.layout && (best.estimate.loss > LOSS_HIGH || best.layout.tolerance() == 0))
    {
        text += &format!(
            "Most space with odds of loss below {}: {}, {}.\n",
            odds(LOSS_HIGH),
            safest.layout.words(),
            nicebytes(safest.space.available_bytes)
        );
    }
    text
}

fn json_of(rows: &[LayoutRow]) -> Value {
    let of = |LayoutRow { layout, space, estimate }: &LayoutRow| {
        json!({
            "layout": layout.words(),
            "create": layout.command(),
            "spares": layout.spares,
            "tolerated_failures": layout.tolerance(),
            "available_bytes": space.available_bytes,
            "record_bytes": space.record_bytes as u64,
            "volume_bytes": space.volume_bytes as u64,
            "random_reads_per_s": estimate.reads_per_s,
            "read_bytes_per_s": estimate.read_rate,
            "write_bytes_per_s": estimate.write_rate,
            "resilver_s": estimate.resilver_s,
            "loss_in_ten_years": estimate.loss,
            "damage_in_ten_years": estimate.damage,
        })
    };
    Value::Array(rows.iter().map(of).collect())
}

#[cfg(test)]
mod tests;
