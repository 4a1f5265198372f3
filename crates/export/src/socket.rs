//! The socket of a client, at this machine or by network.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

/// How long a client by network may be silent until it is asked whether it is there, what is between questions, and how
/// many it may leave without an answer.
const SILENCE: Duration = Duration::from_secs(60);
const PROBE_PAUSE: Duration = Duration::from_secs(10);
const PROBES: u32 = 6;

/// Whether one can read from, or write to, a descriptor without waiting.
pub fn is_ready(descriptor: &impl AsFd, how: PollFlags) -> bool {
    poll(&mut [PollFd::new(descriptor, how)], Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// The process that has connected, as `pid 7`; empty if that cannot be told.
pub fn process_name(stream: &UnixStream) -> String {
    let peer = sockopt::socket_peercred(stream);
    peer.map_or_else(|_| String::new(), |peer| format!("pid {}", peer.pid))
}

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

    /// Has a client that is gone without a word noticed: one by network that answers nothing for some minutes. Errors:
    /// those of the connection.
    pub fn notice_silence(&self) -> io::Result<()> {
        if let ClientSocket::Tcp(stream) = self {
            sockopt::set_socket_keepalive(stream, true)?;
            sockopt::set_tcp_keepidle(stream, SILENCE)?;
            sockopt::set_tcp_keepintvl(stream, PROBE_PAUSE)?;
            sockopt::set_tcp_keepcnt(stream, PROBES)?;
            // what was sent and is not acknowledged
            let most = SILENCE + PROBE_PAUSE * PROBES;
            sockopt::set_tcp_user_timeout(stream, most.as_millis() as u32)?;
        }
        Ok(())
    }

    /// Whether there is something to read, or the end, without waiting.
    pub fn has_input(&self) -> bool {
        let fd = match self {
            ClientSocket::Unix(stream) => stream.as_fd(),
            ClientSocket::Tcp(stream) => stream.as_fd(),
        };
        is_ready(&fd, PollFlags::IN)
    }

    /// The address at this side, if it is one of the network.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            ClientSocket::Unix(_) => None,
            ClientSocket::Tcp(stream) => stream.local_addr().ok(),
        }
    }

    /// The address at the other side, or the process there if it is at this machine; empty if neither can be told.
    pub fn peer_name(&self) -> String {
        match self {
            ClientSocket::Unix(stream) => process_name(stream),
            ClientSocket::Tcp(stream) => stream.peer_addr().map_or_else(|_| String::new(), |peer| peer.to_string()),
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn silence_by_network_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = ClientSocket::from(stream.try_clone().unwrap());
        assert!(!sockopt::socket_keepalive(&stream).unwrap());
        socket.notice_silence().unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(
            (sockopt::tcp_keepidle(&stream).unwrap(), sockopt::tcp_keepcnt(&stream).unwrap()),
            (SILENCE, PROBES)
        );
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 120_000);
        ClientSocket::from(UnixStream::pair().unwrap().0).notice_silence().unwrap();
    }

    #[test]
    fn the_other_side_has_a_name() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (taken, peer) = listener.accept().unwrap();
        assert_eq!(ClientSocket::from(taken).peer_name(), peer.to_string());
        assert_eq!(ClientSocket::from(stream).peer_name(), listener.local_addr().unwrap().to_string());
        let own = ClientSocket::from(UnixStream::pair().unwrap().0);
        assert_eq!(own.peer_name(), format!("pid {}", std::process::id()));
    }
}
