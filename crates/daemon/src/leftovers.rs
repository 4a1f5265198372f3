//! What is left of a pool whose process was killed: its socket, and its mounts. The kernel keeps those,
//! and every access to them fails with "Transport endpoint is not connected".
//!
//! Mounts are known by their source, which is a dataset of the pool, by their type, and by that
//! failure. A mount or socket that somebody still answers for is left alone.

use std::time::Duration;

use base::{Kind, Result};
use fuse::{Helper, Unmount};
use protocol::client;
use protocol::rundir::{RunDir, stem};

use crate::mount_helper;

/// What all our mounts are of.
const SUBTYPE: &str = "zfs";
/// How often the lock of a process that does not answer is tried, and what is between.
const CLAIM_TRIES: usize = 20;
const CLAIM_PAUSE: Duration = Duration::from_millis(50);

/// Clears away what is left of the pool `name`; returns whether that was all there was of it: it is not imported.
pub fn clear(name: &str) -> Result<bool> {
    let mounts: usize = clear_dead(&mount_helper::new(), name)?.iter().sum();
    let Some(dir) = RunDir::find()? else { return Ok(mounts > 0) };
    let stem = stem(name);
    let was_killed = clear_socket(&dir, &stem)?;
    Ok(was_killed || (mounts > 0 && !dir.sockets()?.contains(&stem)))
}

/// Clears away what is left of any pool.
pub fn clear_all() -> Result<()> {
    let Some(dir) = RunDir::find()? else { return Ok(()) };
    for stem in dir.sockets()? {
        if clear_socket(&dir, &stem)? {
            clear_mounts(&mount_helper::new(), &stem)?;
        }
    }
    Ok(())
}

/// Removes a socket that nobody listens at.
fn clear_socket(dir: &RunDir, stem: &str) -> Result<bool> {
    // a process that refuses to talk, or is too busy, is there too
    if !dir.sockets()?.iter().any(|socket| socket == stem) || !matches!(client::greet(dir, stem), Ok(None)) {
        return Ok(false);
    }
    // a process that dies gives up its lock a moment after its socket
    for _ in 0..CLAIM_TRIES {
        match dir.claim(stem) {
            Err(e) if e.kind() == Kind::Exists => std::thread::sleep(CLAIM_PAUSE),
            claim => return claim?.clear().map(|()| true),
        }
    }
    // just now being imported
    Ok(false)
}

/// Unmounts what is mounted of a pool whose process has no mount helper any more. Errors: `Busy`, and which.
pub fn unmount(pool: &str, force: bool) -> Result<()> {
    let how = if force { Unmount::Force } else { Unmount::IfUnused };
    fuse::unmount_all(&mount_helper::new(), SUBTYPE, |source| is_of_pool(source, pool), how)
}

/// Unmounts dead mounts of a pool, of which there may be a process that has none yet; returns how many file systems these
/// were.
pub fn clear_mounts(helper: &Helper, pool: &str) -> Result<usize> {
    Ok(clear_dead(helper, pool)?[1])
}

/// The same; how many mounts of volumes these were, and of file systems.
fn clear_dead(helper: &Helper, pool: &str) -> Result<[usize; 2]> {
    // that of volumes ends with each process
    let volumes = fuse::clear_dead_mounts(helper, SUBTYPE, |source| source == volumes_source(pool))?;
    Ok([volumes, fuse::clear_dead_mounts(helper, SUBTYPE, |source| is_of_pool(source, pool))?])
}

/// What the mount of a pool's volumes is called: no dataset can be called so.
pub fn volumes_source(pool: &str) -> String {
    format!("{pool}/@volumes")
}

fn is_of_pool(source: &str, pool: &str) -> bool {
    source.strip_prefix(pool).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']))
}
