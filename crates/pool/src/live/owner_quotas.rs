//! Limits of users, groups and projects: setting them, and asking whether one is reached.
//!
//! ```text
//!   zfs set userquota@alice ─▶ head: master node ─▶ table of limits
//!   write, create, chown ──▶ admit_owner ─▶ limits and books of the latest group on disk
//! ```
//!
//! Only what is on disk counts, as it does in OpenZFS: who is quick may write more than the limit before
//! the next group tells.

use std::collections::HashMap;

use base::{Error, Kind, Result};
use dsl::accounting::{self, Accounts, Counted, Owner, OwnerId};
use dsl::write::Change;

use super::LivePool;

/// What is known of the limits in a head.
#[derive(Default)]
pub(super) struct KnownLimits {
    /// Whether there are any; `None` if nobody has looked since they were changed.
    any: Option<bool>,
    /// Who has reached them, as of that group.
    txg: u64,
    used_up: HashMap<(Owner, Counted, u64), bool>,
}

impl LivePool {
    /// Whether anybody has a limit in a head. `id` is the dataset's object.
    pub fn has_owner_limits(&self, id: u64) -> Result<bool> {
        if let Some(any) = self.limits.lock().get(&id).and_then(|known| known.any) {
            return Ok(any);
        }
        let any = self.accounts(id)?.map_or(Ok(false), |accounts| accounts.has_limits())?;
        self.limits.lock().entry(id).or_default().any = Some(any);
        Ok(any)
    }

    /// May more be charged to a user, group or project in a head? Errors: `Quota`.
    pub fn admit_owner(&self, id: u64, owner: Owner, counted: Counted, key: u64) -> Result<()> {
        if !self.has_owner_limits(id)? {
            return Ok(());
        }
        let (txg, what) = (self.txgs.synced_txg(), (owner, counted, key));
        let known =
            self.limits.lock().get(&id).filter(|known| known.txg == txg).and_then(|k| k.used_up.get(&what).copied());
        let used_up = match known {
            Some(used_up) => used_up,
            None => {
                let used_up = self.accounts(id)?.map_or(Ok(false), |a| a.is_used_up(owner, counted, key))?;
                let mut limits = self.limits.lock();
                let known = limits.entry(id).or_default();
                if known.txg != txg {
                    known.txg = txg;
                    known.used_up.clear();
                }
                known.used_up.insert(what, used_up);
                used_up
            }
        };
        if used_up { Err(Error::new(Kind::Quota, "disk quota exceeded")) } else { Ok(()) }
    }

    /// Sets the limit of a user, group or project in a file system; 0 is none. Errors: `Unsupported` if the
    /// file system keeps no such accounts, or does not know the domain; those of writing.
    pub fn set_owner_limit(&self, name: &str, owner: Owner, counted: Counted, who: &OwnerId, limit: u64) -> Result<()> {
        let id = self.view().dsl().find(name)?.id;
        let unsupported = |what| Error::new(Kind::Unsupported, what);
        let accounts = self.accounts(id)?.filter(|accounts| accounts.has(owner, counted));
        let accounts = accounts.ok_or_else(|| unsupported("dataset does not keep such accounts"))?;
        let key = accounts.key_of(who).ok_or_else(|| unsupported("dataset does not know that domain"))?;
        let head = self.head(id)?;
        {
            // in this order, as who is in a group may ask for limits; then one at a time: a table is made once
            let tx = self.txgs.begin()?;
            let mut limits = self.limits.lock();
            let size_of = |_: &_| 0;
            let change = Change { mos: &head, tx: &tx, env: &self.env, size_of: &size_of };
            accounting::set_limit(&change, owner, counted, key, limit)?;
            limits.remove(&id);
        }
        self.sync()?;
        // somebody may have looked meanwhile
        self.limits.lock().remove(&id);
        Ok(())
    }

    /// The accounts of a head as of the latest group on disk; `None` if it keeps none.
    fn accounts(&self, id: u64) -> Result<Option<Accounts>> {
        let view = self.view();
        let dataset = view.dsl().find(&view.dsl().name_of(id)?)?;
        match Accounts::open(view.dsl().raw_objset(&dataset)?) {
            Err(error) if error.kind() == Kind::Unsupported => Ok(None),
            accounts => accounts.map(Some),
        }
    }
}
