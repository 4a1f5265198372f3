//! Faults that a person asks for: what `zinject` lets a device in use do wrong.
//!
//! They stand in the place of a device ([`DeviceSlot`](crate::DeviceSlot)), so that nothing above knows of them. As long
//! as there is one, requests go to the device one by one and past no queue.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::{Env, Error, Kind, Mutex, Result, RwLock};

use crate::Device;

/// A million: how often a fault happens is said in parts of it.
pub const ALWAYS: u32 = 1_000_000;

/// What goes wrong.
#[derive(Debug)]
pub enum FaultEffect {
    /// The request is done, and fails with an I/O error.
    Fails,
    /// The request is done, and fails as if the device had gone; it cannot be opened again either.
    Gone,
    /// The request is not done, and succeeds; zeros are read.
    Ignored,
    /// One bit of what is read is wrong.
    WrongBit,
    /// All that is read is wrong.
    Noise,
    /// The request takes at least that long, as many of them at once as there are lanes.
    Slow(SlowLanes),
}

/// Lanes of a slow device, each of which takes one request after the other.
#[derive(Debug)]
pub struct SlowLanes {
    request_ns: u64,
    /// When each has done what it has.
    free_ns: Mutex<Vec<u64>>,
}

impl SlowLanes {
    /// So many lanes, at least one, in each of which a request takes `request_ns`.
    pub fn new(request_ns: u64, lanes: usize) -> SlowLanes {
        SlowLanes { request_ns, free_ns: Mutex::new(vec![0; lanes.max(1)]) }
    }

    /// When a request that comes `now_ns` has been done.
    fn take(&self, now_ns: u64) -> u64 {
        let mut lanes = self.free_ns.lock();
        let lane = lanes.iter_mut().min().expect("there is at least one");
        *lane = now_ns.max(*lane).saturating_add(self.request_ns);
        *lane
    }
}

/// A kind of requests to a device, as faults know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceOp {
    /// It is read.
    Read,
    /// It is written.
    Write,
    /// It is flushed.
    Flush,
    /// It is told what nobody needs.
    Discard,
    /// It is looked at whether it can be used again.
    Probe,
}

/// One fault.
#[derive(Debug)]
pub struct InjectedFault {
    env: Env,
    effect: FaultEffect,
    /// What of requests it concerns.
    ops: &'static [DeviceOp],
    /// Bytes of the device that requests have to touch; flushes and probes touch all.
    places: Vec<Range<u64>>,
    per_million: u32,
    matches: AtomicU64,
    injected: AtomicU64,
}

impl InjectedFault {
    /// A fault of requests that touch one of `places`, `per_million` of a million of them.
    pub fn new(
        env: &Env,
        effect: FaultEffect,
        ops: &'static [DeviceOp],
        places: Vec<Range<u64>>,
        per_million: u32,
    ) -> InjectedFault {
        let (matches, injected) = Default::default();
        InjectedFault { env: env.clone(), effect, ops, places, per_million, matches, injected }
    }

    /// How many requests it concerned, and how many of them it spoilt.
    pub fn counts(&self) -> [u64; 2] {
        [&self.matches, &self.injected].map(|count| count.load(Ordering::Relaxed))
    }

    /// Whether it spoils a request, which is counted then.
    fn happens(&self, op: DeviceOp, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        let touches = |place: &Range<u64>| {
            matches!(op, DeviceOp::Flush | DeviceOp::Probe) || place.start < end && offset < place.end
        };
        if !self.ops.contains(&op) || !self.places.iter().any(touches) {
            return false;
        }
        self.matches.fetch_add(1, Ordering::Relaxed);
        let happens = self.per_million >= ALWAYS || self.env.random() % u64::from(ALWAYS) < u64::from(self.per_million);
        self.injected.fetch_add(u64::from(happens), Ordering::Relaxed);
        happens
    }

    /// Makes what was read from `offset` on wrong, as far as it lies in the places.
    fn spoil(&self, offset: u64, buf: &mut [u8]) {
        let end = offset + buf.len() as u64;
        let parts = self.places.iter().filter_map(|place| {
            let part = place.start.max(offset)..place.end.min(end);
            (!part.is_empty()).then(|| (part.start - offset) as usize..(part.end - offset) as usize)
        });
        match self.effect {
            FaultEffect::WrongBit => {
                if let Some(part) = parts.into_iter().next() {
                    let at = part.start + self.env.random() as usize % part.len();
                    buf[at] ^= 1 << (self.env.random() % 8);
                }
            }
            // other bytes at every place, the same each time: parity does not make up for it
            FaultEffect::Noise => parts.for_each(|part| {
                for (at, byte) in (offset + part.start as u64..).zip(&mut buf[part]) {
                    *byte ^= (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 | 1;
                }
            }),
            _ => {}
        }
    }
}

/// The faults of one device.
#[derive(Debug, Default)]
pub struct InjectedFaults {
    /// Whether there are any: so that requests need no lock where there are none.
    is_any: AtomicBool,
    faults: RwLock<Vec<Arc<InjectedFault>>>,
}

impl InjectedFaults {
    /// One more.
    pub fn add(&self, fault: Arc<InjectedFault>) {
        let mut faults = self.faults.write();
        faults.push(fault);
        self.is_any.store(true, Ordering::Release);
    }

    /// Takes one away, if it is here.
    pub fn remove(&self, fault: &Arc<InjectedFault>) {
        let mut faults = self.faults.write();
        faults.retain(|other| !Arc::ptr_eq(other, fault));
        self.is_any.store(!faults.is_empty(), Ordering::Release);
    }

    /// Whether there are any.
    pub fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// Whether what goes wrong is meant to be so often for each request that is asked for, so that none may be put
    /// together. A device that is slow takes what it is given.
    pub(crate) fn mean_single_requests(&self) -> bool {
        self.is_any() && self.faults.read().iter().any(|fault| !matches!(fault.effect, FaultEffect::Slow(_)))
    }

    /// Whether the device cannot be opened again.
    pub fn refuse_opening(&self) -> bool {
        let refuses = |fault: &Arc<InjectedFault>| match fault.ops.contains(&DeviceOp::Probe) {
            true => fault.happens(DeviceOp::Probe, 0, 0),
            false => matches!(fault.effect, FaultEffect::Gone),
        };
        self.is_any() && self.faults.read().iter().any(refuses)
    }

    pub(crate) fn read_at(&self, device: &dyn Device, offset: u64, buf: &mut [u8]) -> Result<()> {
        // what is not read
        buf.fill(0);
        let request = (DeviceOp::Read, offset, buf.len() as u64);
        let spoilt = self.do_wrong(device, request, || device.read_at(offset, buf))?;
        spoilt.iter().for_each(|fault| fault.spoil(offset, buf));
        Ok(())
    }

    pub(crate) fn write_at(&self, device: &dyn Device, offset: u64, buf: &[u8]) -> Result<()> {
        let request = (DeviceOp::Write, offset, buf.len() as u64);
        self.do_wrong(device, request, || device.write_at(offset, buf)).map(drop)
    }

    pub(crate) fn flush(&self, device: &dyn Device) -> Result<()> {
        self.do_wrong(device, (DeviceOp::Flush, 0, 0), || device.flush()).map(drop)
    }

    pub(crate) fn discard(&self, device: &dyn Device, offset: u64, len: u64, secure: bool) -> Result<()> {
        self.do_wrong(device, (DeviceOp::Discard, offset, len), || device.discard(offset, len, secure)).map(drop)
    }

    /// Does a request, and what is to go wrong with it. The faults that happened.
    fn do_wrong(
        &self,
        device: &dyn Device,
        (op, offset, len): (DeviceOp, u64, u64),
        request: impl FnOnce() -> Result<()>,
    ) -> Result<Vec<Arc<InjectedFault>>> {
        let faults: Vec<_> =
            self.faults.read().iter().filter(|fault| fault.happens(op, offset, len)).cloned().collect();
        if !faults.iter().any(|fault| matches!(fault.effect, FaultEffect::Ignored)) {
            request()?;
        }
        // what fails takes its time, too
        for fault in &faults {
            if let FaultEffect::Slow(lanes) = &fault.effect {
                let now_ns = fault.env.ticks_ns();
                fault.env.pause(Duration::from_nanos(lanes.take(now_ns).saturating_sub(now_ns)));
            }
        }
        for fault in &faults {
            let error = |kind| Error::new(kind, "a fault was injected").at_vdev(device.path()).at_offset(offset);
            match &fault.effect {
                FaultEffect::Fails => return Err(error(Kind::Io)),
                FaultEffect::Gone => return Err(error(Kind::Missing)),
                FaultEffect::Slow(_) | FaultEffect::Ignored | FaultEffect::WrongBit | FaultEffect::Noise => {}
            }
        }
        Ok(faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceSlot, MemDevice};

    const READS: &[DeviceOp] = &[DeviceOp::Read];
    const ALL: &[DeviceOp] = &[DeviceOp::Read, DeviceOp::Write, DeviceOp::Flush, DeviceOp::Discard];

    fn slot() -> DeviceSlot {
        DeviceSlot::new(Arc::new(MemDevice::new("disk", vec![7; 4096])))
    }

    fn fault(
        effect: FaultEffect,
        ops: &'static [DeviceOp],
        places: &[(u64, u64)],
        per_million: u32,
    ) -> Arc<InjectedFault> {
        let places = places.iter().map(|&(start, end)| start..end).collect();
        Arc::new(InjectedFault::new(&Env::fixed(0), effect, ops, places, per_million))
    }

    fn read(slot: &DeviceSlot, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut buf = vec![0; len];
        slot.read_at(offset, &mut buf).map(|()| buf)
    }

    #[test]
    fn what_is_asked_for_goes_wrong() {
        let slot = slot();
        let fails = fault(FaultEffect::Fails, READS, &[(1000, 2000)], ALWAYS);
        slot.faults().add(fails.clone());
        assert_eq!(read(&slot, 999, 2).unwrap_err().kind(), Kind::Io);
        assert_eq!(read(&slot, 0, 1000).unwrap(), [7; 1000]);
        assert!(slot.write_at(1000, &[1]).is_ok() && slot.flush().is_ok() && read(&slot, 2000, 1).is_ok());
        assert_eq!(fails.counts(), [1, 1]);
        slot.faults().remove(&fails);
        assert_eq!(read(&slot, 999, 2).unwrap(), [7, 1]);

        let gone = fault(FaultEffect::Gone, ALL, &[(0, 4096)], ALWAYS);
        slot.faults().add(gone.clone());
        assert!(slot.faults().refuse_opening());
        assert_eq!(slot.flush().unwrap_err().kind(), Kind::Missing);
        slot.faults().remove(&gone);
        assert!(!slot.faults().refuse_opening() && slot.flush().is_ok());

        let unseen = fault(FaultEffect::Fails, &[DeviceOp::Probe], &[(0, 4096)], ALWAYS);
        slot.faults().add(unseen.clone());
        assert!(slot.faults().refuse_opening() && read(&slot, 0, 1).is_ok() && slot.flush().is_ok());
        assert_eq!(unseen.counts(), [1, 1]);
        slot.faults().remove(&unseen);

        let ignored = fault(FaultEffect::Ignored, ALL, &[(0, 100)], ALWAYS);
        slot.faults().add(ignored.clone());
        slot.write_at(50, &[9; 10]).unwrap();
        assert_eq!(read(&slot, 50, 2).unwrap(), [0, 0]);
        slot.faults().remove(&ignored);
        assert_eq!(read(&slot, 50, 10).unwrap(), [7; 10]);
    }

    #[test]
    fn bytes_are_wrong_where_they_are_asked_to_be() {
        let slot = slot();
        let noise = fault(FaultEffect::Noise, READS, &[(10, 20), (30, 31)], ALWAYS);
        slot.faults().add(noise.clone());
        let got = read(&slot, 5, 100).unwrap();
        let wrong: Vec<usize> = (0..100).filter(|&at| got[at] != 7).collect();
        assert_eq!(wrong, [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 25]);
        assert_eq!(got, read(&slot, 5, 100).unwrap(), "the same each time");
        slot.faults().remove(&noise);
        slot.faults().add(fault(FaultEffect::WrongBit, READS, &[(10, 20)], ALWAYS));
        let got = read(&slot, 5, 100).unwrap();
        let wrong: Vec<u8> = got.iter().map(|byte| byte ^ 7).filter(|&bits| bits != 0).collect();
        assert_eq!((wrong.len(), wrong[0].count_ones()), (1, 1));
    }

    #[test]
    fn some_of_the_time() {
        let slot = slot();
        let half = fault(FaultEffect::Fails, READS, &[(0, 4096)], ALWAYS / 2);
        slot.faults().add(half.clone());
        let failed = (0..1000).filter(|_| read(&slot, 0, 1).is_err()).count();
        assert!((300..700).contains(&failed), "{failed} of 1000");
        assert_eq!(half.counts(), [1000, failed as u64]);
    }

    #[test]
    fn what_fails_takes_its_time() {
        let slot = slot();
        let slow = fault(FaultEffect::Slow(SlowLanes::new(10, 1)), READS, &[(0, 4096)], ALWAYS);
        slot.faults().add(fault(FaultEffect::Fails, READS, &[(0, 4096)], ALWAYS));
        slot.faults().add(slow.clone());
        assert_eq!(read(&slot, 0, 512).unwrap_err().kind(), Kind::Io);
        let FaultEffect::Slow(lanes) = &slow.effect else { unreachable!("it was made so") };
        assert_eq!(lanes.take(0), 20, "the lane was taken");
    }

    #[test]
    fn requests_wait_for_a_lane() {
        let lanes = SlowLanes::new(10, 2);
        assert_eq!([100, 101, 102, 103, 200].map(|now| lanes.take(now)), [110, 111, 120, 121, 210]);
    }
}
