//! What a layout does, by formulas over one disk: [`FORMULAS`].

use super::candidates::{PlannedLayout, Shape};
use super::disks::DiskModel;
use crate::advise::sizes::DAY_S;

/// Seconds of a year.
const YEAR_S: f64 = 365.25 * DAY_S;
/// Random requests, one after the other, of the groups that begin and end a resilver: about twenty times labels at both
/// ends of each disk, and a flush.
const RESILVER_REQUESTS: f64 = 70.0;
/// How long a pool is to live, in years.
const LIFE_YEARS: f64 = 10.0;

/// How the figures are reckoned.
pub const FORMULAS: &str = "\
Of one disk: i random requests a second, r bytes a second in sequence, f failures a year, e unreadable bits a bit read.
A block of s bytes lies on c data disks of its vdev: 1 of a single disk or a mirror; of a raidz of w disks with
parity p as many as it has sectors, at most w - p; of a draid with d data disks as many as it has sectors, at most d.

READS     all disks work: n / (c * (1/i + s/c/r)), n disks that hold data, s = volblocksize
READ      n * r; of a raidz or draid, parity is passed over: n * r * data / (data + parity)
WRITE     n * r * (bytes of a record / bytes that it takes on all disks, copies, parity and padding included)
RESILVER  b = bytes on the failed disk = its size * full
          mirror, raidz   b / r: all others are read at the rate at which the new disk is written
          draid           b * (d + 1) / ((n - 1) * r): its spare is spread over all disks
          and 70 / i: the groups at its beginning and end, which write labels at both ends of each disk
T         how long a vdev lacks a disk: RESILVER, and where there is no spare, the time until somebody replaces it
LOSS      of a vdev of w disks that stands p failures, by the states of a Markov chain in which each failed disk is
          repaired on its own: lost once in  T^p * f^(p+1) * w * (w-1) * ... * (w-p) / p!  per year;
          of the pool: 1 - exp(-10 years * vdevs * that)
DAMAGE    LOSS, and resilvers in which a vdev that lacks p disks meets an unreadable sector: once in the same with p for
          p+1, times 1 - exp(-e * 8 * bytes read); of 7,200 rpm disks e is 1e-15, of faster ones 1e-16, of SSDs 1e-17

Failures are taken as independent. GivenDisks of one batch, heat and controllers make them less so: a figure below 1:1e6 says
that something else will lose the pool first.
";

/// What the pool is asked for.
#[derive(Clone, Copy, Debug)]
pub struct PoolLoad {
    /// Size of records, in bytes.
    pub record_bytes: u64,
    /// Size of blocks that are read at random, in bytes.
    pub block_bytes: u64,
    /// Part of the pool that is used.
    pub full: f64,
    /// Seconds until somebody replaces a disk.
    pub replaced_in_s: f64,
}

/// What can be expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayoutEstimate {
    pub reads_per_s: f64,
    /// Bytes a second, in sequence.
    pub read_rate: f64,
    /// Bytes a second, in sequence.
    pub write_rate: f64,
    /// Seconds until a failed disk is made up for; `None` if it never is.
    pub resilver_s: Option<f64>,
    /// Odds that the pool is lost in its life.
    pub loss: f64,
    /// Odds that some of it is lost in its life.
    pub damage: f64,
}

/// How blocks lie on the disks of a vdev.
struct BlockColumns {
    /// Most data disks of a block.
    data: f64,
    /// Disks of a block that hold what can be reckoned from others, or copies.
    parity: f64,
}

impl BlockColumns {
    fn of(shape: Shape) -> BlockColumns {
        let (data, parity) = match shape {
            Shape::Single => (1, 0),
            Shape::Mirror(width) => (1, width - 1),
            Shape::Raidz { parity, width } => (width - parity, parity),
            Shape::Draid(shape) => (shape.ndata as usize, shape.nparity as usize),
        };
        BlockColumns { data: data as f64, parity: parity as f64 }
    }
}

/// Bytes that a block takes on all disks.
fn taken(shape: Shape, block: u64, ashift: u32) -> f64 {
    let sectors = block.div_ceil(1 << ashift);
    let all = match shape {
        Shape::Single => sectors,
        Shape::Mirror(width) => sectors * width as u64,
        Shape::Raidz { parity, width } => {
            let (parity, width) = (parity as u64, width as u64);
            (sectors + parity * sectors.div_ceil(width - parity)).next_multiple_of(parity + 1)
        }
        Shape::Draid(shape) => sectors.div_ceil(shape.ndata) * (shape.ndata + shape.nparity),
    };
    (all << ashift) as f64
}

/// What a layout of disks of these sizes does.
pub fn estimate(
    layout: &PlannedLayout,
    sizes: &[u64],
    disk: &DiskModel,
    ashift: u32,
    load: &PoolLoad,
) -> LayoutEstimate {
    let columns = BlockColumns::of(layout.shape);
    let width = layout.width() as f64;
    let spares = if let Shape::Draid(shape) = layout.shape { shape.nspares as f64 } else { 0.0 };
    // distributed spares hold nothing, but lie on all disks
    let disks = layout.vdevs as f64 * width;
    let block = load.block_bytes as f64;
    let on = columns.data.min(load.block_bytes.div_ceil(1 << ashift) as f64);
    let reads_per_s = disks / (on * (1.0 / disk.iops + block / on / disk.rate));
    let is_mirror = matches!(layout.shape, Shape::Mirror(_));
    let read_part = if is_mirror { 1.0 } else { columns.data / (columns.data + columns.parity) };
    let read_rate = disks * disk.rate * read_part;
    let write_rate = disks * disk.rate * load.record_bytes as f64 / taken(layout.shape, load.record_bytes, ashift);
    let largest = sizes.first().copied().unwrap_or(0) as f64;
    let failed_bytes = largest * load.full * (width - spares) / width;
    let copied_s = match layout.shape {
        Shape::Single => None,
        Shape::Draid(_) => Some(failed_bytes * (columns.data + 1.0) / ((width - 1.0) * disk.rate)),
        _ => Some(failed_bytes / disk.rate),
    };
    let resilver_s = copied_s.map(|copied_s| copied_s + RESILVER_REQUESTS / disk.iops);
    let waits_s = if layout.has_spare() { 0.0 } else { load.replaced_in_s };
    let lacks_years = (resilver_s.unwrap_or(0.0) + waits_s) / YEAR_S;
    let tolerance = layout.tolerance();
    let per_year =
        |failures: usize| layout.vdevs as f64 * losses_a_year(width, failures, disk.failures_a_year, lacks_years);
    let lost = per_year(tolerance);
    // in the last resilver that can be, all disks that are left are read, of a mirror the only one
    let read = if is_mirror { 1.0 } else { columns.data };
    let meets = 1.0 - (-disk.errors_a_byte * failed_bytes * read).exp();
    let damaged = if tolerance > 0 { lost + per_year(tolerance - 1) * meets } else { lost };
    let in_life = |a_year: f64| -(-LIFE_YEARS * a_year).exp_m1();
    LayoutEstimate { reads_per_s, read_rate, write_rate, resilver_s, loss: in_life(lost), damage: in_life(damaged) }
}

/// How often a year more than `tolerance` of `width` disks have failed at a time, if each is repaired after `repair`
/// years.
fn losses_a_year(width: f64, tolerance: usize, failures: f64, repair: f64) -> f64 {
    let mut rate = width * failures;
    for failed in 1..=tolerance {
        rate *= (width - failed as f64) * failures * repair / failed as f64;
    }
    rate
}

#[cfg(test)]
mod tests {
    use super::super::disks::DiskKind;
    use super::*;

    const LOAD: PoolLoad =
        PoolLoad { record_bytes: 128 << 10, block_bytes: 16 << 10, full: 0.5, replaced_in_s: 86_400.0 };

    fn of(shape: Shape, vdevs: usize, spares: usize) -> LayoutEstimate {
        let layout = PlannedLayout { shape, vdevs, spares };
        let sizes = vec![4_000_000_000_000; layout.width() * vdevs + spares];
        estimate(&layout, &sizes, &DiskKind::Hdd7200.disk(), 12, &LOAD)
    }

    /// A simulation of disks that fail and are repaired loses as often.
    #[test]
    fn losses_are_those_of_a_simulation() {
        let mut rng = testkit::rng::Rng::new(1);
        let mut uniform = move || (rng.below(1 << 52) as f64 + 1.0) / (1u64 << 52) as f64;
        for (width, tolerance, failures, repair) in [(2.0, 1, 0.5, 0.02), (5.0, 1, 0.3, 0.01), (6.0, 2, 0.6, 0.03)] {
            let (mut years, mut losses) = (0.0, 0u32);
            while losses < 1500 {
                let mut failed = 0.0;
                while failed <= tolerance as f64 {
                    let (breaks, mends) = ((width - failed) * failures, failed / repair);
                    years += -uniform().ln() / (breaks + mends);
                    failed += if uniform() < breaks / (breaks + mends) { 1.0 } else { -1.0 };
                }
                losses += 1;
            }
            let (found, expect) = (f64::from(losses) / years, losses_a_year(width, tolerance, failures, repair));
            assert!((found / expect - 1.0).abs() < 0.15, "{width} {tolerance}: {found} beside {expect}");
        }
    }

    #[test]
    fn more_parity_is_safer_and_more_vdevs_are_faster() {
        let raidz = |parity, width, vdevs| of(Shape::Raidz { parity, width }, vdevs, 0);
        let (one, two, three) = (raidz(1, 12, 1), raidz(2, 12, 1), raidz(3, 12, 1));
        assert!(one.loss > two.loss && two.loss > three.loss && three.loss > 0.0);
        assert!(one.damage > one.loss && two.damage > two.loss);
        let split = raidz(2, 6, 2);
        assert!(split.loss < two.loss && split.reads_per_s >= two.reads_per_s);
        let mirrors = of(Shape::Mirror(2), 6, 0);
        assert!(mirrors.reads_per_s > 2.0 * two.reads_per_s && mirrors.write_rate < two.write_rate);
        let single = of(Shape::Single, 12, 0);
        assert_eq!(single.resilver_s, None);
        // 12 disks, 1.5 % a year, ten years
        assert!((single.loss - (1.0 - (-1.8f64).exp())).abs() < 1e-9);
    }

    #[test]
    fn a_spare_shortens_the_danger() {
        let shape = Shape::Raidz { parity: 1, width: 5 };
        assert!(of(shape, 2, 1).loss < of(shape, 2, 0).loss);
        let draid = of(Shape::Draid(vdev::draid::DraidShape::new(24, 4, 2, 1)), 1, 0);
        assert!(draid.resilver_s < of(Shape::Raidz { parity: 2, width: 6 }, 4, 0).resilver_s);
    }

    #[test]
    fn blocks_take_what_the_pool_says() {
        assert_eq!(taken(Shape::Raidz { parity: 1, width: 5 }, 128 << 10, 12), (40 << 12) as f64);
        assert_eq!(taken(Shape::Raidz { parity: 2, width: 6 }, 16 << 10, 12), (6 << 12) as f64);
        assert_eq!(taken(Shape::Mirror(3), 4096, 12), 3.0 * 4096.0);
    }
}
