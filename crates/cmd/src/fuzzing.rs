//! What fuzzers ask for: how commands take what a hostile pool says, without doing it.

use std::path::{Path, PathBuf};

use base::{Error, Result};
use daemon::host_rule::HostRule;
use daemon::mount_plan::{MountBounds, plan_below};
use format::ids::ObjectId;
use pool::Pool;
use protocol::wire::{Answer, REPLY_BYTES_MAX, REQUEST_BYTES_MAX, Request, receive};
use zpl::Zpl;

/// Requests of a trace that a case looks at, so that no case takes long.
const TRACE_REQUESTS_MAX: usize = 1 << 14;

/// Where an import below `altroot` would mount which dataset, in order.
pub fn mountpoints(pool: &Pool, altroot: &str) -> Result<Vec<(String, PathBuf)>> {
    let bounds = MountBounds::new(Some(altroot), HostRule::plain(false), None);
    let plan = plan_below(pool, &bounds, &pool.dsl().root_subject()?, &mut |_, _| {})?;
    Ok(plan.into_iter().map(|plan| (plan.dataset, plan.options.mountpoint)).collect())
}

/// The folder where a dataset would be mounted that belongs to `point`, which is below the root of its pool.
pub fn folder_to_mount_at(dataset: &str, root: &Path, point: &Path) -> Result<PathBuf> {
    let mut options = fuse::MountOptions::new(dataset, point);
    options.overlay = true;
    options.beneath = Some(root.to_owned());
    fuse::folder_to_mount_at(&options)
}

/// The names that a copy of a folder would make, and what would be reported beside them.
pub fn names_copied(zpl: &Zpl, dir: ObjectId) -> (Vec<Vec<u8>>, Option<Error>) {
    let (entries, error) = crate::offline::tree::Walker::new(zpl).list(dir);
    (entries.into_iter().map(|entry| entry.name).collect(), error)
}

/// What others send or leave in files: messages on the socket, counters, lists of features.
pub fn texts(bytes: &[u8]) {
    // a request that is understood says the same when it is sent on
    if let Ok(Some(request)) = receive::<Request>(&mut &bytes[..], REQUEST_BYTES_MAX) {
        let mut sent = Vec::new();
        protocol::wire::send(&mut sent, &request).expect("memory takes it");
        assert_eq!(receive::<Request>(&mut &sent[..], REQUEST_BYTES_MAX).expect("it was sent"), Some(request));
    }
    let _ = receive::<Answer>(&mut &bytes[..], REPLY_BYTES_MAX);
    if let Ok(text) = str::from_utf8(bytes) {
        let _ = protocol::kstat::parse("arcstats".into(), text);
        let _ = daemon::compat::words(text);
    }
}

/// Traces of all formats: the first byte says which, or that it has to be found. Only the latter may be compressed: a few
/// bytes of zstd stand for gigabytes of any format, and a run about one format would spend its time on unpacking them.
pub fn traces(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let format = trace::TraceFormat::ALL.get(usize::from(*first)).copied();
    if format.is_some() && bytes.starts_with(&trace::ZSTD_MAGIC) {
        return;
    }
    let input = std::io::Cursor::new(bytes.to_vec());
    let Ok(reader) = trace::TraceReader::new(Box::new(input), format) else { return };
    let mut latest = 0;
    for request in reader.map_while(|request| request.ok()).take(TRACE_REQUESTS_MAX) {
        let now = request.time_ns.unwrap_or(0);
        assert!(now >= latest, "time goes backwards");
        assert!(request.blocks(512).take(3).count() > 0, "a request about no block");
        latest = now;
    }
}
