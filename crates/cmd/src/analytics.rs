//! `cenote analytics`: a page that shows what the pools in use do, live.
//!
//! ```text
//!   asker: a thread a pool ──▶ hub: the last hour ──▶ crate::http ──▶ /          page/index.html, .js, .css
//!   (requests, counters as files)                               ├──▶ /events    all, then a tick each second
//!        └──▶ kept: files of weeks ─────────────────────────────┼──▶ /past      rows of one pool between two times
//!   files: a thread a pool, only while a page looks ────────────┼──▶ /files     files of one dataset that are used most
//!   reports: a folder of the user's ────────────────────────────┼──▶ /reports   curves of the advisor, /report: of the lab
//!                                                               └──▶ /heat      latencies of one vdev or dataset
//! ```
//!
//! Nothing can be changed through it. The page comes out of this program whole: no other host is asked for anything, and
//! the answers forbid browsers to. Names of pools, datasets and devices reach it as JSON, and its script puts them in as
//! text only.

mod asker;
mod clients;
mod dataset_times;
mod files;
mod history;
mod hub;
mod kept;
mod reports;
mod series;
mod status;

use std::collections::HashMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, Query, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use format::ids::{DatasetId, Guid};
use futures_util::stream::{Stream, unfold};
use protocol::client;
use tokio::sync::broadcast::error::RecvError;

use crate::http::answer::words;
use crate::http::clients::{ClientSlot, ClientStage};
use crate::http::guard::{Guard, NameCheck, Token};
use crate::http::place::ListenAddress;
use crate::http::{self, place};
use crate::output;
use files::FileWatches;
use history::HeatSubject;
use hub::{Hub, text_of};
use reports::ReportFolder;

/// The socket in the folder of the pools' processes, if no place is given.
const SOCKET: &str = "analytics";
/// Pages that may be open at a time: others are told to come later.
const PAGES_MAX: usize = 32;
/// Rows of the past that a page gets at a time.
const PAST_POINTS: u64 = 720;
/// The header field by which browsers say whose page asks.
const FETCH_SITE: &str = "sec-fetch-site";
/// What the page of a report may do: have its own style, and nothing else, in a place of its own.
const REPORT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; base-uri 'none'; \
                             form-action 'none'; frame-ancestors 'none'";
/// Bytes of a file with a token.
const TOKEN_BYTES_MAX: u64 = 4096;

/// Show what pools in use do as a page, live
///
/// The page is for a browser: where reads come from, latencies of each device, groups on their way to disk, datasets,
/// devices and events, of the last hour. The page is served at a socket that only this user may connect to, or at an address.
/// Through one that other machines reach, a token is asked for, which is printed once or stands in a file; nothing is
/// encrypted, so forward a port by ssh where others listen. The command runs until it is interrupted.
#[derive(clap::Parser)]
#[command(name = "cenote analytics", no_binary_name = true)]
struct AnalyticsArgs {
    /// Absolute path of a socket, or address and port (0: a free one) [default: /run/cenote/analytics]
    #[arg(long, value_name = "PATH|ADDRESS:PORT", value_parser = ListenAddress::parse)]
    listen: Option<ListenAddress>,
    /// A file with the token that is asked for, at loopback addresses too
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A folder for files of four weeks, 6 MiB for each pool
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// A folder with what `cenote lab --out` and `cenote advise cache --json` have left, whose newest is shown
    #[arg(long, value_name = "FOLDER")]
    reports: Option<PathBuf>,
    /// Only these pools
    pools: Vec<String>,
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    output::run_command("analytics", args, serve)
}

fn serve(args: AnalyticsArgs) -> Result<(), String> {
    let place = match args.listen {
        Some(place) => place,
        None => ListenAddress::Unix(client::made_folder().map_err(|e| e.to_string())?.join(SOCKET)),
    };
    if let Some(folder) = &args.keep {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    if let Some(folder) = &args.reports {
        std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let given = args.token_file.as_deref().map(read_token).transpose()?;
    let (listener, address) = place::listen(&place, true)?;
    let is_open = address.is_some_and(|address| !address.ip().is_loopback());
    let token = match given {
        None if is_open => Some(Token::random()?),
        given => given,
    };
    place::say(&match (address, &token) {
        (Some(address), Some(token)) if args.token_file.is_none() => {
            format!("http://{address}/?token={}", token.text())
        }
        (Some(address), _) => format!("http://{address}/"),
        (None, _) => format!("{place}; from another machine: ssh -L 8765:{place} HOST, then http://localhost:8765/"),
    });
    let names = match address {
        // names lead there by right; the cookie with the token goes to none but the page's own
        Some(_) if is_open => NameCheck::Any,
        Some(address) => NameCheck::Address(address),
        None => NameCheck::Loopback,
    };
    // every user of this machine reaches a loopback address
    let has_names = address.is_none() || token.is_some();
    let hub = Arc::new(Hub::new(args.keep, args.reports.is_some()));
    let sources = PageSources { files: Arc::new(FileWatches::new(has_names)), reports: ReportFolder(args.reports) };
    let watched = hub.clone();
    let watch = move || asker::watch_all(&watched, &args.pools);
    std::thread::Builder::new().name("pools".to_owned()).spawn(watch).map_err(|e| format!("a thread: {e}"))?;
    http::run(listener, Guard::new(names, token), routes(hub, sources))
}

fn read_token(path: &Path) -> Result<Token, String> {
    use std::io::Read;
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(TOKEN_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|e: io::Error| format!("{}: {e}", path.display()))?;
    Token::parse(&text).map_err(|why| format!("{}: {why}", path.display()))
}

/// What is only asked for while a page looks.
struct PageSources {
    files: Arc<FileWatches>,
    reports: ReportFolder,
}

fn routes(hub: Arc<Hub>, PageSources { files: watches, reports: folder }: PageSources) -> Router {
    let file = |kind: &'static str, text: &'static str| get(async move || ([(CONTENT_TYPE, kind)], text));
    Router::new()
        .route("/", file("text/html; charset=utf-8", include_str!("analytics/page/index.html")))
        .route("/analytics.js", file("text/javascript; charset=utf-8", include_str!("analytics/page/analytics.js")))
        .route("/charts.js", file("text/javascript; charset=utf-8", include_str!("analytics/page/charts.js")))
        .route("/analytics.css", file("text/css; charset=utf-8", include_str!("analytics/page/analytics.css")))
        .route("/events", get(events))
        .route("/heat", get(heat))
        .route("/past", get(past))
        .route("/files", get(files).layer(Extension(watches)))
        .route("/reports", get(reports).layer(Extension(folder.clone())))
        .route("/report", get(report).layer(Extension(folder)))
        .fallback(async || words(StatusCode::NOT_FOUND, "there is only /\n"))
        .method_not_allowed_fallback(async || words(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n"))
        .with_state(hub)
}

async fn events(State(hub): State<Arc<Hub>>, Extension(slot): Extension<Arc<ClientSlot>>) -> Response {
    if hub.pages() >= PAGES_MAX {
        return words(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open\n");
    }
    Sse::new(event_stream(hub, slot)).into_response()
}

/// All that is kept, then what is new each second. A page that falls behind gets all anew.
fn event_stream(hub: Arc<Hub>, slot: Arc<ClientSlot>) -> impl Stream<Item = Result<Event, Infallible>> {
    // what is sent meanwhile is not lost
    let ticks = hub.subscribe();
    unfold((hub, slot, ticks, true), async |(hub, slot, mut ticks, mut is_behind)| {
        slot.come_to(ClientStage::Taking);
        let event = loop {
            if is_behind {
                is_behind = false;
                break Event::default().event("start").data(hub.start());
            }
            match ticks.recv().await {
                Ok(tick) => break Event::default().event("tick").data(&*tick),
                Err(RecvError::Lagged(_)) => is_behind = true,
                Err(RecvError::Closed) => return None,
            }
        };
        Some((Ok(event), (hub, slot, ticks, is_behind)))
    })
}

async fn heat(State(hub): State<Arc<Hub>>, Query(asked): Query<HashMap<String, String>>) -> Response {
    let number = |name: &str| asked.get(name).map_or("0", String::as_str).parse::<u64>().ok();
    let (Some(pool), Some(vdev), Some(dataset), Some(after)) =
        (asked.get("pool"), number("vdev"), number("dataset"), number("after"))
    else {
        return words(StatusCode::BAD_REQUEST, "/heat?pool=NAME&vdev=GUID&after=COLUMN, or dataset=NUMBER\n");
    };
    let subject = match asked.contains_key("dataset") {
        true => HeatSubject::Dataset(DatasetId::new(dataset)),
        false => HeatSubject::Vdev(Guid::new(vdev)),
    };
    match hub.heat(pool, subject, after) {
        Some(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        None => words(StatusCode::NOT_FOUND, "no such pool\n"),
    }
}

async fn past(State(hub): State<Arc<Hub>>, Query(asked): Query<HashMap<String, String>>) -> Response {
    let number = |name: &str| asked.get(name).and_then(|text| text.parse::<u64>().ok());
    let (Some(pool), Some(from), Some(until)) = (asked.get("pool"), number("from"), number("until")) else {
        return words(StatusCode::BAD_REQUEST, "/past?pool=NAME&from=SECOND&until=SECOND\n");
    };
    let Some(file) = hub.kept_file(pool) else { return words(StatusCode::NOT_FOUND, "nothing is kept of this pool\n") };
    let read = tokio::task::spawn_blocking(move || kept::past(&file, [from, until], PAST_POINTS)).await;
    match read.map_err(io::Error::other).flatten() {
        Ok(rows) => ([(CONTENT_TYPE, "application/json")], text_of(&rows)).into_response(),
        Err(e) => words(StatusCode::INTERNAL_SERVER_ERROR, format!("what is kept cannot be read: {e}\n")),
    }
}

async fn reports(Extension(folder): Extension<ReportFolder>) -> Response {
    match tokio::task::spawn_blocking(move || folder.look()).await {
        Ok(seen) => ([(CONTENT_TYPE, "application/json")], text_of(&seen)).into_response(),
        Err(e) => words(StatusCode::INTERNAL_SERVER_ERROR, format!("the folder cannot be read: {e}\n")),
    }
}

/// The newest report as it is: what it has may show itself, and reach nothing.
async fn report(Extension(folder): Extension<ReportFolder>) -> Response {
    match tokio::task::spawn_blocking(move || folder.report()).await {
        Ok(Some(page)) => {
            let fields = [(CONTENT_TYPE, "text/html; charset=utf-8"), (CONTENT_SECURITY_POLICY, REPORT_POLICY)];
            (fields, page).into_response()
        }
        Ok(None) => words(StatusCode::NOT_FOUND, "there is no report\n"),
        Err(e) => words(StatusCode::INTERNAL_SERVER_ERROR, format!("the report cannot be read: {e}\n")),
    }
}

/// Has a pool's process note requests for a while: so no page of another host may ask for it.
async fn files(
    State(hub): State<Arc<Hub>>,
    Extension(watches): Extension<Arc<FileWatches>>,
    headers: HeaderMap,
    Query(asked): Query<HashMap<String, String>>,
) -> Response {
    if headers.get(FETCH_SITE).is_some_and(|site| site != "same-origin") {
        return words(StatusCode::FORBIDDEN, "only the page itself may ask for that\n");
    }
    let dataset = asked.get("dataset").and_then(|text| text.parse::<u64>().ok());
    let (Some(pool), Some(dataset)) = (asked.get("pool"), dataset) else {
        return words(StatusCode::BAD_REQUEST, "/files?pool=NAME&dataset=NUMBER\n");
    };
    match hub.name_of(pool) {
        Some(name) => ([(CONTENT_TYPE, "application/json")], text_of(&watches.ask(&name, dataset))).into_response(),
        None => words(StatusCode::NOT_FOUND, "no such pool\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of a hostile pool become no elements, and nothing comes from elsewhere: the script has no means for either.
    #[test]
    fn the_page_puts_in_text_only_and_asks_nobody_else() {
        let page = include_str!("analytics/page/index.html");
        let script = [include_str!("analytics/page/analytics.js"), include_str!("analytics/page/charts.js")].concat();
        let style = include_str!("analytics/page/analytics.css");
        let means = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "Function(",
            "srcdoc",
            "DOMParser",
        ];
        for word in
            means.into_iter().chain(["createContextualFragment", "setHTML", "import(", "http:", "https:", "//cdn"])
        {
            assert!(!script.contains(word), "{word}");
        }
        let rest = page.replace("xmlns='http://www.w3.org/2000/svg'", "");
        for word in ["http:", "https:", "style=", "onclick", "onload", "<script>", "<style"] {
            assert!(!rest.contains(word), "{word}");
        }
        assert!(!style.contains("url(") && !style.contains("@import"));
    }

    #[test]
    fn each_series_of_the_page_is_one_that_is_kept() {
        let script = include_str!("analytics/page/analytics.js");
        let charts = script.split_once("const CHARTS = [").unwrap().1.split_once("\n];").unwrap().0;
        let names = charts.split("[\"").skip(1).filter_map(|rest| rest.split('"').next());
        let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
        let unknown: Vec<&&str> =
            names.iter().filter(|name| !series::SERIES.iter().any(|(known, _)| known == *name)).collect();
        assert!(names.len() > 25 && unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn each_series_has_a_name_of_its_own() {
        let names: Vec<&str> = series::SERIES.iter().map(|(name, _)| *name).collect();
        let mut once = names.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), names.len());
    }
}
