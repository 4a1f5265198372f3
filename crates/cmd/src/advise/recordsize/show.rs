//! What is known of records of each size, as a table, as JSON, and in words.

use protocol::words::nicenum::{nicebytes, nicenum};
use serde_json::{Value, json};

use super::RecordAnswer;
use super::measure::{RECORD_DEFAULT, RecordTrial};
use crate::advise::sizes::RECORDS;

/// Random writes that are shown, and the programs that make them.
const LOADS: [(u64, &str); 3] = [(4 << 10, "virtual machines"), (8 << 10, "PostgreSQL"), (16 << 10, "MySQL")];
/// How much more space records may take that are the best for a load, before that is a reason not to take them.
const SPACE_MORE: f64 = 1.25;
/// A part of the space, or of what is read and written, that is worth a word.
const WORTH: f64 = 0.03;
/// A part of the bytes that is nearly all.
const NEARLY_ALL: f64 = 0.8;
const GIB: f64 = (1u64 << 30) as f64;

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

fn bytes(amount: f64) -> String {
    nicebytes(amount.max(0.0) as u64)
}

impl RecordAnswer {
    /// Bytes that all data takes in records of a trial, and how far off that may be.
    fn space(&self, trial: &RecordTrial) -> [f64; 2] {
        let space = trial.space();
        [space.value * self.bytes, (space.high - space.value) * self.bytes]
    }

    /// The space of a trial beside that of usual records.
    fn beside_usual(&self, trial: &RecordTrial) -> f64 {
        trial.space().value / self.trials.usual().space().value.max(1e-9)
    }

    pub(super) fn text(&self) -> String {
        let sizes = &self.sizes;
        let mut text = format!("{} of data in {} files and volumes", bytes(self.bytes), nicenum(sizes.files));
        if let Some(now) = self.now_bytes {
            text += &format!(", which take {} now", bytes(now));
        }
        text += &format!("; drawn: {} pieces\n", self.trials.pieces);
        let usual = RECORDS.iter().position(|record| *record == RECORD_DEFAULT).unwrap_or(0);
        text += &format!(
            "files no longer than 128K: {} of them, {} of the bytes\n\n",
            percent(sizes.within[usual].0 as f64 / sizes.files.max(1) as f64),
            percent(sizes.part_within(usual))
        );
        text += &format!(
            "{:10} {:>7} {:>7} {:>8} {:>7} {:>7} {:>7} {:>7} {:>9}\n",
            "RECORDSIZE", "SPACE", "+-", "TO 128K", "R 4K", "W 4K", "W 8K", "W 16K", "POINTERS"
        );
        for trial in &self.trials.trials {
            let [space, error] = self.space(trial);
            let dash = || "-".to_owned();
            let write = |size| trial.random_write(size).map_or_else(dash, |[read, written]| bytes(read + written));
            text += &format!(
                "{:10} {:>7} {:>7} {:>7.3}x {:>7} {:>7} {:>7} {:>7} {:>9}\n",
                nicebytes(trial.record),
                bytes(space),
                format!("{:.1} %", error / space.max(1.0) * 100.0),
                self.beside_usual(trial),
                trial.read_bytes().map_or_else(dash, bytes),
                write(4 << 10),
                write(8 << 10),
                write(16 << 10),
                nicebytes(trial.pointer_bytes())
            );
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let of = |(at, trial): (usize, &RecordTrial)| {
            let space = trial.space();
            let write = |size: u64| {
                trial.random_write(size).map(|[read, written]| json!({"read_bytes": read, "written_bytes": written}))
            };
            json!({
                "recordsize": trial.record,
                "bytes": self.space(trial)[0] as u64,
                "bytes_a_byte": space.value,
                "bytes_a_byte_low": space.low,
                "bytes_a_byte_high": space.high,
                "to_128k": self.beside_usual(trial),
                "record_read_bytes": trial.read_bytes(),
                "record_written_bytes": trial.written_bytes(),
                "random_write_4k": write(4 << 10),
                "random_write_8k": write(8 << 10),
                "random_write_16k": write(16 << 10),
                "pointer_bytes_a_tib": trial.pointer_bytes(),
                "files_within": self.sizes.within[at].0,
                "part_within": self.sizes.part_within(at),
            })
        };
        json!({
            "files": self.sizes.files,
            "bytes": self.bytes as u64,
            "now_bytes": self.now_bytes.map(|bytes| bytes as u64),
            "pieces": self.trials.pieces,
            "unreadable": self.failures,
            "sizes": self.trials.trials.iter().enumerate().map(of).collect::<Vec<_>>(),
            "rewrite": { "read_bytes": self.now_bytes.unwrap_or(self.bytes) as u64 },
            "verdict": self.verdict().trim_end(),
        })
    }

    /// The size of records that reads and writes least for random writes of so many bytes, and the same if it may not take
    /// much more space than others.
    fn best_for(&self, load: u64) -> Option<[&RecordTrial; 2]> {
        let cost = |trial: &RecordTrial| trial.random_write(load).map_or(f64::INFINITY, |both| both.iter().sum());
        let trials = &self.trials.trials;
        // of sizes that cost the same, the larger one: it needs fewer pointers
        let best = |is_meant: &dyn Fn(&&RecordTrial) -> bool| {
            trials.iter().rev().filter(is_meant).min_by(|a, b| cost(a).total_cmp(&cost(b)))
        };
        let least = trials.iter().map(|trial| trial.space().value).fold(f64::INFINITY, f64::min);
        let best_of_all = best(&|trial| trial.random_write(load).is_some())?;
        let best_in_space = best(&|trial| trial.space().value <= least * SPACE_MORE)?;
        Some([best_of_all, best_in_space])
    }

    /// What to do, in words.
    pub fn verdict(&self) -> String {
        let usual_at = RECORDS.iter().position(|record| *record == RECORD_DEFAULT).unwrap_or(0);
        let within = self.sizes.part_within(usual_at);
        let usual = self.trials.usual();
        if within > NEARLY_ALL {
            return format!(
                "Leave recordsize alone: {} of the bytes are in files no longer than 128K, which are one record each, \
                 whatever it says.\n",
                percent(within)
            );
        }
        let mut text = self.sequential(usual);
        for (load, name) in LOADS {
            text += &self.random(load, name, usual);
        }
        let read = self.now_bytes.unwrap_or(self.bytes);
        text += &format!(
            "recordsize counts for files that are made from now on, and volblocksize for new volumes only. To rewrite all \
             that is there reads {} and writes what is in column SPACE; what snapshots have stays beside it.\n",
            bytes(read)
        );
        text
    }

    /// For files that are written once and read from front to end.
    fn sequential(&self, usual: &RecordTrial) -> String {
        let large = self.trials.of(1 << 20);
        let saves = 1.0 - self.beside_usual(large);
        let pointers = [large, usual].map(|trial| trial.pointer_bytes() as f64 / GIB);
        let fewer = format!("pointers to a TiB take {:.2} instead of {:.2} GiB", pointers[0], pointers[1]);
        if saves > WORTH {
            return format!(
                "Files that are written once and read from front to end: 1M, saves {}; {fewer}.\n",
                percent(saves)
            );
        }
        if saves < -WORTH {
            return format!(
                "Files that are written once and read from front to end: 128K; 1M takes {} more.\n",
                percent(-saves)
            );
        }
        format!(
            "Files that are written once and read from front to end: 128K is as good; 1M saves next to no space, though {fewer}.\n"
        )
    }

    /// For random writes of so many bytes, as a program makes them.
    fn random(&self, load: u64, name: &str, usual: &RecordTrial) -> String {
        let Some([best, in_space]) = self.best_for(load) else { return String::new() };
        let (Some(of_best), Some(of_usual)) = (best.random_write(load), usual.random_write(load)) else {
            return String::new();
        };
        let sum = |both: [f64; 2]| both.iter().sum::<f64>();
        let more = self.beside_usual(best) - 1.0;
        let space = match more {
            more if more > WORTH => format!("takes {} more space than 128K", percent(more)),
            more if more < -WORTH => format!("takes {} less space than 128K", percent(-more)),
            _ => "takes the space of 128K".to_owned(),
        };
        let mut text = format!(
            "Random writes of {} ({name}): {}, {:.1} times less to read and write than with 128K; it {space}.\n",
            nicebytes(load),
            nicebytes(best.record),
            sum(of_usual) / sum(of_best).max(1.0)
        );
        let between = in_space.random_write(load).filter(|_| in_space.record != best.record);
        if let Some(both) = between {
            text += &format!(
                "  With less room: {}, {:.1} times less, {:.0} % of the space of 128K.\n",
                nicebytes(in_space.record),
                sum(of_usual) / sum(both).max(1.0),
                self.beside_usual(in_space) * 100.0
            );
        }
        text
    }
}
