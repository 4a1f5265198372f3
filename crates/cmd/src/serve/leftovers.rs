//! What is left of a pool whose process was killed: its socket, and its mounts. The kernel keeps those,
//! and every access to them fails with "Transport endpoint is not connected".
//!
//! Mounts are known by their source, which is a dataset of the pool, by their type, and by that
//! failure. A mount or socket that somebody still answers for is left alone.

use base::{Kind, Result};

use super::mount_helper;
use super::rundir::{RunDir, stem};

/// What all our mounts are of.
const SUBTYPE: &str = "zfs";

/// Clears away what is left of the pool `name`; returns whether there was something.
pub fn clear(name: &str) -> Result<bool> {
    let mounts = clear_mounts(name)?;
    let had_socket = match RunDir::find()? {
        Some(dir) => clear_socket(&dir, &stem(name))?,
        None => false,
    };
    Ok(mounts > 0 || had_socket)
}

/// Clears away what is left of any pool.
pub fn clear_all() -> Result<()> {
    let Some(dir) = RunDir::find()? else { return Ok(()) };
    for stem in dir.sockets()? {
        if clear_socket(&dir, &stem)? {
            clear_mounts(&stem)?;
        }
    }
    Ok(())
}

/// Removes a socket that nobody listens at.
fn clear_socket(dir: &RunDir, stem: &str) -> Result<bool> {
    if !dir.sockets()?.iter().any(|socket| socket == stem) || dir.connect(stem)?.is_some() {
        return Ok(false);
    }
    match dir.claim(stem) {
        Ok(claim) => {
            drop(claim);
            Ok(true)
        }
        // just now being imported
        Err(e) if e.kind() == Kind::Exists => Ok(false),
        Err(e) => Err(e),
    }
}

/// Unmounts dead mounts of a pool; returns how many these were.
fn clear_mounts(pool: &str) -> Result<usize> {
    let is_of_pool =
        |source: &str| source.strip_prefix(pool).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    fuse::clear_dead_mounts(&mount_helper::new(), SUBTYPE, is_of_pool)
}
