//! Serving a mount: the handshake with the kernel, and the threads that take requests.
//!
//! Above is [`mount`](crate::mount()), which runs it; below, [`channel`](crate::channel) moves the messages, and
//! [`session`](crate::session) answers them, [`lobby`](crate::lobby) has it served, [`export::Turns`] say which thread takes the next one, and
//! [`follow`](crate::follow) how it waits, and on which core.
//!
//! ```text
//!   nobody asks        neither threads nor buffers: the mount is in the lobby
//!   a request          ─▶ a thread with buffers takes it, and another one stands by
//!   more at once       ─▶ a thread for each, up to a limit
//!   none for a while   ─▶ buffers are given back, all threads end but the first, and that one leaves
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
use crate::lobby::{Stay, no_thread};
use crate::reply::{Reply, ReplyWay};
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
        let reply = Reply::new(request.header.unique, ReplyWay::Device(channel.clone()));
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

/// The threads of a mount that take requests: none, or as long as requests come, one and others.
pub(crate) struct RequestThreads<S: Source>(Arc<Taker<S>>);

/// Why a thread takes no more requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServeEnd {
    /// None came for a while, and all are answered.
    IsIdle,
    /// All is unmounted.
    HasEnded,
}

/// Which thread it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadRank {
    /// The one that serves the mount, so long.
    First(Stay),
    /// One that was started since.
    Further,
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
type ThreadEnds = Sender<Result<ServeEnd>>;

impl Door {
    fn new(channel: Arc<Channel>) -> Door {
        let bell = Doorbell::of(&channel);
        Door { channel, bell, has_waited: Cell::default(), is_quiet: Cell::new(true) }
    }
}

impl ThreadRank {
    /// How long it waits for a request.
    fn patience(self) -> Duration {
        if self == ThreadRank::First(Stay::WhileAsked) { Duration::ZERO } else { IDLE_TIME }
    }
}

impl<S: Source> RequestThreads<S> {
    /// Up to `threads_max`, none of which has been started. Errors: those of the connection.
    pub(crate) fn new(session: &Arc<Session<S>>, channel: Arc<Channel>, threads_max: usize) -> Result<Self> {
        channel.make_eager()?;
        let (turns, all, idle) = (Turns::default(), AtomicUsize::new(1), AtomicUsize::new(0));
        let taker = Taker { session: session.clone(), turns, channel, threads_max, all, idle };
        Ok(RequestThreads(Arc::new(taker)))
    }

    /// Where requests come.
    pub(crate) fn channel(&self) -> &Channel {
        &self.0.channel
    }

    /// Takes requests on this thread, and on others as they are needed, as long as they come. Errors: those of the
    /// threads, the first one's; what the kernel sends and is no request.
    pub(crate) fn run(&self, stay: Stay) -> Result<ServeEnd> {
        let (ends, ended) = mpsc::channel();
        let mut follower = Follower::new();
        let first = self.0.run(&Door::new(self.0.channel.clone()), &mut follower, &ends, ThreadRank::First(stay));
        follower.leave();
        drop(ends);
        ended.into_iter().fold(first, |first, further| further.and(first))
    }
}

impl<S: Source> Taker<S> {
    /// Starts one more thread, if there may be more.
    fn add(self: &Arc<Self>, follower: &Follower, ends: &ThreadEnds) {
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
    fn start(self: &Arc<Self>, n: usize, mut follower: Follower, ends: ThreadEnds) -> Result<bool> {
        let channel = self.channel.another()?;
        channel.make_eager()?;
        let door = Door::new(Arc::new(channel));
        let taker = self.clone();
        let work = move || {
            follower.leave();
            let result = taker.run(&door, &mut follower, &ends, ThreadRank::Further);
            // nothing of the connection is left when the last end is told
            drop((taker, door));
            let _ = ends.send(result);
        };
        self.session.env().spawn(&format!("fuse-{n}"), work).then_some(true).ok_or_else(no_thread)
    }

    /// A thread's work, until it is not needed any more.
    fn run(
        self: &Arc<Self>,
        door: &Door,
        follower: &mut Follower,
        ends: &ThreadEnds,
        place: ThreadRank,
    ) -> Result<ServeEnd> {
        let (mut inbox, mut looks) = (Inbox::new(), Looks::default());
        self.idle.fetch_add(1, Ordering::SeqCst);
        loop {
            let seat = match place {
                ThreadRank::First(_) => self.turns.enter(),
                ThreadRank::Further => match self.turns.enter_while_busy(IDLE_TIME) {
                    Some(seat) => seat,
                    None if self.may_leave(place) => return Ok(ServeEnd::IsIdle),
                    None => continue,
                },
            };
            while seat.stays() {
                let at_once = match self.receive(&mut inbox, (follower, &mut looks), door, &seat, place.patience()) {
                    Ok(Some(at_once)) => at_once,
                    Ok(None) => {
                        inbox.rest();
                        if self.may_leave(place) {
                            return Ok(ServeEnd::IsIdle);
                        }
                        continue;
                    }
                    Err(Errno::ENODEV) => {
                        self.turns.end();
                        return Ok(ServeEnd::HasEnded);
                    }
                    Err(errno) => return Err(std::io::Error::from(errno).into()),
                };
                let request = inbox.request()?;
                let header = request.header;
                let reply = Reply::new(header.unique, ReplyWay::Device(door.channel.clone()));
                if header.opcode == opcode::DESTROY {
                    reply.done()?;
                    return Ok(ServeEnd::HasEnded);
                }
                self.turns.taken(header.pid, header.opcode == opcode::READ, at_once);
                // after that: one that leaves sees that there is work, or this one that it is gone
                if self.idle.fetch_sub(1, Ordering::SeqCst) == 1 && place != ThreadRank::First(Stay::WhileAsked) {
                    self.add(follower, ends);
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

    /// Whether this thread, which is idle, may leave: not while another one may come to need it, and the first one as
    /// the last.
    fn may_leave(&self, place: ThreadRank) -> bool {
        self.idle.fetch_sub(1, Ordering::SeqCst);
        let is_first = place != ThreadRank::Further;
        let may_leave = !self.turns.is_at_work() && (!is_first || self.all.load(Ordering::SeqCst) == 1);
        if !may_leave {
            self.idle.fetch_add(1, Ordering::SeqCst);
        } else if !is_first {
            self.all.fetch_sub(1, Ordering::SeqCst);
        }
        may_leave
    }

    /// Takes the next request: whether it was there at once. `None` if there was none for so long.
    fn receive(
        &self,
        inbox: &mut Inbox,
        (follower, looks): (&Follower, &mut Looks),
        door: &Door,
        seat: &Seat<'_>,
        patience: Duration,
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
        while door.bell.wait(&door.channel, patience) {
            if let Some(received) = look() {
                return received.map(|()| Some(false));
            }
        }
        door.is_quiet.set(true);
        Ok(None)
    }
}
