//! What the server knows of the disks that it serves.

use std::sync::Arc;

use base::Result;
use zvol::Zvol;

/// A disk that clients may use.
pub trait Disk: Send + Sync {
    /// What tells it from others.
    fn id(&self) -> u64;

    /// It, under the root that it has now. Errors: those of opening it; `NotFound` when it is gone.
    fn volume(&self) -> Result<Arc<Zvol>>;
}

/// The disks that there are.
pub trait Disks: Send + Sync {
    /// Names of all that clients may use. Errors: those of reading the pool.
    fn names(&self) -> Result<Vec<String>>;

    /// That of a name; `None` if there is none, or no client may use it. Errors: those of reading the pool.
    fn find(&self, name: &str) -> Result<Option<Arc<dyn Disk>>>;

    /// Waits until changes that failed as `Suspended` can be made. Errors: `Suspended` if nobody is to wait.
    fn wait_resumed(&self) -> Result<()>;
}
