//! Many reads at once, of any devices.

use base::{Error, Kind, Result};

use crate::file::read_error;
use crate::ring::{self, Job};
use crate::{Device, fits, past_the_end};

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
}

impl<'a> Read<'a> {
    /// A read that has not happened yet.
    pub fn new(device: &'a dyn Device, offset: u64, buf: &'a mut [u8]) -> Read<'a> {
        let result = Err(Error::new(Kind::Invalid, "this read has not run"));
        Read { device, offset, buf, result }
    }
}

/// Does all `reads` and leaves in each its result. Reads of files are in flight together.
pub fn read_batch(reads: &mut [Read<'_>]) {
    if let [read] = reads {
        read.result = read.device.read_at(read.offset, read.buf);
        return;
    }
    let mut jobs = Vec::with_capacity(reads.len());
    let mut places = Vec::with_capacity(reads.len());
    for read in reads.iter_mut() {
        let Some(raw) = read.device.raw() else {
            read.result = read.device.read_at(read.offset, read.buf);
            continue;
        };
        if !fits(read.offset, read.buf.len(), read.device.size()) {
            read.result = Err(past_the_end(read.device.path(), read.offset, read.buf.len(), read.device.size()));
            continue;
        }
        jobs.push(Job::new(raw, raw.base + read.offset, read.buf));
        places.push((read.device, read.offset, &mut read.result));
    }
    ring::run(&mut jobs);
    for (job, (device, offset, result)) in jobs.into_iter().zip(places) {
        *result = job.result.map_err(|e| read_error(device.path(), offset, e));
    }
}
