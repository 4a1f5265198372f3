//! The roots of datasets whose blocks others take: see `dmu` `roots`.

use std::sync::{Arc, Weak};

use base::{Error, Kind, Result};
use dmu::{HeldRoots, Objset, RootHolder};
use format::feature::BLOCK_CLONING;

use super::LivePool;
use crate::FeatureState;

/// The datasets of a pool, for as long as it is open.
struct RootsInPool(Weak<LivePool>);

impl LivePool {
    /// What files of its datasets may share blocks of: files of all its datasets.
    pub fn root_holder(&self) -> Arc<dyn RootHolder> {
        Arc::new(RootsInPool(self.weak()))
    }

    /// Whether an object set is that of an open head, or of a snapshot that is there.
    fn has_root(&self, of: &Objset) -> bool {
        match self.heads().get(of.id()) {
            Some(head) => head.objset().is_same(of),
            None => {
                // one that cannot be read cannot be taken from either
                let found = self.view().dsl().dataset(of.id(), of.name());
                found.is_ok_and(|one| one.is_snapshot() && one.phys.bp == of.rootbp())
            }
        }
    }
}

impl RootHolder for RootsInPool {
    fn counts_clones(&self) -> bool {
        self.0.upgrade().is_some_and(|pool| pool.view().features().state(BLOCK_CLONING) != FeatureState::Disabled)
    }

    fn hold_root(&self, of: &Objset) -> Result<Option<HeldRoots>> {
        let pool = self.0.upgrade().ok_or_else(|| Error::new(Kind::Suspended, "the pool is closed"))?;
        let held = pool.roots().hold(|| pool.suspension().check_running())?;
        Ok(pool.has_root(of).then_some(held))
    }
}
