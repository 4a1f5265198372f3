//! `zfs send` on the pool process's side: what is asked for becomes a plan, and that goes out stream by stream.
//!
//! ```text
//!   SendOrder ─▶ plan: the list of a package, and streams in their order ─▶ sizes, lines ─▶ the descriptor
//! ```

mod head;
mod plan;
mod resumed;

use std::fs::File;
use std::io::{IoSlice, Write};
use std::os::unix::fs::FileTypeExt;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Error, Kind, Result};
use dsl::send::StreamWriter;
use format::ids::{DatasetId, Guid, ObjectId};
use format::nvlist::NvList;
use format::stream::{RecordFields, StreamBegin, StreamFeatures, StreamRecord};
use pool::Pool;
use protocol::datasets::{Failure, Response};
use protocol::streams::{SendOrder, StreamNote};
use protocol::words::nicenum::{nicebytes, nicenum};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};

use super::host::Host;
use super::input::LOOK;
use head::SentHead;
use plan::{PlannedStream, SendPlan, plan};

/// How often it is told how much has been sent.
const PROGRESS_NS: u64 = 1_000_000_000;
/// The offset -1 of `pwritev2`: where the descriptor is.
const AT_POSITION: u64 = u64::MAX;

/// Sends what is asked for to `out`.
pub(super) fn send(
    host: &dyn Host,
    order: &SendOrder,
    out: File,
    note: &mut dyn FnMut(StreamNote) -> Result<()>,
) -> Result<Response> {
    let done = |failures| Ok(Response::Done { failures, notes: Vec::new() });
    let head = match SentHead::of(host, order) {
        Ok(head) => head,
        Err(failure) => return done(vec![failure]),
    };
    let named = head.as_ref().map(|head| head.named_in(order));
    let order = named.as_ref().unwrap_or(order);
    let unread = |error: Error| Err(cannot_send(&order.to, &error));
    let planned = match &order.token {
        Some(token) => resumed::plan_resumed(&host.pool(), order, token)?,
        None if order.saved => resumed::plan_saved(&host.pool(), order).unwrap_or_else(unread),
        None => plan(&host.pool(), order, note).unwrap_or_else(unread),
    };
    let mut plan = match planned {
        Ok(plan) => plan,
        Err(failure) => return done(vec![failure]),
    };
    for stream in &mut plan.streams {
        head.iter().for_each(|head| head.name(stream));
    }
    let ids: Vec<DatasetId> = plan.streams.iter().map(|stream| stream.snapshot.id).collect();
    let lists: Vec<ObjectId> = plan.streams.iter().flat_map(PlannedStream::lists).collect();
    let _kept = match host.keep_snapshots(&ids, &lists) {
        Ok(kept) => kept,
        Err(error) => {
            let first = plan.streams.first().map_or(order.to.as_str(), |stream| &stream.snapshot.name);
            return done(vec![cannot_send(first, &error)]);
        }
    };
    // as it is now that nothing of it is destroyed any more
    let pool = host.pool();
    if let Some(gone) = plan.gone(&pool) {
        return done(vec![gone]);
    }
    let sizes = match order.verbosity > 0 || order.sized {
        true => match sizes(&pool, &plan) {
            Ok(sizes) => sizes,
            Err(failure) => return done(vec![failure]),
        },
        false => vec![0; plan.streams.len()],
    };
    if order.verbosity > 0 {
        tell_sizes(order, &plan, &sizes, note)?;
    }
    let mut failures = plan.failures.clone();
    if !order.dry_run {
        let waits = waits_for_reader(&out);
        let (at_ns, snapshot) = (host.now_ns(), String::new());
        let mut out = ToldStream { out, waits, host, note, sent: 0, size: 0, at_ns, snapshot, is_broken: false };
        failures.extend(send_all(&pool, &plan, &sizes, &mut out).err());
    }
    done(failures)
}

/// How many bytes each stream will have.
fn sizes(pool: &Pool, plan: &SendPlan) -> Result<Vec<u64>, Failure> {
    let size = |stream: &PlannedStream| {
        pool.dsl().send_size(&stream.request()).map_err(|error| cannot_send(&stream.snapshot.name, &error))
    };
    plan.streams.iter().map(size).collect()
}

/// Tells what is to be sent, and how many bytes that is.
fn tell_sizes(
    order: &SendOrder,
    plan: &SendPlan,
    sizes: &[u64],
    note: &mut dyn FnMut(StreamNote) -> Result<()>,
) -> Result<()> {
    let mut total = 0;
    for (stream, &size) in plan.streams.iter().zip(sizes) {
        total = u64::saturating_add(total, size);
        let to = &stream.snapshot.name;
        let line = match (&stream.from_name, order.parsable) {
            (Some(from), true) => format!("incremental\t{from}\t{to}\t{size}"),
            (None, true) => format!("full\t{to}\t{size}"),
            (from, false) => {
                let what = match from {
                    Some(from) if from.contains(['@', '#']) => format!("send from {from} to {to}"),
                    Some(from) => format!("send from @{from} to {to}"),
                    None => format!("full send of {to}"),
                };
                format!("{what} estimated size is {}", nicebytes(size))
            }
        };
        note(StreamNote::Line(line))?;
    }
    let words = if plan.package.is_some() { nicebytes(total) } else { nicenum(total) };
    let line = if order.parsable { format!("size\t{total}") } else { format!("total estimated size is {words}") };
    note(StreamNote::Line(line))
}

fn send_all(pool: &Pool, plan: &SendPlan, sizes: &[u64], out: &mut ToldStream<'_>) -> Result<(), Failure> {
    let sent = AtomicU64::new(0);
    let mut failed = None;
    if let Some((name, features, list)) = &plan.package {
        write_package_head(out, name, *features, list.as_ref()).map_err(|e| out.failure(name, &e))?;
    }
    for (stream, &size) in plan.streams.iter().zip(sizes) {
        let name = &stream.snapshot.name;
        out.begin(name, size);
        if let Err(error) = pool.dsl().send(&stream.request(), out, &sent) {
            failed = Some(out.failure(name, &error));
            break;
        }
    }
    // also after an error: a receiver may have use for what came before
    if let Some((name, ..)) = &plan.package {
        write_end(out, [0; 4]).map_err(|e| out.failure(name, &e))?;
    }
    tracing::debug!(bytes = sent.load(Ordering::Relaxed), "streams were sent");
    failed.map_or(Ok(()), Err)
}

/// The BEGIN of a package, its list, and their END.
fn write_package_head(out: &mut dyn Write, name: &str, features: StreamFeatures, list: Option<&NvList>) -> Result<()> {
    let bytes = AtomicU64::new(0);
    let list = list.map_or_else(Vec::new, NvList::pack);
    let begin = StreamBegin {
        is_package: true,
        features,
        name: name.to_owned(),
        list_len: u32::try_from(list.len()).map_err(|_| Error::new(Kind::TooBig, "the list is too long"))?,
        ..StreamBegin::default()
    };
    let mut writer = StreamWriter::new(out, &bytes);
    writer.record(StreamRecord { fields: RecordFields::Begin(begin), to_guid: Guid::NONE, sum: [0; 4] }, &list)?;
    let sum = writer.sum();
    write_end(out, sum)
}

/// An END of a package, whose own sum is left out.
fn write_end(out: &mut dyn Write, sum: [u64; 4]) -> Result<()> {
    let record = StreamRecord { fields: RecordFields::End { sum }, to_guid: Guid::NONE, sum: [0; 4] };
    Ok(out.write_all(&record.to_bytes())?)
}

/// What is sent cannot be read, or may not be.
fn cannot_send(name: &str, error: &Error) -> Failure {
    let why = match error.kind() {
        Kind::Io | Kind::Missing | Kind::Corrupt | Kind::Checksum => "Input/output error",
        _ => error.what(),
    };
    not_sent(name, error, why)
}

fn not_sent(name: &str, error: &Error, why: &str) -> Failure {
    tracing::warn!(snapshot = name, "not sent: {error}");
    Failure { about: name.to_owned(), line: format!("warning: cannot send '{name}': {why}") }
}

/// What the system calls an error of its own.
fn of_system(error: &Error) -> Option<String> {
    let source = std::error::Error::source(error)?.downcast_ref::<std::io::Error>()?;
    Some(nix::errno::Errno::from_raw(source.raw_os_error()?).desc().to_owned())
}

/// The client's end of a stream, which tells how much went there.
struct ToldStream<'a> {
    out: File,
    /// It is a pipe or a socket: if nobody reads there, the command may be gone meanwhile.
    waits: bool,
    host: &'a dyn Host,
    note: &'a mut dyn FnMut(StreamNote) -> Result<()>,
    sent: u64,
    size: u64,
    at_ns: u64,
    /// What is sent; empty while that is the head of a package, of which nothing is told.
    snapshot: String,
    /// It takes no more: it is full, or nobody reads it any more.
    is_broken: bool,
}

impl ToldStream<'_> {
    fn begin(&mut self, snapshot: &str, size: u64) {
        (self.sent, self.size) = (0, size);
        self.at_ns = self.host.now_ns();
        snapshot.clone_into(&mut self.snapshot);
    }

    /// Why a snapshot was not sent: what the system says of where it went, or what is wrong with the pool.
    fn failure(&self, name: &str, error: &Error) -> Failure {
        match of_system(error).filter(|_| self.is_broken) {
            Some(why) => not_sent(name, error, &why),
            None => cannot_send(name, error),
        }
    }

    /// Writes some, when there is room. Errors: the command has gone.
    fn write_some(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        while self.waits {
            match pwritev2(&self.out, &[IoSlice::new(bytes)], AT_POSITION, ReadWriteFlags::NOWAIT) {
                Ok(written) => return Ok(written),
                Err(Errno::AGAIN) => {
                    let has_room = poll(&mut [PollFd::new(&self.out, PollFlags::OUT)], Some(&LOOK))? > 0;
                    if !has_room {
                        (self.note)(StreamNote::Alive).map_err(std::io::Error::other)?;
                        self.tell_progress()?;
                    }
                }
                Err(Errno::INTR) => {}
                // an older kernel: it can only be waited for
                Err(Errno::OPNOTSUPP) => self.waits = false,
                Err(errno) => return Err(errno.into()),
            }
        }
        self.out.write(bytes)
    }

    /// Tells how much was sent, now and then.
    fn tell_progress(&mut self) -> std::io::Result<()> {
        if self.snapshot.is_empty() || self.host.now_ns() < self.at_ns + PROGRESS_NS {
            return Ok(());
        }
        self.at_ns = self.host.now_ns();
        let progress = StreamNote::Progress { snapshot: self.snapshot.clone(), bytes: self.sent, size: self.size };
        (self.note)(progress).map_err(std::io::Error::other)
    }
}

/// Whether what is written may have to wait for somebody to read it.
fn waits_for_reader(out: &File) -> bool {
    out.metadata().is_ok_and(|found| found.file_type().is_fifo() || found.file_type().is_socket())
}

impl Write for ToldStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.write_some(bytes);
        self.is_broken |= written.is_err();
        let written = written?;
        self.sent += written as u64;
        self.tell_progress()?;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
