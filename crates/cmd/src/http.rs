//! A server of HTTP, which `cenote exporter` and `cenote analytics` share: `axum` answers, `hyper` reads, and this module
//! bounds both.
//!
//! ```text
//!   listener ──▶ clients: places and times ──▶ hyper: one request, its head bounded
//!                                                 └──▶ guard: host, token ──▶ routes ──▶ fields of protection
//! ```
//!
//! One thread serves all connections. A connection has one request. Whatever asks a pool's process does that on another
//! thread, so that a pool that hangs delays nobody. Source: RFC 9112.

pub mod answer;
pub mod clients;
pub mod guard;
pub mod place;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use clients::{ClientSlot, ClientStage, Clients};
use guard::Guard;
use place::{AnyListener, Conn};

/// Most connections at a time.
const CONNECTIONS_MAX: usize = 64;
/// The longest head of a request; as much of an answer is buffered.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// The most fields in it.
const FIELDS_MAX: usize = 64;
/// The most bytes that are still read of clients that send more than they should, so that they get the answer.
const REST_BYTES_MAX: u64 = 64 << 10;
/// How long other connections are given to end when the machine takes no more of them.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often late clients are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Serves `routes` to the clients of `listener` that `guard` lets in, until the process ends. Errors: no runtime can be
/// had.
pub fn run(listener: AnyListener, guard: Guard, routes: Router) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|e| format!("a runtime: {e}"))?;
    runtime.block_on(serve(listener, guard.protect(routes), CONNECTIONS_MAX))
}

async fn serve(listener: AnyListener, routes: Router, max: usize) -> Result<(), String> {
    let listener = listener.into_async().map_err(|e| e.to_string())?;
    let clients = Clients::new(max);
    let swept = clients.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            swept.hang_up_late(Instant::now());
        }
    });
    loop {
        let Ok(conn) = listener.accept().await else {
            // such as too many open files: others will be closed
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Some(slot) = clients.admit() else { continue };
        let number = slot.number();
        let task = tokio::spawn(one(conn, Arc::new(slot), routes.clone()));
        // the task has not run yet: this thread runs them all
        clients.attach(number, Box::new(move || task.abort()));
    }
}

/// Serves one connection: a request, its answer, and the end.
async fn one(conn: Box<dyn Conn>, slot: Arc<ClientSlot>, routes: Router) {
    let routes = TowerToHyperService::new(routes);
    let own = slot.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        own.come_to(ClientStage::Answered);
        request.extensions_mut().insert(own.clone());
        let (answer, own) = (routes.call(request), own.clone());
        let answer = async move {
            let answer = answer.await;
            own.come_to(ClientStage::Taking);
            answer
        };
        Box::pin(answer) as Pin<Box<dyn Future<Output = _> + Send>>
    });
    let mut builder = http1::Builder::new();
    builder.keep_alive(false).half_close(true).title_case_headers(true).header_read_timeout(None);
    builder.max_buf_size(HEAD_BYTES_MAX).max_headers(FIELDS_MAX);
    let mut served = builder.serve_connection(TokioIo::new(conn), service);
    // how it ended makes no difference: nobody can be told
    let _ = poll_fn(|cx| served.poll_without_shutdown(cx)).await;
    let mut conn = served.into_parts().io.into_inner();
    if conn.shutdown().await.is_ok() {
        // a connection that is closed with bytes unread may take the answer with it
        let _ = tokio::io::copy(&mut conn.take(REST_BYTES_MAX), &mut tokio::io::sink()).await;
    }
    drop(slot);
}

#[cfg(test)]
mod tests;
