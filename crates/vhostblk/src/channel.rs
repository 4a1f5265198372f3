//! The socket of a monitor: messages, and the descriptors that come beside them.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use base::Result;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::message::{self, HEAD_BYTES, REGIONS_MAX, VhostHead};

/// A message as it came.
pub(crate) struct ReceivedMessage {
    pub(crate) head: VhostHead,
    pub(crate) payload: Vec<u8>,
    /// Closed when they are dropped.
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// The socket of a monitor.
pub(crate) struct MonitorChannel(UnixStream);

impl MonitorChannel {
    pub(crate) fn new(socket: UnixStream) -> MonitorChannel {
        MonitorChannel(socket)
    }

    /// The next message; `None` when the monitor has left. Errors: `Corrupt`; those of the connection.
    pub(crate) fn receive(&self) -> Result<Option<ReceivedMessage>> {
        let (mut head, mut descriptors) = ([0; HEAD_BYTES], Vec::new());
        let first = self.receive_some(&mut head, &mut descriptors)?;
        if first == 0 {
            return Ok(None);
        }
        // descriptors come with the first byte
        (&self.0).read_exact(&mut head[first..])?;
        let head = VhostHead::parse(&head)?;
        let mut payload = vec![0; head.size as usize];
        (&self.0).read_exact(&mut payload)?;
        Ok(Some(ReceivedMessage { head, payload, descriptors }))
    }

    fn receive_some(&self, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REGIONS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            match recvmsg(&self.0, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                received => break received.map_err(io::Error::from)?,
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                descriptors.extend(some);
            }
        }
        match received.flags.contains(ReturnFlags::CTRUNC) {
            true => Err(io::Error::other("too many descriptors beside a message").into()),
            false => Ok(received.bytes),
        }
    }

    /// Errors: those of the connection.
    pub(crate) fn reply(&self, request: u32, payload: &[u8]) -> Result<()> {
        Ok((&self.0).write_all(&message::reply(request, payload))?)
    }

    /// The same, with a descriptor beside it. Errors: those of the connection.
    pub(crate) fn reply_with(&self, request: u32, payload: &[u8], descriptor: &OwnedFd) -> Result<()> {
        let (bytes, beside) = (message::reply(request, payload), [descriptor.as_fd()]);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&beside)) {
            return Err(io::Error::other("no room for a descriptor").into());
        }
        let sent = loop {
            match sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                sent => break sent.map_err(io::Error::from)?,
            }
        };
        // the descriptor goes with the first byte
        Ok((&self.0).write_all(&bytes[sent..])?)
    }

    /// Nothing is received any more.
    pub(crate) fn cut_off(&self) {
        // it may have left already
        let _ = self.0.shutdown(Shutdown::Both);
    }
}
