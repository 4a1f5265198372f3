//! Blocks on their way through a scan: found, read, verified.
//!
//! ```text
//!   ScanRuns ── read: one request a neighbourhood and leaf, all at once ─▶ ScanBatch ── verify: on all cores ─▶ ScanResults
//! ```

use base::{Bookmark, Env, Result, WORK_THAT_WAITS, WorkKind};
use dsl::traverse::LOG_LEVEL;
use format::blkptr::BlkPtr;
use format::ids::Guid;
use vdev::Lacking;
use zio::ScrubRun;

use crate::live::LivePool;

/// Runs that are read at once at most, whatever tunables and the number of leaves say: as many again are verified
/// meanwhile, and each has up to a MiB, of mirrors from each side.
pub const RUNS_MAX: usize = 32;

/// A block, and what it is of.
type ScanBlock = (BlkPtr, Bookmark);

/// Runs of neighbours that are to be read.
pub struct ScanRuns {
    pub runs: Vec<Vec<ScanBlock>>,
    /// The leaves that a resilver gives what they lack.
    pub covered: Vec<Guid>,
}

/// What was read, to be verified.
pub struct ScanBatch {
    runs: Vec<ScrubRun>,
    /// Blocks of logs, which are read one by one.
    of_logs: Vec<ScanBlock>,
    covered: Vec<Guid>,
}

/// What came of it: bytes that were written, or why there are no right ones.
pub struct ScanResults {
    pub blocks: Vec<(ScanBlock, Result<u64>)>,
    pub covered: Vec<Guid>,
}

impl ScanRuns {
    /// Reads them.
    pub fn read(self, pool: &LivePool) -> ScanBatch {
        let ScanRuns { runs, covered } = self;
        let is_of_log = |(_, bookmark): &ScanBlock| bookmark.level == LOG_LEVEL;
        let of_logs = runs.iter().flatten().copied().filter(is_of_log).collect();
        let others = |run: Vec<ScanBlock>| run.into_iter().filter(|block| !is_of_log(block)).collect();
        let runs = runs.into_iter().map(others).collect();
        let lacking = lacking_for(&covered);
        let runs = Env::doing(WorkKind::Scan, || pool.cache().zio().read_runs(runs, lacking));
        ScanBatch { runs, of_logs, covered }
    }
}

impl ScanBatch {
    /// Verifies them, and mends what is wrong.
    pub fn verify(self, pool: &LivePool) -> ScanResults {
        let (zio, lacking) = (pool.cache().zio(), lacking_for(&self.covered));
        let verify = |run: ScrubRun| Env::doing(WorkKind::Scan, || zio.scrub_run(run, lacking));
        let mut blocks: Vec<_> = pool.env().map(self.runs, WORK_THAT_WAITS, verify).into_iter().flatten().collect();
        for (bp, bookmark) in self.of_logs {
            // that a log ends with a block that is not there is no damage
            let healed = Env::doing(WorkKind::Scan, || zio.heal(&bp, lacking));
            blocks.push(((bp, bookmark), healed.or(Ok(0))));
        }
        ScanResults { blocks, covered: self.covered }
    }

    /// The blocks, unverified.
    pub fn into_blocks(self) -> impl Iterator<Item = ScanBlock> {
        self.runs.into_iter().flat_map(ScrubRun::into_blocks).chain(self.of_logs)
    }
}

fn lacking_for(covered: &[Guid]) -> Lacking {
    if covered.is_empty() { Lacking::Leave } else { Lacking::Fill }
}
