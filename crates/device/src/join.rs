//! Reads that nobody waits for become one where they lie next to each other on a device.
//!
//! ```text
//!   asked for   [a][b]  gap  [c]          [d]
//!   requests    [ a b   ...   c ]         [d]
//! ```
//!
//! A disk does a large request in about the time of a small one, as does one that is slow to answer. What lies in small
//! gaps is read along. If such a request fails, each of its reads is made by itself, so that each has its own error.

use std::ops::Range;

use base::{AlignedBuf, CopyKind, Env, Result, count_copy, tunables};

use crate::item::BatchItem;
use crate::meter::Ticket;
use crate::raw::Raw;
use crate::ring::{IoTask, RingJob};
use crate::scatter::Scatter;
use crate::{Device, fits};

/// Reads of one request at most: with the gaps between them, that is what the system takes.
const PIECES_MAX: usize = 512;
/// Bytes of one request at most, whatever is asked for.
const BYTES_MAX: u64 = 16 << 20;

/// How much is read together.
#[derive(Clone, Copy, Debug)]
pub struct JoinLimits {
    /// Bytes of all of it.
    bytes: u64,
    /// Bytes between two reads.
    gap: u64,
}

impl JoinLimits {
    /// As tunables say.
    pub fn of(env: &Env) -> JoinLimits {
        JoinLimits {
            bytes: env.tunable(tunables::ZFS_VDEV_AGGREGATION_LIMIT).min(BYTES_MAX),
            gap: env.tunable(tunables::ZFS_VDEV_READ_GAP_LIMIT),
        }
    }

    /// Whether what lies at `next`, which does not begin before `run` does, may be read together with what lies there.
    pub fn allow(self, run: &Range<u64>, next: Range<u64>) -> bool {
        next.start.saturating_sub(run.end) <= self.gap && next.end - run.start <= self.bytes
    }
}

/// Several reads as one request, or one that no other has come to yet.
pub(crate) struct JoinedRead<'a> {
    /// In the order of their places.
    pieces: Vec<BatchItem<'a>>,
    end: u64,
    raw: Option<Raw>,
    size: u64,
    /// That of the whole.
    ticket: Option<Ticket<'a>>,
}

/// Which of the reads are made by themselves, and which as one.
pub(crate) fn put_together<'a>(
    items: impl Iterator<Item = BatchItem<'a>>,
) -> (Vec<BatchItem<'a>>, Vec<JoinedRead<'a>>) {
    let (mut open, mut alone): (Vec<BatchItem<'a>>, Vec<BatchItem<'a>>) = items.partition(may_join);
    let limits = open.first().and_then(|item| item.ticket.as_ref()).map(|ticket| JoinLimits::of(ticket.env()));
    let Some(limits) = limits.filter(|limits| limits.bytes > 0 && open.len() > 1) else {
        alone.append(&mut open);
        return (alone, Vec::new());
    };
    open.sort_by_key(|item| (address(item.device), item.ticket.as_ref().map(|t| t.purpose() as usize), item.offset));
    let mut together = Vec::new();
    let mut last: Option<JoinedRead<'a>> = None;
    for item in open {
        match &mut last {
            Some(run) if run.has_room_for(&item, limits) => run.push(item),
            _ => last.replace(JoinedRead::new(item)).into_iter().for_each(|run| run.end(&mut alone, &mut together)),
        }
    }
    last.into_iter().for_each(|run| run.end(&mut alone, &mut together));
    (alone, together)
}

fn may_join(item: &BatchItem<'_>) -> bool {
    item.ticket.as_ref().is_some_and(Ticket::may_be_joined) && matches!(item.task, IoTask::Fill(_))
}

/// What tells devices apart.
fn address(device: &dyn Device) -> usize {
    std::ptr::from_ref(device).cast::<()>() as usize
}

fn buf_of<'b>(item: &'b BatchItem<'_>) -> &'b [u8] {
    match &item.task {
        IoTask::Fill(buf) => buf,
        _ => &[],
    }
}

impl<'a> JoinedRead<'a> {
    fn new(item: BatchItem<'a>) -> JoinedRead<'a> {
        let (raw, size) = (item.device.raw(), item.device.size());
        let end = item.offset.saturating_add(item.task.len() as u64);
        JoinedRead { pieces: vec![item], end, raw, size, ticket: None }
    }

    fn first(&self) -> &BatchItem<'a> {
        &self.pieces[0]
    }

    /// Whether a read that does not begin before the last one can be a part of this.
    fn has_room_for(&self, next: &BatchItem<'_>, limits: JoinLimits) -> bool {
        let (first, len) = (self.first(), next.task.len());
        let purpose = |item: &BatchItem<'_>| item.ticket.as_ref().map(Ticket::purpose);
        let is_inside = self.end <= self.size && fits(next.offset, len, self.size);
        address(first.device) == address(next.device)
            && purpose(first) == purpose(next)
            && next.offset >= self.end
            && is_inside
            && limits.allow(&(first.offset..self.end), next.offset..next.offset + len as u64)
            && self.pieces.len() < PIECES_MAX
            && self.goes_the_way_of(next)
    }

    /// Whether what is below takes both in one request: past the page cache only if each is aligned for that.
    fn goes_the_way_of(&self, next: &BatchItem<'_>) -> bool {
        let Some(raw) = self.raw else { return self.first().device.may_join_reads() };
        let fd = |item: &BatchItem<'_>| raw.fd_for(raw.base + item.offset, buf_of(item));
        let takes_scratch = raw.direct.is_none_or(|direct| direct.memory_align <= AlignedBuf::ALIGN);
        fd(self.first()) == fd(next) && (takes_scratch || next.offset == self.end)
    }

    fn push(&mut self, item: BatchItem<'a>) {
        self.end = item.offset + item.task.len() as u64;
        self.pieces.push(item);
    }

    /// No other comes to it.
    fn end(mut self, alone: &mut Vec<BatchItem<'a>>, together: &mut Vec<JoinedRead<'a>>) {
        if self.pieces.len() == 1 {
            return alone.append(&mut self.pieces);
        }
        let bytes = self.end - self.first().offset;
        self.ticket = self.first().ticket.as_ref().map(|first| first.of_joined(bytes));
        self.pieces.iter_mut().filter_map(|piece| piece.ticket.as_mut()).for_each(Ticket::stand_back);
        together.push(self);
    }

    /// Whether there is a file below, for the ring.
    pub(crate) fn has_file(&self) -> bool {
        self.raw.is_some()
    }

    /// The request, for the file below.
    pub(crate) fn job(&mut self) -> Option<RingJob<'_>> {
        let (raw, start) = (self.raw?, self.first().offset);
        let mut at = start;
        let mut parts = Vec::with_capacity(self.pieces.len());
        for piece in &mut self.pieces {
            if let IoTask::Fill(buf) = &mut piece.task {
                let gap = (piece.offset - at) as usize;
                at = piece.offset + buf.len() as u64;
                parts.push((gap, &mut **buf));
            }
        }
        Some(RingJob::new(raw, raw.base + start, IoTask::FillAll(Scatter::new(parts)), self.ticket.take()))
    }

    /// After the request: what is still to be done, each by itself.
    pub(crate) fn finish(self, is_done: bool) -> Vec<BatchItem<'a>> {
        if !is_done {
            return self.pieces;
        }
        self.pieces.into_iter().for_each(|piece| *piece.result = Ok(()));
        Vec::new()
    }

    /// Makes the request of a device without a file.
    pub(crate) fn run_alone(mut self) {
        let mut ticket = self.ticket.take();
        ticket.iter_mut().for_each(Ticket::issued);
        let result = self.read();
        // one that fails is over before others are made
        ticket.into_iter().filter(|_| result.is_ok()).for_each(Ticket::done);
        self.finish(result.is_ok()).into_iter().for_each(BatchItem::run_alone);
    }

    fn read(&mut self) -> Result<()> {
        let (device, start) = (self.first().device, self.first().offset);
        let mut whole = AlignedBuf::for_overwrite((self.end - start) as usize);
        device.read_at(start, &mut whole)?;
        for piece in &mut self.pieces {
            if let IoTask::Fill(buf) = &mut piece.task {
                count_copy(CopyKind::JoinedReads, buf.len());
                buf.copy_from_slice(&whole[(piece.offset - start) as usize..][..buf.len()]);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use base::Kind;

    use super::*;
    use crate::meter::{Meter, Purpose};
    use crate::{
        ALWAYS, DeviceOp, DeviceSlot, FaultEffect, FaultyDevice, FileDevice, InjectedFault, MemDevice, OpenMode, Read,
        SlowLanes, read_batch,
    };

    const SIZE: usize = 1 << 20;

    fn content() -> Vec<u8> {
        (0..SIZE as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
    }

    fn faulty() -> FaultyDevice {
        FaultyDevice::new(Arc::new(MemDevice::new("memory", content())), 1)
    }

    fn limited(bytes: u64, gap: u64) -> Env {
        Env::real().with_tunables(move |name| match name {
            "zfs_vdev_aggregation_limit" => Some(bytes),
            "zfs_vdev_read_gap_limit" => Some(gap),
            _ => None,
        })
    }

    /// Reads the places, in one batch; how each went. What was read is what is there.
    fn read(
        env: &Env,
        meter: &Meter,
        purpose: Purpose,
        device: &dyn Device,
        places: &[(u64, usize)],
    ) -> Vec<Option<Kind>> {
        let content = content();
        let mut bufs: Vec<AlignedBuf> = places.iter().map(|(_, len)| AlignedBuf::zeroed(*len)).collect();
        let reads = places.iter().zip(&mut bufs).map(|((offset, _), buf)| {
            let ticket = meter.ticket(env, purpose, buf.len());
            Read::new(device, *offset, buf).metered(Some(ticket))
        });
        let mut reads: Vec<Read<'_>> = reads.collect();
        read_batch(&mut reads);
        let results: Vec<_> = reads.into_iter().map(|read| read.result.err().map(|error| error.kind())).collect();
        for (((offset, len), buf), result) in places.iter().zip(&bufs).zip(&results) {
            assert!(result.is_some() || buf[..] == content[*offset as usize..][..*len], "{len} bytes at {offset}");
        }
        assert!(Purpose::ALL.iter().all(|&purpose| meter.in_progress(purpose) == [0, 0]));
        results
    }

    /// Requests that were made by themselves, and those that several were put together to.
    fn counts(meter: &Meter, purpose: Purpose) -> [u64; 2] {
        [meter.sizes(purpose), meter.joined_sizes(purpose)].map(|sizes| sizes.iter().sum())
    }

    #[test]
    fn neighbours_are_one_request() {
        let device = faulty();
        let four = [(4096, 4096), (0, 4096), (16_384, 512), (8192, 100)];
        for (bytes, gap, purpose, expect) in [
            (1 << 20, 32 << 10, Purpose::Scrub, [0, 1]),
            (1 << 20, 32 << 10, Purpose::AsyncRead, [0, 1]),
            (1 << 20, 32 << 10, Purpose::Rebuild, [0, 1]),
            (1 << 20, 32 << 10, Purpose::SyncRead, [4, 0]),
            (1 << 20, 8092, Purpose::Scrub, [0, 1]),
            (1 << 20, 8091, Purpose::Scrub, [1, 1]),
            (8192, 0, Purpose::Scrub, [2, 1]),
            (8191, 32 << 10, Purpose::Scrub, [2, 1]),
            (4095, 0, Purpose::Scrub, [4, 0]),
            (0, 32 << 10, Purpose::Scrub, [4, 0]),
        ] {
            let (meter, before) = (Meter::default(), device.reads());
            let env = limited(bytes, gap);
            assert_eq!(read(&env, &meter, purpose, &device, &four), [None; 4], "{bytes} {gap}");
            assert_eq!(counts(&meter, purpose), expect, "{bytes} {gap} {purpose:?}");
            assert_eq!(device.reads() - before, expect.iter().sum::<u64>());
            let times: u64 = meter.totals()[0].iter().sum();
            assert_eq!(times, expect.iter().sum::<u64>());
        }
        // the whole of it counts
        let meter = Meter::default();
        read(&Env::real(), &meter, Purpose::Scrub, &device, &four);
        assert_eq!(meter.joined_sizes(Purpose::Scrub)[14], 1);
        // twice the same bytes are two requests
        let meter = Meter::default();
        read(&Env::real(), &meter, Purpose::Scrub, &device, &[(0, 4096), (0, 4096), (4000, 96)]);
        assert_eq!(counts(&meter, Purpose::Scrub), [3, 0]);
    }

    #[test]
    fn many_small_ones_are_several_requests() {
        let (device, meter) = (faulty(), Meter::default());
        let places: Vec<(u64, usize)> = (0..1300).map(|i| (i * 512, 512)).collect();
        assert!(read(&Env::real(), &meter, Purpose::Scrub, &device, &places).iter().all(Option::is_none));
        assert_eq!(counts(&meter, Purpose::Scrub), [0, 3]);
    }

    #[test]
    fn each_read_has_its_own_error() {
        let device = faulty();
        device.broken(5000..5001);
        let (env, meter) = (Env::real(), Meter::default());
        let places = [(0, 4096), (4096, 4096), (8192, 4096)];
        assert_eq!(read(&env, &meter, Purpose::Scrub, &device, &places), [None, Some(Kind::Io), None]);
        assert_eq!((device.reads(), counts(&meter, Purpose::Scrub)), (4, [2, 0]));
        // what nobody asked for harms nobody
        assert_eq!(read(&env, &meter, Purpose::Scrub, &device, &[(0, 4096), (8192, 4096)]), [None; 2]);
        device.vanish(true);
        assert_eq!(read(&env, &meter, Purpose::Scrub, &device, &places), [Some(Kind::Missing); 3]);
        device.heal();
        // one that ends behind the device is no part of any
        let last = SIZE as u64 - 4096;
        let places = [(last, 4096), (SIZE as u64, 512), (u64::MAX, 512), (last - 4096, 4096)];
        let (outside, meter) = (Some(Kind::Io), Meter::default());
        assert_eq!(read(&env, &meter, Purpose::Scrub, &device, &places), [None, outside, outside, None]);
        assert_eq!(counts(&meter, Purpose::Scrub), [0, 1]);
    }

    /// Devices are not taken for each other, and of a fault that is meant for single requests there are as many.
    #[test]
    fn devices_and_faults() {
        let (env, meter) = (Env::real(), Meter::default());
        let slot = DeviceSlot::new(Arc::new(MemDevice::new("disk", content())));
        let other = MemDevice::new("other", content());
        let places = [(0, 4096), (4096, 4096)];
        let mut bufs = [(); 4].map(|()| AlignedBuf::zeroed(4096));
        let [a, b, c, d] = &mut bufs;
        let mut reads = [(&slot as &dyn Device, 0, a), (&other, 4096, b), (&slot, 4096, c), (&other, 0, d)].map(
            |(device, offset, buf)| {
                let ticket = meter.ticket(&env, Purpose::Scrub, buf.len());
                Read::new(device, offset, buf).metered(Some(ticket))
            },
        );
        read_batch(&mut reads);
        assert!(reads.iter().all(|read| read.result.is_ok()));
        assert_eq!(counts(&meter, Purpose::Scrub), [0, 2]);
        let fault = |effect, per_million| {
            let everywhere = std::iter::once(0..u64::MAX).collect();
            let fault = InjectedFault::new(&env, effect, &[DeviceOp::Read], everywhere, per_million);
            slot.faults().add(Arc::new(fault));
        };
        fault(FaultEffect::Slow(SlowLanes::new(Duration::from_millis(1).as_nanos() as u64, 1)), ALWAYS);
        let meter = Meter::default();
        assert_eq!(read(&env, &meter, Purpose::Scrub, &slot, &places), [None; 2]);
        assert_eq!(counts(&meter, Purpose::Scrub), [0, 1]);
        fault(FaultEffect::Fails, 0);
        assert_eq!(read(&env, &meter, Purpose::Scrub, &slot, &places), [None; 2]);
        assert_eq!(counts(&meter, Purpose::Scrub), [2, 1]);
    }

    /// A file is read as memory is, aligned or not, also where it has become shorter.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no rings")]
    fn files() {
        let path = std::env::temp_dir().join(format!("cenote-join-{}", std::process::id()));
        std::fs::write(&path, content()).unwrap();
        let file = FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap();
        let mut random = 7u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 33) % below
        };
        for round in 0..200 {
            let (bytes, gap) = ([0, 8192, 1 << 20][draw(3) as usize], [0, 512, 32 << 10][draw(3) as usize]);
            let unit = [1, 512, 4096][round % 3];
            let mut at = draw(SIZE as u64 / 8 / unit) * unit;
            let mut places: Vec<(u64, usize)> = Vec::new();
            for _ in 0..draw(40) {
                let len = (1 + draw(8192 / unit)) * unit;
                places.push((at, len as usize));
                at += len + draw(2) * draw(8192 / unit) * unit;
            }
            places.retain(|(at, len)| at + *len as u64 <= SIZE as u64);
            places.sort_by_key(|(at, _)| at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let results = read(&limited(bytes, gap), &Meter::default(), Purpose::Scrub, &file, &places);
            assert!(results.iter().all(Option::is_none));
        }
        let (env, meter) = (Env::real(), Meter::default());
        let places: Vec<(u64, usize)> = (0..16).map(|i| (i * 8192, 8192)).collect();
        read(&env, &meter, Purpose::Scrub, &file, &places);
        assert_eq!(counts(&meter, Purpose::Scrub), [0, 1]);
        std::fs::File::options().write(true).open(&path).unwrap().set_len(4 * 8192).unwrap();
        let results = read(&env, &meter, Purpose::Scrub, &file, &places);
        std::fs::remove_file(&path).unwrap();
        assert!(results.iter().enumerate().all(|(i, result)| result.is_none() == (i < 4)), "{results:?}");
        assert_eq!(counts(&meter, Purpose::Scrub), [4, 1]);
    }
}
