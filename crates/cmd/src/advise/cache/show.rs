//! The answer as a table, and as JSON.

use arc::miniature::HitShare;
use protocol::words::nicenum::{nicebytes, nicenum};
use serde_json::{Value, json};

use super::answer::{CacheAnswer, percent, rate};
use super::verdict::{CacheVerdict, verdict};
use crate::advise::sizes::DAY_S;

impl CacheAnswer {
    /// The table, and the verdict.
    pub fn text(&self) -> String {
        let foretold = &self.foretold;
        let mut text = format!(
            "{} reads in {}; in the sample {} blocks, {:.2} % of all\n",
            nicenum(foretold.reads),
            in_words(self.seconds()),
            nicenum(foretold.drawn_blocks),
            foretold.drawn_part * 100.0,
        );
        if let Some(rate) = self.assumed_rate {
            text += &format!("The trace has no times: {rate} requests a second are assumed (--rate).\n");
        }
        let head = ["CACHE IN RAM", "HITS", "BETWEEN", "LRU", "DISK READS/s", "", ""];
        text += &format!("\n{}", row(head.map(str::to_owned)));
        for ram in &foretold.rams {
            let mark = if ram.bytes.abs_diff(self.ram) < 8 { " now" } else { "" };
            let (lru, reads) = (percent(ram.lru_hits.value), rate(self.disk_reads(ram.hits)));
            let size = nicebytes(ram.bytes) + mark;
            text += &row([size, percent(ram.hits.value), between(ram.hits), lru, reads, String::new(), String::new()]);
        }
        let head = ["WITH A DEVICE", "HITS", "BETWEEN", "", "DISK READS/s", "WRITES A DAY", "INDEX"];
        text += &format!("\n{}", row(head.map(str::to_owned)));
        for device in &foretold.devices {
            let (written, index) = (nicebytes(self.a_day(device.written)), nicebytes(device.index));
            let reads = rate(self.disk_reads(device.hits));
            let (hits, size) = (device.hits, nicebytes(device.bytes));
            text += &row([size, percent(hits.value), between(hits), String::new(), reads, written, index]);
        }
        text + "\n" + &verdict(self).sentences.iter().map(|sentence| format!("{sentence}\n")).collect::<String>()
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        let foretold = &self.foretold;
        let CacheVerdict { device, ram, sentences } = verdict(self);
        let shares = |hits: HitShare| {
            json!({
                "hits": hits.value,
                "hits_low": hits.low,
                "hits_high": hits.high,
                "disk_reads_per_s": self.disk_reads(hits),
            })
        };
        let with = |mut value: Value, more: Value| {
            if let (Some(value), Value::Object(more)) = (value.as_object_mut(), more) {
                value.extend(more);
            }
            value
        };
        let rams = foretold.rams.iter().map(|one| {
            with(json!({ "bytes": one.bytes }), with(shares(one.hits), json!({ "lru_hits": one.lru_hits.value })))
        });
        let devices = foretold.devices.iter().map(|one| {
            let (written, index) = (self.a_day(one.written), one.index);
            let more = json!({ "written_bytes_per_day": written, "index_bytes": index });
            with(json!({ "bytes": one.bytes }), with(shares(one.hits), more))
        });
        json!({
            "reads": foretold.reads,
            "seconds": self.seconds(),
            "seconds_are_assumed": self.assumed_rate.is_some(),
            "sample_blocks": foretold.drawn_blocks,
            "sample_part": foretold.drawn_part,
            "ram": self.ram,
            "endless_hits": foretold.endless.value,
            "rams": rams.collect::<Vec<_>>(),
            "devices": devices.collect::<Vec<_>>(),
            "verdict": { "device": device.word(), "ram": ram.word(), "text": sentences },
        })
    }
}

fn between(hits: HitShare) -> String {
    format!("{:.1} to {:.1}", hits.low * 100.0, hits.high * 100.0)
}

/// A time in words.
fn in_words(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.1} s"),
        ..7200.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.1} days", seconds / DAY_S),
    }
}

fn row(cells: [String; 7]) -> String {
    let [size, hits, between, lru, reads, written, index] = cells;
    let line = format!("{size:14} {hits:>8} {between:>15} {lru:>8} {reads:>13} {written:>13} {index:>7}");
    format!("{}\n", line.trim_end())
}
