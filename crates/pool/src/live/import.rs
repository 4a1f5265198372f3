//! Opening a pool that exists, to be changed.
//!
//! Some of what OpenZFS keeps for its own speed would become wrong as soon as Cenote writes, and goes with
//! the first group: logs of space maps, whose changes are taken up into the maps themselves; and with the first groups
//! logs of dedup tables.

use std::collections::HashMap;
use std::sync::Arc;

use base::{Env, Error, Kind, Result, ResultExt};
use codec::checksum::Checksum;
use dmu::zap::Zap;
use dsl::write::feature;
use format::feature::{LOG_SPACEMAP, OBSOLETE_COUNTS, SPACEMAP_HISTOGRAM, Support};
use format::ids::{DatasetId, ObjectId, Txg, VdevNumber};
use format::space_map::Run;
use zil::Claim;
use zio::alloc::TopShape;

use super::checkpoint_stage::CheckpointStage;
use super::config::Config;
use super::create::{cache_over, class_of, open_mos};
use super::logs::{check_tables, find_claims};
use super::removal::{OBSOLETE_PRECISE, last_condensing};
use super::space_maps::{CHECKPOINT_MAP, MapsOfTop, OBSOLETE_MAP, ObsoleteMap, PendingRuns, SpaceMaps};
use super::{LivePool, SyncContext, dedup_logs};
use crate::import::blame_missing;
use crate::mos::{self, DIRECTORY};
use crate::{Candidate, FeatureState, OpenOptions, Pool, Rewind, metaslabs, object_directory};

const LOG_SPACEMAP_ZAP: &str = "com.delphix:log_spacemap_zap";
const UNFLUSHED: &str = "com.delphix:ms_unflushed_phys_txgs";

impl LivePool {
    /// Opens a pool to be changed, from devices that are open for writing.
    ///
    /// One that is guarded by property `multihost` is watched first if nobody has done so, and claimed.
    ///
    /// Errors: as from [`Pool::open`]; `Elsewhere` if another host has it; `ReadOnly` naming what forbids writing: features, an old version.
    pub fn import(
        env: &Env,
        candidate: &Candidate,
        options: &OpenOptions,
        host: (u64, String),
    ) -> Result<Arc<LivePool>> {
        let watched = match &options.watched {
            Some(watched) => Some(watched.clone()),
            None => candidate.watch(env, host.0)?,
        };
        watched.map_or(Ok(()), |watched| candidate.claim(env, &watched))?;
        let pool = Pool::open(env, candidate, options)?;
        if options.rewind == Rewind::Checkpoint {
            // nothing of the checkpointed state is changed before there is no way back: what came after it is
            // overwritten from then on
            pool.tree().write_uberblock(pool.uberblock())?;
            pool.tree().flush()?;
        }
        let name = if options.is_temporary { &candidate.name } else { pool.name() }.to_owned();
        let tree = pool.tree().clone();
        let live = LivePool::of(env, pool, name, host, options);
        live.map_err(|error| blame_missing(error, Some(&tree))).in_pool(&candidate.name)
    }

    /// `name` is what its labels call it.
    fn of(env: &Env, pool: Pool, name: String, host: (u64, String), options: &OpenOptions) -> Result<Arc<LivePool>> {
        check_writable(&pool)?;
        let claims = find_claims(&pool, options.without_log)?;
        let logged = dedup_logs::logged(&pool)?;
        check_tables(&claims, logged.is_empty())?;
        let tree = pool.tree().clone();
        let (tops, shapes, pending) = space_of(&pool)?;
        let has_logs = pool.features().state(LOG_SPACEMAP) == FeatureState::Active;
        let maps = Arc::new(SpaceMaps::new(tops, pending));
        let uberblock = pool.uberblock().clone();
        let enabled = pool.features().enabled();
        let cache = cache_over(env, &tree, &maps, shapes, options.cache_bytes)?;
        cache.zio().damage().take_from(pool.cache().zio().damage());
        let checkpoint = CheckpointStage::of(&pool)?;
        cache.zio().allocator()?.set_checkpoint(checkpoint.txg());
        let mos = open_mos(&cache, &maps, (uberblock.rootbp, enabled), pool.name())?;
        if let Some(salt) = crate::mos::checksum_salt(pool.mos())? {
            cache.zio().set_salt(salt);
        }
        let label = &pool.candidate().label;
        let features =
            label.opt_list("features_for_read").map(|list| list.iter().map(|(guid, _)| guid.to_owned()).collect());
        let config = Config {
            name,
            version: uberblock.version,
            guid: options.new_guid.unwrap_or_else(|| pool.guid()),
            state: 0,
            txg: uberblock.txg,
            host,
            comment: pool.config().opt_str("comment").map(str::to_owned),
            compatibility: pool.config().opt_str("compatibility").map(str::to_owned),
            features_for_read: features.unwrap_or_default(),
            enabled,
            uberblock: Some(uberblock.clone()),
            object: object_directory(pool.mos())?.require_object_id("config")?,
            imported: Some(pool.config().clone()),
            is_dirty: true,
        };
        // what a log has been given since the last group is none of the future's; what is left of states newer than this one
        // is none, either: their uberblocks would be the newest still when the pool is imported the next time
        let abandoned = pool.candidate().uberblocks();
        let others = claims.iter().map(|(_, claim)| claim.newest_txg).chain(abandoned.iter().map(|newer| newer.txg));
        let newest_txg = others.fold(uberblock.txg, Txg::max);
        if newest_txg > Txg::BELIEVED_MAX {
            return Err(Error::corrupt(format!("an intent log with blocks of txg {newest_txg:#x}")));
        }
        let (history, live) = (options.history.clone(), LivePool::over(env, pool, mos, maps, config, newest_txg));
        live.multihost().synced(&uberblock, live.tree().hearts().len());
        live.multihost().guard();
        live.dedup_changes().set_has_logs(!logged.is_empty());
        live.checkpoint_state().replace(checkpoint);
        live.take_up_removal(obsolete_maps(&live.view())?).and_then(|()| live.take_up_expansion())?;
        live.frees().wake();
        // those that were away and are there again
        let back = live.tree().leaves().filter(|leaf| !leaf.state().dtl().is_empty());
        back.for_each(|leaf| live.expect_spare_home(leaf));
        live.load_txg_times()?;
        live.load_scan().and_then(|()| live.load_rebuilds())?;
        live.scan().stall();
        // readers and the writer share one cache from now on
        live.renew_view()?;
        live.write_first_groups(has_logs, claims, history, &logged)?;
        live.load_sweeps()?;
        live.scan().wake();
        live.take_up_rates()?;
        live.take_up_autosit()?;
        live.notify("pool_import", None);
        live.notify_of_leaves();
        Ok(live)
    }

    /// Writes what the pool needs before it can be used, and the labels, which say that it is in use, and by whom.
    fn write_first_groups(
        &self,
        has_logs: bool,
        claims: Vec<(DatasetId, Claim)>,
        history: Option<String>,
        logged: &[Checksum],
    ) -> Result<()> {
        let of_first = logged.to_vec();
        self.run(move |context| {
            if has_logs {
                context.take_up_logs()?;
            }
            context.flush_dedup_logs(&of_first)?;
            context.claim(&claims)?;
            context.log_import(history);
            context.write_config()?;
            context.resilver_after_import()
        })?;
        self.finish_dedup_logs(logged)
    }
}

impl SyncContext<'_> {
    /// Takes the changes that are only in logs up into the space maps, and removes the logs.
    fn take_up_logs(&self) -> Result<()> {
        let change = &self.change;
        self.pool.maps().take_up(change)?;
        if let Some(logs) = change.object_id(DIRECTORY, LOG_SPACEMAP_ZAP)? {
            let all = change.by_number(logs)?;
            for (_, log) in &all {
                change.free_object(ObjectId::new(*log))?;
            }
            feature::count(change, SPACEMAP_HISTOGRAM, -(all.len() as i64))?;
            change.free_object(logs)?;
            change.remove(DIRECTORY, LOG_SPACEMAP_ZAP)?;
        }
        for top in self.pool.tree().tops().filter_map(|top| top.top_spec()).filter(|top| top.zap.is_some()) {
            if let Some(array) = change.object_id(top.zap, UNFLUSHED)? {
                change.free_object(array)?;
                change.remove(top.zap, UNFLUSHED)?;
            }
        }
        let uses = feature::uses(change, LOG_SPACEMAP)?.unwrap_or(0) as i64;
        feature::count(change, LOG_SPACEMAP, -uses).map(drop)
    }
}

/// Where the space maps are, what the allocator starts with, and what is only in logs of space maps.
fn space_of(pool: &Pool) -> Result<(HashMap<VdevNumber, MapsOfTop>, Vec<TopShape>, PendingRuns)> {
    let (mut tops, mut shapes, mut pending) = (HashMap::new(), Vec::new(), PendingRuns::new());
    let logs = metaslabs::logs(pool)?;
    for top in pool.tree().tops() {
        let Some(spec) = top.top_spec().filter(|_| top.kind().is_concrete()) else { continue };
        let metaslabs = metaslabs::read(pool, top)?;
        let mut sums: Vec<i64> = metaslabs.iter().map(|metaslab| metaslab.allocated).collect();
        for (txg, runs) in &logs {
            for run in runs.iter().filter(|run| run.vdev == Some(top.number())) {
                let at = usize::try_from(run.offset.checked_shr(spec.metaslab_shift).unwrap_or(u64::MAX));
                let Some((at, metaslab)) = at.ok().and_then(|at| Some((at, metaslabs.get(at)?))) else { continue };
                if metaslab.unflushed_since.is_some_and(|since| *txg >= since) {
                    let bytes = i64::try_from(run.len).unwrap_or(i64::MAX);
                    sums[at] = sums[at].saturating_add(if run.allocated { bytes } else { -bytes });
                    pending.entry((top.number(), at as u64)).or_default().push(Run { vdev: None, ..*run });
                }
            }
        }
        shapes.push(TopShape {
            top: top.number(),
            class: class_of(top),
            metaslab_shift: spec.metaslab_shift,
            metaslabs: metaslabs
                .iter()
                .zip(sums)
                .map(|(metaslab, sum)| (metaslab.range.clone(), sum.max(0) as u64))
                .collect(),
        });
        let maps = metaslabs.into_iter().map(|metaslab| (metaslab.map, metaslab.range)).collect();
        let kept = if spec.zap.is_none() {
            None
        } else {
            Zap::open(pool.mos().object(spec.zap)?)?.object_id(CHECKPOINT_MAP)?
        };
        let (zap, kept) = (spec.zap, kept.unwrap_or_default());
        tops.insert(top.number(), MapsOfTop { zap, kept, array: spec.metaslab_array, ashift: spec.ashift, maps });
    }
    Ok((tops, shapes, pending))
}

/// Refuses what cannot be written to without harm.
fn check_writable(pool: &Pool) -> Result<()> {
    let refuse = |what: String| Err(Error::new(Kind::ReadOnly, what));
    let is_foreign = |guid: &&str| {
        pool.features().state(guid) == FeatureState::Active
            && format::feature::find(guid).is_none_or(|feature| feature.support < Support::Write)
    };
    let foreign: Vec<&str> = pool.features().guids().filter(is_foreign).collect();
    if !foreign.is_empty() {
        let list = foreign.join("\n\t");
        return refuse(format!("the pool uses features that can only be read, not written:\n\t{list}"));
    }
    let is_whole = pool.tree().health(pool.tree().root().id()).is_readable();
    if !is_whole || pool.tree().iter().any(|vdev| vdev.kind() == vdev::VdevKind::Missing) {
        return refuse("pools of which a vdev is missing can be imported read-only".into());
    }
    // datasets, too, may note what is obsolete on removed devices: that is not kept up
    let mut noted = 0;
    for indirect in pool.tree().tops().filter_map(|top| top.top_spec()?.indirect) {
        noted += u64::from(mos::has_obsolete_counts(pool.mos(), indirect.mapping_object)?);
    }
    for ObsoleteMap { zap, map } in obsolete_maps(pool)?.into_values() {
        let is_precise = Zap::open(pool.mos().object(zap)?)?.u64(OBSOLETE_PRECISE)?.is_some_and(|number| number != 0);
        noted += u64::from(map.is_some()) + u64::from(is_precise);
    }
    if let Some(condensing) = last_condensing(pool)? {
        noted += 1 + u64::from(mos::has_obsolete_counts(pool.mos(), condensing.next_table)?);
    }
    if pool.features().uses(OBSOLETE_COUNTS) > noted {
        return refuse("pools whose blocks were led past removed devices can be imported read-only".into());
    }
    Ok(())
}

/// Where vdevs that were removed, or are being removed, have their maps of obsolete bytes.
fn obsolete_maps(pool: &Pool) -> Result<HashMap<VdevNumber, ObsoleteMap>> {
    let mut maps = HashMap::new();
    // those that are being removed, too
    for spec in pool.tree().tops().filter_map(|top| Some((top.number(), top.top_spec()?))) {
        let (number, zap) = (spec.0, if spec.1.indirect.is_some() { spec.1.zap } else { ObjectId::NONE });
        if zap.is_some() {
            let map = Zap::open(pool.mos().object(zap)?)?.object_id(OBSOLETE_MAP)?.unwrap_or_default();
            maps.insert(number, ObsoleteMap { zap, map });
        }
    }
    Ok(maps)
}
