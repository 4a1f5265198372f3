//! Where the time went, as text and as JSON.

use std::sync::Arc;

use protocol::words::nicenum::{nicebytes, nicenum, nicetime};
use serde_json::{Value, json};

use super::pool::{PoolWhole, ProfileRow};
use super::samples::SAMPLES_PER_S;
use super::tally::{CpuTally, GroupPhase};

/// Rows of a table of functions or locks.
const ROWS_MAX: usize = 15;
/// Characters of a name.
const NAME_LENGTH: usize = 64;

/// Heading of the lines of [`second`].
pub const HEADING: &str =
    "  TIME  POOL               CPU  MACHINE  MEMORY   CACHE   READ/S  WRITE/S   FUSE/S  LOCKS  SYNCING";

/// A pool in one second, as a line.
pub fn second(seconds: u64, row: &ProfileRow, machine: f64) -> String {
    format!(
        "{seconds:>6}  {:<15}{:>7}{:>9}{:>8}{:>8}{:>9}{:>9}{:>9}{:>7}{:>9}",
        shortened(&row.pool, 15),
        percent(row.cpu),
        percent(machine),
        nicebytes(row.resident_bytes),
        nicebytes(row.cache_bytes),
        nicebytes(row.read_bytes_per_s as u64),
        nicebytes(row.written_bytes_per_s as u64),
        nicenum(row.requests_per_s as u64),
        percent(row.lock_wait),
        percent(row.syncing)
    )
}

/// All that was seen of a pool.
pub struct PoolProfile<'a> {
    /// What its process tells.
    pub whole: PoolWhole,
    /// Samples of its process; `None` if there are none.
    pub tally: Option<&'a CpuTally>,
}

impl PoolProfile<'_> {
    /// As text.
    pub fn text(&self) -> String {
        let mut text = format!("\n{}\n", self.whole.row.pool);
        match self.tally {
            Some(tally) => text += &processor_text(tally),
            None => text += "  processors were not sampled\n",
        }
        text += &self.tables();
        text
    }

    fn tables(&self) -> String {
        let mut text = String::new();
        let busy = self.whole.vdevs.iter().filter(|vdev| vdev.reads_per_s + vdev.writes_per_s > 0.0);
        let vdevs = busy.map(|vdev| {
            let bytes = [vdev.read_bytes_per_s, vdev.written_bytes_per_s].map(|bytes| nicebytes(bytes as u64));
            let [reads, writes] = [vdev.reads_per_s, vdev.writes_per_s].map(|count| nicenum(count.ceil() as u64));
            (vdev.name.clone(), [reads, writes, bytes[0].clone(), bytes[1].clone()])
        });
        text += &table("devices, a second", ["READS", "WRITES", "READ", "WRITTEN"], vdevs);
        let requests = self.whole.requests.iter().map(|(kind, count)| (kind.clone(), [nicenum(*count)]));
        text += &table("requests of FUSE", ["COUNT"], requests);
        let seconds = self.whole.seconds.max(1e-6);
        let copied = self
            .whole
            .copied_bytes
            .iter()
            .map(|(kind, bytes)| (kind.clone(), [nicebytes(*bytes), nicebytes((*bytes as f64 / seconds) as u64)]));
        text += &table("bytes that were copied", ["BYTES", "A SECOND"], copied);
        let waits = self.whole.lock_waits.iter().take(ROWS_MAX).map(|waits| {
            let name = format!("{} {} at {}", waits.how, last_part(&waits.guarded), waits.place);
            (name, [nicenum(waits.count), nicetime(waits.total_ns), nicetime(waits.longest_ns)])
        });
        text + &table("waits for locks", ["COUNT", "TOTAL", "LONGEST"], waits)
    }

    /// As JSON: times of processors in seconds.
    pub fn json(&self) -> Value {
        let processor = self.tally.map(|tally| {
            let of = |counts: [u64; 3]| {
                let phases = GroupPhase::ALL.map(|phase| (phase.name().to_owned(), json!(seconds(counts[phase as usize]))));
                Value::Object(phases.into_iter().collect())
            };
            let named = |rows: Vec<(Arc<str>, u64)>| -> Value {
                rows.into_iter().map(|(name, count)| (name.to_string(), json!(seconds(count)))).collect()
            };
            json!({
                "seconds": seconds(tally.all()),
                "activities": tally.activities().into_iter().map(|(name, counts)| (name.to_owned(), of(counts))).collect::<Value>(),
                "threads": named(tally.threads()),
                "functions": named(tally.functions().into_iter().take(100).collect()),
            })
        });
        json!({ "pool": self.whole, "processor": processor })
    }
}

fn processor_text(tally: &CpuTally) -> String {
    let all = tally.all().max(1) as f64;
    let share = |count: u64| percent(count as f64 / all);
    let mut text = format!("  {:.2} s of processors\n", seconds(tally.all()));
    let activities = tally.activities().into_iter().map(|(name, counts)| {
        let sum: u64 = counts.iter().sum();
        let [open, quiescing, syncing] = counts.map(share);
        (name.to_owned(), [format!("{:.2}s", seconds(sum)), share(sum), open, quiescing, syncing])
    });
    text +=
        &table("by what is done, and while groups were", ["TIME", "SHARE", "OPEN", "QUIESCING", "SYNCING"], activities);
    let rows = |rows: Vec<(Arc<str>, u64)>| {
        let rows = rows.into_iter().take(ROWS_MAX);
        rows.map(|(name, count)| (name.to_string(), [format!("{:.2}s", seconds(count)), share(count)]))
            .collect::<Vec<_>>()
    };
    text += &table("by thread", ["TIME", "SHARE"], rows(tally.threads()).into_iter());
    text + &table("by function", ["TIME", "SHARE"], rows(tally.functions()).into_iter())
}

/// A table with names on the left; nothing if it has no rows.
fn table<const N: usize>(title: &str, columns: [&str; N], rows: impl Iterator<Item = (String, [String; N])>) -> String {
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    let width = rows.iter().map(|(name, _)| name.chars().count().min(NAME_LENGTH)).max().unwrap_or(0).max(title.len());
    let line = |name: &str, cells: [&str; N]| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>11}")).collect();
        format!("    {:<width$}{cells}\n", shortened(name, NAME_LENGTH.max(title.len())))
    };
    let lines: String = rows.iter().map(|(name, cells)| line(name, cells.each_ref().map(String::as_str))).collect();
    format!("\n{}{lines}", line(title, columns))
}

/// The end of a name is what tells it from others.
fn shortened(name: &str, most: usize) -> String {
    let length = name.chars().count();
    let rest = name.chars().skip(length.saturating_sub(most));
    rest.map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A type without the paths of its parts.
fn last_part(name: &str) -> String {
    let mut parts = String::new();
    for word in name.split_inclusive(['<', '>', ',', ' ', '(', ')', '[', ']']) {
        parts += word.rsplit("::").next().unwrap_or(word);
    }
    parts
}

fn seconds(samples: u64) -> f64 {
    samples as f64 / SAMPLES_PER_S as f64
}

fn percent(part: f64) -> String {
    format!("{:.0}%", part * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up() {
        let rows = [("a".to_owned(), ["1".to_owned()]), ("b\n".to_owned(), ["22".to_owned()])];
        assert_eq!(table("t", ["N"], rows.into_iter()), "\n    t           N\n    a           1\n    b?         22\n");
        assert_eq!(table("t", ["N"], std::iter::empty()), "");
        assert_eq!(last_part("alloc::vec::Vec<pool::live::Held>"), "Vec<Held>");
        assert_eq!(last_part("(u8, a::B)"), "(u8, B)");
        let row = ProfileRow { pool: "tank".into(), cpu: 1.234, ..ProfileRow::default() };
        assert_eq!(second(7, &row, 2.0).len(), HEADING.len());
    }
}
