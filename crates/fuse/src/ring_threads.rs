//! Serving a mount over io_uring: the kernel has a queue for each core, and hands a request to a thread on the core of the
//! program that asks, with which it need not wake another core.
//!
//! ```text
//!   program, core 0 ─▶ queue 0 ─▶ thread, bound to core 0 ─▶ session ─▶ reply ─▶ thread ─▶ kernel ─▶ program
//!   program, core 1 ─▶ queue 1 ─▶ ...                                  └▶ later, of another thread ─▶ its door
//!   what is forgotten, notices                                          by /dev/fuse, as ever
//! ```
//!
//! A thread has one slot with the kernel, and while a request waits for its answer elsewhere, another one instead: so requests
//! that wait for each other all come through. A core has several threads, as each waits for devices. Cores where no thread may
//! run share one.
//!
//! The kernel can send nothing of these queues again to another process: a request that it was about to hand to a thread
//! that is killed is lost, and its program gets an error, or waits until the connection ends. So such a mount ends with its
//! process.
//!
//! Above is [`mount`](crate::mount()). Invariant: rings go back to the others only when the kernel has no command of them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use base::Result;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::channel::{Channel, Inbox};
use crate::lobby::no_thread;
use crate::options::{MountOptions, Transport};
use crate::reply::{Reply, ReplyWay};
use crate::ring_slot::{RingDoor, RingSlot};
use crate::rings::{self, BELL, FuseRing};
use crate::session::Session;
use crate::tree::Source;
use crate::wire::opcode;

/// The numbers of cores that there may be.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
/// Threads of a core at least, so that one may wait for a device.
const THREADS_OF_CORE_MIN: usize = 2;

/// Rings for the threads of a mount, none of which has been started.
pub(crate) struct RingTeam(Vec<RingPost>);

/// What one thread is for.
struct RingPost {
    /// The core that it runs on.
    core: Option<usize>,
    queues: Vec<u16>,
    ring: FuseRing,
}

/// The threads of a mount that serve it over io_uring.
pub(crate) struct RingThreads(Receiver<Infallible>);

impl RingTeam {
    /// Rings for a mount whose requests shall come by io_uring; without, they come by /dev/fuse. The kernel sends no request twice by
    /// io_uring, so such a mount ends with its process.
    pub(crate) fn of_mount(options: &mut MountOptions) -> Option<RingTeam> {
        if options.transport == Transport::Device {
            return None;
        }
        match RingTeam::reserve(options.threads()) {
            Ok(team) => {
                options.reattach = false;
                Some(team)
            }
            Err(error) => {
                tracing::warn!(dataset = options.fs_name, "its requests come by /dev/fuse, not by io_uring: {error}");
                options.transport = Transport::Device;
                None
            }
        }
    }

    /// For so many threads in all, or somewhat more. Errors: the kernel does not speak FUSE over io_uring, or there are not
    /// as many rings.
    fn reserve(threads: usize) -> io::Result<RingTeam> {
        if !rings::is_offered() {
            return Err(io::Error::other(
                "the kernel has not, or is not told to have it (enable_uring of module fuse)",
            ));
        }
        let all = queues_in(&std::fs::read_to_string(POSSIBLE)?)
            .ok_or_else(|| io::Error::other(format!("{POSSIBLE} makes no sense")))?;
        let mine = sched_getaffinity(Pid::from_raw(0))?;
        let (near, far): (Vec<u16>, Vec<u16>) = (0..all).partition(|core| mine.is_set(usize::from(*core)) == Ok(true));
        let of_each = (threads / near.len().max(1)).max(THREADS_OF_CORE_MIN);
        let bound = near.iter().flat_map(|core| vec![(Some(usize::from(*core)), vec![*core]); of_each]);
        let posts: Vec<_> = bound.chain((!far.is_empty()).then_some((None, far))).collect();
        let rings = rings::take(posts.len())?;
        let posts = posts.into_iter().zip(rings);
        Ok(RingTeam(posts.map(|((core, queues), ring)| RingPost { core, queues, ring }).collect()))
    }

    /// Serves a mount from now on, whose kernel waits for it. Errors: the system gives no thread; some may have been started, and
    /// the kernel is to be told of the end.
    pub(crate) fn start<S: Source>(mut self, session: &Arc<Session<S>>, channel: &Arc<Channel>) -> Result<RingThreads> {
        let (running, ended) = mpsc::channel();
        let env = session.env().clone();
        for (n, post) in std::mem::take(&mut self.0).into_iter().enumerate() {
            let (session, channel, running) = (session.clone(), channel.clone(), running.clone());
            let thread = move || RingThread::new(post, session, channel, running).run();
            env.spawn(&format!("fuse-ring-{n}"), thread).then_some(()).ok_or_else(no_thread)?;
        }
        Ok(RingThreads(ended))
    }
}

impl Drop for RingTeam {
    fn drop(&mut self) {
        // no thread was started for them
        self.0.drain(..).for_each(|post| rings::give(post.ring));
    }
}

impl RingThreads {
    /// Returns when all have ended, as the connection has.
    pub(crate) fn wait(self) {
        // none of them ever says anything
        let _ = self.0.recv();
    }
}

/// One of these threads.
struct RingThread<S: Source> {
    ring: FuseRing,
    core: Option<usize>,
    session: Arc<Session<S>>,
    channel: Arc<Channel>,
    door: Arc<RingDoor>,
    inbox: Inbox,
    /// Slots that the kernel has, by the numbers of the commands that gave them.
    with_kernel: HashMap<u64, RingSlot>,
    /// How many these are, by queue.
    open: HashMap<u16, usize>,
    /// The number of the last command.
    number: u64,
    /// The connection has ended.
    is_over: bool,
    /// Nothing of the connection is left when this is dropped, as the last.
    _running: Sender<Infallible>,
}

impl<S: Source> RingThread<S> {
    fn new(post: RingPost, session: Arc<Session<S>>, channel: Arc<Channel>, running: Sender<Infallible>) -> Self {
        let RingPost { core, queues, ring } = post;
        RingThread {
            door: RingDoor::new(ring.bell.clone()),
            ring,
            core,
            session,
            channel,
            inbox: Inbox::new(),
            with_kernel: HashMap::new(),
            open: queues.into_iter().map(|queue| (queue, 0)).collect(),
            number: 0,
            is_over: false,
            _running: running,
        }
    }

    fn run(mut self) {
        self.bind();
        let (mut answered, mut completed) = (Vec::new(), Vec::new());
        self.open_queues();
        while !(self.is_over && self.with_kernel.is_empty()) {
            if let Err(error) = self.wait() {
                // the kernel may still write to what it has: that stays, and so does the ring
                let dataset = self.session.fs_name();
                tracing::error!(dataset, "requests of io_uring are not served any more: {error}");
                std::mem::forget((self.with_kernel, self.ring));
                return;
            }
            completed.extend(self.ring.ring.completion().map(|done| (done.user_data(), done.result(), done.flags())));
            for (number, result, flags) in completed.drain(..) {
                match number {
                    BELL => self.heard(flags),
                    _ => self.completed(number, result),
                }
            }
            self.give_back(&mut answered);
        }
        rings::give(self.ring);
    }

    /// Runs on its core from now on.
    fn bind(&self) {
        let mut cores = CpuSet::new();
        if let Some(core) = self.core
            && let Err(error) = cores.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &cores))
        {
            tracing::debug!("a thread for core {core} runs elsewhere: {error}");
        }
    }

    /// Waits until the kernel has completed a command, or a slot has an answer. Errors: of the ring.
    fn wait(&mut self) -> io::Result<()> {
        let want = if self.door.may_sleep() { 1 } else { 0 };
        let waited = self.ring.ring.submit_and_wait(want);
        self.door.awake();
        match waited {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// The bell was rung: slots have answers.
    fn heard(&mut self, flags: u32) {
        self.ring.quiet_bell();
        if !io_uring::cqueue::more(flags) {
            self.ring.hang_bell();
        }
    }

    /// Sees that the kernel has a slot of each queue.
    fn open_queues(&mut self) {
        let closed = self.open.iter().filter(|(_, slots)| **slots == 0).map(|(queue, _)| *queue);
        for queue in closed.collect::<Vec<_>>() {
            let slot = RingSlot::new(queue, &self.door);
            let command = slot.register(self.channel.as_fd().as_raw_fd());
            self.give(slot, command);
        }
    }

    /// Gives the kernel a slot by a command.
    fn give(&mut self, slot: RingSlot, command: io_uring::squeue::Entry128) {
        self.number += 1;
        self.ring.push(command.user_data(self.number));
        *self.open.entry(slot.queue()).or_default() += 1;
        self.with_kernel.insert(self.number, slot);
    }

    /// Gives the kernel the slots that have answers.
    fn give_back(&mut self, answered: &mut Vec<RingSlot>) {
        self.door.take(answered);
        for slot in answered.drain(..) {
            let command = slot.commit(self.channel.as_fd().as_raw_fd());
            self.give(slot, command);
        }
        if !self.is_over {
            self.open_queues();
        }
    }

    /// The kernel has completed a command: the slot has a request, or an error says why not.
    fn completed(&mut self, number: u64, result: i32) {
        let Some(slot) = self.with_kernel.remove(&number) else { return };
        if let Some(slots) = self.open.get_mut(&slot.queue()) {
            *slots -= 1;
        }
        match result {
            0 => self.answer(slot),
            // the program that asked was killed, and its request was taken back: another slot takes the place of this one
            result if result == -libc::ENOENT => {}
            result => {
                if result != -libc::ENOTCONN && result != -libc::ECONNABORTED {
                    let error = io::Error::from_raw_os_error(-result);
                    tracing::error!(dataset = self.session.fs_name(), "io_uring is not served any more: {error}");
                }
                self.is_over = true;
            }
        }
    }

    fn answer(&mut self, slot: RingSlot) {
        let put = slot.request().map(|parts| self.inbox.put(&parts));
        let request = put.and_then(|()| self.inbox.request());
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                tracing::error!(dataset = self.session.fs_name(), "the kernel's request makes no sense: {error}");
                return slot.refuse();
            }
        };
        let header = request.header;
        let reply = Reply::new(header.unique, ReplyWay::Ring(slot));
        match header.opcode {
            opcode::DESTROY => reply.ok(),
            _ => self.session.answer(request, reply),
        }
    }
}

/// How many queues the kernel has: one for each core that there may be, as in `0-3,8`.
fn queues_in(possible: &str) -> Option<u16> {
    let ranges = possible.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    ranges.sum::<Option<u16>>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_has_a_queue_for_each_core() {
        for (text, queues) in [("0\n", 1), ("0-1\n", 2), ("0-3,8-9,12\n", 7)] {
            assert_eq!(queues_in(text), Some(queues), "{text}");
        }
        for bad in ["", "x", "3-1", "0-65535", "0-"] {
            assert_eq!(queues_in(bad), None, "{bad:?}");
        }
    }
}
