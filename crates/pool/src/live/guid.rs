//! The pool's guid: `zpool reguid`.

use base::{Error, Kind, Result};
use format::ids::Guid;
use vdev::Health;

use super::LivePool;

impl LivePool {
    /// Gives the pool another guid: that one, or one that nobody has. It is in the labels of all devices,
    /// so all must be there and well.
    ///
    /// Errors: `Missing` if they are not, `Invalid` for a guid that cannot be one; those of writing;
    /// `Suspended`.
    pub fn change_guid(&self, guid: Option<Guid>) -> Result<()> {
        self.refuse_with_checkpoint()?;
        if self.tree().health(self.tree().root().id()) != Health::HEALTHY {
            return Err(Error::new(Kind::Missing, "one or more devices is currently unavailable"));
        }
        let guid = guid.unwrap_or_else(|| Guid::random(self.env()));
        if guid.is_none() {
            return Err(Error::new(Kind::Invalid, "a pool has no guid 0"));
        }
        self.run(move |context| {
            context.pool.refuse_with_checkpoint()?;
            let before = std::mem::replace(&mut context.pool.config().guid, guid);
            context.log_event("guid change", &format!("old={before} new={guid}"));
            context.write_config()
        })?;
        self.cache().l2arc().set_pool_guid(guid);
        self.notify("pool_reguid", None);
        Ok(())
    }
}
