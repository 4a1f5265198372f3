//! Events and the history as they are sent, and events as they are kept when the process ends: packed lists in
//! hexadecimal digits.

use std::time::Duration;

use base::Result;
use pool::{Events, EventsSince, Pool};
use protocol::rundir::RunDirClaim;
use protocol::wire::PoolReply;
use protocol::words::hex;

/// Packed lists in one part of the history's answer, in bytes.
const HISTORY_PART_BYTES: usize = 256 << 10;

/// The events behind a number.
pub fn since(events: Option<&Events>, after: u64) -> PoolReply {
    let since = events.map(|events| events.since(after, Duration::ZERO)).unwrap_or_default();
    PoolReply::Events { last: since.last, dropped: since.dropped, events: lines(since) }
}

/// The history; all but the last part of it go to `part`.
pub fn history(pool: &Pool, part: &mut dyn FnMut(PoolReply) -> Result<()>) -> Result<PoolReply> {
    let (mut records, mut bytes) = (Vec::new(), 0);
    for record in pool.history()? {
        let hex = hex(&record?.pack());
        bytes += hex.len();
        records.push(hex);
        if bytes >= HISTORY_PART_BYTES {
            part(PoolReply::History(std::mem::take(&mut records)))?;
            bytes = 0;
        }
    }
    Ok(PoolReply::History(records))
}

/// Keeps events for `zpool events`, which asks this process no more.
pub fn keep(events: &Events, claim: &RunDirClaim) {
    if let Err(e) = claim.keep_events(&lines(events.since(0, Duration::ZERO)), events.most()) {
        tracing::warn!("its events are not kept: {e}");
    }
}

fn lines(since: EventsSince) -> Vec<String> {
    since.events.iter().map(|event| hex(&event.pack())).collect()
}
