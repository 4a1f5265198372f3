//! `inspect log`: what the intent logs hold that has not been replayed.
//!
//! ```text
//!   zil/fs
//!       head: claim txg 0, last block claimed 0, last record claimed 0, last replayed 0, flags 0x0
//!       block 1, ...
//!           record 1, txg 26: write object 12, offset 0, length 5, data in the log
//! ```

use std::io::Write;
use std::ops::ControlFlow;

use base::{Bookmark, Result};
use dmu::Objset;
use dsl::Dataset;
use format::blkptr::BlkPtr;
use pool::Pool;
use zil::{LogVisitor, Record, ZilHeader};

use super::args::LogArgs;
use crate::offline::{Opener, Target};
use crate::output::complain;
use crate::zdb::text::Pointer;

/// The log of one dataset, or those of all in the pool.
pub fn print(args: &LogArgs, opener: &mut Opener, out: &mut dyn Write) -> Result<bool> {
    let target = Target { dataset: args.dataset.clone(), path: None };
    let (pool, name) = opener.pool_of(&target)?;
    if name.contains('/') {
        return print_log(opener, &pool, &pool.dsl().find(&name)?, out).map(|()| true);
    }
    let mut well = true;
    for dir in pool.dsl().walk()?.into_iter().filter(|dir| dir.phys.head_dataset.is_some()) {
        let shown = pool.dsl().head(&dir).and_then(|head| match head.phys.bp.is_hole() {
            true => Ok(()),
            false => print_log(opener, &pool, &head, out),
        });
        well &= shown.map_err(|e| complain("inspect", e)).is_ok();
    }
    Ok(well)
}

fn print_log(opener: &mut Opener, pool: &Pool, head: &Dataset, out: &mut dyn Write) -> Result<()> {
    let objset = opener.looked_into(pool, head)?;
    let header = ZilHeader::parse(&objset.phys().log_header)?;
    if header.first.is_hole() {
        return Ok(());
    }
    writeln!(out, "{}", head.name)?;
    let ZilHeader { claim_txg, claim_block_seq, claim_record_seq, replay_seq, flags, .. } = header;
    write!(out, "    head: claim txg {claim_txg}, last block claimed {claim_block_seq}")?;
    writeln!(out, ", last record claimed {claim_record_seq}, last replayed {replay_seq}, flags 0x{flags:x}")?;
    let mut printer = LogPrinter { objset: &objset, out, failed: None };
    let end = zil::walk(pool.cache().zio(), objset.cache().keys(), head.id, &header, &mut printer);
    match (printer.failed, end) {
        (Some(error), _) => Err(error.into()),
        (None, zil::WalkEnd::Unreadable(why)) => Ok(writeln!(out, "    ends here: {why}")?),
        (None, _) => Ok(()),
    }
}

struct LogPrinter<'a> {
    objset: &'a Objset,
    out: &'a mut dyn Write,
    failed: Option<std::io::Error>,
}

impl LogPrinter<'_> {
    fn line(&mut self, line: std::fmt::Arguments<'_>) -> ControlFlow<()> {
        match writeln!(self.out, "{line}") {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}

impl LogVisitor for LogPrinter<'_> {
    fn block(&mut self, bp: &BlkPtr, bookmark: Bookmark) -> ControlFlow<()> {
        self.line(format_args!("    block {}, {}", bookmark.blkid, Pointer(bp)))
    }

    fn record(&mut self, record: &Record<'_>) -> ControlFlow<()> {
        let Record { kind, txg, seq, .. } = record;
        let what = match record.intent() {
            _ if self.objset.is_locked() => format!("type {kind}, encrypted"),
            Ok(intent) => intent.to_string(),
            Err(error) => format!("type {kind}: {error}"),
        };
        let case = if record.ignores_case { ", without case" } else { "" };
        self.line(format_args!("        record {seq}, txg {txg}: {what}{case}"))
    }
}
