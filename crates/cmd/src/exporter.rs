//! `cenote exporter`: counters of all pools in use, for Prometheus to fetch.
//!
//! ```text
//!   GET /metrics ──▶ http ──▶ gather ──▶ processes of the pools: state, space, vdevs
//!                                   └──▶ their counters as files (`serve::kstat`)
//!                             page  ──▶ text format, version 0.0.4
//! ```
//!
//! Nothing listens unless this command runs, and then only where nobody but this machine gets: a loopback address, or
//! a socket in the file system. Nothing can be changed through it.

mod gather;
mod http;
mod page;

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use crate::output;
use crate::serve::server::Slot;
use http::{Answer, Conn, Method};

/// Most connections at a time.
const CONNECTIONS_MAX: usize = 8;
/// The text format of the page.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serve counters of all pools in use to Prometheus
///
/// They are at /metrics, in the text format of Prometheus. Only this machine is served: give a loopback address, or the
/// path of a socket, which those can use who may write to it. It runs until it is interrupted.
#[derive(clap::Parser)]
#[command(name = "cenote exporter", no_binary_name = true)]
struct Args {
    /// Loopback address and port (0: a free one), or absolute path of a socket
    #[arg(long, value_name = "ADDRESS:PORT|PATH", default_value = "127.0.0.1:9134", value_parser = place)]
    listen: Place,
}

/// Where it is listened.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

fn place(text: &str) -> Result<Place, String> {
    if text.starts_with('/') {
        return Ok(Place::Unix(text.into()));
    }
    let address: SocketAddr = text.parse().map_err(|_| "neither an absolute path nor ADDRESS:PORT in numbers")?;
    match address.ip().is_loopback() {
        true => Ok(Place::Tcp(address)),
        false => Err("only loopback addresses are listened at, such as 127.0.0.1 or [::1]".to_owned()),
    }
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    let args: Args = match output::parse_args(args) {
        Ok(args) => args,
        Err(code) => return code,
    };
    match listen(args.listen) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            output::complain("exporter", why);
            output::FAILED.into()
        }
    }
}

/// Listens until interrupted.
fn listen(place: Place) -> Result<(), String> {
    let say = |where_to: &str| {
        use std::io::Write;
        // whoever started it may not read
        let _ = writeln!(std::io::stdout(), "listening at {where_to}");
    };
    match place {
        Place::Tcp(address) => {
            let failed = |e: std::io::Error| format!("{address}: {e}");
            let listener = TcpListener::bind(address).map_err(failed)?;
            output::on_interrupt(|| std::process::exit(0));
            say(&format!("http://{}/metrics", listener.local_addr().map_err(failed)?));
            accept(|| Ok(Box::new(listener.accept()?.0)))
        }
        Place::Unix(path) => {
            let listener = bind(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let own = path.clone();
            output::on_interrupt(move || {
                // it may have been removed already
                let _ = std::fs::remove_file(&own);
                std::process::exit(0);
            });
            say(&format!("{}, path /metrics", path.display()));
            accept(|| Ok(Box::new(listener.accept()?.0)))
        }
    }
}

/// Makes a socket, in the place of one that nobody listens at.
fn bind(path: &Path) -> std::io::Result<UnixListener> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let is_refused = |e: std::io::Error| e.kind() == std::io::ErrorKind::ConnectionRefused;
    if is_socket && UnixStream::connect(path).err().is_some_and(is_refused) {
        std::fs::remove_file(path)?;
    }
    UnixListener::bind(path)
}

/// Serves connections, each in a thread.
fn accept(next: impl Fn() -> std::io::Result<Box<dyn Conn>>) -> ! {
    let count = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok(conn) = next() else {
            // such as too many open files: others will be closed
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let Some(slot) = Slot::take(&count, CONNECTIONS_MAX) else { continue };
        let serve = move || {
            let _slot = slot;
            http::serve(conn, answer);
        };
        // one that is not served is closed
        drop(std::thread::Builder::new().name("client".to_owned()).spawn(serve));
    }
}

fn answer(method: Method, path: &str) -> Answer {
    match (method, path) {
        (Method::Other, _) => Answer::words(405, "only GET and HEAD\n"),
        (_, "/metrics") => match gather::page() {
            Ok(page) => Answer { status: 200, kind: TEXT_FORMAT, body: page.text() },
            Err(why) => Answer::words(500, &format!("{why}\n")),
        },
        (_, "/") => Answer::words(200, "Cenote's counters are at /metrics\n"),
        _ => Answer::words(404, "there is only /metrics\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_served() {
        assert_eq!(place("/run/x.sock"), Ok(Place::Unix("/run/x.sock".into())));
        for address in ["127.0.0.1:9134", "127.1.2.3:0", "[::1]:80"] {
            assert_eq!(place(address), Ok(Place::Tcp(address.parse().unwrap())));
        }
        for address in ["0.0.0.0:80", "[::]:80", "192.168.1.1:80", "[::ffff:127.0.0.1]:80"] {
            assert!(place(address).unwrap_err().contains("loopback"), "{address}");
        }
        for text in ["localhost:80", "127.0.0.1", "x.sock", ""] {
            assert!(place(text).unwrap_err().contains("neither"), "{text}");
        }
    }

    #[test]
    fn only_dead_sockets_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sock");
        let first = bind(&path).unwrap();
        assert!(bind(&path).is_err(), "somebody listens");
        drop(first);
        drop(bind(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "x").unwrap();
        assert!(bind(&path).is_err() && std::fs::read(&path).unwrap() == b"x");
    }

    #[test]
    fn there_is_one_page() {
        assert_eq!(answer(Method::Get, "/").status, 200);
        assert_eq!(answer(Method::Get, "/metrics/").status, 404);
        assert_eq!(answer(Method::Other, "/metrics").status, 405);
    }
}
