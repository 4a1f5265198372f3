//! `cenote dedup`: what deduplication would save, and what its table would cost, before it is switched on.
//!
//! How that is known: [`crate::dedup_survey`].

use std::io::Write;

use base::Result;
use pool::Pool;
use pool::check::{CheckOptions, Verify};
use protocol::words::nicenum::{nicebytes, nicenum};

use super::target::{Opener, PoolArgs, Target};
use crate::dedup_survey::{DedupEstimate, DedupSurvey, ENTRY_BYTES};
use crate::output::{complain, stdout, written};
use crate::progress::ProgressDisplay;

/// Different blocks that a sample has at most, and different places; each takes about 100 bytes of memory.
const SAMPLE_MAX: usize = 1 << 20;

/// Say what dedup would save in a pool, and what its table would take
///
/// Reads what leads to data, not the data: blocks are told apart by the checksums that they have. Blocks of datasets
/// with different checksums or compression are different; those without checksum, and encrypted ones, are left out.
#[derive(clap::Parser)]
#[command(name = "cenote dedup", no_binary_name = true)]
pub struct DedupArgs {
    #[command(flatten)]
    pool: PoolArgs,
    /// The pool
    #[arg(value_name = "POOL")]
    name: std::ffi::OsString,
}

pub fn run(args: DedupArgs) -> bool {
    let shown = args.name.to_string_lossy().into_owned();
    let mut opener = Opener::new(&args.pool);
    let opened = Target::parse(&args.name).and_then(|target| opener.pool(target.pool()));
    match opened.and_then(|pool| look(&pool)) {
        Ok(survey) => written("dedup", print_survey(&survey, &mut stdout())),
        Err(e) => {
            complain("dedup", format_args!("{shown}: {e}"));
            false
        }
    }
}

fn look(pool: &Pool) -> Result<DedupSurvey> {
    let total = pool.space().ok().map(|space| space.allocated_on(|_| true));
    let mut survey = DedupSurvey::new(SAMPLE_MAX, Some(ProgressDisplay::new(total)));
    pool.check(CheckOptions { verify: Verify::Nothing, space: false }, &mut survey)?;
    Ok(survey)
}

fn print_survey(survey: &DedupSurvey, out: &mut dyn Write) -> std::io::Result<()> {
    let found = survey.estimate();
    let DedupEstimate { blocks, bytes: total, entries, unique_bytes, shared, shared_bytes, error_bytes } = found;
    writeln!(out, "{} blocks of data, which take {}", nicenum(blocks as u64), nicebytes(total as u64))?;
    if shared > 0.0 {
        writeln!(out, "already shared: {}", nicebytes(shared_bytes as u64))?;
    }
    if survey.left_out > 0 {
        writeln!(out, "{} blocks without checksum, or encrypted, are not among them", nicenum(survey.left_out))?;
    }
    if survey.counted() == 0 {
        return writeln!(out, "nothing to deduplicate");
    }
    match survey.scale() {
        1.0 => writeln!(out, "all of them were counted")?,
        _ => {
            let (part, counted) = (nicenum(survey.scale() as u64), nicenum(survey.counted()));
            writeln!(out, "1 in {part} checksums was counted: {counted} blocks")?;
        }
    }
    let ratio = |unique: f64| found.ratio(unique);
    let saved = |unique: f64| nicebytes((total - unique).max(0.0) as u64);
    writeln!(out, "\ndedup = {:.2}, saves {}", ratio(unique_bytes), saved(unique_bytes))?;
    if error_bytes > 0.0 {
        let (low, high) = (unique_bytes + error_bytes, unique_bytes - error_bytes);
        writeln!(
            out,
            "95 of 100 such samples are within {:.2} and {:.2}, {} and {}",
            ratio(low),
            ratio(high),
            saved(low),
            saved(high)
        )?;
    }
    let memory = nicebytes((entries * ENTRY_BYTES as f64) as u64);
    writeln!(out, "its table has {} entries, about {memory} in memory", nicenum(entries as u64))
}
