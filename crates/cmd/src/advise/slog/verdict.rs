//! What to do, in words: whether the device is worth being a log, how large a log has to be, how long it lasts, and
//! whether it needs a mirror.

use protocol::words::nicenum::{nicebytes, nicetime};
use protocol::words::time::span;

use super::class::{DeviceClass, FlushFinding, Medium};
use super::course::SlogMeasures;
use super::demand::{COMMIT_LOADS, CommitLoad, GROUPS, LOG_BYTES_MIN, LogDemand};
use super::rehearsal::LOG_HEAD_BYTES;
use crate::advise::sizes::DAY_S;

/// What a synchronous write takes beside the log device where there was no rehearsal: two requests of FUSE and the pool's
/// own work, by the tables of docs/PERFORMANCE.md.
const OVERHEAD_S: f64 = 120e-6;
/// What is not faster by this factor is not worth a device.
const WORTH: f64 = 2.0;
/// Years that a device is to last.
const YEARS_MIN: f64 = 5.0;
const DAYS_A_YEAR: f64 = 365.25;

/// Whether to buy it as a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purchase {
    Buy,
    DoNotBuy,
    /// Something that decides is not known.
    Unclear,
}

impl Purchase {
    pub(super) fn word(self) -> &'static str {
        match self {
            Purchase::Buy => "buy",
            Purchase::DoNotBuy => "do not buy",
            Purchase::Unclear => "unclear",
        }
    }
}

/// See the top of the file.
#[derive(Clone, Debug)]
pub(super) struct SlogVerdict {
    pub(super) purchase: Purchase,
    /// Sentences.
    pub(super) lines: Vec<String>,
    /// Synchronous writes a second with the device as log, about, and as the pool is now, in the order of
    /// [`COMMIT_LOADS`].
    pub(super) loads: Vec<ForetoldLoad>,
    /// Bytes that a log needs.
    pub(super) log_bytes: u64,
    /// How many years the device lasts, where both what is logged and its rating are known.
    pub(super) years: Option<f64>,
}

/// A load with the device as log, and without.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForetoldLoad {
    pub(super) load: CommitLoad,
    pub(super) with_per_s: f64,
    pub(super) without_per_s: Option<f64>,
}

impl ForetoldLoad {
    /// What a rehearsal came to. Without one, one thread waits for its log block, and then for its requests; of several, one
    /// half waits while the other half's block is written.
    fn of(load: CommitLoad, measures: &SlogMeasures, demand: Option<&LogDemand>) -> ForetoldLoad {
        let found = demand.and_then(|demand| demand.loads.iter().find(|found| found.load == load));
        let threads = u64::from(load.threads);
        let (shared, blocks) = if threads == 1 { (1, 1.0) } else { (threads / 2, 2.0) };
        let block_s = measures.sync_s(load.bytes * shared + LOG_HEAD_BYTES);
        let reckoned_per_s = 1.0 / (blocks * block_s / threads as f64 + OVERHEAD_S);
        let with_per_s = found.and_then(|found| found.rehearsed_per_s).unwrap_or(reckoned_per_s);
        ForetoldLoad { load, with_per_s, without_per_s: found.map(|found| found.now_per_s) }
    }

    fn words(&self) -> String {
        let CommitLoad { bytes, threads } = self.load;
        let who = if threads == 1 { "one thread".to_owned() } else { format!("{threads} threads") };
        format!("{} by {who}", nicebytes(bytes))
    }
}

/// Judges a device. `rated_bytes` is what may be written to it in its life, `group_s` the time of a transaction group.
pub(super) fn judge(
    class: DeviceClass,
    measures: &SlogMeasures,
    rated_bytes: Option<u64>,
    demand: Option<&LogDemand>,
    group_s: u64,
) -> SlogVerdict {
    let loads: Vec<ForetoldLoad> =
        COMMIT_LOADS.into_iter().map(|load| ForetoldLoad::of(load, measures, demand)).collect();
    // what one thread gets decides: it waits for each of its writes
    let (with_per_s, without_per_s) = (loads[0].with_per_s, loads[0].without_per_s);
    let is_slower = without_per_s.is_some_and(|without| with_per_s < without * WORTH);
    let years = rated_bytes.zip(demand).and_then(|(rated, demand)| {
        (demand.bytes_a_day > 0.0).then(|| rated as f64 / demand.bytes_a_day / DAYS_A_YEAR)
    });
    let mut lines = vec![of_class(class, measures)];
    let mut purchase = purchase_of(class);
    if let (Some(without), Some(demand)) = (without_per_s, demand) {
        lines.push(of_rates(with_per_s, without, &demand.pool));
        lines.push(of_loads(&loads[1..]));
        if is_slower {
            purchase = Purchase::DoNotBuy;
        }
    }
    if let (Some(years), Some(demand), Some(rated)) = (years, demand, rated_bytes) {
        lines.push(of_wear(years, demand, rated));
        // what a few hours were like says little
        if years < YEARS_MIN && demand.seconds >= DAY_S {
            purchase = Purchase::DoNotBuy;
        }
    }
    let log_bytes = log_bytes(measures, demand, group_s);
    lines.push(of_size(log_bytes, demand, group_s));
    lines.push(
        "One log device has the same speed as two. Losing it costs nothing while the pool runs on; lost together with \
         the host's power, it takes the last seconds of synchronous writes along: mirror it if these matter."
            .to_owned(),
    );
    SlogVerdict { purchase, lines, loads, log_bytes, years }
}

fn purchase_of(class: DeviceClass) -> Purchase {
    match (class.medium, class.flush, class.has_cliff) {
        (Medium::Disk(_), _, _) | (_, FlushFinding::Honest | FlushFinding::Lies, _) => Purchase::DoNotBuy,
        (_, FlushFinding::Untold, _) => Purchase::Unclear,
        (_, FlushFinding::Protected, true) => Purchase::DoNotBuy,
        (_, FlushFinding::Protected, false) => Purchase::Buy,
    }
}

fn of_class(class: DeviceClass, measures: &SlogMeasures) -> String {
    let rate = measures.sync(super::course::SMALL_BYTES, 1).map_or(0.0, |row| row.rate());
    let took = nicetime((measures.small_sync_s() * 1e9) as u64);
    let fill = measures.fill.as_ref();
    match (class.medium, class.flush) {
        (_, FlushFinding::Lies) => format!(
            "Do not buy it for anything that is to last: a write and a flush take {took}, and behind {} of writes a flush \
             takes {}. That is no time to program flash memory or to move an arm, and its cache is volatile: a power cut \
             takes writes along that were said to be safe.",
            nicebytes(measures.burst_bytes),
            nicetime((measures.burst_flush_s * 1e9) as u64),
        ),
        (Medium::Disk(speed), _) => format!(
            "Do not buy it as a log: a synchronous write waits for {}, {rate:.0} a second with one thread. A pool of disks \
             has that already.",
            speed.map_or("the platter".to_owned(), |speed| format!("one of {speed} revolutions a minute")),
        ),
        (_, FlushFinding::Honest) if class.has_cliff => format!(
            "Do not buy it as a log: a flush takes {took}, {rate:.0} synchronous writes a second with one thread, and it \
             has a cliff: {}.",
            cliff_words(fill)
        ),
        (Medium::Flash { is_beyond_sata }, FlushFinding::Honest) => format!(
            "Do not buy it as a log: its cache is volatile, so each flush programs flash memory: {took}, {rate:.0} \
             synchronous writes a second with one thread{}. SSDs with power-loss protection give ten times that.",
            if is_beyond_sata { ", however fast its link is" } else { "" }
        ),
        (_, FlushFinding::Untold) => format!(
            "Unclear: a write and a flush take {took}, which no volatile cache can do. Either its cache is protected, or \
             it lies. Do not buy it unless its data sheet says power-loss protection for data in flight."
        ),
        (_, FlushFinding::Protected) if class.has_cliff => {
            format!("Do not buy it as a log: it is protected, but has a cliff: {}.", cliff_words(fill))
        }
        (_, FlushFinding::Protected) => format!(
            "It makes a good log: {rate:.0} synchronous writes a second with one thread, {took} each; it is protected, and \
             has no cliff within {}.",
            fill.map_or("what was written".to_owned(), |fill| nicebytes(fill.bytes))
        ),
    }
}

fn cliff_words(fill: Option<&super::course::FillMeasures>) -> String {
    let Some(fill) = fill else { return "its rate falls".to_owned() };
    let rate = |rate: f64| format!("{}/s", nicebytes(rate as u64));
    let at = fill.cliff_at.map_or_else(String::new, |at| format!(" after about {}", nicebytes(at)));
    format!("{}{at}, where it began with {}", rate(fill.late), rate(fill.early))
}

fn of_rates(with: f64, without: f64, pool: &str) -> String {
    let factor = with / without;
    let words = if factor < WORTH { ", not worth a device" } else { "" };
    format!(
        "One thread writes synchronously about {with:.0} times a second with it as the log of '{pool}', and {without:.0} times \
         as the pool is now: a factor of {factor:.1}{words}."
    )
}

/// The other loads.
fn of_loads(loads: &[ForetoldLoad]) -> String {
    let each = loads.iter().map(|load| {
        let without = load.without_per_s.map_or_else(String::new, |without| format!(", {without:.0} now"));
        format!("{}: about {:.0} times a second{without}", load.words(), load.with_per_s)
    });
    format!("Of {}.", each.collect::<Vec<_>>().join("; of "))
}

fn of_wear(years: f64, demand: &LogDemand, rated: u64) -> String {
    let a_day = nicebytes(demand.bytes_a_day as u64);
    let rated = nicebytes(rated);
    let life = if years > 100.0 { "more than 100 years".to_owned() } else { format!("{years:.1} years") };
    let words = match (years < YEARS_MIN, demand.seconds < DAY_S) {
        (true, true) => "too few, if it goes on like that",
        (true, false) => "too few",
        (false, _) => "enough",
    };
    let since = span(demand.seconds as u64);
    format!(
        "'{}' logs {a_day} a day, by the {since} since its import; rated for {rated}, the device lasts {life}: {words}.",
        demand.pool
    )
}

/// Bytes for the groups whose log is needed at a time, as they were or can be at most.
fn log_bytes(measures: &SlogMeasures, demand: Option<&LogDemand>, group_s: u64) -> u64 {
    let rate = measures.syncs.iter().map(|row| row.bytes_rate()).fold(0.0, f64::max);
    let most = (rate * group_s as f64) as u64;
    let heaviest = demand.and_then(LogDemand::log_bytes);
    heaviest.unwrap_or_else(|| most.saturating_mul(GROUPS).max(LOG_BYTES_MIN))
}

fn of_size(bytes: u64, demand: Option<&LogDemand>, group_s: u64) -> String {
    let bytes = nicebytes(bytes);
    match demand.filter(|demand| demand.heaviest_group.is_some_and(|bytes| bytes > 0)) {
        Some(demand) => {
            format!("The log of '{}' needs {bytes}: {GROUPS} times its heaviest transaction group.", demand.pool)
        }
        None => format!(
            "A log needs {bytes} at most, if it is written to all the time as fast as it can: {GROUPS} transaction groups \
             of {group_s} seconds. More is of no use."
        ),
    }
}
