//! What is there now, kept for as long as something is done with it.

use base::Result;

use super::host::{Host, SnapshotChange};

/// A snapshot of what is there now, which is destroyed when this ends.
pub(super) struct SnapshotOfNow<'a> {
    host: &'a dyn Host,
    /// Its name.
    pub(super) name: String,
}

impl<'a> SnapshotOfNow<'a> {
    /// Takes one of a file system or volume, for a command. Errors: as of [`Host::change_snapshots`].
    pub(super) fn take(host: &'a dyn Host, of: &str, command: &str) -> Result<SnapshotOfNow<'a>> {
        let name = format!("{of}@zfs-{command}-{}-{:016x}", std::process::id(), host.now_ns());
        let change = SnapshotChange::Take { names: vec![name.clone()], properties: Vec::new() };
        match host.change_snapshots(&change)?.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(SnapshotOfNow { host, name }),
        }
    }
}

impl Drop for SnapshotOfNow<'_> {
    fn drop(&mut self) {
        let change = SnapshotChange::Destroy { names: vec![self.name.clone()], defer: true };
        let destroyed = self.host.change_snapshots(&change).map(|refused| refused.into_iter().next());
        if let Some(error) = destroyed.map_or_else(Some, |refused| refused.map(|(_, error)| error)) {
            tracing::warn!(snapshot = self.name, "it was taken for a command, and stays: {error}");
        }
    }
}
