//! The bytes of a client: as they are, or by TLS from some time on.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::sync::OnceLock;
use std::time::Duration;

use base::Result;
use export::ClientSocket;

use crate::tls::{Tls, TlsSession};

/// A client's connection. One thread may read and another write at a time.
pub(crate) struct ClientStream {
    socket: ClientSocket,
    tls: OnceLock<TlsSession>,
}

impl ClientStream {
    /// Errors: those of the connection.
    pub(crate) fn new(socket: ClientSocket) -> Result<ClientStream> {
        socket.send_at_once()?;
        socket.notice_silence()?;
        Ok(ClientStream { socket, tls: OnceLock::new() })
    }

    /// All that follows is by TLS. Not while another thread reads or writes. Errors: there can be no session.
    pub(crate) fn start_tls(&self, tls: &Tls) -> Result<()> {
        let session = tls.begin()?;
        self.tls.get_or_init(|| session);
        Ok(())
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.tls.get().is_some()
    }

    pub(crate) fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(time)
    }

    pub(crate) fn set_write_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        self.socket.set_write_timeout(time)
    }

    /// Whether something has come that is not read yet.
    pub(crate) fn has_input(&self) -> bool {
        self.tls.get().is_some_and(TlsSession::has_input) || self.socket.has_input()
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }
}

impl Read for &ClientStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.tls.get() {
            Some(tls) => tls.read(&self.socket, buf),
            None => (&self.socket).read(buf),
        }
    }
}

impl Write for &ClientStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.tls.get() {
            Some(tls) => tls.write(&self.socket, slices),
            None => (&self.socket).write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
