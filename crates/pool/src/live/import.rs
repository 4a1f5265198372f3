//! Opening a pool that exists, to be changed.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};

use base::{Env, Error, Kind, Result, ResultExt};
use dmu::Txgs;
use format::feature;
use zio::alloc::TopShape;

use super::config::Config;
use super::create::{class_of, open_mos, traits};
use super::space_maps::{MapsOfTop, SpaceMaps};
use super::{DIRTY_BYTES_MAX, LivePool};
use crate::{Candidate, OpenOptions, Pool, object_directory, slabs};

/// Features that may be in use in a pool that Cenote writes to.
const WRITABLE: [&str; 19] = [
    "async_destroy",
    "empty_bpobj",
    "lz4_compress",
    "spacemap_histogram",
    "enabled_txg",
    "hole_birth",
    "extensible_dataset",
    "embedded_data",
    "large_blocks",
    "sha512",
    "skein",
    "edonr",
    "spacemap_v2",
    "allocation_classes",
    "zstd_compress",
    "userobj_accounting",
    "project_quota",
    "bookmarks",
    "blake3",
];

impl LivePool {
    /// Opens a pool to be changed, from devices that are open for writing.
    ///
    /// Errors: as from [`Pool::open`]; `ReadOnly` naming what forbids writing: features, an old version.
    pub fn import(
        env: &Env,
        candidate: &Candidate,
        options: &OpenOptions,
        host: (u64, String),
    ) -> Result<Arc<LivePool>> {
        let pool = Pool::open(env, candidate, options)?;
        LivePool::of(env, pool, host).in_pool(&candidate.name)
    }

    fn of(env: &Env, pool: Pool, host: (u64, String)) -> Result<Arc<LivePool>> {
        check_writable(&pool)?;
        let tree = pool.tree().clone();
        let (mut tops, mut shapes) = (HashMap::new(), Vec::new());
        for top in tree.tops() {
            let Some(spec) = top.top_spec().filter(|_| top.kind().is_concrete()) else { continue };
            let slabs = slabs::read(&pool, top)?;
            shapes.push(TopShape {
                top: top.number(),
                class: class_of(top),
                metaslab_shift: spec.metaslab_shift,
                metaslabs: slabs.iter().map(|slab| (slab.range.clone(), slab.allocated.max(0) as u64)).collect(),
            });
            let maps = slabs.into_iter().map(|slab| (slab.map, slab.range)).collect();
            tops.insert(top.number(), MapsOfTop { array: spec.metaslab_array, ashift: spec.ashift, maps });
        }
        let maps = Arc::new(SpaceMaps::new(tops));
        let uberblock = pool.uberblock().clone();
        let (cache, mos) = open_mos(env, &tree, &maps, shapes, uberblock.rootbp, pool.name())?;
        if let Some(salt) = crate::mos::checksum_salt(pool.mos())? {
            cache.zio().set_salt(salt);
        }
        let label = &pool.candidate().label;
        let features =
            label.opt_list("features_for_read").map(|list| list.iter().map(|(guid, _)| guid.to_owned()).collect());
        let config = Config {
            name: pool.name().to_owned(),
            guid: pool.guid(),
            state: 0,
            txg: uberblock.txg,
            host,
            comment: pool.config().opt_str("comment").map(str::to_owned),
            features_for_read: features.unwrap_or_default(),
            traits: traits(&|guid| pool.features().state(guid) != crate::FeatureState::Disabled),
            uberblock: Some(uberblock.clone()),
            object: object_directory(pool.mos())?.require_u64("config")?,
            is_dirty: true,
        };
        let live = LivePool {
            env: env.clone(),
            name: pool.name().to_owned(),
            txgs: Arc::new(Txgs::new(uberblock.txg, DIRTY_BYTES_MAX)),
            tree,
            cache,
            mos,
            maps,
            view: RwLock::new(Arc::new(pool)),
            config: Mutex::new(config),
            heads: Mutex::default(),
            tasks: Mutex::default(),
            syncing: Mutex::default(),
            rooms: Mutex::default(),
            has_destroyed: AtomicBool::new(true),
            has_thread: AtomicBool::new(false),
            ends: AtomicBool::new(false),
        };
        // readers and the writer share one cache from now on
        live.renew_view(uberblock.txg)?;
        let live = Arc::new(live);
        // the labels say that it is in use, and by whom
        live.run(|context| context.write_config())?;
        Ok(live)
    }
}

/// Refuses what cannot be written to without harm.
fn check_writable(pool: &Pool) -> Result<()> {
    let refuse = |what: String| Err(Error::new(Kind::ReadOnly, what));
    if pool.uberblock().version != 5000 {
        return refuse(format!("pools of version {} can be imported read-only", pool.uberblock().version));
    }
    if pool.uberblock().endian != base::Endian::Little {
        return refuse("pools of the other byte order can be imported read-only".into());
    }
    let is_foreign = |guid: &&str| {
        pool.features().state(guid) == crate::FeatureState::Active
            && feature::find(guid).is_none_or(|feature| !WRITABLE.contains(&feature.name))
    };
    let foreign: Vec<&str> = pool.features().guids().filter(is_foreign).collect();
    if !foreign.is_empty() {
        let list = foreign.join("\n\t");
        return refuse(format!("the pool uses features that can only be read, not written:\n\t{list}"));
    }
    if pool.tree().iter().any(|vdev| matches!(vdev.kind(), vdev::Kind::Indirect | vdev::Kind::Draid(_))) {
        return refuse("pools with removed devices or draid vdevs can be imported read-only".into());
    }
    Ok(())
}
