//! `cenote advise recordsize`: what records of other sizes would take, read and write.
//!
//! ```text
//!   folder ─▶ file_chunks ─┐
//!   pool ─▶ pool_chunks ───┴▶ pieces of 1 MiB, drawn at random ─▶ measure: cut, compressed, laid out ─▶ show: table, words
//! ```

mod file_chunks;
mod measure;
mod pool_chunks;
mod show;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;

use super::compression::setting;
use super::files::FoundFiles;
use super::sizes::SizeClasses;
use super::subject::{AdviceSubject, PoolSubject, SubjectArgs};
use crate::output;
use codec::compress::Compress;
use file_chunks::FileChunks;
pub use measure::RecordPlan;
use measure::RecordTrials;
use pool_chunks::PoolChunks;

/// Say what records of other sizes would take, and what they would read and write
///
/// Pieces of 1 MiB are drawn at random by their bytes from all files and volumes, cut into records of each size,
/// compressed, and laid out as the pool does; of a folder, on one disk or mirror. SPACE holds the truth 19 times of 20 within +-. R 4K is what the
/// disks read for a random read of 4 KiB that the cache does not have; W 4K, W 8K and W 16K are what they read and write
/// for a random write of so many bytes. POINTERS is the memory that pointers to a TiB of records take. What belongs to
/// snapshots only is not looked at.
#[derive(clap::Parser)]
#[command(name = "cenote advise recordsize", no_binary_name = true)]
pub struct RecordsizeArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Compression that the records get
    #[arg(long, default_value = "lz4", value_parser = setting)]
    compression: (Compress, i32),
    /// Binary logarithm of the sector size, for a folder
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(9..=16))]
    ashift: u32,
    /// Pieces to draw
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(30..=100_000))]
    pieces: u32,
    /// Another draw
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What has been found out.
pub struct RecordAnswer {
    /// Files and volumes, by size.
    pub sizes: SizeClasses,
    /// Bytes of all of them, holes left out, and what they take now, if that is known.
    pub bytes: f64,
    pub now_bytes: Option<f64>,
    pub trials: RecordTrials,
    /// What could not be read.
    pub failures: u64,
}

/// Runs the command.
pub fn run(args: &RecordsizeArgs) -> Result<(), String> {
    let named = |error: String| format!("{}: {error}", args.subject.shown());
    let plan = RecordPlan { ashift: args.ashift, pieces: args.pieces as usize, seed: args.seed };
    let (answer, found) = match args.subject.open().map_err(named)? {
        AdviceSubject::Folder(path) => {
            let mut found = FoundFiles::default();
            let answer = RecordAnswer::of_folder(&path, &plan, args.compression, &mut found)
                .map_err(|error| named(error.to_string()))?;
            (answer, found)
        }
        AdviceSubject::Pool(subject) => {
            let [answer] = RecordAnswer::of_pool(&subject, &plan, [args.compression]).map_err(named)?;
            (answer, FoundFiles::default())
        }
    };
    found.complain();
    if answer.failures > 0 {
        output::complain("advise", format_args!("{} parts could not be read: they are left out", answer.failures));
    }
    if answer.trials.pieces == 0 {
        return Err(named("there is no data that can be read".to_owned()));
    }
    match args.json {
        true => println!("{}", answer.json()),
        false => print!("{}\n{}", answer.text(), answer.verdict()),
    }
    Ok(())
}

impl RecordAnswer {
    fn of_folder(
        folder: &Path,
        plan: &RecordPlan,
        compression: (Compress, i32),
        found: &mut FoundFiles,
    ) -> io::Result<RecordAnswer> {
        let ashift = plan.ashift;
        let chunks = FileChunks::of(folder, plan, found)?;
        let mut trials =
            RecordTrials::new(compression, Box::new(move |bytes| bytes.next_multiple_of(1 << ashift)), ashift);
        let (bytes, sizes) = (chunks.bytes as f64, chunks.sizes.clone());
        chunks.read(found, &mut |weight, piece, is_whole| trials.add(weight, piece, is_whole));
        Ok(RecordAnswer { sizes, bytes, now_bytes: None, trials, failures: found.failures })
    }

    /// Bytes that all data would take in records of a size, how far off that may be, and what it takes now; `None` if that
    /// is not known, or there is nothing.
    pub fn space_of(&self, record: u64) -> Option<[f64; 3]> {
        let space = self.trials.of(record).space();
        let now = self.now_bytes.filter(|now| *now > 0.0 && self.trials.pieces > 0)?;
        Some([space.value * self.bytes, (space.high - space.value) * self.bytes, now])
    }

    /// Of a pool, or a dataset, an answer for each compression; pieces are drawn and read once for all. Errors: it cannot be read.
    pub fn of_pool<const N: usize>(
        subject: &PoolSubject,
        plan: &RecordPlan,
        compressions: [(Compress, i32); N],
    ) -> Result<[RecordAnswer; N], String> {
        let mut chunks = PoolChunks::of(subject, plan).map_err(|error| error.to_string())?;
        let mut trials = compressions.map(|compression| {
            let (ashift, taken) = pool_chunks::layout(&subject.pool);
            RecordTrials::new(compression, taken, ashift)
        });
        chunks.read(&subject.pool, &mut |weight, piece, is_whole| {
            trials.iter_mut().for_each(|trials| trials.add(weight, piece, is_whole));
        });
        Ok(trials.map(|trials| RecordAnswer {
            bytes: chunks.bytes as f64,
            sizes: chunks.sizes.clone(),
            now_bytes: Some(chunks.now_bytes as f64),
            trials,
            failures: chunks.failures,
        }))
    }
}
