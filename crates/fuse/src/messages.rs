//! Messages between a process and its helpers: one JSON text in one packet, with at most one file descriptor.

use std::io::{ErrorKind, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use base::{Error, Kind, Result};
use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::device;

/// Longest message, in bytes: a path that is not UTF-8 takes four for each of its own.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// The two ends of a connection.
pub(crate) fn socket_pair() -> Result<(OwnedFd, OwnedFd)> {
    let pair = socket::socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC);
    Ok(pair.map_err(std::io::Error::from)?)
}

/// Sends a message, with a file descriptor if need be.
pub(crate) fn send(socket: BorrowedFd<'_>, message: &impl Serialize, fd: Option<BorrowedFd<'_>>) -> Result<()> {
    let bytes = serde_json::to_vec(message).map_err(|e| Error::corrupt("not a message").with_source(e))?;
    let fds: Vec<_> = fd.iter().map(AsRawFd::as_raw_fd).collect();
    let control = [ControlMessage::ScmRights(&fds)];
    let control = if fds.is_empty() { &[][..] } else { &control };
    let slices = [IoSlice::new(&bytes)];
    loop {
        match socket::sendmsg::<()>(socket.as_raw_fd(), &slices, control, MsgFlags::MSG_NOSIGNAL, None) {
            Err(Errno::EINTR) => {}
            sent => return Ok(sent.map(drop).map_err(std::io::Error::from)?),
        }
    }
}

/// Takes a message, and the file descriptor that came with it; `None` if the other end is closed.
pub(crate) fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> Result<Option<(T, Option<OwnedFd>)>> {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let (length, fd) = match device::receive(socket, &mut bytes) {
        Ok((0, _)) => return Ok(None),
        Ok(received) => received,
        Err(e) if e.kind() == ErrorKind::WouldBlock => {
            return Err(Error::new(Kind::Interrupted, "the mount helper does not answer"));
        }
        Err(e) => return Err(e.into()),
    };
    let message = serde_json::from_slice(&bytes[..length]).map_err(|_| makes_no_sense())?;
    Ok(Some((message, fd)))
}

/// The error of a message that is none.
pub(crate) fn makes_no_sense() -> Error {
    Error::corrupt("the mount helper makes no sense")
}
