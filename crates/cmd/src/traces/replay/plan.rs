//! What a trace touches: its files, where they end, and which parts of them are read.

use std::collections::{BTreeMap, HashSet};

use trace::{TraceError, TraceOp, TraceRequest};

/// Files of a trace that is replayed.
pub(super) const FILES_MAX: usize = 1 << 16;
/// Parts that are filled before they are read, and how many there may be: 256 GiB.
pub(super) const PART_BYTES: u64 = 64 << 10;
const PARTS_MAX: usize = 4 << 20;

/// A file or volume: dataset and object.
pub(super) type FileKey = (u64, u64);

/// See the top of the file.
#[derive(Debug, Default)]
pub(super) struct ReplayPlan {
    /// Where each file ends.
    pub(super) ends: BTreeMap<FileKey, u64>,
    /// Parts that are read, by number.
    pub(super) read: HashSet<(FileKey, u64)>,
}

impl ReplayPlan {
    /// That of a trace. Errors: those of reading it; it touches too much.
    pub(super) fn of(
        requests: impl Iterator<Item = Result<TraceRequest, TraceError>>,
    ) -> Result<ReplayPlan, TraceError> {
        let mut plan = ReplayPlan::default();
        for request in requests {
            plan.add(&request?)?;
        }
        Ok(plan)
    }

    fn add(&mut self, request: &TraceRequest) -> Result<(), TraceError> {
        if !request.op.has_bytes() {
            return Ok(());
        }
        let key = (request.stream, request.object);
        let end = request.offset + request.bytes;
        if end > i64::MAX as u64 {
            return Err(TraceError::new(format!("a request ends at byte {end}, where no file can")));
        }
        let known = self.ends.entry(key).or_default();
        *known = end.max(*known);
        if self.ends.len() > FILES_MAX {
            return Err(TraceError::new(format!("it is about more than {FILES_MAX} files")));
        }
        if request.op == TraceOp::Read && request.bytes > 0 {
            self.read.extend((request.offset / PART_BYTES..=(end - 1) / PART_BYTES).map(|part| (key, part)));
        }
        if self.read.len() > PARTS_MAX {
            let most = PARTS_MAX as u64 * PART_BYTES >> 30;
            return Err(TraceError::new(format!(
                "it reads more than {most} GiB, which would have to be written before"
            )));
        }
        Ok(())
    }

    /// Parts that are read, in the order of their places, as their beginnings and lengths.
    pub(super) fn parts(&self) -> Vec<(FileKey, u64, u64)> {
        let mut parts: Vec<(FileKey, u64)> = self.read.iter().copied().collect();
        parts.sort_unstable();
        let part = |(key, number): (FileKey, u64)| {
            let (from, end) = (number * PART_BYTES, self.ends.get(&key).copied().unwrap_or(0));
            (key, from, PART_BYTES.min(end.saturating_sub(from)))
        };
        parts.into_iter().map(part).collect()
    }
}
