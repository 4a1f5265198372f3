//! The connection to the kernel: one message in, one message out.
//!
//! ```text
//!   readv    [ headers, 80 bytes ][ 128 KiB ][ 128 KiB ] ..     of a WRITE, the headers end where its data begin
//!   writev   [ header ][ a cache's block ][ another's ] ..      of a READ, nothing is copied together
//! ```
//!
//! So what is written lands in buffers that can be blocks of the file (see [`base::Data`]): a buffer that
//! somebody shares after its request is left to him, and replaced by another one.
//!
//! Each thread has a descriptor of its own for the same connection; the answer to a request has to be sent on
//! the one that it came from. Above are [`serve`](crate::serve) and [`reply`](crate::reply).

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use base::{AlignedBuf, Block, CopyKind, Data, Error, Result, count_copy};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::uio::{readv, writev};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::process::{Resource, getrlimit};

use crate::device::open_device;
use crate::wire::{
    EXPIRE_ONLY, FuseRequest, IN_HEADER_BYTES, IO_BYTES_MAX, InHeader, NOTIFY_INVAL_ENTRY, NOTIFY_INVAL_INODE,
    NOTIFY_RESEND, NOTIFY_STORE, OUT_HEADER_BYTES, Out, RequestBody, WRITE_IN_BYTES, opcode,
};

/// Bytes of one buffer for data: the usual record size.
const BUFFER_BYTES: usize = 128 << 10;
/// Bytes before the data of a WRITE.
const HEAD_BYTES: usize = IN_HEADER_BYTES + WRITE_IN_BYTES;

/// Files that more threads for a mount leave to others.
const SPARE_FILES: u64 = 24;

/// The offset -1, for no part of a node's contents.
const NO_CONTENTS: u64 = u64::MAX;

mod ioctl {
    nix::ioctl_read!(clone, 229, 0, u32);
}

/// A descriptor of the connection.
pub(crate) struct Channel {
    connection: OwnedFd,
    /// All threads have the same one: when one of several is closed, the requests that were read there fail.
    is_shared: bool,
}

impl Channel {
    pub(crate) fn new(connection: OwnedFd) -> Channel {
        Channel { connection, is_shared: false }
    }

    /// A connection that another process keeps, and can serve by this descriptor after this process.
    pub(crate) fn kept(connection: OwnedFd) -> Channel {
        Channel { connection, is_shared: true }
    }

    /// Another descriptor of the same connection. Errors: those of opening it; there are almost too many open files, and
    /// the last ones are for what is asked of the process.
    pub(crate) fn another(&self) -> Result<Channel> {
        if self.is_shared {
            return Ok(Channel { connection: self.connection.try_clone()?, is_shared: true });
        }
        let other = open_device()?;
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        // the lowest number that is free was taken
        if other.as_raw_fd().unsigned_abs() as u64 + SPARE_FILES >= most {
            return Err(std::io::Error::from(Errno::EMFILE).into());
        }
        let mut ours = self.connection.as_raw_fd().cast_unsigned();
        // SAFETY: the kernel reads one u32, the descriptor to be joined.
        unsafe { ioctl::clone(other.as_raw_fd(), &raw mut ours) }.map_err(std::io::Error::from)?;
        Ok(Channel::new(other))
    }

    /// From now on a request is taken from it only if there is one.
    pub(crate) fn make_eager(&self) -> Result<()> {
        fcntl(&self.connection, FcntlArg::F_SETFL(OFlag::O_RDWR | OFlag::O_NONBLOCK)).map_err(std::io::Error::from)?;
        Ok(())
    }

    /// Sends a message, which is taken as a whole or not at all.
    pub(crate) fn send(&self, parts: &[IoSlice<'_>]) -> nix::Result<()> {
        let sent = writev(&self.connection, parts)?;
        count_copy(CopyKind::ToKernel, sent);
        Ok(())
    }

    /// Has the kernel drop what it keeps of a node.
    pub(crate) fn invalidate(&self, node: u64) -> Result<()> {
        self.invalidate_from(node, 0)
    }

    /// Has the kernel drop what it keeps of a node, but of its contents only those from a byte on.
    pub(crate) fn invalidate_from(&self, node: u64, from: u64) -> Result<()> {
        // the bound of what the kernel can express; no length is all of it
        let from = from.min(i64::MAX as u64);
        self.notify(&invalidation(node, from))
    }

    /// Has the kernel drop what it keeps of a node, but for its contents. That waits for nobody.
    pub(crate) fn forget_attributes(&self, node: u64) -> Result<()> {
        self.notify(&invalidation(node, NO_CONTENTS))
    }

    /// Whether the kernel has a node; what it keeps of that, but for its contents, it drops.
    pub(crate) fn knows(&self, node: u64) -> bool {
        self.send(&[IoSlice::new(&invalidation(node, NO_CONTENTS))]) != Err(Errno::ENOENT)
    }

    /// Tells the kernel bytes of a node's contents, and so that it is at least as long.
    pub(crate) fn store(&self, node: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let out = Out::default().u64(node).u64(offset).u32(bytes.len() as u32).u32(0);
        self.notify(&notice(NOTIFY_STORE, &out.bytes(bytes)))
    }

    /// Has the kernel drop what it keeps of a name, and what is mounted there.
    pub(crate) fn invalidate_name(&self, directory: u64, name: &[u8]) -> Result<()> {
        self.notify(&notice_of_name(directory, name, 0))
    }

    /// Has the kernel ask again for a name; what is mounted there stays if it still is the same directory.
    pub(crate) fn expire_name(&self, directory: u64, name: &[u8]) -> Result<()> {
        self.notify(&expiry(directory, name))
    }

    /// Has the kernel send again what was read and not answered, with a mark. Errors: it cannot.
    pub(crate) fn resend(&self) -> Result<()> {
        self.notify(&notice(NOTIFY_RESEND, &[]))
    }

    fn notify(&self, notice: &[u8]) -> Result<()> {
        match self.send(&[IoSlice::new(notice)]) {
            // it keeps nothing of that
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(std::io::Error::from(errno).into()),
        }
    }
}

/// The message that has the kernel drop what it keeps of a node, but of its contents only those from a byte on.
pub(crate) fn invalidation(node: u64, from: u64) -> Vec<u8> {
    notice(NOTIFY_INVAL_INODE, &Out::default().u64(node).u64(from).u64(0))
}

/// The message that has the kernel ask again for a name.
pub(crate) fn expiry(directory: u64, name: &[u8]) -> Vec<u8> {
    notice_of_name(directory, name, EXPIRE_ONLY)
}

fn notice_of_name(directory: u64, name: &[u8], flags: u32) -> Vec<u8> {
    let out = Out::default().u64(directory).u32(name.len() as u32).u32(flags);
    notice(NOTIFY_INVAL_ENTRY, &out.bytes(name).bytes(&[0]))
}

fn notice(code: i32, what: &[u8]) -> Vec<u8> {
    let header = Out::default().u32((OUT_HEADER_BYTES + what.len()) as u32).u32(code.cast_unsigned()).u64(0);
    [&*header, what].concat()
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// Where a thread waits for requests, of which each wakes one thread, or where there are too many open files, all.
pub(crate) struct Doorbell(Option<OwnedFd>);

impl Doorbell {
    /// It rings when there is a request for `channel`.
    pub(crate) fn of(channel: &Channel) -> Doorbell {
        let exclusive = || {
            let bell = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let when = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
            epoll::add(&bell, channel, epoll::EventData::new_u64(0), when)?;
            Ok::<_, rustix::io::Errno>(bell)
        };
        Doorbell(exclusive().ok())
    }

    /// Waits until there may be a request for `channel`, or all is unmounted. False if `patience` is over.
    pub(crate) fn wait(&self, channel: &Channel, patience: Duration) -> bool {
        let patience = Timespec::try_from(patience).ok();
        // an error is none of the connection, which is asked then
        match &self.0 {
            Some(bell) => {
                let nothing = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
                epoll::wait(bell, &mut [nothing], patience.as_ref()).map_or(true, |count| count > 0)
            }
            None => poll(&mut [PollFd::new(channel, PollFlags::IN)], patience.as_ref()).map_or(true, |count| count > 0),
        }
    }
}

/// Where a thread's requests arrive. It has buffers only while requests come.
pub(crate) struct Inbox {
    head: [u8; HEAD_BYTES],
    buffers: Vec<Block>,
    /// A request that is no WRITE, in one piece.
    whole: Vec<u8>,
    len: usize,
}

impl Inbox {
    pub(crate) fn new() -> Inbox {
        Inbox { head: [0; HEAD_BYTES], buffers: Vec::new(), whole: Vec::new(), len: 0 }
    }

    /// Gives its buffers back, until the next request.
    pub(crate) fn rest(&mut self) {
        (self.buffers, self.whole, self.len) = (Vec::new(), Vec::new(), 0);
    }

    /// Takes the next request from the kernel. Errors: `ENODEV` when all is unmounted;
    /// `EAGAIN` from an eager channel if there is none.
    pub(crate) fn receive(&mut self, channel: &Channel) -> nix::Result<()> {
        self.let_go();
        self.len = 0;
        self.buffers.resize_with(IO_BYTES_MAX as usize / BUFFER_BYTES, buffer);
        let mut parts = Vec::with_capacity(1 + self.buffers.len());
        parts.push(IoSliceMut::new(&mut self.head));
        parts.extend(self.buffers.iter_mut().map(|block| IoSliceMut::new(block.make_mut())));
        self.len = loop {
            match readv(channel, &mut parts) {
                // ENOENT: that request was interrupted before it was sent
                Err(Errno::EINTR | Errno::ENOENT) => {}
                received => break received?,
            }
        };
        count_copy(CopyKind::FromKernel, self.len);
        Ok(())
    }

    /// Takes a request that came by another way, in parts that make one message.
    pub(crate) fn put(&mut self, parts: &[&[u8]]) {
        self.let_go();
        self.len = parts.iter().map(|part| part.len()).sum();
        let blocks = self.len.saturating_sub(HEAD_BYTES).div_ceil(BUFFER_BYTES);
        self.buffers.resize_with(blocks.max(self.buffers.len()), buffer);
        let blocks = self.buffers[..blocks].iter_mut().map(Block::make_mut);
        let mut room = std::iter::once(&mut self.head[..]).chain(blocks);
        let mut into = room.next().unwrap_or_default();
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                if into.is_empty() {
                    into = room.next().unwrap_or_default();
                }
                let (now, later) = rest.split_at(rest.len().min(into.len()));
                let (filled, left) = std::mem::take(&mut into).split_at_mut(now.len());
                filled.copy_from_slice(now);
                (rest, into) = (later, left);
            }
        }
        count_copy(CopyKind::IntoBlocks, self.len);
    }

    /// The request that was received last. Errors: `Corrupt` if it is none.
    pub(crate) fn request(&mut self) -> Result<FuseRequest<'_>> {
        let header = InHeader::parse(&self.head[..self.len.min(HEAD_BYTES)])?;
        if header.len as usize != self.len {
            return Err(Error::corrupt(format!("{} bytes of a request of {}", self.len, header.len)));
        }
        let data = Data::in_blocks(&self.buffers, self.len.saturating_sub(HEAD_BYTES));
        if header.opcode == opcode::WRITE || self.len <= HEAD_BYTES {
            let body = RequestBody::new(&self.head[IN_HEADER_BYTES..self.len.min(HEAD_BYTES)]);
            return Ok(FuseRequest { header, body, data });
        }
        self.whole.clear();
        self.whole.extend_from_slice(&self.head[IN_HEADER_BYTES..]);
        data.slices().for_each(|slice| self.whole.extend_from_slice(slice));
        Ok(FuseRequest { header, body: RequestBody::new(&self.whole), data })
    }

    /// Replaces the buffers that somebody shares by now.
    fn let_go(&mut self) {
        let used = self.len.saturating_sub(HEAD_BYTES).div_ceil(BUFFER_BYTES);
        for block in self.buffers.iter_mut().take(used) {
            if block.get_mut().is_none() {
                *block = buffer();
            }
        }
    }
}

fn buffer() -> Block {
    AlignedBuf::for_overwrite(BUFFER_BYTES).into()
}
