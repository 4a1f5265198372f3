//! The helper that opens sockets of the network: the process of a pool may not.
//!
//! ```text
//!   the pool's process                its helper: the same program, started anew as `listen-helper`
//!     listen ── address ───────────▶    binds it, listens
//!     accepts ◀── the socket, or why not
//! ```
//!
//! It does nothing else, connects to nobody, and ends with the pool's process.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use base::{Error, Kind, Mutex, Result};
use nix::sys::signal::SigSet;
use protocol::beside;

use crate::mount_helper::ENDING;

/// Longest message, in bytes.
const MESSAGE_BYTES_MAX: u32 = 4096;

/// A helper, unless none could be started.
#[derive(Default)]
pub struct ListenHelper(Option<Mutex<UnixStream>>);

impl ListenHelper {
    /// Starts one; that there is none is logged, and told to what needs it.
    pub fn started() -> ListenHelper {
        let started = start().inspect_err(|error| tracing::warn!("nothing can be served by network: {error}"));
        ListenHelper(started.ok().map(Mutex::new))
    }

    /// A socket that listens at an address. Errors: why that cannot be, as the system says it.
    pub fn listen(&self, address: SocketAddr) -> Result<TcpListener> {
        let gone = || Error::new(Kind::Unsupported, "the helper that opens sockets of the network is gone");
        let helper = self.0.as_ref().ok_or_else(gone)?.lock();
        beside::send(&helper, &address, &[])?;
        let answer: Option<(Option<String>, Vec<OwnedFd>)> = beside::receive(&helper, MESSAGE_BYTES_MAX)?;
        match answer {
            Some((None, mut sockets)) if sockets.len() == 1 => Ok(TcpListener::from(sockets.remove(0))),
            Some((Some(why), _)) => Err(Error::new(Kind::Invalid, format!("cannot listen at {address}: {why}"))),
            _ => Err(gone()),
        }
    }
}

fn start() -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("cenote").arg("listen-helper").current_dir("/").stdin(Stdio::from(OwnedFd::from(theirs)));
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(ours)
}

/// Is such a process.
pub fn run() -> ExitCode {
    // what ends the pool's process in order is not for this one
    let blocked = SigSet::from_iter(ENDING).thread_block().map_err(io::Error::from);
    let asked = blocked.and_then(|()| io::stdin().as_fd().try_clone_to_owned()).map(UnixStream::from);
    match asked.map_err(Error::from).and_then(|asked| serve(&asked)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cenote listen-helper: started by the process of a pool, not by hand: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(asked: &UnixStream) -> Result<()> {
    while let Some((address, _)) = beside::receive::<SocketAddr>(asked, MESSAGE_BYTES_MAX)? {
        match TcpListener::bind(address) {
            Ok(listener) => beside::send(asked, &None::<String>, &[listener.as_fd()])?,
            Err(error) => beside::send(asked, &Some(error.to_string()), &[])?,
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// One that is a thread of this process.
    pub(crate) fn helper() -> ListenHelper {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || serve(&theirs).unwrap());
        ListenHelper(Some(Mutex::new(ours)))
    }

    #[test]
    fn sockets_come_from_the_helper() {
        let helper = helper();
        let listener = helper.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        std::net::TcpStream::connect(address).unwrap();
        let error = helper.listen(address).unwrap_err();
        assert!(error.what().starts_with(&format!("cannot listen at {address}: ")), "{error}");
        assert!(ListenHelper(None).listen(address).is_err());
    }
}
