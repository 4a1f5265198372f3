//! Listening on a pool's socket: one thread a connection, a bounded number of them.
//!
//! Only the user whose process this is, and root, are listened to.

use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base::Result;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;

use super::served::Served;
use super::wire::{self, Answer, Hello, Reply, Request};

/// Most connections at a time.
const CONNECTIONS_MAX: usize = 128;
/// How long a client may be silent, or not take what is sent to it.
const IDLE_TIME: Duration = Duration::from_secs(600);

/// Answers clients for as long as the process lives.
pub fn listen(listener: &UnixListener, served: &Arc<Served>, hello: &Hello) {
    let count = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => stream,
            Err(e) => {
                // such as too many open files: others will be closed
                tracing::warn!("connection not accepted: {e}");
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if !is_friend(&stream) {
            continue;
        }
        let Some(slot) = Slot::take(&count, CONNECTIONS_MAX) else { continue };
        let (served, hello) = (served.clone(), hello.clone());
        let talk = move || {
            let _slot = slot;
            if let Err(e) = talk(stream, &served, &hello) {
                tracing::debug!("connection ends: {e}");
            }
        };
        if let Err(e) = std::thread::Builder::new().name("client".to_owned()).spawn(talk) {
            tracing::warn!("connection not served: {e}");
        }
    }
}

/// A connection that counts.
struct Slot(Arc<AtomicUsize>);

impl Slot {
    /// `None` if there are so many already. Only one thread may take slots.
    fn take(count: &Arc<AtomicUsize>, max: usize) -> Option<Slot> {
        if count.load(Ordering::Relaxed) >= max {
            return None;
        }
        count.fetch_add(1, Ordering::Relaxed);
        Some(Slot(count.clone()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn is_friend(stream: &UnixStream) -> bool {
    match getsockopt(stream, PeerCredentials) {
        Ok(peer) => peer.uid() == 0 || peer.uid() == geteuid().as_raw(),
        Err(_) => false,
    }
}

fn talk(mut stream: UnixStream, served: &Served, hello: &Hello) -> Result<()> {
    stream.set_read_timeout(Some(IDLE_TIME))?;
    stream.set_write_timeout(Some(IDLE_TIME))?;
    wire::send(&mut stream, &Hello { guid: served.guid(), aux: served.aux_guids(), ..hello.clone() })?;
    while let Some(request) = wire::receive::<Request>(&mut stream, wire::REQUEST_BYTES_MAX)? {
        let result = served.answer(&request, &mut |part| wire::send(&mut stream, &Answer::Part(part)));
        match result {
            Ok(Reply::Exported) => {
                wire::send(&mut stream, &Answer::Done(Reply::Exported))?;
                served.end();
            }
            Ok(reply) => wire::send(&mut stream, &Answer::Done(reply))?,
            Err(e) => wire::send(&mut stream, &Answer::Failed { errno: e.errno(), why: e.to_string() })?,
        }
    }
    Ok(())
}
