//! The socket of a client, at this machine or by network.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connected socket, whatever family it is of.
#[derive(Debug)]
pub enum ClientSocket {
    /// Of this machine.
    Unix(UnixStream),
    /// By network.
    Tcp(TcpStream),
}

impl ClientSocket {
    /// Another handle of the same socket. Errors: there are too many open files.
    pub fn try_clone(&self) -> io::Result<ClientSocket> {
        match self {
            ClientSocket::Unix(stream) => stream.try_clone().map(ClientSocket::Unix),
            ClientSocket::Tcp(stream) => stream.try_clone().map(ClientSocket::Tcp),
        }
    }

    /// Has small answers sent at once. Errors: those of the connection.
    pub fn send_at_once(&self) -> io::Result<()> {
        match self {
            ClientSocket::Unix(_) => Ok(()),
            ClientSocket::Tcp(stream) => stream.set_nodelay(true),
        }
    }

    /// The address at this side, if it is one of the network.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            ClientSocket::Unix(_) => None,
            ClientSocket::Tcp(stream) => stream.local_addr().ok(),
        }
    }

    /// Ends what is sent, what is received, or both. Errors: it has ended already.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            ClientSocket::Unix(stream) => stream.shutdown(how),
            ClientSocket::Tcp(stream) => stream.shutdown(how),
        }
    }

    /// How long a read waits; for ever without a time. Errors: `InvalidInput` for none at all.
    pub fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            ClientSocket::Unix(stream) => stream.set_read_timeout(time),
            ClientSocket::Tcp(stream) => stream.set_read_timeout(time),
        }
    }

    /// How long a write waits; for ever without a time. Errors: `InvalidInput` for none at all.
    pub fn set_write_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            ClientSocket::Unix(stream) => stream.set_write_timeout(time),
            ClientSocket::Tcp(stream) => stream.set_write_timeout(time),
        }
    }
}

impl From<UnixStream> for ClientSocket {
    fn from(stream: UnixStream) -> ClientSocket {
        ClientSocket::Unix(stream)
    }
}

impl From<TcpStream> for ClientSocket {
    fn from(stream: TcpStream) -> ClientSocket {
        ClientSocket::Tcp(stream)
    }
}

impl Read for &ClientSocket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            ClientSocket::Unix(stream) => (&mut &*stream).read(buf),
            ClientSocket::Tcp(stream) => (&mut &*stream).read(buf),
        }
    }
}

impl Write for &ClientSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            ClientSocket::Unix(stream) => (&mut &*stream).write(bytes),
            ClientSocket::Tcp(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            ClientSocket::Unix(stream) => (&mut &*stream).write_vectored(slices),
            ClientSocket::Tcp(stream) => (&mut &*stream).write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes slices one behind the other, in as few calls as can be. Errors: those of writing.
pub fn write_slices(to: &mut impl Write, slices: &[&[u8]]) -> io::Result<()> {
    let mut left: Vec<IoSlice<'_>> = slices.iter().filter(|s| !s.is_empty()).map(|slice| IoSlice::new(slice)).collect();
    let mut left = &mut left[..];
    while !left.is_empty() {
        match to.write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
