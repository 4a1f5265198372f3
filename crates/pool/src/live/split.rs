//! `zpool split`: one leaf of each mirror becomes a pool of its own.
//!
//! ```text
//!   pool       all is synced ─▶ task: the leaves are detached ─▶ they have the group before, whole, and nobody's any more
//!   new pool   these leaves alone are imported, with another name and guid ─▶ what is not there is detached ─▶ exported
//! ```
//!
//! A cut between the two leaves devices that are the old pool's as of an earlier group, which its other devices do not
//! count among them.

use std::sync::Arc;

use base::{Error, Kind, Result};
use device::Device;
use dsl::PropertyValue;
use format::ids::Guid;
use vdev::{Health, LeafVdev};

use super::vdevs::no_such_device;
use super::{LivePool, SyncContext};
use crate::{Candidate, Discovery, FoundDevice, OpenOptions, PoolState};

/// Bytes of the new pool's blocks that are kept in memory: it is closed soon.
const CACHE_BYTES: u64 = 64 << 20;

impl LivePool {
    /// Makes a pool of `leaves`, by their guids: one of each mirror that is not for logs. It is exported, has these
    /// properties, and `history` as the last line of its history. Returns the paths of its devices, and its guid.
    ///
    /// Errors: `Invalid` if these are not such leaves; `Busy` if one lacks something, or no other has all that it has;
    /// `Exists` if there is a checkpoint: nothing is changed then. Those of writing
    /// and of opening the new pool; `Suspended`.
    pub fn split(
        &self,
        name: &str,
        leaves: &[Guid],
        properties: Vec<(String, PropertyValue)>,
        history: &str,
    ) -> Result<(Vec<String>, Guid)> {
        let alone = self.change_vdevs_alone();
        self.suspension().check_running()?;
        self.refuse_with_checkpoint()?;
        self.check_split(leaves)?;
        let leaf = |guid: &Guid| self.tree().leaf(*guid).ok_or_else(no_such_device);
        let leaves_now: Vec<LeafVdev<'_>> = leaves.iter().map(leaf).collect::<Result<_>>()?;
        let device = |leaf: &LeafVdev<'_>| leaf.state().device().map(|slot| slot.now()).ok_or_else(no_such_device);
        let devices: Vec<Arc<dyn Device>> = leaves_now.iter().map(device).collect::<Result<_>>()?;
        let paths: Vec<String> = leaves_now.iter().map(|leaf| leaf.name().to_owned()).collect();
        self.sync()?;
        let (guids, about) = (leaves.to_vec(), paths.clone());
        self.run(move |context| {
            context.pool.check_split(&guids)?;
            for (guid, path) in guids.iter().zip(&about) {
                context.detach(*guid)?;
                context.log_event("detach", &format!("vdev={path}"));
            }
            context.write_config()
        })?;
        drop(alone);
        self.notify("vdev_remove", None);
        let guid = Guid::random(self.env());
        self.make_split((name, guid), &devices, leaves, properties, history)?;
        Ok((paths, guid))
    }

    fn check_split(&self, leaves: &[Guid]) -> Result<()> {
        self.refuse_with_removal()?;
        let tree = self.tree();
        let invalid = |what: &str| Err(Error::new(Kind::Invalid, what.to_owned()));
        let tops: Vec<&vdev::Vdev> = tree.tops().filter(|top| top.kind().is_concrete() && !top.is_log()).collect();
        if tops.len() != leaves.len() {
            return invalid("invalid vdev configuration");
        }
        for top in tops {
            let below: Vec<LeafVdev<'_>> = tree.leaves_of(top.id());
            let chosen: Vec<&LeafVdev<'_>> = below.iter().filter(|leaf| leaves.contains(&leaf.guid())).collect();
            let [leaf] = chosen[..] else { return invalid("invalid vdev configuration") };
            let is_side = top.kind() == vdev::VdevKind::Mirror && leaf.parent() == Some(top.id());
            if !is_side || leaf.is_spare() || leaf.state().health() != Health::HEALTHY {
                return invalid("invalid vdev configuration");
            }
            if !leaf.state().dtl().is_empty() || !tree.can_do_without(*leaf) {
                return Err(Error::new(Kind::Busy, "pool is busy"));
            }
        }
        Ok(())
    }

    /// Opens the new pool, takes from it what is not there, and exports it.
    fn make_split(
        &self,
        (name, guid): (&str, Guid),
        devices: &[Arc<dyn Device>],
        leaves: &[Guid],
        properties: Vec<(String, PropertyValue)>,
        history: &str,
    ) -> Result<()> {
        let mut found = Vec::new();
        for device in devices {
            let all = FoundDevice::examine(device.path(), device.clone())?;
            found.extend(all.into_iter().filter(|found| found.guid().is_some_and(|guid| leaves.contains(&guid))));
        }
        let candidates = Candidate::all(&Discovery { devices: found, failed: Vec::new() });
        let candidate = candidates.into_iter().next().ok_or_else(no_such_device)?;
        let options = OpenOptions {
            name: Some(name.to_owned()),
            new_guid: Some(guid),
            without_log: true,
            cache_bytes: Some(CACHE_BYTES),
            ..OpenOptions::default()
        };
        let host = self.config().host.clone();
        let new = LivePool::import(self.env(), &candidate, &options, host)?;
        new.drop_others(leaves)?;
        if !properties.is_empty() {
            new.set_pool_properties(properties)?;
        }
        let line = history.to_owned();
        new.run(move |context: &SyncContext<'_>| context.log_history(&line))?;
        new.close(PoolState::Exported)
    }

    /// Takes all devices off that are none of `leaves`.
    fn drop_others(&self, leaves: &[Guid]) -> Result<()> {
        let view = self.view();
        let aux = view.spares().iter().chain(view.caches()).filter_map(|config| config.opt_guid("guid"));
        aux.collect::<Vec<_>>().into_iter().try_for_each(|guid| self.remove(guid).map(drop))?;
        let logs: Vec<Guid> = self.tree().tops().filter(|top| top.is_log()).map(|top| top.guid()).collect();
        logs.into_iter().try_for_each(|guid| self.remove(guid).map(drop))?;
        let others = self.tree().leaves().map(|leaf| leaf.guid()).filter(|guid| !leaves.contains(guid));
        others.collect::<Vec<_>>().into_iter().try_for_each(|guid| self.detach(guid).map(drop))
    }
}
