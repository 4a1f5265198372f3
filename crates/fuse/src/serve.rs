//! Serving a mount: the handshake with the kernel, and the threads that take requests.
//!
//! Above is [`mount`](crate::mount), which runs it; below, [`channel`](crate::channel) moves the messages, and
//! [`session`](crate::session) answers them.

use std::sync::Arc;

use base::{Error, Kind, Result};
use nix::errno::Errno;

use crate::channel::{Channel, Inbox};
use crate::reply::Reply;
use crate::session::{IO_BYTES_MAX, Session};
use crate::tree::Source;
use crate::wire::{self, INIT_OUT_BYTES, Out, opcode};

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
        let flags = body.u32()?;
        if major > wire::MAJOR {
            // it asks again, in our version
            reply.bytes(&Out::default().u32(wire::MAJOR).u32(wire::MINOR).padded(INIT_OUT_BYTES));
            continue;
        }
        if (major, minor) < (wire::MAJOR, wire::MINOR_MIN) {
            reply.error(libc::EPROTO);
            return Err(Error::new(Kind::Unsupported, format!("the kernel's FUSE is too old: {major}.{minor}")));
        }
        let flags = session.choose(flags);
        let words = |words: [u16; 2]| words.map(u16::to_ne_bytes).concat();
        let out = Out::default().u32(wire::MAJOR).u32(wire::MINOR).u32(readahead_bytes).u32(flags);
        // the second is when the kernel holds back who reads ahead
        let out = out.bytes(&words([BACKGROUND_MAX, BACKGROUND_MAX / 4 * 3])).u32(IO_BYTES_MAX);
        // times are told to the nanosecond
        let out = out.u32(1).bytes(&words([(IO_BYTES_MAX / PAGE_BYTES) as u16, 0]));
        reply.bytes(&out.padded(INIT_OUT_BYTES));
        return Ok(());
    }
}

/// Takes requests on `n_threads` threads until all is unmounted, and tells the session of the end. Errors: those
/// of threads, the first one's; what the kernel sends and is no request.
pub(crate) fn run<S: Source>(session: &Arc<Session<S>>, channel: &Arc<Channel>, n_threads: usize) -> Result<()> {
    let mut channels = vec![channel.clone()];
    for _ in 1..n_threads {
        channels.push(Arc::new(channel.another()?));
    }
    let mut threads = Vec::new();
    for (n, channel) in channels.into_iter().enumerate() {
        let session = session.clone();
        let thread = move || take_requests(&session, &channel);
        threads.push(std::thread::Builder::new().name(format!("fuse-{n}")).spawn(thread)?);
    }
    let mut result = Ok(());
    for thread in threads {
        let ended = thread.join().unwrap_or_else(|_| Err(Error::new(Kind::Io, "a thread of requests panicked")));
        result = result.and(ended);
    }
    session.destroy();
    result
}

fn take_requests<S: Source>(session: &Session<S>, channel: &Arc<Channel>) -> Result<()> {
    let mut inbox = Inbox::new();
    loop {
        match inbox.receive(channel) {
            Ok(()) => {}
            Err(Errno::ENODEV) => return Ok(()),
            Err(errno) => return Err(std::io::Error::from(errno).into()),
        }
        let request = inbox.request()?;
        let reply = Reply::new(request.header.unique, channel.clone());
        if request.header.opcode == opcode::DESTROY {
            reply.ok();
            return Ok(());
        }
        session.answer(request, reply);
    }
}
