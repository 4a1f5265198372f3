//! `cenote exporter`: counters of all pools in use, for Prometheus to fetch.
//!
//! ```text
//!   GET /metrics ──▶ http ──▶ gather ──▶ processes of the pools: state, space, vdevs
//!                                   └──▶ their counters as files (`serve::kstat`)
//!                             page  ──▶ text format, version 0.0.4
//! ```
//!
//! Nothing listens unless this command runs, and then only where nobody but this machine gets: a socket in the file
//! system, or, if it is asked for, a loopback address. Any user of this machine can connect to that, and so can a
//! web page in a browser of his: a call by another machine's name (DNS rebinding) is refused. Nothing can be
//! changed through it.

mod clients;
mod gather;
pub(crate) mod http;
mod page;

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use base::Mutex;
use protocol::client;

use crate::output;
use clients::Clients;
use http::{Conn, HttpResponse, Method, RequestHead};

/// Most connections at a time.
const CONNECTIONS_MAX: usize = 64;
/// The socket in the folder of the pools' processes, if no place is given. Those of pools end with `.sock`.
const SOCKET: &str = "metrics";
/// The text format of the page.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serve counters of all pools in use to Prometheus
///
/// They are at /metrics, in the text format of Prometheus. Only this machine is served: at a socket, for users that may
/// write to it, or at a loopback address, which every user of this machine can use. It runs until it is interrupted.
#[derive(clap::Parser)]
#[command(name = "cenote exporter", no_binary_name = true)]
struct ExporterArgs {
    /// Absolute path of a socket, or loopback address and port (0: a free one) [default: /run/cenote/metrics]
    #[arg(long, value_name = "PATH|ADDRESS:PORT", value_parser = place)]
    listen: Option<ListenAddress>,
}

/// Where it is listened.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ListenAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

fn place(text: &str) -> Result<ListenAddress, String> {
    if text.starts_with('/') {
        return Ok(ListenAddress::Unix(text.into()));
    }
    let address: SocketAddr = text.parse().map_err(|_| "neither an absolute path nor ADDRESS:PORT in numbers")?;
    match address.ip().is_loopback() {
        true => Ok(ListenAddress::Tcp(address)),
        false => Err("only loopback addresses are listened at, such as 127.0.0.1 or [::1]".to_owned()),
    }
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    let args: ExporterArgs = match output::parse_args(args) {
        Ok(args) => args,
        Err(code) => return code,
    };
    match args.listen.map_or_else(default_place, Ok).and_then(listen) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            output::complain("exporter", why);
            output::FAILED.into()
        }
    }
}

fn default_place() -> Result<ListenAddress, String> {
    Ok(ListenAddress::Unix(client::made_folder().map_err(|e| e.to_string())?.join(SOCKET)))
}

/// Listens until interrupted.
fn listen(place: ListenAddress) -> Result<(), String> {
    let say = |where_to: &str| {
        use std::io::Write;
        // nothing may read it
        let _ = writeln!(std::io::stdout(), "listening at {where_to}");
    };
    match place {
        ListenAddress::Tcp(address) => {
            let failed = |e: std::io::Error| format!("{address}: {e}");
            let listener = TcpListener::bind(address).map_err(failed)?;
            output::on_interrupt(|| std::process::exit(0));
            let address = listener.local_addr().map_err(failed)?;
            say(&format!("http://{address}/metrics"));
            accept(|| Ok(Box::new(listener.accept()?.0)), move |head| is_called(&head.host, address))
        }
        ListenAddress::Unix(path) => {
            let listener = bind(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let own = path.clone();
            output::on_interrupt(move || {
                // it may have been removed already
                let _ = std::fs::remove_file(&own);
                std::process::exit(0);
            });
            say(&format!("{}, path /metrics", path.display()));
            // names of machines do not lead here
            accept(|| Ok(Box::new(listener.accept()?.0)), |_| true)
        }
    }
}

/// Is `host`, as a request has it, a name of ours?
fn is_called(host: &str, address: SocketAddr) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()),
        _ => (host, Some(80)),
    };
    let ip = match address {
        SocketAddr::V4(v4) => v4.ip().to_string(),
        SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
    };
    port == Some(address.port()) && (name == ip || name.eq_ignore_ascii_case("localhost"))
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
fn accept(
    next: impl Fn() -> std::io::Result<Box<dyn Conn>>,
    is_ours: impl Fn(&RequestHead) -> bool + Copy + Send + 'static,
) -> ! {
    let clients = Clients::new(CONNECTIONS_MAX);
    loop {
        let Ok(conn) = next() else {
            // such as too many open files: others will be closed
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let Some(place) = clients.admit(&*conn) else { continue };
        let serve = move || {
            http::serve(conn, |head| {
                place.answer(|| match is_ours(head) {
                    true => answer(head.method, &head.path),
                    false => HttpResponse::words(421, "this is not the machine that was asked for\n"),
                })
            });
        };
        // one that is not served is closed
        drop(std::thread::Builder::new().name("client".to_owned()).spawn(serve));
    }
}

fn answer(method: Method, path: &str) -> HttpResponse {
    match (method, path) {
        (Method::Other, _) => HttpResponse::words(405, "only GET and HEAD\n"),
        (_, "/metrics") => match latest_page() {
            Ok(body) => HttpResponse { status: 200, kind: TEXT_FORMAT, body },
            Err(why) => HttpResponse::words(500, &format!("{why}\n")),
        },
        (_, "/") => HttpResponse::words(200, "Cenote's counters are at /metrics\n"),
        _ => HttpResponse::words(404, "there is only /metrics\n"),
    }
}

/// A page that is no older than the question. Pools are asked once for all that ask at the same time.
fn latest_page() -> Result<String, String> {
    static LATEST: Mutex<Option<(Instant, Result<String, String>)>> = Mutex::new(None);
    let asked = Instant::now();
    let mut latest = LATEST.lock();
    match &*latest {
        Some((begun, page)) if *begun >= asked => page.clone(),
        _ => {
            let begun = Instant::now();
            let page = gather::page().map(|page| page.text()).map_err(|e| e.to_string());
            latest.insert((begun, page)).1.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_served() {
        assert_eq!(place("/run/x.sock"), Ok(ListenAddress::Unix("/run/x.sock".into())));
        for address in ["127.0.0.1:9134", "127.1.2.3:0", "[::1]:80"] {
            assert_eq!(place(address), Ok(ListenAddress::Tcp(address.parse().unwrap())));
        }
        for address in ["0.0.0.0:80", "[::]:80", "192.168.1.1:80", "[::ffff:127.0.0.1]:80"] {
            assert!(place(address).unwrap_err().contains("loopback"), "{address}");
        }
        for text in ["localhost:80", "127.0.0.1", "x.sock", ""] {
            assert!(place(text).unwrap_err().contains("neither"), "{text}");
        }
    }

    #[test]
    fn only_our_names_are_answered_to() {
        let address = "127.0.0.1:9134".parse().unwrap();
        for host in ["127.0.0.1:9134", "localhost:9134", "LocalHost:9134"] {
            assert!(is_called(host, address), "{host}");
        }
        for host in
            ["", "evil.example:9134", "localhost", "127.0.0.1", "localhost:80", "localhost.evil.example:9134", "::1"]
        {
            assert!(!is_called(host, address), "{host}");
        }
        let address = "[::1]:80".parse().unwrap();
        assert!(is_called("[::1]", address) && is_called("[::1]:80", address) && !is_called("[::2]:80", address));
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
