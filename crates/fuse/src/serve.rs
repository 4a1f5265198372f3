//! Serving a mount: the handshake with the kernel, and the threads that take requests.
//!
//! Above is [`mount`](crate::mount()), which runs it; below, [`channel`](crate::channel) moves the messages, and
//! [`session`](crate::session) answers them, [`export::Turns`] say which thread takes the next one, and
//! [`follow`](crate::follow) how it waits, and on which core.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use base::{Error, Kind, Result};
use export::{Looks, Seat, Turns};
use nix::errno::Errno;

use crate::channel::{Channel, Inbox};
use crate::follow::Follower;
use crate::reply::Reply;
use crate::session::Session;
use crate::tree::Source;
use crate::wire::{self, INIT_OUT_BYTES, IO_BYTES_MAX, Out, init, opcode};

/// Reads ahead of readers that the kernel may have under way at once.
const BACKGROUND_MAX: u16 = 64;

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
    /// A thread that takes requests alone looks here before it sleeps.
    eager: Arc<Channel>,
}

/// The threads of a mount that take requests.
pub(crate) struct Threads(Vec<Receiver<Result<()>>>);

/// Takes requests on `n_threads` threads from now on, or on fewer if there cannot be as many. Errors: there cannot be
/// one, and nobody takes requests.
pub(crate) fn start<S: Source>(session: &Arc<Session<S>>, channel: Arc<Channel>, n_threads: usize) -> Result<Threads> {
    let eager = Arc::new(channel.another_eager()?);
    let taker = Arc::new(Taker { session: session.clone(), turns: Turns::default(), eager });
    let mut threads = vec![taker.start(0, channel.clone())?];
    for n in 1..n_threads {
        match channel.another().and_then(|channel| taker.start(n, Arc::new(channel))) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                tracing::warn!(dataset = session.fs_name(), "{n} threads take requests, not {n_threads}: {error}");
                break;
            }
        }
    }
    Ok(Threads(threads))
}

impl Threads {
    /// Waits until all is unmounted. Errors: those of the threads, the first one's; what the kernel sends and is no
    /// request.
    pub(crate) fn wait(self) -> Result<()> {
        let ends = self.0.into_iter().map(|thread| thread.recv().unwrap_or(Ok(())));
        ends.fold(Ok(()), Result::and)
    }
}

/// The error of the system giving no thread.
pub(crate) fn no_thread() -> Error {
    Error::new(Kind::Io, "the system gives no more threads")
}

impl<S: Source> Taker<S> {
    /// Starts the thread with that number; from what is returned comes how it ended.
    fn start(self: &Arc<Self>, n: usize, channel: Arc<Channel>) -> Result<Receiver<Result<()>>> {
        let (taker, (ends, end)) = (self.clone(), mpsc::channel());
        let work = move || {
            let result = taker.run(&channel);
            // nothing of the connection is left when the last end is told
            drop((taker, channel));
            let _ = ends.send(result);
        };
        self.session.env().spawn(&format!("fuse-{n}"), work).then_some(end).ok_or_else(no_thread)
    }

    /// A thread's work; `patient` is the channel where it sleeps.
    fn run(&self, patient: &Arc<Channel>) -> Result<()> {
        let mut inbox = Inbox::new();
        let (mut follower, mut looks) = (Follower::new(), Looks::default());
        loop {
            let seat = self.turns.enter();
            while seat.stays() {
                let (channel, at_once) = match self.receive(&mut inbox, (&follower, &mut looks), patient, &seat) {
                    Ok(received) => received,
                    Err(Errno::ENODEV) => {
                        self.turns.end();
                        return Ok(());
                    }
                    Err(errno) => return Err(std::io::Error::from(errno).into()),
                };
                let request = inbox.request()?;
                let header = request.header;
                let reply = Reply::new(header.unique, channel.clone());
                if header.opcode == opcode::DESTROY {
                    return reply.done();
                }
                self.turns.taken(header.pid, header.opcode == opcode::READ, at_once);
                match seat.is_alone() {
                    true => follower.follow(header.pid),
                    false => follower.leave(),
                }
                self.session.answer(request, reply);
                self.turns.done();
            }
        }
    }

    /// Takes the next request: from which channel, and whether it was there at once.
    fn receive<'a>(
        &'a self,
        inbox: &mut Inbox,
        (follower, looks): (&Follower, &mut Looks),
        patient: &'a Arc<Channel>,
        seat: &Seat<'_>,
    ) -> nix::Result<(&'a Arc<Channel>, bool)> {
        // a task on this core cannot ask before this thread sleeps
        let eager = !follower.is_tied();
        let found = looks.find(self.session.env(), seat, eager, || match inbox.receive(&self.eager) {
            Err(Errno::EAGAIN) => None,
            received => Some(received),
        });
        if let Some((received, at_once)) = found {
            return received.map(|()| (&self.eager, at_once));
        }
        inbox.receive(patient)?;
        Ok((patient, false))
    }
}
