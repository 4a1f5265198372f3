//! `cenote advise special`: what a special vdev would hold, and whether to buy one.
//!
//! ```text
//!   pool ─▶ all pointers: metadata by kind, data by the bytes of its blocks ─────────────┐
//!   folder ─▶ files, folders and sizes, FileSample for the bytes of blocks: an estimate ─┴▶ SpecialAnswer ─▶ table, verdict
//! ```

mod estimate;
mod show;
#[cfg(test)]
mod tests;

use arc::Gauge;
use dmu::traverse::Visit;
use dsl::traverse::LOG_LEVEL;
use format::object_type::ObjectType;
use pool::check::{BlockKind, Observer};

use super::files::FoundFiles;
use super::sizes::block_size;
use super::subject::{AdviceSubject, PoolSubject, SubjectArgs};
use crate::output;
use crate::progress::ProgressDisplay;

/// Values of special_small_blocks that are looked at.
const THRESHOLDS: [u64; 6] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];

/// Say what a special vdev would hold, how large it has to be, and whether it would pay
///
/// Of a pool all pointers are read, but no data: metadata by kind, with all copies that it has, and blocks of data that are
/// no larger than each value of special_small_blocks. Of a folder that is estimated from its files and folders, and from
/// blocks that are drawn at random. VDEV is how large the special vdev has to be: a quarter of it is kept for metadata.
#[derive(clap::Parser)]
#[command(name = "cenote advise special", no_binary_name = true)]
pub struct SpecialArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Records that files of a folder are cut into
    #[arg(long, default_value = "128K", value_parser = block_size)]
    recordsize: u64,
    /// Binary logarithm of the sector size of the special vdev
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(9..=16))]
    ashift: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Kinds of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataKind {
    /// Blocks of pointers.
    Indirect,
    /// Blocks of dnodes, and heads of datasets.
    Dnodes,
    /// Folders.
    Directories,
    /// Tables of dedup.
    Dedup,
    /// What the pool has for itself: datasets, space maps, history.
    Own,
    /// Attributes, quotas and the like.
    Other,
}

/// Blocks, and the bytes that they would take on a special vdev with all their copies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BlockSum {
    /// Blocks.
    pub count: f64,
    /// Bytes.
    pub bytes: f64,
}

/// What a special vdev would hold.
#[derive(Clone, Debug)]
pub struct SpecialAnswer {
    pub ashift: u32,
    /// In the order of [`MetadataKind::ALL`].
    pub metadata: [BlockSum; 6],
    /// One copy of all metadata, in whole sectors: what a cache has to hold.
    pub once_bytes: f64,
    /// Blocks of data that are no larger than a threshold.
    pub small: [BlockSum; THRESHOLDS.len()],
    pub data: BlockSum,
    /// Bytes that special vdevs hold now.
    pub there_bytes: f64,
    /// How much more there will be when the pool is full; 1 if that is not known.
    pub growth: f64,
    /// Parts that could not be read.
    pub failures: u64,
    /// Whether metadata is estimated.
    pub is_estimate: bool,
}

impl MetadataKind {
    const ALL: [MetadataKind; 6] = [
        MetadataKind::Indirect,
        MetadataKind::Dnodes,
        MetadataKind::Directories,
        MetadataKind::Dedup,
        MetadataKind::Own,
        MetadataKind::Other,
    ];

    fn name(self) -> &'static str {
        match self {
            MetadataKind::Indirect => "indirect blocks",
            MetadataKind::Dnodes => "dnodes",
            MetadataKind::Directories => "directories",
            MetadataKind::Dedup => "dedup tables",
            MetadataKind::Own => "of the pool itself",
            MetadataKind::Other => "other",
        }
    }

    /// The kind of a block of metadata.
    fn of(visit: &Visit<'_>) -> MetadataKind {
        match visit.bp.object_type() {
            ObjectType::DDT_ZAP | ObjectType::DDT_STATS => MetadataKind::Dedup,
            _ if visit.bookmark.objset == 0 => MetadataKind::Own,
            _ if visit.bp.level() > 0 => MetadataKind::Indirect,
            ObjectType::DNODE | ObjectType::OBJSET => MetadataKind::Dnodes,
            ObjectType::DIRECTORY_CONTENTS => MetadataKind::Directories,
            _ => MetadataKind::Other,
        }
    }
}

impl BlockSum {
    fn add(&mut self, count: f64, bytes: f64) {
        self.count += count;
        self.bytes += bytes;
    }
}

impl SpecialAnswer {
    fn new(ashift: u32) -> SpecialAnswer {
        SpecialAnswer {
            ashift,
            metadata: [BlockSum::default(); 6],
            once_bytes: 0.0,
            small: [BlockSum::default(); THRESHOLDS.len()],
            data: BlockSum::default(),
            there_bytes: 0.0,
            growth: 1.0,
            failures: 0,
            is_estimate: false,
        }
    }

    /// Of a pool, or a dataset. Errors: it cannot be read.
    fn of_pool(subject: &PoolSubject, ashift: u32) -> Result<SpecialAnswer, String> {
        let mut walk = SpecialWalk::new(subject, ashift, Some(ProgressDisplay::new(subject.bytes())));
        subject.walk(&mut walk).map_err(|error| error.to_string())?;
        Ok(walk.answer())
    }

    fn add_metadata(&mut self, kind: MetadataKind, count: f64, packed: f64, copies: f64) {
        let at = MetadataKind::ALL.iter().position(|other| *other == kind).unwrap_or(0);
        self.metadata[at].add(count, packed * copies);
        self.once_bytes += packed;
    }

    /// Counts blocks of data of so many bytes when compressed; `packed`: in whole sectors.
    fn add_data(&mut self, count: f64, bytes: u64, packed: f64) {
        self.data.add(count, packed);
        for (threshold, small) in THRESHOLDS.iter().zip(&mut self.small) {
            if bytes <= *threshold {
                small.add(count, packed);
            }
        }
    }

    /// Whether there is a special vdev that holds something.
    pub fn has_special(&self) -> bool {
        self.there_bytes > 0.0
    }

    /// All metadata, with its copies.
    pub fn metadata_bytes(&self) -> f64 {
        self.metadata.iter().map(|sum| sum.bytes).sum()
    }
}

/// Looks at the blocks of a walk over a pool.
pub struct SpecialWalk<'a> {
    answer: SpecialAnswer,
    subject: &'a PoolSubject,
    progress: Option<ProgressDisplay>,
}

impl<'a> SpecialWalk<'a> {
    /// One that has seen nothing yet.
    pub fn new(subject: &'a PoolSubject, ashift: u32, progress: Option<ProgressDisplay>) -> SpecialWalk<'a> {
        SpecialWalk { answer: SpecialAnswer::new(ashift), subject, progress }
    }

    /// What the blocks come to.
    pub fn answer(self) -> SpecialAnswer {
        let SpecialWalk { mut answer, subject, .. } = self;
        let size: u64 = subject.pool.tree().tops().filter_map(|top| top.top_spec()).map(|spec| spec.asize).sum();
        let allocated = subject.pool.space().map_or(0, |space| space.allocated_on(|_| true));
        if subject.dataset.is_none() && allocated > 0 {
            answer.growth = (size as f64 / allocated as f64).max(1.0);
        }
        answer
    }
}

impl Observer for SpecialWalk<'_> {
    fn block(&mut self, visit: &Visit<'_>, kind: BlockKind) {
        let bp = visit.bp;
        let is_dead = matches!(kind, BlockKind::DeferredFree | BlockKind::DedupDitto);
        if is_dead || visit.bookmark.level == LOG_LEVEL || bp.is_embedded() || bp.is_hole() {
            return;
        }
        let (psize, copies) = (bp.psize(), bp.copies().count() as f64);
        let packed = psize.next_multiple_of(1 << self.answer.ashift) as f64;
        match bp.level() > 0 || bp.object_type().is_metadata() {
            true => self.answer.add_metadata(MetadataKind::of(visit), 1.0, packed, copies),
            false => self.answer.add_data(1.0, psize, packed * copies),
        }
        let is_there = |dva: &&format::blkptr::Dva| {
            let top = self.subject.pool.tree().top(dva.vdev()).ok().and_then(|top| top.top_spec());
            top.is_some_and(|spec| spec.bias == Some(vdev::spec::Bias::Special))
        };
        self.answer.there_bytes += bp.copies().filter(is_there).map(|dva| dva.asize() as f64).sum::<f64>();
    }

    fn lost(&mut self, _error: &base::Error) {
        self.answer.failures += 1;
    }

    fn progress(&mut self, bytes: u64) {
        self.progress.iter_mut().for_each(|progress| progress.add(bytes));
    }
}

/// Runs the command.
pub fn run(args: &SpecialArgs) -> Result<(), String> {
    let named = |error: String| format!("{}: {error}", args.subject.shown());
    let (answer, found) = match args.subject.open().map_err(named)? {
        AdviceSubject::Folder(path) => {
            SpecialAnswer::of_folder(&path, args.recordsize, args.ashift).map_err(|error| named(error.to_string()))?
        }
        AdviceSubject::Pool(subject) => {
            (SpecialAnswer::of_pool(&subject, args.ashift).map_err(named)?, FoundFiles::default())
        }
    };
    found.complain();
    if answer.failures > 0 {
        output::complain("advise", format_args!("{} parts could not be read: they are left out", answer.failures));
    }
    let words = answer.verdict(Gauge::new("/").limit()).words;
    match args.json {
        true => println!("{}", answer.json(words.trim_end())),
        false => print!("{}\n{words}", answer.text()),
    }
    Ok(())
}
