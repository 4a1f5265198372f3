//! The cache file that a pool is in: property `cachefile`.

use std::path::Path;

use base::{Mutex, Result};
use pool::Pool;

use crate::listen_helper::change_cachefile;

/// The property: `none`, or the file that is written.
#[derive(Default)]
pub(super) struct CacheEntry(Mutex<Option<String>>);

impl CacheEntry {
    /// Its value.
    pub(super) fn value(&self) -> Option<String> {
        self.0.lock().clone()
    }

    /// Sets it: the pool leaves the file that it was in, and is in the new one. Errors: if that cannot be written; then all
    /// is as before.
    pub(super) fn set(&self, value: &str, pool: &Pool) -> Result<()> {
        let before = self.put(value);
        self.write(pool).inspect_err(|_| self.0.lock().clone_from(&before))?;
        before.iter().filter(|file| *file != value).for_each(|file| leave(file, pool));
        Ok(())
    }

    /// As the pool comes. Errors: if the file cannot be written; that is tried again at the next change.
    pub(super) fn begin(&self, value: &str, pool: &Pool) -> Result<()> {
        self.put(value);
        self.write(pool)
    }

    /// Brings the file up to date. That it cannot be written keeps nobody from anything.
    pub(super) fn renew(&self, pool: &Pool) {
        if let Err(e) = self.write(pool) {
            tracing::warn!("{e}");
        }
    }

    /// The pool is no longer in use here.
    pub(super) fn leave(&self, pool: &Pool) {
        let file = self.0.lock().take();
        file.iter().for_each(|file| leave(file, pool));
    }

    /// What it was before.
    fn put(&self, value: &str) -> Option<String> {
        std::mem::replace(&mut *self.0.lock(), (!value.is_empty()).then(|| value.to_owned()))
    }

    fn write(&self, pool: &Pool) -> Result<()> {
        match self.value() {
            Some(file) if file != "none" => change_cachefile(Path::new(&file), name(pool), Some(pool.config())),
            _ => Ok(()),
        }
    }
}

/// The pool's name in cache files: what its labels call it.
fn name(pool: &Pool) -> &str {
    pool.config().opt_str("name").unwrap_or(pool.name())
}

fn leave(file: &str, pool: &Pool) {
    if file != "none"
        && let Err(e) = change_cachefile(Path::new(file), name(pool), None)
    {
        tracing::warn!("{e}");
    }
}
