//! Serving a mount: the handshake with the kernel, and the threads that take requests.
//!
//! Above is [`mount`](crate::mount()), which runs it; below, [`channel`](crate::channel) moves the messages, and
//! [`session`](crate::session) answers them, [`export::Turns`] say which thread takes the next one, and
//! [`follow`](crate::follow) how it waits, and on which core.
//!
//! ```text
//!   nobody asks        one thread waits, without buffers
//!   a request          ─▶ buffers for that thread, and another one stands by
//!   more at once       ─▶ a thread for each, up to a limit
//!   none for a while   ─▶ buffers are given back, and all threads end but the first
//! ```

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use base::{Error, Kind, Result};
use export::{Looks, Seat, Turns};
use nix::errno::Errno;

use crate::channel::{Channel, Doorbell, Inbox};
use crate::follow::Follower;
use crate::reply::Reply;
use crate::session::Session;
use crate::tree::Source;
use crate::wire::{self, INIT_OUT_BYTES, IO_BYTES_MAX, Out, init, opcode};

/// Reads ahead of readers that the kernel may have under way at once.
const BACKGROUND_MAX: u16 = 64;

/// How long threads and buffers stay that nobody needs.
const IDLE_TIME: Duration = Duration::from_secs(5);

/// Bytes of a page, in which the kernel counts the longest request.
const PAGE_BYTES: u32 = 4096;

/// Answers the kernel's first request, INIT. Errors: `Unsupported` for a kernel that is too old.
pub(crate) fn shake_hands<S: Source>(session: &Session<S>, channel: &Arc<Channel>) -> Result<()> {
    let mut inbox = Inbox::new();
    loop {
        inbox.receive(channel).map_err(std::io::Error::from)?;
        let mut request = inbox.request()?;
        let reply = Reply::new(request.header.unique, channel.clone());
        if request.header.opcode != opcode::INIT {
            return Err(Error::corrupt(format!("request {} before the first one", request.header.opcode)));
        }
        let body = &mut request.body;
        let (major, minor, readahead_bytes) = (body.u32()?, body.u32()?, body.u32()?);
        let flags = u64::from(body.u32()?);
        if major > wire::MAJOR {
            // it asks again, in our version
            reply.bytes(&Out::default().u32(wire::MAJOR).u32(wire::MINOR).padded(INIT_OUT_BYTES));
            continue;
        }
        if (major, minor) < (wire::MAJOR, wire::MINOR_MIN) {
            reply.error(libc::EPROTO);
            return Err(Error::new(Kind::Unsupported, format!("the kernel's FUSE is too old: {major}.{minor}")));
        }
        // older kernels do not send them
        let more = if flags & init::INIT_EXT != 0 { u64::from(body.u32()?) << 32 } else { 0 };
        let flags = session.choose(flags | more);
        let words = |words: [u16; 2]| words.map(u16::to_ne_bytes).concat();
        let out = Out::default().u32(wire::MAJOR).u32(wire::MINOR).u32(readahead_bytes).u32(flags as u32);
        // the second is when the kernel holds reads ahead back
        let out = out.bytes(&words([BACKGROUND_MAX, BACKGROUND_MAX / 4 * 3])).u32(IO_BYTES_MAX);
        // times are told to the nanosecond
        let out = out.u32(1).bytes(&words([(IO_BYTES_MAX / PAGE_BYTES) as u16, 0])).u32((flags >> 32) as u32);
        session.connected(channel.clone());
        reply.bytes(&out.padded(INIT_OUT_BYTES));
        return Ok(());
    }
}

/// What the threads of a mount share.
struct Taker<S: Source> {
    session: Arc<Session<S>>,
    turns: Turns,
    /// From which others are made.
    channel: Arc<Channel>,
    threads_max: usize,
    /// Threads, and those of them that wait for a request or for their turn.
    all: AtomicUsize,
    idle: AtomicUsize,
}

/// The threads of a mount that take requests: one that waits, and as long as requests come, others.
pub(crate) struct RequestThreads<S: Source> {
    taker: Arc<Taker<S>>,
    door: Door,
}

/// Where a thread takes requests.
struct Door {
    channel: Arc<Channel>,
    bell: Doorbell,
    /// The last request was waited for.
    has_waited: Cell<bool>,
    /// None came for a while.
    is_quiet: Cell<bool>,
}

/// How a thread ends is told there.
type Ends = Sender<Result<()>>;

impl Door {
    fn new(channel: Arc<Channel>) -> Result<Door> {
        channel.make_eager()?;
        let bell = Doorbell::of(&channel)?;
        Ok(Door { channel, bell, has_waited: Cell::default(), is_quiet: Cell::new(true) })
    }
}

impl<S: Source> RequestThreads<S> {
    /// Up to `threads_max`, none of which has been started. Errors: those of the connection.
    pub(crate) fn new(session: &Arc<Session<S>>, channel: Arc<Channel>, threads_max: usize) -> Result<Self> {
        let door = Door::new(channel.clone())?;
        let (turns, all, idle) = (Turns::default(), AtomicUsize::new(1), AtomicUsize::new(0));
        let taker = Taker { session: session.clone(), turns, channel, threads_max, all, idle };
        Ok(RequestThreads { taker: Arc::new(taker), door })
    }

    /// Takes requests on this thread, and on others as they are needed, until all is unmounted. Errors: those of the
    /// threads, the first one's; what the kernel sends and is no request.
    pub(crate) fn run(self) -> Result<()> {
        let (ends, ended) = mpsc::channel();
        let first = self.taker.run(&self.door, Follower::new(), &ends, true);
        drop((self, ends));
        ended.into_iter().fold(first, Result::and)
    }
}

/// The error of the system giving no thread.
pub(crate) fn no_thread() -> Error {
    Error::new(Kind::Io, "the system gives no more threads")
}

impl<S: Source> Taker<S> {
    /// Starts one more thread, if there may be more.
    fn add(self: &Arc<Self>, follower: &Follower, ends: &Ends) {
        let n = self.all.fetch_add(1, Ordering::SeqCst);
        let started = match n < self.threads_max {
            true => self.start(n, follower.of_new_thread(), ends.clone()),
            false => Ok(false),
        };
        if !started.as_ref().is_ok_and(|is_started| *is_started) {
            self.all.fetch_sub(1, Ordering::SeqCst);
        }
        if let Err(error) = started {
            tracing::warn!(dataset = self.session.fs_name(), "{n} threads take requests: {error}");
        }
    }

    /// Starts the thread with that number. Errors: the system gives no file or no thread more.
    fn start(self: &Arc<Self>, n: usize, mut follower: Follower, ends: Ends) -> Result<bool> {
        let door = Door::new(Arc::new(self.channel.another()?))?;
        let taker = self.clone();
        let work = move || {
            follower.leave();
            let result = taker.run(&door, follower, &ends, false);
            // nothing of the connection is left when the last end is told
            drop((taker, door));
            let _ = ends.send(result);
        };
        self.session.env().spawn(&format!("fuse-{n}"), work).then_some(true).ok_or_else(no_thread)
    }

    /// A thread's work. The first one stays; others leave when they are not needed.
    fn run(self: &Arc<Self>, door: &Door, mut follower: Follower, ends: &Ends, is_first: bool) -> Result<()> {
        let (mut inbox, mut looks) = (Inbox::new(), Looks::default());
        self.idle.fetch_add(1, Ordering::SeqCst);
        loop {
            let seat = match is_first {
                true => self.turns.enter(),
                false => match self.turns.enter_while_busy(IDLE_TIME) {
                    Some(seat) => seat,
                    None if self.may_leave() => return Ok(()),
                    None => continue,
                },
            };
            while seat.stays() {
                // the first one has nothing left to give back then
                let patience = (!is_first || !inbox.is_at_rest()).then_some(IDLE_TIME);
                let at_once = match self.receive(&mut inbox, (&follower, &mut looks), door, &seat, patience) {
                    Ok(Some(at_once)) => at_once,
                    Ok(None) => {
                        inbox.rest();
                        if !is_first && self.may_leave() {
                            return Ok(());
                        }
                        continue;
                    }
                    Err(Errno::ENODEV) => {
                        self.turns.end();
                        return Ok(());
                    }
                    Err(errno) => return Err(std::io::Error::from(errno).into()),
                };
                let request = inbox.request()?;
                let header = request.header;
                let reply = Reply::new(header.unique, door.channel.clone());
                if header.opcode == opcode::DESTROY {
                    return reply.done();
                }
                self.turns.taken(header.pid, header.opcode == opcode::READ, at_once);
                // after that: one that leaves sees that there is work, or this one that it is gone
                if self.idle.fetch_sub(1, Ordering::SeqCst) == 1 {
                    self.add(&follower, ends);
                }
                match seat.is_alone() {
                    true => follower.follow(header.pid),
                    false => follower.leave(),
                }
                self.session.answer(request, reply);
                self.turns.done();
                self.idle.fetch_add(1, Ordering::SeqCst);
            }
            inbox.rest();
        }
    }

    /// Whether this thread, which is idle, may end: not while another one may come to need it.
    fn may_leave(&self) -> bool {
        self.idle.fetch_sub(1, Ordering::SeqCst);
        let may_leave = !self.turns.is_at_work();
        match may_leave {
            true => self.all.fetch_sub(1, Ordering::SeqCst),
            false => self.idle.fetch_add(1, Ordering::SeqCst),
        };
        may_leave
    }

    /// Takes the next request: whether it was there at once. `None` if there was none for so long.
    fn receive(
        &self,
        inbox: &mut Inbox,
        (follower, looks): (&Follower, &mut Looks),
        door: &Door,
        seat: &Seat<'_>,
        patience: Option<Duration>,
    ) -> nix::Result<Option<bool>> {
        let mut look = || match inbox.receive(&door.channel) {
            Err(Errno::EAGAIN) => None,
            received => Some(received),
        };
        if !door.is_quiet.replace(false) {
            // a task on this core cannot ask before this thread sleeps
            let eager = !follower.is_tied();
            if let Some((received, at_once)) = looks.find(self.session.env(), seat, eager, &mut look) {
                return received.map(|()| Some(at_once));
            }
            // where several take requests, there often is one already: the less so if the last one was waited for
            if !seat.is_alone() && !door.has_waited.replace(false) {
                if let Some(received) = look() {
                    return received.map(|()| Some(false));
                }
                door.has_waited.set(true);
            }
        }
        while door.bell.wait(patience) {
            if let Some(received) = look() {
                return received.map(|()| Some(false));
            }
        }
        door.is_quiet.set(true);
        Ok(None)
    }
}
