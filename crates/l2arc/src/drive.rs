//! A cache device behind threads of its own: a request waits for so long and no longer.
//!
//! ```text
//!   reader ── job ──▶ queue ──▶ thread ──▶ device
//!     │◀──── bytes, or an error ────┘
//!     └ too late: it goes elsewhere, and the device is asked for nothing more until it has answered
//! ```
//!
//! What a job needs is its own, so that it may end when nobody waits for it any more. Without threads the caller does
//! the job himself.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{AlignedBuf, Condvar, Env, Error, Kind, Mutex, MutexGuard, Result};
use device::meter::{Meter, Purpose};
use device::{Device, Read, Write, read_batch, write_batch};

/// Threads of a device.
const THREADS: usize = 8;
/// Jobs that may be under way; what is asked for beyond them is sought elsewhere.
const JOBS_MAX: u64 = 64;

/// A device and its threads, which end with it.
pub(crate) struct Drive {
    shared: Arc<DriveShared>,
}

struct DriveShared {
    env: Env,
    device: Arc<dyn Device>,
    queue: Mutex<DriveQueue>,
    bell: Condvar,
    /// Jobs that nobody waits for any more.
    overdue: AtomicU64,
    meter: Arc<Meter>,
    done: DoneCounts,
}

/// Reads and writes that went well: how many, and their bytes.
#[derive(Default)]
struct DoneCounts([[AtomicU64; 2]; 2]);

impl DoneCounts {
    fn add(&self, kind: usize, bytes: usize) {
        let [count, sum] = &self.0[kind];
        count.fetch_add(1, Ordering::Relaxed);
        sum.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct DriveQueue {
    jobs: VecDeque<DriveJob>,
    under_way: u64,
    threads: usize,
    ends: bool,
}

struct DriveJob {
    task: DriveTask,
    ticket: Arc<DriveTicket>,
}

enum DriveTask {
    /// Offsets, and how many bytes each.
    Read(Vec<(u64, usize)>),
    Write(u64, AlignedBuf),
    Flush,
}

/// What came of it: for each read its bytes.
type DriveOutcome = Result<Vec<Result<AlignedBuf>>>;

#[derive(Default)]
struct DriveTicket {
    state: Mutex<TicketState>,
    done: Condvar,
}

#[derive(Default)]
enum TicketState {
    #[default]
    Waiting,
    Abandoned,
    Done(DriveOutcome),
}

impl Drive {
    pub(crate) fn new(env: &Env, device: Arc<dyn Device>, meter: Arc<Meter>) -> Drive {
        let (queue, bell, overdue, done) = Default::default();
        let shared = Arc::new(DriveShared { env: env.clone(), device, queue, bell, overdue, meter, done });
        for _ in 0..THREADS {
            let worker = shared.clone();
            shared.lock().threads += usize::from(env.spawn("l2arc_io", move || worker.work()));
        }
        Drive { shared }
    }

    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.shared.device
    }

    /// The time, by the clock that nobody sets.
    pub(crate) fn now_ns(&self) -> u64 {
        self.shared.env.ticks_ns()
    }

    /// Reads and writes that went well: how many, and their bytes.
    pub(crate) fn done(&self) -> [[u64; 2]; 2] {
        self.shared.done.0.each_ref().map(|pair| pair.each_ref().map(|count| count.load(Ordering::Relaxed)))
    }

    /// Whether it has not answered somebody in time, and still not.
    pub(crate) fn is_stuck(&self) -> bool {
        self.shared.overdue.load(Ordering::Relaxed) > 0
    }

    /// Asks for the bytes at each of these places. Errors: `Busy` if it is stuck, or has too much to do.
    pub(crate) fn begin_read(&self, places: Vec<(u64, usize)>) -> Result<PendingJob> {
        self.begin(DriveTask::Read(places))
    }

    /// Writes bytes. Errors: `Busy` if it is stuck, has too much to do, or does not answer within `most`; those of
    /// the device.
    pub(crate) fn write(&self, at: u64, bytes: AlignedBuf, most: Duration) -> Result<()> {
        self.begin(DriveTask::Write(at, bytes))?.wait(most).map(drop)
    }

    /// Makes what was written last. Errors: as of [`Drive::write`].
    pub(crate) fn flush(&self, most: Duration) -> Result<()> {
        self.begin(DriveTask::Flush)?.wait(most).map(drop)
    }

    fn begin(&self, task: DriveTask) -> Result<PendingJob> {
        let shared = &self.shared;
        if self.is_stuck() {
            return Err(shared.busy("the device does not answer"));
        }
        let ticket = Arc::<DriveTicket>::default();
        let mut queue = shared.lock();
        if queue.threads == 0 {
            drop(queue);
            *ticket.lock() = TicketState::Done(shared.execute(task));
            return Ok(PendingJob { shared: shared.clone(), ticket });
        }
        if queue.under_way >= JOBS_MAX {
            return Err(shared.busy("the device has too much to do"));
        }
        queue.under_way += 1;
        queue.jobs.push_back(DriveJob { task, ticket: ticket.clone() });
        drop(queue);
        shared.bell.notify_one();
        Ok(PendingJob { shared: shared.clone(), ticket })
    }
}

/// A job that was begun.
pub(crate) struct PendingJob {
    shared: Arc<DriveShared>,
    ticket: Arc<DriveTicket>,
}

impl PendingJob {
    /// What came of it. Errors: `Busy` if that is not known within `most`.
    pub(crate) fn wait(self, most: Duration) -> DriveOutcome {
        let is_waiting = |state: &mut TicketState| matches!(state, TicketState::Waiting);
        let mut state = self.ticket.done.wait_timeout_while(self.ticket.lock(), most, is_waiting);
        match std::mem::replace(&mut *state, TicketState::Abandoned) {
            TicketState::Done(outcome) => outcome,
            TicketState::Waiting | TicketState::Abandoned => {
                // with the lock: the thread that finds it abandoned takes it off again
                self.shared.overdue.fetch_add(1, Ordering::Relaxed);
                Err(self.shared.busy("the device does not answer"))
            }
        }
    }
}

impl DriveTicket {
    fn lock(&self) -> MutexGuard<'_, TicketState> {
        self.state.lock()
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        self.shared.lock().ends = true;
        self.shared.bell.notify_all();
    }
}

impl DriveShared {
    fn lock(&self) -> MutexGuard<'_, DriveQueue> {
        self.queue.lock()
    }

    fn busy(&self, what: &'static str) -> Error {
        Error::new(Kind::Busy, what).at_vdev(self.device.path())
    }

    fn work(&self) {
        loop {
            let queue = self.lock();
            let idle = |queue: &mut DriveQueue| queue.jobs.is_empty() && !queue.ends;
            let mut queue = self.bell.wait_while(queue, idle);
            let Some(job) = queue.jobs.pop_front() else { return };
            drop(queue);
            // what nobody waits for is not begun: a device that was away too long may be somebody else's by now
            let is_abandoned = matches!(*job.ticket.lock(), TicketState::Abandoned);
            let outcome = if is_abandoned { Ok(Vec::new()) } else { self.execute(job.task) };
            let mut state = job.ticket.lock();
            match std::mem::replace(&mut *state, TicketState::Done(outcome)) {
                TicketState::Abandoned => drop(self.overdue.fetch_sub(1, Ordering::Relaxed)),
                TicketState::Waiting | TicketState::Done(_) => job.ticket.done.notify_one(),
            }
            drop(state);
            self.lock().under_way -= 1;
        }
    }

    fn execute(&self, task: DriveTask) -> DriveOutcome {
        let device = &*self.device;
        match task {
            DriveTask::Read(places) => {
                let mut bufs: Vec<AlignedBuf> = places.iter().map(|(_, len)| AlignedBuf::for_overwrite(*len)).collect();
                let mut reads: Vec<Read<'_>> = Vec::with_capacity(places.len());
                for ((at, len), buf) in places.iter().zip(&mut bufs) {
                    let ticket = self.meter.ticket(&self.env, Purpose::SyncRead, *len);
                    reads.push(Read::new(device, *at, buf).metered(Some(ticket)));
                }
                read_batch(&mut reads);
                let results: Vec<Result<()>> = reads.into_iter().map(|read| read.result).collect();
                let good = results.iter().zip(&places).filter(|(result, _)| result.is_ok());
                good.for_each(|(_, (_, len))| self.done.add(0, *len));
                Ok(results.into_iter().zip(bufs).map(|(result, buf)| result.map(|()| buf)).collect())
            }
            DriveTask::Write(at, bytes) => {
                let ticket = self.meter.ticket(&self.env, Purpose::AsyncWrite, bytes.len());
                let mut writes = [Write::new(device, at, &bytes).metered(Some(ticket))];
                write_batch(&mut writes);
                let [write] = writes;
                write.result.map(|()| {
                    self.done.add(1, bytes.len());
                    Vec::new()
                })
            }
            DriveTask::Flush => device.flush().map(|()| Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use device::{FaultyDevice, MemDevice};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn drive(env: &Env) -> (Arc<FaultyDevice>, Drive) {
        let faulty = Arc::new(FaultyDevice::new(Arc::new(MemDevice::new("m", vec![7; 1 << 20])), 1));
        (faulty.clone(), Drive::new(env, faulty, Arc::default()))
    }

    #[test]
    fn reads_and_writes() {
        for env in [Env::real(), Env::fixed(0)] {
            let (faulty, drive) = drive(&env);
            drive.write(4096, AlignedBuf::from(&[1; 512][..]), LONG).unwrap();
            drive.flush(LONG).unwrap();
            faulty.broken(8192..8193);
            let got = drive.begin_read(vec![(4096, 512), (8192, 512), (0, 512)]).unwrap().wait(LONG).unwrap();
            assert_eq!(got[0].as_ref().unwrap()[..], [1; 512]);
            assert_eq!(got[1].as_ref().unwrap_err().kind(), Kind::Io);
            assert_eq!(got[2].as_ref().unwrap()[..], [7; 512]);
        }
    }

    #[test]
    fn nobody_waits_for_a_device_that_is_stuck() {
        let (faulty, drive) = drive(&Env::real());
        faulty.stall(true);
        let late = drive.begin_read(vec![(0, 512)]).unwrap().wait(Duration::from_millis(20));
        assert_eq!(late.unwrap_err().kind(), Kind::Busy);
        assert!(drive.is_stuck());
        assert_eq!(drive.begin_read(vec![(0, 512)]).err().map(|e| e.kind()), Some(Kind::Busy), "at once");
        assert_eq!(faulty.writes(), 0);
        faulty.stall(false);
        while drive.is_stuck() {
            std::thread::yield_now();
        }
        assert!(drive.begin_read(vec![(0, 512)]).unwrap().wait(LONG).unwrap()[0].is_ok());
        // all threads hang; what waits behind them is never written
        faulty.stall(true);
        let hanging: Vec<PendingJob> = (0..THREADS).map(|_| drive.begin_read(vec![(0, 512)]).unwrap()).collect();
        while faulty.reads() < 2 + THREADS as u64 {
            std::thread::yield_now();
        }
        let late = drive.write(0, AlignedBuf::from(&[9; 512][..]), Duration::from_millis(20));
        assert_eq!(late.unwrap_err().kind(), Kind::Busy);
        faulty.stall(false);
        hanging.into_iter().for_each(|pending| drop(pending.wait(LONG).unwrap()));
        while drive.is_stuck() {
            std::thread::yield_now();
        }
        assert_eq!(faulty.writes(), 0);
    }
}
