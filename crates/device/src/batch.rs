//! Many reads, writes or flushes at once, of any devices.
//!
//! Those of files go to the ring together; of any other device, one after the other. Reads that nobody waits for are put
//! together first ([`join`]).

use std::io;

use base::{Error, Kind, Result};

use crate::item::BatchItem;
use crate::join::{self, JoinedRead};
use crate::meter::Ticket;
use crate::ring::{self, IoTask, RingJob};
use crate::{Device, io_error, refusal};

/// One read of a batch.
#[derive(Debug)]
pub struct Read<'a> {
    /// The device to read.
    pub device: &'a dyn Device,
    /// Offset on the device, in bytes.
    pub offset: u64,
    /// The bytes to be filled.
    pub buf: &'a mut [u8],
    /// What came of it, as of [`Device::read_at`]; an error until the batch has run.
    pub result: Result<()>,
    ticket: Option<Ticket<'a>>,
}

/// One write of a batch.
#[derive(Debug)]
pub struct Write<'a> {
    /// The device to write.
    pub device: &'a dyn Device,
    /// Offset on the device, in bytes.
    pub offset: u64,
    /// The bytes to be written.
    pub buf: &'a [u8],
    /// What came of it, as of [`Device::write_at`]; an error until the batch has run.
    pub result: Result<()>,
    ticket: Option<Ticket<'a>>,
}

impl<'a> Read<'a> {
    /// A read that has not happened yet.
    pub fn new(device: &'a dyn Device, offset: u64, buf: &'a mut [u8]) -> Read<'a> {
        Read { device, offset, buf, result: not_run(), ticket: None }
    }

    /// The same, counted by the meter that gave the ticket.
    pub fn metered(self, ticket: Option<Ticket<'a>>) -> Read<'a> {
        Read { ticket, ..self }
    }
}

impl<'a> Write<'a> {
    /// A write that has not happened yet.
    pub fn new(device: &'a dyn Device, offset: u64, buf: &'a [u8]) -> Write<'a> {
        Write { device, offset, buf, result: not_run(), ticket: None }
    }

    /// The same, counted by the meter that gave the ticket.
    pub fn metered(self, ticket: Option<Ticket<'a>>) -> Write<'a> {
        Write { ticket, ..self }
    }
}

/// Does all `reads` and leaves in each its result. Reads of files are in flight together.
pub fn read_batch(reads: &mut [Read<'_>]) {
    let may_join = |read: &&Read<'_>| read.ticket.as_ref().is_some_and(Ticket::may_be_joined);
    let is_worth_looking = reads.iter().filter(may_join).nth(1).is_some();
    let items = reads.iter_mut().map(|read| BatchItem {
        device: read.device,
        offset: read.offset,
        task: IoTask::Fill(read.buf),
        result: &mut read.result,
        ticket: read.ticket.take(),
    });
    if is_worth_looking {
        let (alone, together) = join::put_together(items);
        run(alone.into_iter(), together);
    } else {
        run(items, Vec::new());
    }
}

/// Does all `writes`, in any order, and leaves in each its result. Writes of files are in flight
/// together. What of a failed write is on the device is unspecified; nothing is sure to last
/// before the device has been flushed.
pub fn write_batch(writes: &mut [Write<'_>]) {
    let items = writes.iter_mut().map(|write| BatchItem {
        device: write.device,
        offset: write.offset,
        task: IoTask::Store(write.buf),
        result: &mut write.result,
        ticket: write.ticket.take(),
    });
    run(items, Vec::new());
}

/// Flushes all `devices`, as [`Device::flush`] does, and returns the results in their order.
/// Flushes of files are in flight together.
pub fn flush_batch(devices: &[&dyn Device]) -> Vec<Result<()>> {
    let mut results: Vec<Result<()>> = devices.iter().map(|_| not_run()).collect();
    let pairs = devices.iter().zip(&mut results);
    let items =
        pairs.map(|(&device, result)| BatchItem { device, offset: 0, task: IoTask::Flush, result, ticket: None });
    run(items, Vec::new());
    results
}

fn not_run() -> Result<()> {
    Err(Error::new(Kind::Invalid, "this has not run"))
}

fn run<'a>(mut items: impl ExactSizeIterator<Item = BatchItem<'a>>, together: Vec<JoinedRead<'a>>) {
    if items.len() == 1 && together.is_empty() {
        return items.by_ref().for_each(BatchItem::run_alone);
    }
    let (mut together, without_file): (Vec<_>, Vec<_>) = together.into_iter().partition(JoinedRead::has_file);
    let mut jobs = Vec::with_capacity(items.len() + together.len());
    let mut places = Vec::with_capacity(items.len());
    for item in items {
        let Some(raw) = item.device.raw() else {
            item.run_alone();
            continue;
        };
        let BatchItem { device, offset, task, result, ticket } = item;
        if let Some(error) = refusal(device, raw, offset, &task) {
            *result = Err(error);
            continue;
        }
        let what = task.name();
        jobs.push(RingJob::new(raw, raw.base + offset, task, ticket));
        places.push((device, offset, what, result));
    }
    without_file.into_iter().for_each(JoinedRead::run_alone);
    jobs.extend(together.iter_mut().filter_map(JoinedRead::job));
    ring::run(&mut jobs);
    let of_joined: Vec<io::Result<()>> = jobs.split_off(places.len()).into_iter().map(|job| job.result).collect();
    for (job, (device, offset, what, result)) in jobs.into_iter().zip(places) {
        *result = job.result.map_err(|e| io_error(device, offset, what, e));
    }
    let joined = together.into_iter().zip(of_joined);
    let failed: Vec<BatchItem<'a>> = joined.flat_map(|(read, result)| read.finish(result.is_ok())).collect();
    if !failed.is_empty() {
        run(failed.into_iter(), Vec::new());
    }
}
