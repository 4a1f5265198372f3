//! Descriptors that travel beside messages (`SCM_RIGHTS`): a file, pipe or socket of the sender, which the receiver
//! then has open, too.
//!
//! ```text
//!   bytes:        | length | JSON ...            |
//!   descriptors:  | 0 to 4 |
//! ```
//!
//! They come with the first byte of their message. What is received is closed when it is dropped, so a descriptor that
//! nobody expected stays open for no longer than its message is looked at.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use base::Result;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::wire;

/// Most descriptors beside one message.
pub const DESCRIPTORS_MAX: usize = 4;

/// Sends a message, and copies of `descriptors` beside it. Errors: as [`wire::send`]; `Io` if there are more than
/// [`DESCRIPTORS_MAX`].
pub fn send<T: Serialize>(to: &UnixStream, message: &T, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    wire::send(&mut Sender { stream: to, descriptors }, message)
}

/// Receives a message of at most `bytes_max`, and the descriptors beside it; `None` if the other side is done.
/// Errors: as [`wire::receive`]; `Io` if there are more than [`DESCRIPTORS_MAX`], or than this process can have open.
pub fn receive<T: DeserializeOwned>(from: &UnixStream, bytes_max: u32) -> Result<Option<(T, Vec<OwnedFd>)>> {
    let mut receiver = Receiver { stream: from, descriptors: Vec::new() };
    let message = wire::receive(&mut receiver, bytes_max)?;
    Ok(message.map(|message| (message, receiver.descriptors)))
}

/// Bytes to a socket, and descriptors with the first of them.
struct Sender<'a> {
    stream: &'a UnixStream,
    descriptors: &'a [BorrowedFd<'a>],
}

impl Write for Sender<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let is_beyond = self.descriptors.len() > DESCRIPTORS_MAX;
        if is_beyond || !self.descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(self.descriptors))
        {
            return Err(io::Error::other("too many descriptors for one message"));
        }
        let sent = sendmsg(self.stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
        if sent > 0 {
            self.descriptors = &[];
        }
        Ok(sent)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes from a socket, and the descriptors that came with any of them.
struct Receiver<'a> {
    stream: &'a UnixStream,
    descriptors: Vec<OwnedFd>,
}

impl Read for Receiver<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(self.stream, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) || self.descriptors.len() > DESCRIPTORS_MAX {
            return Err(io::Error::other("too many descriptors beside a message"));
        }
        Ok(received.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::wire::{REQUEST_BYTES_MAX, Request};

    /// A pipe's end that reads to the end as soon as nobody has the other end open.
    fn pipe() -> (io::PipeReader, io::PipeWriter) {
        io::pipe().unwrap()
    }

    fn received(from: &UnixStream) -> Result<Option<(Request, Vec<OwnedFd>)>> {
        receive(from, REQUEST_BYTES_MAX)
    }

    #[test]
    fn descriptors_come_with_their_message() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut reader, writer) = pipe();
        send(&ours, &Request::Report, &[]).unwrap();
        send(&ours, &Request::Io, &[writer.as_fd(), writer.as_fd()]).unwrap();
        send(&ours, &Request::Logs, &[]).unwrap();
        drop((writer, ours));
        let (request, none) = received(&theirs).unwrap().unwrap();
        assert_eq!((request, none.len()), (Request::Report, 0));
        let (request, mut two) = received(&theirs).unwrap().unwrap();
        assert_eq!((request, two.len()), (Request::Io, 2));
        assert!(two.iter().all(|fd| rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC)));
        drop(two.pop());
        io::PipeWriter::from(two.pop().unwrap()).write_all(b"from afar").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "from afar", "and it ends, as nothing has the other end open any more");
        assert_eq!(received(&theirs).unwrap().unwrap().1.len(), 0);
        assert!(received(&theirs).unwrap().is_none());
    }

    #[test]
    fn those_of_a_large_message_come_too() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (_reader, writer) = pipe();
        let large = Request::Set { name: "comment".into(), value: "x".repeat(3 << 20), history: String::new() };
        std::thread::scope(|scope| {
            scope.spawn(|| send(&ours, &large, &[writer.as_fd()]).unwrap());
            let (request, descriptors) = received(&theirs).unwrap().unwrap();
            assert!(request == large && descriptors.len() == 1);
        });
    }

    #[test]
    fn too_many_are_closed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut reader, writer) = pipe();
        assert!(send(&ours, &Request::Report, &[writer.as_fd(); DESCRIPTORS_MAX + 1]).is_err());
        // past our own check
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(9))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let many = [writer.as_fd(); 9];
        assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
        sendmsg(&ours, &[IoSlice::new(&[8, 0, 0, 0])], &mut control, SendFlags::empty()).unwrap();
        drop(writer);
        assert!(received(&theirs).is_err());
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "nothing has them open");
    }

    #[test]
    fn a_plain_reader_closes_them() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (mut reader, writer) = pipe();
        send(&ours, &Request::Report, &[writer.as_fd()]).unwrap();
        drop(writer);
        assert_eq!(wire::receive(&mut theirs, REQUEST_BYTES_MAX).unwrap(), Some(Request::Report));
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }
}
