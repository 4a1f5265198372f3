//! `cenote exporter`: counters of all pools in use, for Prometheus to fetch.
//!
//! ```text
//!   GET /metrics ──▶ crate::http ──▶ gather ──▶ processes of the pools: state, space, vdevs
//!                                   └──▶ their counters as files (`serve::kstat`)
//!                             page  ──▶ text format, version 0.0.4
//! ```
//!
//! Nothing listens unless this command runs, and then only where nobody but this machine gets: a socket in the file
//! system, or, if it is asked for, a loopback address. Any user of this machine can connect to that, and so can a
//! web page in a browser of his: a call by another machine's name (DNS rebinding) is refused. Nothing can be
//! changed through it.

mod gather;
mod page;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base::Mutex;
use protocol::client;

use crate::http::answer::words;
use crate::http::guard::{Guard, NameCheck};
use crate::http::place::ListenAddress;
use crate::http::{self, place};
use crate::output;

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
    #[arg(long, value_name = "PATH|ADDRESS:PORT", value_parser = ListenAddress::parse_loopback)]
    listen: Option<ListenAddress>,
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    output::run_command("exporter", args, |args: ExporterArgs| {
        args.listen.map_or_else(default_place, Ok).and_then(listen)
    })
}

fn default_place() -> Result<ListenAddress, String> {
    Ok(ListenAddress::Unix(client::made_folder().map_err(|e| e.to_string())?.join(SOCKET)))
}

/// Listens until interrupted.
fn listen(place: ListenAddress) -> Result<(), String> {
    let (listener, address) = place::listen(&place, false)?;
    place::say(&match address {
        Some(address) => format!("http://{address}/metrics"),
        None => format!("{place}, path /metrics"),
    });
    // names of machines do not lead to a socket
    let names = address.map_or(NameCheck::Any, NameCheck::Address);
    http::run(listener, Guard::new(names, None), routes())
}

fn routes() -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/", get(async || words(StatusCode::OK, "Cenote's counters are at /metrics\n")))
        .fallback(async || words(StatusCode::NOT_FOUND, "there is only /metrics\n"))
        .method_not_allowed_fallback(async || words(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n"))
}

async fn metrics() -> Response {
    let page = tokio::task::spawn_blocking(latest_page).await.map_err(|e| e.to_string());
    match page.and_then(|page| page) {
        Ok(page) => ([(CONTENT_TYPE, TEXT_FORMAT)], page).into_response(),
        Err(why) => words(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")),
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
