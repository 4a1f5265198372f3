//! What the server knows of the disk that it serves.

use std::sync::Arc;

use base::Result;
use format::ids::Txg;
use zvol::Zvol;

/// A volume that a virtual machine has.
pub trait VhostDisk: Send + Sync {
    /// What the guest reads as its serial number, of which it sees 20 bytes.
    fn serial(&self) -> String;

    /// The volume, under the root that it has now. Errors: those of opening it; `NotFound` when it is gone.
    fn volume(&self) -> Result<Arc<Zvol>>;

    /// The group that is open: what has been changed is in it, or in one before it.
    fn open_group(&self) -> Txg;

    /// The latest group that is on disk.
    fn synced_group(&self) -> Txg;
}

/// Where the disk comes from, when a virtual machine asks for it.
pub trait VhostSource: Send + Sync {
    /// Opens it. Errors: those of opening the volume.
    fn open(&self) -> Result<Arc<dyn VhostDisk>>;

    /// Waits until changes that failed as `Suspended` can be made. Errors: `Suspended` if nobody is to wait.
    fn wait_resumed(&self) -> Result<()>;
}
