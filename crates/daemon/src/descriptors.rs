//! How many files the process of a pool may have open: each mount takes some for as long as it lasts, and those that ask
//! the process must find some left, even that the pool be exported.

use base::{Error, Kind, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What is left for connections, and for what is opened for a moment.
const RESERVE: usize = 24;

/// Has the system allow as many as it ever does.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(errno) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!("no more files can be open than before: {errno}");
    }
}

/// Whether `wanted` more files can be open for long. Errors: `Io`, that these are too many.
pub fn check_room(wanted: usize) -> Result<()> {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return Ok(()) };
    let open = std::path::Path::new("/proc/self/fd").read_dir().map_or(usize::MAX, Iterator::count);
    match open.saturating_add(wanted + RESERVE) as u64 <= limit {
        true => Ok(()),
        false => Err(Error::new(Kind::Io, format!("no more than {limit} files can be open at once here (ulimit -n)"))),
    }
}
