//! Many reads, writes or flushes at once, of any devices.
//!
//! Those of files go to the ring together; of any other device, one after the other.

use base::{Error, Kind, Result};

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
    run(reads.iter_mut().map(|read| BatchItem {
        device: read.device,
        offset: read.offset,
        task: IoTask::Fill(read.buf),
        result: &mut read.result,
        ticket: read.ticket.take(),
    }));
}

/// Does all `writes`, in any order, and leaves in each its result. Writes of files are in flight
/// together. What of a failed write is on the device is unspecified; nothing is sure to last
/// before the device has been flushed.
pub fn write_batch(writes: &mut [Write<'_>]) {
    run(writes.iter_mut().map(|write| BatchItem {
        device: write.device,
        offset: write.offset,
        task: IoTask::Store(write.buf),
        result: &mut write.result,
        ticket: write.ticket.take(),
    }));
}

/// Flushes all `devices`, as [`Device::flush`] does, and returns the results in their order.
/// Flushes of files are in flight together.
pub fn flush_batch(devices: &[&dyn Device]) -> Vec<Result<()>> {
    let mut results: Vec<Result<()>> = devices.iter().map(|_| not_run()).collect();
    let pairs = devices.iter().zip(&mut results);
    run(pairs.map(|(&device, result)| BatchItem { device, offset: 0, task: IoTask::Flush, result, ticket: None }));
    results
}

fn not_run() -> Result<()> {
    Err(Error::new(Kind::Invalid, "this has not run"))
}

/// What is to be done, and the place for what comes of it.
struct BatchItem<'a> {
    device: &'a dyn Device,
    offset: u64,
    task: IoTask<'a>,
    result: &'a mut Result<()>,
    ticket: Option<Ticket<'a>>,
}

impl BatchItem<'_> {
    fn run_alone(mut self) {
        self.ticket.iter_mut().for_each(Ticket::issued);
        *self.result = match self.task {
            IoTask::Fill(buf) => self.device.read_at(self.offset, buf),
            IoTask::Store(buf) => self.device.write_at(self.offset, buf),
            IoTask::Flush => self.device.flush(),
        };
        if self.result.is_ok() {
            self.ticket.into_iter().for_each(Ticket::done);
        }
    }
}

fn run<'a>(mut items: impl ExactSizeIterator<Item = BatchItem<'a>>) {
    if items.len() == 1 {
        return items.by_ref().for_each(BatchItem::run_alone);
    }
    let mut jobs = Vec::with_capacity(items.len());
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
    ring::run(&mut jobs);
    for (job, (device, offset, what, result)) in jobs.into_iter().zip(places) {
        *result = job.result.map_err(|e| io_error(device.path(), offset, what, e));
    }
}
