//! Where a server listens: a socket in the file system, or an address.

use std::fmt;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, socket};
use rustix::fs::Mode;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::output;

/// Where it is listened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// At an address.
    Tcp(SocketAddr),
    /// At a socket in the file system.
    Unix(PathBuf),
}

/// A listening socket.
pub enum AnyListener {
    /// At an address.
    Tcp(TcpListener),
    /// At a socket in the file system.
    Unix(UnixListener),
}

/// The same, in the runtime.
pub enum AsyncListener {
    /// At an address.
    Tcp(tokio::net::TcpListener),
    /// At a socket in the file system.
    Unix(tokio::net::UnixListener),
}

/// A connection.
pub trait Conn: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Conn for T {}

impl ListenAddress {
    /// Of a command line: an absolute path, or an address and a port in numbers. Errors: neither.
    pub fn parse(text: &str) -> Result<ListenAddress, String> {
        if text.starts_with('/') {
            return Ok(ListenAddress::Unix(text.into()));
        }
        let address = text.parse().map_err(|_| "neither an absolute path nor ADDRESS:PORT in numbers")?;
        Ok(ListenAddress::Tcp(address))
    }

    /// The same, and an address must be one that no other machine reaches. Errors: it is another.
    pub fn parse_loopback(text: &str) -> Result<ListenAddress, String> {
        match ListenAddress::parse(text)? {
            ListenAddress::Tcp(address) if !address.ip().is_loopback() => {
                Err("only loopback addresses are listened at, such as 127.0.0.1 or [::1]".to_owned())
            }
            place => Ok(place),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Tcp(address) => address.fmt(f),
            ListenAddress::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Listens there until the process is interrupted, which takes a socket along; beside it, by which name an address is
/// called, whose port may have been chosen just now. `is_private`: only the owner of a socket may connect. Errors: with the
/// place.
pub fn listen(place: &ListenAddress, is_private: bool) -> Result<(AnyListener, Option<SocketAddr>), String> {
    let failed = |e: io::Error| format!("{place}: {e}");
    match place {
        ListenAddress::Tcp(address) => {
            let listener = TcpListener::bind(address).map_err(failed)?;
            output::on_interrupt(|| std::process::exit(0));
            let address = listener.local_addr().map_err(failed)?;
            Ok((AnyListener::Tcp(listener), Some(address)))
        }
        ListenAddress::Unix(path) => {
            let listener = bind(path, is_private).map_err(failed)?;
            let own = path.clone();
            output::on_interrupt(move || {
                // it may have been removed already
                let _ = std::fs::remove_file(&own);
                std::process::exit(0);
            });
            Ok((AnyListener::Unix(listener), None))
        }
    }
}

/// Says where it is listened.
pub fn say(where_to: &str) {
    // nothing may read it
    let _ = writeln!(io::stdout(), "listening at {where_to}");
}

impl AnyListener {
    /// The same socket in the runtime. Errors: of the system.
    pub fn into_async(self) -> io::Result<AsyncListener> {
        Ok(match self {
            AnyListener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                AsyncListener::Tcp(tokio::net::TcpListener::from_std(listener)?)
            }
            AnyListener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                AsyncListener::Unix(tokio::net::UnixListener::from_std(listener)?)
            }
        })
    }
}

impl AsyncListener {
    /// The next connection. Errors: of the system, such as too many open files.
    pub async fn accept(&self) -> io::Result<Box<dyn Conn>> {
        Ok(match self {
            AsyncListener::Tcp(listener) => Box::new(listener.accept().await?.0),
            AsyncListener::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

/// Makes a socket, in the place of one that nobody listens at; `is_private`: only its owner may connect. Errors: of the
/// system, and if somebody listens there or it is no socket.
pub fn bind(path: &Path, is_private: bool) -> io::Result<UnixListener> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let is_refused = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
    if is_socket && UnixStream::connect(path).err().is_some_and(is_refused) {
        std::fs::remove_file(path)?;
    }
    if !is_private {
        return UnixListener::bind(path);
    }
    // the mode of a socket that has no place yet is that of its file
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    nix::sys::socket::bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    nix::sys::socket::listen(&socket, Backlog::MAXCONN)?;
    Ok(UnixListener::from(socket))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_this_machine_is_served() {
        let place = ListenAddress::parse_loopback;
        assert_eq!(place("/run/x.sock"), Ok(ListenAddress::Unix("/run/x.sock".into())));
        for address in ["127.0.0.1:9134", "127.1.2.3:0", "[::1]:80"] {
            assert_eq!(place(address), Ok(ListenAddress::Tcp(address.parse().unwrap())));
        }
        for address in ["0.0.0.0:80", "[::]:80", "192.168.1.1:80", "[::ffff:127.0.0.1]:80"] {
            assert!(place(address).unwrap_err().contains("loopback"), "{address}");
            assert!(ListenAddress::parse(address).is_ok(), "{address}");
        }
        for text in ["localhost:80", "127.0.0.1", "x.sock", ""] {
            assert!(place(text).unwrap_err().contains("neither"), "{text}");
        }
    }

    #[test]
    fn only_dead_sockets_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sock");
        let first = bind(&path, false).unwrap();
        assert!(bind(&path, false).is_err(), "somebody listens");
        drop(first);
        drop(bind(&path, true).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "x").unwrap();
        assert!(bind(&path, false).is_err() && std::fs::read(&path).unwrap() == b"x");
    }
}
