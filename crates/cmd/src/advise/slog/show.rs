//! The answer, as text and as JSON.

use std::path::Path;

use protocol::words::nicenum::{nicebytes, nicetime};
use serde_json::{Value, json};

use super::class::DeviceClass;
use super::course::{QUEUES, SYNC_SIZES, SlogMeasures, median_s};
use super::demand::LogDemand;
use super::says::Identity;
use super::verdict::{ForetoldLoad, SlogVerdict};
use crate::bench::sync::{columns, row};

/// Everything that is told of a device.
pub(super) struct SlogReport<'a> {
    pub(super) device: &'a Path,
    pub(super) size: u64,
    pub(super) is_direct: bool,
    pub(super) identity: &'a Identity,
    pub(super) rated_bytes: Option<u64>,
    pub(super) measures: &'a SlogMeasures,
    pub(super) class: DeviceClass,
    pub(super) demand: Option<&'a LogDemand>,
    pub(super) verdict: &'a SlogVerdict,
    /// How long it took.
    pub(super) seconds: f64,
}

impl SlogReport<'_> {
    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = columns("\nWrite past the page cache, then fdatasync:", &QUEUES);
        for size in SYNC_SIZES {
            let rows: Vec<_> = self.measures.syncs.iter().filter(|row| row.size == size).cloned().collect();
            text += &row(&rows);
        }
        text += &format!("\n{}\n", self.times());
        text += &format!("{}\n", self.says());
        if !self.is_direct {
            text += "The page cache cannot be passed here: these are times of memory, too.\n";
        }
        for missing in &self.identity.missing {
            text += &format!("Not asked: {missing} is not installed.\n");
        }
        let name = self.class.name();
        text += &format!("\n{} ({name}): {}.\n\n", self.device.display(), self.class.words());
        for line in &self.verdict.lines {
            text += &format!("{line}\n");
        }
        text + &format!("\nVerdict: {}. Measured in {:.0} seconds.\n", self.verdict.purchase.word(), self.seconds)
    }

    fn times(&self) -> String {
        let measures = self.measures;
        let time = |seconds: f64| nicetime((seconds * 1e9) as u64);
        let mut text = format!(
            "A random read takes {}. Behind {} of writes, a flush takes {} ({} at least).",
            time(median_s(&measures.reads)),
            nicebytes(measures.burst_bytes),
            time(measures.burst_flush_s),
            time(measures.burst_flush_min_s),
        );
        if let Some(fill) = &measures.fill {
            let rate = |rate: f64| format!("{}/s", nicebytes(rate as u64));
            text += &format!(
                "\nWithout flushes: {} at first, {} at the end, after {} in {:.0} seconds{}.",
                rate(fill.early),
                rate(fill.late),
                nicebytes(fill.bytes),
                fill.seconds,
                fill.cliff_at.map_or_else(String::new, |at| format!("; the rate fell after {}", nicebytes(at)))
            );
        }
        text
    }

    fn says(&self) -> String {
        let Identity { says, model, serial, written_bytes, .. } = self.identity;
        let told = |flag: Option<bool>, yes: &str, no: &str| flag.map(|flag| if flag { yes } else { no }.to_owned());
        let words: Vec<String> = [
            model.clone(),
            serial.as_ref().map(|serial| format!("serial number {serial}")),
            told(says.is_rotational, "it turns", "it does not turn"),
            told(says.has_volatile_cache, "a volatile write cache", "no volatile write cache"),
            told(says.is_protected, "power-loss protection", "no power-loss protection"),
            written_bytes.map(|bytes| format!("{} written so far", nicebytes(bytes))),
            self.rated_bytes.map(|bytes| format!("rated for {} written", nicebytes(bytes))),
        ]
        .into_iter()
        .flatten()
        .collect();
        match words.is_empty() {
            true => "It says nothing of itself.".to_owned(),
            false => format!("It says: {}.", words.join(", ")),
        }
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let (measures, verdict) = (self.measures, self.verdict);
        let Identity { says, model, serial, written_bytes, missing, is_emulated, .. } = self.identity;
        let fill = measures.fill.as_ref().map(|fill| {
            json!({
                "bytes": fill.bytes, "seconds": fill.seconds, "peak_bytes_per_s": fill.peak,
                "early_bytes_per_s": fill.early, "late_bytes_per_s": fill.late, "cliff_at_bytes": fill.cliff_at,
            })
        });
        let load = |load: &ForetoldLoad| {
            json!({
                "bytes": load.load.bytes, "threads": load.load.threads,
                "with_per_s": load.with_per_s, "without_per_s": load.without_per_s,
            })
        };
        let pool = self.demand.map(|demand| {
            json!({
                "name": demand.pool, "seconds_since_import": demand.seconds, "logged_bytes_a_day": demand.bytes_a_day,
                "heaviest_group_bytes": demand.heaviest_group,
                "folder": demand.folder.as_ref().map(|folder| folder.to_string_lossy()),
                "commits_per_s_now": verdict.loads[0].without_per_s,
            })
        });
        json!({
            "device": self.device.to_string_lossy(),
            "size_bytes": self.size,
            "class": self.class.name(),
            "class_text": self.class.words(),
            "verdict": verdict.purchase.word(),
            "verdict_text": verdict.lines,
            "says": {
                "model": model, "serial": serial, "is_rotational": says.is_rotational,
                "has_volatile_cache": says.has_volatile_cache, "is_protected": says.is_protected,
                "rated_bytes": self.rated_bytes, "written_bytes": written_bytes, "is_emulated": is_emulated,
            },
            "missing": missing,
            "is_direct": self.is_direct,
            "random_read_s": median_s(&measures.reads),
            "syncs": measures.syncs.iter().map(|row| row.json("writes")).collect::<Vec<_>>(),
            "burst": {
                "bytes": measures.burst_bytes, "flush_s": measures.burst_flush_s, "flush_min_s": measures.burst_flush_min_s,
            },
            "fill": fill,
            "pool": pool,
            "commits_per_s_with": verdict.loads[0].with_per_s,
            "commits_per_s_without": verdict.loads[0].without_per_s,
            "loads": verdict.loads.iter().map(load).collect::<Vec<_>>(),
            "log_bytes": verdict.log_bytes,
            "years": verdict.years,
            "seconds": self.seconds,
        })
    }
}
