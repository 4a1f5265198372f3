//! Events as they are sent, and kept when the process ends: packed lists in hexadecimal digits.

use std::time::Duration;

use pool::{Events, EventsSince};
use protocol::rundir::RunDirClaim;
use protocol::wire::PoolReply;
use protocol::words::hex;

/// The events behind a number.
pub fn since(events: Option<&Events>, after: u64) -> PoolReply {
    let since = events.map(|events| events.since(after, Duration::ZERO)).unwrap_or_default();
    PoolReply::Events { last: since.last, dropped: since.dropped, events: lines(since) }
}

/// Keeps them for `zpool events`, which asks this process no more.
pub fn keep(events: &Events, claim: &RunDirClaim) {
    if let Err(e) = claim.keep_events(&lines(events.since(0, Duration::ZERO)), events.most()) {
        tracing::warn!("its events are not kept: {e}");
    }
}

fn lines(since: EventsSince) -> Vec<String> {
    since.events.iter().map(|event| hex(&event.pack())).collect()
}
