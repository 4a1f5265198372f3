//! `cenote advise dedup`: whether to turn dedup on.
//!
//! ```text
//!   pool, dataset ─▶ pointers below some of the blocks that lead to data: walk, groups, unseen ──┐
//!              └───▶ where these tell too little, all, of these some by checksum: dedup_survey ──┤
//!   folder ─▶ the middle of all blocks, of these some by hash, and read whole: folder ───────────┴▶ answer ─▶ table, verdict
//! ```

mod folder;
mod groups;
mod leaves;
mod simplex;
#[cfg(test)]
mod tests;
mod unseen;
mod walk;

use std::fmt::Write;
use std::time::Instant;

use arc::Gauge;
use base::Endian;
use codec::checksum::{Checksum, compute};
use protocol::words::nicenum::{nicebytes, nicenum};
use serde_json::{Value, json};

use super::files::FoundFiles;
use super::ratio::Interval;
use super::sizes::block_size;
use super::subject::{AdviceSubject, PoolSubject, SubjectArgs};
use super::verdict::AdviceVerdict;
use crate::bench::random::noise;
use crate::dedup_survey::{DedupSurvey, ENTRY_BYTES};
use crate::output;
use crate::progress::ProgressDisplay;
use folder::FolderSurvey;
use groups::GroupEstimate;
use walk::{SAMPLE_MAX, SampledWalk, Walked};

/// Bytes that an entry of a table takes on disks, one copy of it: a million of them were 163 MiB (docs/PERFORMANCE.md).
const ENTRY_DISK_BYTES: u64 = 171;
/// Checksums that dedup may go by, fletcher4 beside them, which is in use without.
const CHECKSUMS: [Checksum; 6] =
    [Checksum::Fletcher4, Checksum::Sha256, Checksum::Sha512, Checksum::Skein, Checksum::Edonr, Checksum::Blake3];
/// Bytes that are summed at a time, and how often, and how many seconds, each checksum is measured at least.
const SUMMED_BYTES: usize = 128 << 10;
const SUMMED_RUNS: u32 = 8;
const SUMMED_S: f64 = 0.003;
/// A ratio below this saves less than its table costs in any case.
const RATIO_LOW: f64 = 1.1;
/// One from which on dedup pays.
const RATIO_HIGH: f64 = 2.0;
/// The part of memory that a table may take.
const MEMORY_PART: f64 = 0.25;

/// Say whether dedup would pay: what it saves, what its table takes, and what its checksums cost
///
/// Of a pool, what leads to data is read, not the data, and blocks are told apart by their checksums: one in 2^n of these
/// is counted, each time that it comes, in at most 64 MiB. Of the blocks that lead to data, a part is read that grows until
/// it tells enough, and all only where no part does. Of a folder, the middle of each block is read, and some blocks
/// whole. The interval holds the truth 95 times of 100. A dataset is taken for itself, with all that it refers to.
/// Encrypted blocks, and those without checksum, are left out.
#[derive(clap::Parser)]
#[command(name = "cenote advise dedup", no_binary_name = true)]
pub struct DedupAdviceArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Records that files of a folder are cut into
    #[arg(long, default_value = "128K", value_parser = block_size)]
    recordsize: u64,
    /// Read all that leads to data of a pool, however much that is
    #[arg(long)]
    exact: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What dedup would come to.
#[derive(Clone, Debug)]
pub struct DedupAnswer {
    /// Blocks, and the bytes that they take.
    pub blocks: f64,
    pub bytes: f64,
    /// Bytes that are shared already.
    pub shared_bytes: f64,
    pub ratio: Interval,
    /// Entries of the table.
    pub entries: f64,
    /// Different blocks that were counted, and for how many each stands.
    pub counted: u64,
    pub scale: f64,
    /// Blocks, or files, that could not be looked at, or that nothing tells apart.
    pub left_out: u64,
    /// Some checksums are no proof that blocks are equal.
    pub is_weak: bool,
    /// Bytes that were read of files.
    pub read_bytes: Option<u64>,
    /// The part of a pool's blocks that lead to data that was read.
    pub read_part: Option<f64>,
}

/// What a checksum costs here.
#[derive(Clone, Copy, Debug)]
struct ChecksumCost {
    checksum: Checksum,
    seconds_a_gib: f64,
}

impl DedupAnswer {
    /// Of a pool, or a dataset. Errors: it cannot be read.
    fn of_pool(subject: &PoolSubject, is_exact: bool) -> Result<DedupAnswer, String> {
        Ok(match SampledWalk::of(subject, is_exact).map_err(|error| error.to_string())? {
            Walked::All(survey) => DedupAnswer::of_survey(&survey),
            Walked::Part { estimate, part, is_weak } => DedupAnswer::of_part(&estimate, part, is_weak),
        })
    }

    /// What a part of the pointers comes to.
    fn of_part(estimate: &GroupEstimate, part: f64, is_weak: bool) -> DedupAnswer {
        let GroupEstimate { blocks, bytes, entries, ratio, counted, scale } = *estimate;
        DedupAnswer {
            blocks,
            bytes,
            shared_bytes: 0.0,
            ratio,
            entries,
            counted,
            scale,
            left_out: 0,
            is_weak,
            read_bytes: None,
            read_part: Some(part),
        }
    }

    /// Looks at the blocks of a walk over a pool, and shows how far that is.
    pub fn survey(subject: &PoolSubject) -> DedupSurvey {
        DedupSurvey::new(SAMPLE_MAX, Some(ProgressDisplay::new(subject.bytes())))
    }

    /// What the blocks of a walk come to.
    pub fn of_survey(survey: &DedupSurvey) -> DedupAnswer {
        let found = survey.estimate();
        let (unique, error) = (found.unique_bytes, found.error_bytes);
        let ratio = Interval {
            value: found.ratio(unique),
            low: found.ratio(unique + error),
            high: found.ratio(unique - error),
        };
        DedupAnswer {
            blocks: found.blocks,
            bytes: found.bytes,
            shared_bytes: found.shared_bytes,
            ratio,
            entries: found.entries,
            counted: survey.counted(),
            scale: survey.scale(),
            left_out: survey.left_out,
            is_weak: survey.is_weak,
            read_bytes: None,
            read_part: Some(1.0),
        }
    }

    fn of_folder(survey: &FolderSurvey, found: &FoundFiles) -> DedupAnswer {
        let folder::FolderEstimate { entries, unique_bytes, error_bytes, counted, scale } = survey.estimate();
        let ratio = |unique: f64| (survey.bytes as f64 / unique.max(1.0)).max(1.0);
        let (low, high) = (ratio(unique_bytes + error_bytes), ratio(unique_bytes - error_bytes));
        DedupAnswer {
            blocks: survey.blocks as f64,
            bytes: survey.bytes as f64,
            shared_bytes: 0.0,
            ratio: Interval { value: ratio(unique_bytes), low, high },
            entries,
            counted,
            scale,
            left_out: found.failures,
            is_weak: false,
            read_bytes: Some(survey.read_bytes),
            read_part: None,
        }
    }

    /// The part of the bytes that is saved with that ratio.
    pub fn saves(ratio: f64) -> f64 {
        1.0 - 1.0 / ratio.max(1.0)
    }

    /// Bytes that are saved.
    fn saved_bytes(&self) -> f64 {
        self.bytes * DedupAnswer::saves(self.ratio.value)
    }

    /// Bytes of the table in memory, and of one copy of it on disks.
    pub fn table_bytes(&self) -> [f64; 2] {
        [self.entries * ENTRY_BYTES as f64, self.entries * ENTRY_DISK_BYTES as f64]
    }

    fn text(&self, what: &str) -> String {
        let percent = |ratio: f64| format!("{:.1} %", DedupAnswer::saves(ratio) * 100.0);
        let Interval { value, low, high } = self.ratio;
        let mut text = format!(
            "{} blocks of data, which take {}{what}\n",
            nicenum(self.blocks as u64),
            nicebytes(self.bytes as u64)
        );
        if self.shared_bytes > 0.0 {
            text += &format!(
                "already shared, so that dedup saves nothing more there: {}\n",
                nicebytes(self.shared_bytes as u64)
            );
        }
        if let Some(bytes) = self.read_bytes {
            text += &format!("read of them: {}\n", nicebytes(bytes));
        }
        if let Some(part) = self.read_part.filter(|part| *part < 1.0) {
            text += &format!("of the blocks that lead to them, 1 in {:.0} was read\n", 1.0 / part);
        }
        text += &match self.scale {
            1.0 if self.read_part.is_some_and(|part| part < 1.0) => "all that these lead to were counted\n".to_owned(),
            1.0 => "all of them were counted\n".to_owned(),
            scale => format!(
                "counted: 1 in {} of them by hash, {} different ones\n",
                nicenum(scale as u64),
                nicenum(self.counted)
            ),
        };
        if self.is_weak {
            text += "Checksums like fletcher4 are no proof that blocks are equal, but nearly always right.\n";
        }
        let [memory, disk] = self.table_bytes().map(|bytes| nicebytes(bytes as u64));
        text += &format!("\nratio       {value:.3}x, 95 % between {low:.3}x and {high:.3}x\n");
        text += &format!("saves       {}, {} to {}\n", percent(value), percent(low), percent(high));
        text += &format!(
            "table       {} entries: {memory} in memory, {disk} on disks for each copy\n",
            nicenum(self.entries as u64)
        );
        text
    }

    fn json(&self, costs: &[ChecksumCost], words: &str) -> Value {
        let [memory, disk] = self.table_bytes().map(|bytes| bytes as u64);
        let cost = |cost: &ChecksumCost| json!({"checksum": cost.checksum.name(), "s_per_gib": cost.seconds_a_gib});
        json!({
            "blocks": self.blocks as u64,
            "bytes": self.bytes as u64,
            "shared_bytes": self.shared_bytes as u64,
            "left_out": self.left_out,
            "read_bytes": self.read_bytes,
            "read_part": self.read_part,
            "counted": self.counted,
            "counted_one_in": self.scale,
            "ratio": self.ratio.value,
            "ratio_low": self.ratio.low,
            "ratio_high": self.ratio.high,
            "saved_bytes": self.saved_bytes() as u64,
            "table_entries": self.entries as u64,
            "table_memory_bytes": memory,
            "table_disk_bytes": disk,
            "checksums": costs.iter().map(cost).collect::<Vec<_>>(),
            "verdict": words,
        })
    }

    /// What to do, in words; `memory`: bytes that this machine has.
    pub fn verdict(&self, memory: Option<u64>) -> AdviceVerdict {
        let Interval { low, high, .. } = self.ratio;
        let percent = |ratio: f64| format!("{:.0} %", (DedupAnswer::saves(ratio) * 100.0).abs());
        let saves = match (percent(low), percent(high)) {
            (low, high) if low == high => low,
            (low, high) => format!("{low} to {high}"),
        };
        let [table, disk] = self.table_bytes();
        let words = nicebytes(table as u64);
        let clones = "Copies of whole files share their blocks without a table where they are made by clones \
                      (cp --reflink, cenote reflink).\n";
        if self.blocks < 1.0 {
            return AdviceVerdict::no("There is nothing to deduplicate.\n".to_owned());
        }
        if high < RATIO_LOW {
            return AdviceVerdict::no(format!(
                "Do not turn dedup on: it would save {} at most, and each write and each free would have to look into a \
                 table of {words}, for good.\n",
                percent(high)
            ));
        }
        let part = memory.filter(|memory| *memory > 0).map(|memory| table / memory as f64);
        if part.is_some_and(|part| part > MEMORY_PART) {
            return AdviceVerdict::no(format!(
                "Do not turn dedup on here: it would save {saves}, but its table of {words} is more than a quarter of \
                 the memory of this machine ({}). What is not in memory is read from disks at each write. A mirrored \
                 dedup vdev of at least {} would be needed.\n{clones}",
                nicebytes(memory.unwrap_or_default()),
                nicebytes(2 * disk as u64)
            ));
        }
        if low >= RATIO_HIGH {
            return AdviceVerdict::yes(format!(
                "Dedup would pay: it saves {saves}, and its table of {words} fits into memory. Turn it on for the \
                 datasets that have the copies, before they are filled: what is there already stays as it is. Blocks that \
                 are freed do not give the memory back at once.\n"
            ));
        }
        AdviceVerdict::no(format!(
            "Rather leave dedup off: it would save {saves}, for a table of {words} that each write and each free has to \
             look into. Try compression first (cenote advise compression).\n{clones}"
        ))
    }
}

/// Runs the command.
pub fn run(args: &DedupAdviceArgs) -> Result<(), String> {
    let named = |error: String| format!("{}: {error}", args.subject.shown());
    let mut found = FoundFiles::default();
    let (answer, what) = match args.subject.open().map_err(named)? {
        AdviceSubject::Folder(path) => {
            let survey =
                FolderSurvey::of(&path, args.recordsize, &mut found).map_err(|error| named(error.to_string()))?;
            (DedupAnswer::of_folder(&survey, &found), format!(", in {} files", nicenum(found.files)))
        }
        AdviceSubject::Pool(subject) => (DedupAnswer::of_pool(&subject, args.exact).map_err(named)?, String::new()),
    };
    found.complain();
    if answer.left_out > 0 {
        let why = match answer.read_bytes {
            Some(_) => "files and folders could not be read",
            None => "blocks could not be reached, are encrypted or have no checksum: they are left out",
        };
        output::complain("advise", format_args!("{} {why}", nicenum(answer.left_out)));
    }
    let costs: Vec<ChecksumCost> = CHECKSUMS.into_iter().map(ChecksumCost::measured).collect();
    let words = answer.verdict(Gauge::new("/").limit()).words;
    match args.json {
        true => println!("{}", answer.json(&costs, words.trim_end())),
        false => print!("{}{}\n{words}", answer.text(&what), costs_text(&costs)),
    }
    Ok(())
}

impl ChecksumCost {
    fn measured(checksum: Checksum) -> ChecksumCost {
        let (bytes, began, mut least, mut runs) = (noise(SUMMED_BYTES, 1), Instant::now(), f64::INFINITY, 0);
        // what else the processor does makes it longer, never shorter
        while runs < SUMMED_RUNS || began.elapsed().as_secs_f64() < SUMMED_S {
            runs += 1;
            let one = Instant::now();
            std::hint::black_box(compute(checksum, Endian::Little, &[0; 32], std::hint::black_box(&bytes)));
            least = least.min(one.elapsed().as_secs_f64());
        }
        let seconds_a_gib = least / SUMMED_BYTES as f64 * (1u64 << 30) as f64;
        ChecksumCost { checksum, seconds_a_gib }
    }
}

fn costs_text(costs: &[ChecksumCost]) -> String {
    let mut text = "seconds a GiB on one core of this processor: ".to_owned();
    for (at, ChecksumCost { checksum, seconds_a_gib }) in costs.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        // a string takes all that is written to it
        let _ = write!(text, "{comma}{} {seconds_a_gib:.2}", checksum.name());
    }
    text.push('\n');
    text
}
