//! Limits of users, groups and projects: setting them, and asking whether one is reached.
//!
//! ```text
//!   zfs set userquota@alice  ─▶ head: master node ─▶ table of limits
//!   zfs set defaultuserquota ─▶ head: master node
//!   write, create, chown ──▶ admit_owner ─▶ limits and books of the latest group on disk
//! ```
//!
//! Only what is on disk counts, as it does in OpenZFS: a quick user may write more than the limit before
//! the next group tells.

use std::sync::Arc;

use base::{Error, Kind, Result};
use dmu::Objset;
use dsl::Property;
use dsl::accounting::{self, Accounts, Counted, Owner, OwnerId};
use dsl::write::{Change, Created};
use format::ids::DatasetId;

use super::{LivePool, SyncContext};

impl LivePool {
    /// Whether anybody has a limit in a head. `id` is the dataset's object.
    pub fn has_owner_limits(&self, id: DatasetId) -> Result<bool> {
        let find = || self.accounts(id)?.map_or(Ok(false), |accounts| accounts.has_limits());
        self.limits().has_any(id, find)
    }

    /// May more be charged to a user, group or project in a head? Errors: `Quota`.
    pub fn admit_owner(&self, id: DatasetId, owner: Owner, counted: Counted, key: u64) -> Result<()> {
        if !self.has_owner_limits(id)? {
            return Ok(());
        }
        let find = || self.accounts(id)?.map_or(Ok(false), |accounts| accounts.is_used_up(owner, counted, key));
        match self.limits().is_used_up(id, self.txgs().synced_txg(), (owner, counted, key), find)? {
            true => Err(Error::new(Kind::Quota, "disk quota exceeded")),
            false => Ok(()),
        }
    }

    /// Sets the limit of a user, group or project in a file system; 0 is none. Errors: `Unsupported` if the
    /// file system keeps no such accounts, or does not know the domain; those of writing.
    pub fn set_owner_limit(&self, name: &str, owner: Owner, counted: Counted, who: &OwnerId, limit: u64) -> Result<()> {
        let id = self.view().dsl().find(name)?.id;
        let not_kept = || self.not_kept_by(id);
        let accounts = self.accounts(id)?.filter(|accounts| accounts.has(owner, counted)).ok_or_else(not_kept)?;
        let unknown = || Error::new(Kind::Unsupported, "dataset does not know that domain");
        let key = accounts.key_of(who).ok_or_else(unknown)?;
        self.change_limits(id, |change| accounting::set_limit(change, owner, counted, key, limit))
    }

    /// Sets the limit of all owners that have none of their own, by its property; 0 is none. Errors: `Unsupported` if the
    /// file system keeps no such accounts; those of writing.
    pub(super) fn set_default_limit(&self, name: &str, property: Property, limit: u64) -> Result<()> {
        let id = self.view().dsl().find(name)?.id;
        check_kept(self.accounts(id)?.as_ref(), property)?;
        self.change_limits(id, |change| accounting::set_default_limit(change, property, limit))
    }

    /// Why a head has no accounts.
    fn not_kept_by(&self, id: DatasetId) -> Error {
        match self.head(id).ok().and_then(|head| head.recounted_percent()) {
            None => not_kept(),
            Some(percent) => {
                let what = format!("accounts of the dataset are being made: {percent} % of its objects are counted");
                Error::new(Kind::Unsupported, what)
            }
        }
    }

    /// Changes the master node of a head, or a table of limits.
    fn change_limits(&self, id: DatasetId, set: impl FnOnce(&Change<'_>) -> Result<()>) -> Result<()> {
        let head = self.head(id)?;
        {
            // in this order, as operations in a group may ask for limits
            let tx = self.txgs().begin()?;
            let size_of = |_: &_| 0;
            self.limits().change(id, || set(&Change { mos: &head, tx: &tx, env: self.env(), size_of: &size_of }))?;
        }
        self.sync()?;
        // somebody may have looked meanwhile
        self.limits().forget(id);
        Ok(())
    }

    /// The accounts of a head as of the latest group on disk; `None` if it keeps none.
    fn accounts(&self, id: DatasetId) -> Result<Option<Accounts>> {
        let view = self.view();
        let dataset = view.dsl().find(&view.dsl().name_of(id)?)?;
        match Accounts::open(view.dsl().raw_objset(&dataset)?) {
            Err(error) if error.kind() == Kind::Unsupported => Ok(None),
            accounts => accounts.map(Some),
        }
    }
}

impl SyncContext<'_> {
    /// Sets the default limits that a new file system is to have. Errors: as from [`LivePool::set_default_limit`].
    pub(super) fn set_default_limits(&self, objset: &Arc<Objset>, created: &Created) -> Result<()> {
        for (property, limit) in &created.contents {
            if *limit != 0 && accounting::limited_by(*property).is_some() {
                check_kept(Accounts::open(objset.clone()).ok().as_ref(), *property)?;
                accounting::set_default_limit(&Change { mos: objset, ..self.change }, *property, *limit)?;
            }
        }
        Ok(())
    }
}

/// Whether the accounts are kept that a default limit is about.
fn check_kept(accounts: Option<&Accounts>, property: Property) -> Result<()> {
    let is_kept = accounting::limited_by(property)
        .zip(accounts)
        .is_some_and(|((owner, counted), accounts)| accounts.has(owner, counted));
    if is_kept { Ok(()) } else { Err(not_kept()) }
}

fn not_kept() -> Error {
    Error::new(Kind::Unsupported, "dataset does not keep such accounts")
}
