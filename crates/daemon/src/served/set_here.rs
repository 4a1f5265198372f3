//! What is noted when something is set on this host.

use base::{Env, Result};
use format::ids::Guid;

use crate::host_rule::{HostRule, mark_name};
use crate::host_state::PoolIdentity;
use crate::live::ServedPool;
use crate::verbs::{DatasetChange, SnapshotChange};

/// A pool, and what counts in it as set here.
pub(super) struct SetHere<'a> {
    pub(super) env: &'a Env,
    pub(super) pool: &'a ServedPool,
    pub(super) rule: &'a HostRule,
}

impl SetHere<'_> {
    /// Notes what a change has set.
    pub(super) fn mark_change(&self, change: &DatasetChange) -> Result<()> {
        match change {
            DatasetChange::Set { name, property, .. } => self.mark_as_set_here(name, &[property])?,
            DatasetChange::Inherit { name, property, .. } => self.unmark(name, property)?,
            DatasetChange::Create { name, properties } | DatasetChange::CreateVolume { name, properties } => {
                self.mark_as_set_here(name, &names_of(properties))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The same of a change of snapshots.
    pub(super) fn mark_snapshots(&self, change: &SnapshotChange) -> Result<()> {
        match change {
            SnapshotChange::Take { names, properties } => {
                names.iter().try_for_each(|name| self.mark_as_set_here(name, &names_of(properties)))
            }
            SnapshotChange::Clone { target, properties, .. } => self.mark_as_set_here(target, &names_of(properties)),
            _ => Ok(()),
        }
    }

    /// A pool with that guid, made of this one, is this host's own if this one is. That it cannot be noted is logged.
    pub(super) fn own(&self, guid: Guid) {
        let hidden = self.pool.view().dsl().hidden_numbers();
        let noted = hidden.and_then(|hidden| self.rule.take_in(&PoolIdentity { guid, hidden }));
        if let Err(error) = noted {
            tracing::warn!(%guid, "the pool will be taken for a stranger's: {error}");
        }
    }

    /// Lets values count that have been set on a dataset, in a pool that is not this host's own.
    fn mark_as_set_here(&self, dataset: &str, properties: &[&String]) -> Result<()> {
        if self.rule.is_own() || properties.is_empty() {
            return Ok(());
        }
        let subject = self.pool.view().dsl().subject(dataset)?;
        for (property, value) in properties.iter().filter_map(|name| self.rule.mark(subject.levels(), name)) {
            self.pool.change(self.env, DatasetChange::Set { name: dataset.to_owned(), property, value })?;
        }
        Ok(())
    }

    /// Takes away the mark of a value that is no longer set.
    fn unmark(&self, dataset: &str, property: &str) -> Result<()> {
        let property = mark_name(property);
        let is_marked = self.pool.view().dsl().subject(dataset)?.levels().own_set(&property).is_some();
        let change = DatasetChange::Inherit { name: dataset.to_owned(), property, received: false };
        if is_marked { self.pool.change(self.env, change) } else { Ok(()) }
    }
}

/// The names of properties with values.
fn names_of(properties: &[(String, String)]) -> Vec<&String> {
    properties.iter().map(|(name, _)| name).collect()
}
