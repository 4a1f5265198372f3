//! The answer as a table, and as JSON.

use arc::miniature::HitShare;
use protocol::words::nicenum::{nicebytes, nicenum};
use serde_json::{Value, json};

use super::answer::{CacheAnswer, LiveSeen, percent, rate};
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
        text += &self.live.map_or_else(String::new, |live| live.text(self.now()));
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
            "live": self.live.map(LiveSeen::json),
            "verdict": { "device": device.word(), "ram": ram.word(), "text": sentences },
        })
    }
}

impl LiveSeen {
    /// What was seen, and how far it can be trusted.
    fn text(&self, now: HitShare) -> String {
        let mut text = format!(
            "The pool was watched for {}; in the first {} of them the simulated caches were only filled.\n",
            in_words(self.seconds),
            in_words(self.warm_up_s),
        );
        if let Some(hits) = self.hits {
            let [hits, simulated] = [hits, now.value].map(percent);
            text += &format!(
                "Since then RAM really served {hits} of the reads; of its size, the simulation says {simulated}.\n"
            );
        }
        if let Some(seconds) = self.warm_in_s {
            let (most, more) = (nicebytes(self.warm_bytes), in_words(seconds));
            text += &format!(
                "Caches of more than {most} were not full: BETWEEN tells how much they may serve. Watched for about {more} \
                 more, all would be.\n"
            );
        }
        if self.lost > 0 {
            text += &format!("{} accesses were lost, as there were too many at once.\n", nicenum(self.lost));
        }
        text + &self.pages()
    }

    /// Of what this is the answer: of the ARC, or of RAM.
    fn pages(&self) -> String {
        let [read, filled] = [self.read_bytes, self.page_cache_bytes].map(nicebytes);
        match self.page_cache_bytes {
            0 => "This is the answer of the ARC. No file system that the kernel's page cache stands before was read \
                  meanwhile; what virtual machines and clients keep themselves is not known here.\n"
                .to_owned(),
            _ => format!(
                "This is the answer of the ARC, not of all RAM: of {read} that programs read of file systems here, {filled} \
                 went into the kernel's page cache. What that serves again reaches no pool, cannot be counted here, and is \
                 in no figure below; org.cenote:pagecache=off, and a mount anew, sends all of it here.\n"
            ),
        }
    }

    fn json(self) -> Value {
        json!({
            "seconds": self.seconds,
            "warm_up_seconds": self.warm_up_s,
            "warm_bytes": self.warm_bytes,
            "warm_in_seconds": self.warm_in_s,
            "is_settled": self.is_settled,
            "hits": self.hits,
            "lost_accesses": self.lost,
            "file_system_read_bytes": self.read_bytes,
            "page_cache_fill_bytes": self.page_cache_bytes,
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
