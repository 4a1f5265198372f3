//! `cenote advise compression`: what compressions would make of the files of a folder, and what they would cost.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use codec::compress::{self, Compress};
use protocol::words::nicenum::{nicebytes, nicenum};
use serde_json::{Value, json};

use super::ratio::{Interval, RatioSum};
use super::sample::FileSample;
use super::sizes::{MIB, block_size};
use crate::bench::options::seconds;

/// Settings that are tried: as the property has them, with what the engine calls them.
const SETTINGS: &[(&str, Compress, i32)] = &[
    ("off", Compress::Off, 0),
    ("zle", Compress::Zle, 0),
    ("lz4", Compress::Lz4, 0),
    ("zstd-fast", Compress::Zstd, -1),
    ("zstd-1", Compress::Zstd, 1),
    ("zstd", Compress::Zstd, 3),
    ("zstd-9", Compress::Zstd, 9),
    ("zstd-19", Compress::Zstd, 19),
    ("gzip-1", Compress::Gzip1, 0),
    ("gzip", Compress::Gzip6, 0),
    ("gzip-9", Compress::Gzip9, 0),
];
/// A compression and its level, by its name in [`SETTINGS`]. Errors: there is none of that name.
pub fn setting(text: &str) -> Result<(Compress, i32), String> {
    let found = SETTINGS.iter().find(|(name, ..)| *name == text).map(|&(_, kind, level)| (kind, level));
    found.ok_or_else(|| format!("none of {}", SETTINGS.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", ")))
}

/// Blocks that each setting tries at least, however slow it is.
const BLOCKS_MIN: u64 = 30;
/// What a compression has to save beside another one to be worth a word.
const WORTH: f64 = 0.03;

/// Say what compressions would make of the files of a folder, and what they would cost
///
/// Blocks are drawn at random from all files, and stored as the engine would store them: in whole sectors, not compressed
/// if that saves less than an eighth, zeros not at all. RATIO is what property compressratio would be, with the interval
/// that holds it 19 times of 20; SAVES is the part of the space that is saved, zeros included. The rates are those of
/// one core of this machine.
#[derive(clap::Parser)]
#[command(name = "cenote advise compression", no_binary_name = true)]
pub struct CompressionArgs {
    /// A folder on any file system, or a file
    folder: PathBuf,
    /// Records
    #[arg(long, default_value = "128K", value_parser = block_size)]
    recordsize: u64,
    /// Binary logarithm of the sector size
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(9..=16))]
    ashift: u32,
    /// Blocks to draw
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(30..=1_000_000))]
    blocks: u32,
    /// Seconds that each compression may take
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// Another draw
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What one setting made of blocks.
struct Trial {
    name: &'static str,
    kind: Compress,
    level: i32,
    blocks: u64,
    /// Bytes of all blocks, and what they take.
    bytes: u64,
    taken: u64,
    /// Contents over what they take, zeros left out.
    ratio: RatioSum,
    write: Duration,
    read: Duration,
    /// Bytes that were decompressed.
    read_bytes: u64,
}

impl Trial {
    fn new(&(name, kind, level): &(&'static str, Compress, i32)) -> Trial {
        let zero = Duration::ZERO;
        Trial {
            name,
            kind,
            level,
            blocks: 0,
            bytes: 0,
            taken: 0,
            ratio: RatioSum::default(),
            write: zero,
            read: zero,
            read_bytes: 0,
        }
    }

    fn add(&mut self, block: &[u8], sector: usize) {
        let began = Instant::now();
        let taken = zio::stored_bytes(block, self.kind, self.level, sector);
        self.write += began.elapsed();
        self.blocks += 1;
        self.bytes += block.len() as u64;
        self.taken += taken as u64;
        if !compress::is_zero(block) {
            self.ratio.add(block.len() as f64, taken as f64);
        }
        if self.kind != Compress::Off && taken > 0 && taken < block.len() {
            self.read_back(block);
        }
    }

    fn read_back(&mut self, block: &[u8]) {
        let (mut packed, mut whole) = (vec![0; block.len()], vec![0; block.len()]);
        if let Some(len) = compress::compress(self.kind, self.level, block, &mut packed) {
            let began = Instant::now();
            let done = compress::decompress(self.kind, &packed[..len], &mut whole);
            self.read += began.elapsed();
            debug_assert!(done.is_ok() && whole == block, "{} gives back something else", self.name);
            self.read_bytes += block.len() as u64;
        }
    }

    /// Part of the space that is saved.
    fn saves(&self) -> f64 {
        1.0 - self.taken as f64 / self.bytes.max(1) as f64
    }

    fn interval(&self) -> Interval {
        self.ratio.interval()
    }

    /// Bytes a second that one core writes.
    fn write_rate(&self) -> f64 {
        self.bytes as f64 / self.write.as_secs_f64().max(1e-9)
    }

    /// Bytes a second that one core reads of what is compressed; `None` if nothing is.
    fn read_rate(&self) -> Option<f64> {
        (self.read_bytes > 0).then(|| self.read_bytes as f64 / self.read.as_secs_f64().max(1e-9))
    }
}

/// Runs the command.
pub fn run(args: &CompressionArgs) -> Result<(), String> {
    let shown = args.folder.display();
    let sample = FileSample::draw(&args.folder, args.recordsize, args.blocks as usize, args.seed);
    let mut sample = sample.map_err(|error| format!("{shown}: {error}"))?;
    if sample.len() == 0 {
        return Err(format!("{shown}: there are no files with contents"));
    }
    let trials = try_all(&mut sample, 1 << args.ashift, args.seconds);
    sample.found.complain();
    if trials.iter().all(|trial| trial.blocks == 0) {
        return Err(format!("{shown}: none of its blocks can be read"));
    }
    if args.json {
        println!("{}", json_of(&sample, &trials));
        return Ok(());
    }
    println!(
        "{} in {} files; drawn: {} of {} blocks{}\n",
        nicebytes(sample.found.bytes),
        nicenum(sample.found.files),
        sample.len(),
        nicenum(sample.blocks),
        if sample.found.failures > 0 {
            format!("; {} could not be read", sample.found.failures)
        } else {
            String::new()
        },
    );
    print!("{}\n{}", table(&trials), verdict(&trials));
    Ok(())
}

/// All settings on all blocks, as far as time allows; blocks are in memory one at a time.
fn try_all(sample: &mut FileSample, sector: usize, seconds: f64) -> Vec<Trial> {
    let mut trials: Vec<Trial> = SETTINGS.iter().map(Trial::new).collect();
    for at in 0..sample.len() {
        let Some(block) = sample.read(at) else { continue };
        for trial in &mut trials {
            if trial.blocks < BLOCKS_MIN || (trial.write + trial.read).as_secs_f64() < seconds {
                trial.add(&block, sector);
            }
        }
    }
    trials
}

fn table(trials: &[Trial]) -> String {
    let mut text = format!(
        "{:12} {:>7} {:>15} {:>7} {:>12} {:>12} {:>9} {:>7}\n",
        "COMPRESSION", "RATIO", "95 % BETWEEN", "SAVES", "WRITE MiB/s", "READ MiB/s", "SEC/GiB", "BLOCKS"
    );
    for trial in trials {
        let Interval { value, low, high } = trial.interval();
        let read = trial.read_rate().map_or_else(|| "-".to_owned(), |rate| format!("{:.0}", rate / MIB));
        let (write, cost) = match trial.kind {
            Compress::Off => ("-".to_owned(), "-".to_owned()),
            _ => {
                (format!("{:.0}", trial.write_rate() / MIB), format!("{:.1}", (1u64 << 30) as f64 / trial.write_rate()))
            }
        };
        let between = format!("{low:.2} to {high:.2}");
        let saves = format!("{:.1} %", trial.saves() * 100.0);
        text += &format!(
            "{:12} {value:>6.2}x {between:>15} {saves:>7} {write:>12} {read:>12} {cost:>9} {:>7}\n",
            trial.name, trial.blocks
        );
    }
    text
}

/// What to do, in words.
fn verdict(trials: &[Trial]) -> String {
    let of = |name: &str| trials.iter().find(|trial| trial.name == name);
    let (Some(lz4), Some(zstd)) = (of("lz4"), of("zstd")) else { return String::new() };
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    let mut text = String::new();
    if lz4.saves() < WORTH && zstd.saves() < WORTH {
        text += "Do not expect anything of compression: this data does not shrink. lz4 costs next to nothing, and \
                 keeps zeros from being stored: leave it on.\n";
        return text;
    }
    text += &format!(
        "lz4 saves {} at {:.0} MiB/s a core: it pays as soon as the disks write slower than that.\n",
        percent(lz4.saves()),
        lz4.write_rate() / MIB
    );
    // what is left with each, as a part of what lz4 leaves
    let less = |trial: &Trial| 1.0 - (1.0 - trial.saves()) / (1.0 - lz4.saves()).max(1e-9);
    let more = trials.iter().filter(|trial| trial.name.starts_with("zstd") && less(trial) > WORTH);
    for trial in more.filter(|trial| trial.blocks >= BLOCKS_MIN) {
        text += &format!(
            "{} leaves {} less than lz4, for {:.1} times its time.\n",
            trial.name,
            percent(less(trial)),
            lz4.write_rate() / trial.write_rate()
        );
    }
    if less(zstd) <= WORTH {
        text += "zstd brings next to nothing beside lz4.\n";
    }
    let gzip = of("gzip").filter(|gzip| gzip.saves() <= zstd.saves() + 0.01 && gzip.write_rate() < zstd.write_rate());
    if gzip.is_some() {
        text += "gzip is slower than zstd, and saves no more: no reason to take it.\n";
    }
    text
}

fn json_of(sample: &FileSample, trials: &[Trial]) -> Value {
    let of = |trial: &Trial| {
        let Interval { value, low, high } = trial.interval();
        json!({
            "compression": trial.name,
            "ratio": value,
            "ratio_low": low,
            "ratio_high": high,
            "saved_part": trial.saves(),
            "write_bytes_per_s": trial.write_rate(),
            "read_bytes_per_s": trial.read_rate(),
            "blocks": trial.blocks,
        })
    };
    json!({
        "files": sample.found.files,
        "bytes": sample.found.bytes,
        "blocks": sample.blocks,
        "unreadable": sample.found.failures,
        "settings": trials.iter().map(of).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of which so many of 100 are random, and the others text.
    fn mixture(len: usize, random_percent: usize, seed: u64) -> Vec<u8> {
        let mut rng = testkit::rng::Rng::new(seed);
        (0..len)
            .map(|at| if at % 100 < random_percent { rng.number() as u8 } else { b'a' + (at / 977 % 7) as u8 })
            .collect()
    }

    fn trials_of(files: &[Vec<u8>]) -> (FileSample, Vec<Trial>) {
        let dir = tempfile::tempdir().unwrap();
        for (n, bytes) in files.iter().enumerate() {
            std::fs::write(dir.path().join(n.to_string()), bytes).unwrap();
        }
        let mut sample = FileSample::draw(dir.path(), 128 << 10, 200, 1).unwrap();
        let trials = try_all(&mut sample, 4096, 0.2);
        (sample, trials)
    }

    #[test]
    fn what_does_not_shrink_is_told() {
        let (_, trials) = trials_of(&[mixture(1 << 20, 100, 1)]);
        assert!(trials.iter().all(|trial| (trial.interval().value - 1.0).abs() < 1e-9 && trial.saves() == 0.0));
        assert!(verdict(&trials).starts_with("Do not expect anything of compression"));
    }

    #[test]
    fn what_shrinks_is_measured() {
        let (sample, trials) = trials_of(&[mixture(2 << 20, 30, 1), mixture(1 << 20, 60, 2), vec![0; 1 << 20]]);
        let of = |name: &str| trials.iter().find(|trial| trial.name == name).unwrap();
        assert_eq!((of("off").saves(), of("off").interval().value), (0.0, 1.0));
        // a quarter of the data is zeros, which take nothing and do not count in the ratio
        let zle = of("zle");
        assert!((zle.saves() - 0.25).abs() < 0.01 && (zle.interval().value - 1.0).abs() < 0.01, "{}", zle.saves());
        let (lz4, zstd) = (of("lz4").interval(), of("zstd").interval());
        assert!(1.2 < lz4.value && lz4.value < zstd.value, "{lz4:?} {zstd:?}");
        assert!(zstd.low < zstd.value && zstd.value < zstd.high);
        assert!(verdict(&trials).contains("lz4 saves") && table(&trials).lines().count() == 12);
        assert_eq!(json_of(&sample, &trials)["settings"][2]["compression"], "lz4");
    }

    #[test]
    fn small_files_take_whole_sectors() {
        let (_, trials) = trials_of(&(0..50).map(|n| mixture(700, 100, n)).collect::<Vec<_>>());
        let off = &trials[0];
        assert_eq!((off.bytes, off.taken), (50 * 1024, 50 * 4096));
    }
}
