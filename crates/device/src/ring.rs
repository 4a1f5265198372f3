//! Batches through an io_uring, and plain system calls where there is none.
//!
//! ```text
//!   read  | IoTask::Fill    | pread      IORING_OP_READ
//!         | IoTask::FillAll | preadv     IORING_OP_READV
//!   write | IoTask::Store   | pwrite     IORING_OP_WRITE
//!   flush | IoTask::Flush   | fdatasync  IORING_OP_FSYNC
//! ```
//!
//! The kernel works on buffers that are only borrowed, so [`run`] must not return, and not unwind,
//! while a job is in flight; whatever goes wrong, it first waits for the kernel.

use std::io;
use std::time::Duration;

use base::or_abort;
use io_uring::{IoUring, opcode, types};

use crate::meter::Ticket;
use crate::raw::Raw;
use crate::rings::{self, DEPTH};
use crate::scatter::Scatter;

/// Until another look at whether jobs should go that had to stay back.
const STAND_BACK: Duration = Duration::from_millis(1);

/// Bytes of one system call at most; longer jobs go in several.
const LENGTH_MAX: usize = 1 << 30;

/// What to do, and the bytes for it.
#[derive(Debug)]
pub(crate) enum IoTask<'a> {
    /// Read them.
    Fill(&'a mut [u8]),
    /// Read them, those of several buffers at once. If not all can be read, that is an error.
    FillAll(Scatter<'a>),
    /// Write them.
    Store(&'a [u8]),
    /// Make what has been written last.
    Flush,
}

impl IoTask<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            IoTask::Fill(buf) => buf.len(),
            IoTask::FillAll(bufs) => bufs.len(),
            IoTask::Store(buf) => buf.len(),
            IoTask::Flush => 0,
        }
    }

    /// The word for it in messages.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            IoTask::Fill(_) | IoTask::FillAll(_) => "read",
            IoTask::Store(_) => "write",
            IoTask::Flush => "flush",
        }
    }
}

/// Something to do with a file, and how far it has come.
pub(crate) struct RingJob<'a> {
    raw: Raw,
    file_offset: u64,
    task: IoTask<'a>,
    done: usize,
    ticket: Option<Ticket<'a>>,
    /// What came of it.
    pub(crate) result: io::Result<()>,
}

/// The next system call of a job.
enum Syscall {
    Read(i32, u64, *mut u8, usize),
    ReadAll(i32, u64, *const libc::iovec, usize),
    Write(i32, u64, *const u8, usize),
    Flush(i32),
}

impl<'a> RingJob<'a> {
    pub(crate) fn new(raw: Raw, file_offset: u64, task: IoTask<'a>, ticket: Option<Ticket<'a>>) -> RingJob<'a> {
        RingJob { raw, file_offset, task, done: 0, ticket, result: Ok(()) }
    }

    /// Whether it should go on now, and not make others wait.
    fn should_go(&self) -> bool {
        self.ticket.as_ref().is_none_or(Ticket::should_go)
    }

    /// How it goes on. The pointer is valid for as long as the job's borrow, or until this is asked again.
    fn call(&mut self) -> Syscall {
        self.ticket.iter_mut().for_each(Ticket::issued);
        let at = self.file_offset + self.done as u64;
        let rest = self.done..self.task.len().min(self.done + LENGTH_MAX);
        match &mut self.task {
            IoTask::Fill(buf) => {
                let rest = &mut buf[rest];
                Syscall::Read(self.raw.fd_for(at, rest), at, rest.as_mut_ptr(), rest.len())
            }
            IoTask::FillAll(bufs) => {
                let fd = self.raw.fd_for(at, bufs.first());
                let vectors = bufs.vectors();
                Syscall::ReadAll(fd, at, vectors.as_ptr(), vectors.len())
            }
            IoTask::Store(buf) => {
                let rest = &buf[rest];
                Syscall::Write(self.raw.fd_for(at, rest), at, rest.as_ptr(), rest.len())
            }
            // it is the file that is flushed, whichever way it was written
            IoTask::Flush => Syscall::Flush(self.raw.cached_fd),
        }
    }

    /// Takes note of a system call's result; true if another call is needed.
    fn goes_on(&mut self, result: io::Result<usize>) -> bool {
        match result {
            Ok(0) if self.unfinished() => self.result = Err(io::ErrorKind::UnexpectedEof.into()),
            // the buffers that are not full are read one by one
            Ok(n) if n < self.task.len() && matches!(self.task, IoTask::FillAll(_)) => {
                self.result = Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(n) => self.done += n,
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => return true,
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) && self.raw.direct.is_some() => {
                // the file system does not want this one directly after all
                self.raw.direct = None;
                return true;
            }
            Err(e) => self.result = Err(e),
        }
        let goes_on = self.unfinished();
        if !goes_on && let Some(ticket) = self.ticket.take().filter(|_| self.result.is_ok()) {
            ticket.done();
        }
        goes_on
    }

    /// Does all of it with plain system calls.
    pub(crate) fn run_alone(&mut self) {
        loop {
            let n = match self.call() {
                // SAFETY: the bytes are borrowed for writing; the device keeps the descriptor open.
                Syscall::Read(fd, at, ptr, len) => unsafe { libc::pread(fd, ptr.cast(), len, at as libc::off_t) },
                // SAFETY: the vectors are the job's, and their bytes borrowed for writing; the device keeps the descriptor
                // open.
                Syscall::ReadAll(fd, at, ptr, len) => unsafe {
                    libc::preadv(fd, ptr, len as libc::c_int, at as libc::off_t)
                },
                // SAFETY: the bytes are borrowed; the device keeps the descriptor open.
                Syscall::Write(fd, at, ptr, len) => unsafe { libc::pwrite(fd, ptr.cast(), len, at as libc::off_t) },
                // SAFETY: the device keeps the descriptor open.
                Syscall::Flush(fd) => unsafe { libc::fdatasync(fd) as isize },
            };
            let result = if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) };
            if !self.goes_on(result) {
                return;
            }
        }
    }
}

/// Does all `jobs`.
pub(crate) fn run(jobs: &mut [RingJob<'_>]) {
    match if jobs.len() < 2 { None } else { rings::take() } {
        Some(ring) => run_with(ring, jobs),
        None => jobs.iter_mut().for_each(RingJob::run_alone),
    }
}

fn run_with(mut ring: IoUring, jobs: &mut [RingJob<'_>]) {
    // a panic must not free buffers that the kernel still uses
    match or_abort(|| run_in_ring(&mut ring, jobs)) {
        Ok(()) => rings::give(ring),
        // it is broken
        Err(unfinished) => unfinished.into_iter().for_each(|i| jobs[i].run_alone()),
    }
}

/// Does all `jobs` through `ring`; if the ring breaks, returns those that are left.
fn run_in_ring(ring: &mut IoUring, jobs: &mut [RingJob<'_>]) -> Result<(), Vec<usize>> {
    // a stack: what must go on comes before what has not begun; the rest by offset, so that the arm of a disk moves one way
    let mut todo: Vec<usize> = (0..jobs.len()).collect();
    todo.sort_by_key(|&i| std::cmp::Reverse(jobs[i].file_offset));
    let mut in_flight = 0;
    loop {
        while in_flight < DEPTH as usize
            && let Some(&i) = todo.last()
            && jobs[i].should_go()
        {
            let entry = match jobs[i].call() {
                Syscall::Read(fd, at, ptr, len) => opcode::Read::new(types::Fd(fd), ptr, len as u32).offset(at).build(),
                Syscall::ReadAll(fd, at, ptr, len) => {
                    opcode::Readv::new(types::Fd(fd), ptr, len as u32).offset(at).build()
                }
                Syscall::Write(fd, at, ptr, len) => {
                    opcode::Write::new(types::Fd(fd), ptr, len as u32).offset(at).build()
                }
                Syscall::Flush(fd) => opcode::Fsync::new(types::Fd(fd)).flags(types::FsyncFlags::DATASYNC).build(),
            };
            // SAFETY: the buffers are borrowed by `jobs`, which this function holds until the call
            // has completed, as are the vectors, and the device keeps the descriptor open.
            if unsafe { ring.submission().push(&entry.user_data(i as u64)) }.is_err() {
                break;
            }
            todo.pop();
            in_flight += 1;
        }
        if in_flight == 0 {
            if todo.is_empty() {
                return Ok(());
            }
            std::thread::sleep(STAND_BACK);
            continue;
        }
        // half of the last ones too, so that the fast are seen to be done before the slow
        let wanted = if todo.is_empty() { in_flight.div_ceil(2) } else { in_flight.div_ceil(4) };
        match ring.submit_and_wait(wanted) {
            Ok(_) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
            Err(_) => {
                wait_for_kernel(ring, jobs, in_flight);
                return Err((0..jobs.len()).filter(|&i| jobs[i].unfinished()).collect());
            }
        }
        for entry in ring.completion() {
            in_flight -= 1;
            if jobs[entry.user_data() as usize].completed(entry.result()) {
                todo.push(entry.user_data() as usize);
            }
        }
    }
}

impl RingJob<'_> {
    /// Takes note of a completion; true if another call is needed.
    fn completed(&mut self, result: i32) -> bool {
        self.goes_on(if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result as usize) })
    }

    fn unfinished(&self) -> bool {
        self.result.is_ok() && self.done < self.task.len()
    }
}

/// After the ring refused a call: waits until the kernel has finished what it took from the queue.
fn wait_for_kernel(ring: &mut IoUring, jobs: &mut [RingJob<'_>], in_flight: usize) {
    let mut taken = in_flight - ring.submission().len();
    while taken > 0 {
        for entry in ring.completion() {
            taken -= 1;
            jobs[entry.user_data() as usize].completed(entry.result());
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::sync::atomic::{AtomicU32, Ordering};

    use base::Env;

    use super::*;
    use crate::meter::{Meter, Purpose};

    fn run_by(available: bool, jobs: &mut [RingJob<'_>]) {
        if available { run(jobs) } else { jobs.iter_mut().for_each(RingJob::run_alone) }
    }

    /// A ring on a file that cannot be read breaks nothing: each job has its own error.
    #[test]
    fn an_error_stays_with_its_job() {
        let dir = std::fs::File::open("/").unwrap();
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let raw = |f: &std::fs::File| Raw {
            cached_fd: std::os::fd::AsRawFd::as_raw_fd(f),
            direct: None,
            base: 0,
            writable: false,
        };
        let mut bufs = vec![[0u8; 100]; 300];
        let mut jobs: Vec<RingJob> = bufs
            .iter_mut()
            .enumerate()
            .map(|(i, buf)| RingJob::new(raw(if i % 3 == 1 { &dir } else { &file }), 0, IoTask::Fill(buf), None))
            .collect();
        run(&mut jobs);
        for (i, job) in jobs.iter().enumerate() {
            assert_eq!(job.result.is_err(), i % 3 == 1, "job {i}: {:?}", job.result);
            let IoTask::Fill(buf) = &job.task else { panic!("job {i} reads") };
            assert_eq!(buf.starts_with(b"\x7fELF"), i % 3 != 1);
        }
    }

    /// Both ways of doing a batch read the same bytes.
    #[test]
    fn with_and_without_a_ring() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let raw = Raw { cached_fd: std::os::fd::AsRawFd::as_raw_fd(&file), direct: None, base: 0, writable: false };
        for available in [true, false] {
            let mut bufs: Vec<Vec<u8>> = (0..500).map(|i| vec![0; (i * 37) % 5000 + 1]).collect();
            let mut jobs: Vec<RingJob> = bufs
                .iter_mut()
                .enumerate()
                .map(|(i, buf)| RingJob::new(raw, i as u64 * 101, IoTask::Fill(buf), None))
                .collect();
            run_by(available, &mut jobs);
            assert!(jobs.iter().all(|job| job.result.is_ok()));
            drop(jobs);
            for (i, buf) in bufs.iter().enumerate() {
                assert!(buf[..] == bytes[i * 101..][..buf.len()], "read {i}");
            }
        }
    }

    /// Several buffers are filled by one job, with gaps and without; it is done whole or not at all.
    #[test]
    fn many_buffers_of_one_job() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let raw = Raw { cached_fd: std::os::fd::AsRawFd::as_raw_fd(&file), direct: None, base: 0, writable: false };
        for available in [true, false] {
            let mut bufs = vec![[0; 700]; 90];
            let mut jobs: Vec<RingJob> = bufs
                .chunks_exact_mut(9)
                .enumerate()
                .map(|(job, bufs)| {
                    let parts =
                        bufs.iter_mut().enumerate().map(|(i, buf)| (if i == 0 { 0 } else { i % 3 }, &mut buf[..]));
                    RingJob::new(raw, job as u64 * 101, IoTask::FillAll(Scatter::new(parts.collect())), None)
                })
                .collect();
            let mut short = [[1; 100]; 2];
            let parts = short.iter_mut().map(|buf| (0, &mut buf[..])).collect();
            let near_end = bytes.len() as u64 - 150;
            jobs.push(RingJob::new(raw, near_end, IoTask::FillAll(Scatter::new(parts)), None));
            run_by(available, &mut jobs);
            let results: Vec<bool> = jobs.into_iter().map(|job| job.result.is_ok()).collect();
            assert_eq!(results, [[true; 10].as_slice(), &[false]].concat());
            for (job, bufs) in bufs.chunks_exact(9).enumerate() {
                let mut at = job * 101;
                for (i, buf) in bufs.iter().enumerate() {
                    at += if i == 0 { 0 } else { i % 3 };
                    assert!(buf[..] == bytes[at..][..700], "job {job}, buffer {i}");
                    at += 700;
                }
            }
        }
    }

    /// It would free buffers that the kernel still writes to.
    #[test]
    #[cfg_attr(miri, ignore = "Miri starts no processes")]
    fn a_panic_in_flight_ends_the_process() {
        const IS_CHILD: &str = "CENOTE_PANIC_IN_FLIGHT";
        if IoUring::new(DEPTH).is_err() {
            return println!("SKIPPED: no io_uring here");
        }
        if std::env::var_os(IS_CHILD).is_some() {
            return panic_in_flight();
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "ring::tests::a_panic_in_flight_ends_the_process"]).env(IS_CHILD, "1");
        let output = child.output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
    }

    /// The clock panics when the first of two reads is done.
    fn panic_in_flight() {
        let looks = AtomicU32::new(0);
        let env = Env::fixed(0).with_ticks(move || match looks.fetch_add(1, Ordering::Relaxed) {
            looks @ ..4 => u64::from(looks),
            _ => panic!("the clock is broken"),
        });
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let raw = Raw { cached_fd: std::os::fd::AsRawFd::as_raw_fd(&file), direct: None, base: 0, writable: false };
        let (meter, mut bufs) = (Meter::default(), [[0u8; 100]; 2]);
        let ticket = || meter.ticket(&env, Purpose::SyncRead, 100);
        let mut jobs = bufs.each_mut().map(|buf| RingJob::new(raw, 0, IoTask::Fill(buf), Some(ticket())));
        run(&mut jobs);
    }
}
