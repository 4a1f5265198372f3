//! What limits the files of a head.

use base::Result;
use dsl::accounting::{Counted, Owner};
use pool::Head;
use zpl::Room;

/// What quotas and the pool leave to the files of a head.
pub struct FileRoom(pub Head);

impl Room for FileRoom {
    fn admit(&self, bytes: u64, frees: bool) -> Result<()> {
        self.0.admit(bytes, frees)
    }

    fn admit_some(&self, bytes: u64, portion: u64) -> Result<u64> {
        self.0.admit_some(bytes, portion)
    }

    fn has_limits(&self) -> bool {
        // if they cannot be read, nothing can be written either, and that tells
        self.0.has_owner_limits().unwrap_or(true)
    }

    fn admit_owner(&self, owner: Owner, id: u64, is_new: bool) -> Result<()> {
        self.0.admit_owner(owner, Counted::Bytes, id)?;
        if is_new { self.0.admit_owner(owner, Counted::Objects, id) } else { Ok(()) }
    }
}
