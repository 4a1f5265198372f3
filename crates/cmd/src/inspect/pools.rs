//! `inspect config` and `inspect datasets`.

use std::io::Write;

use base::Result;
use dsl::Dataset;
use format::ids::DirId;
use pool::Pool;
use protocol::words::nicenum::nicebytes;
use protocol::words::time;
use serde_json::{Value as Json, json};

use super::args::PoolsArgs;
use super::json;
use crate::offline::Opener;
use crate::output::complain;
use crate::zdb::text::{Pointer, print_nvlist};

/// What labels and MOS say; a pool that cannot be opened still has labels.
pub fn config(args: &PoolsArgs, opener: &mut Opener, out: &mut dyn Write) -> Result<bool> {
    let (mut all, mut well) = (Vec::new(), true);
    for name in &args.names {
        let candidate = opener.candidate(name)?;
        let mos = opener.pool(name).map(|pool| pool.config().clone());
        if let Err(e) = &mos {
            complain("inspect", e);
            well = false;
        }
        if args.json {
            let (label, mos) = (json::of_list(&candidate.label), mos.as_ref().ok().map(json::of_list));
            all.push(json!({"pool": candidate.name, "label": label, "mos": mos}));
            continue;
        }
        writeln!(out, "{}\n  newest label:", candidate.name)?;
        print_nvlist(&candidate.label, 4, out)?;
        if let Ok(mos) = mos {
            writeln!(out, "  MOS:")?;
            print_nvlist(&mos, 4, out)?;
        }
    }
    if args.json {
        writeln!(out, "{}", json!({ "pools": all }))?;
    }
    Ok(well)
}

/// Every dataset and snapshot; one that cannot be read does not hide the others.
pub fn datasets(args: &PoolsArgs, opener: &mut Opener, out: &mut dyn Write) -> Result<bool> {
    let (mut all, mut well) = (Vec::new(), true);
    for name in &args.names {
        let pool = opener.pool(name)?;
        for dir in pool.dsl().walk()? {
            let heads = pool.dsl().head(&dir).map(|head| vec![head]);
            let snapshots = heads.as_ref().map_or_else(|_| Ok(Vec::new()), |heads| pool.dsl().snapshots(&heads[0]));
            for found in [heads, snapshots] {
                match found {
                    Ok(datasets) => datasets.iter().try_for_each(|dataset| {
                        if args.json {
                            all.push(to_json(&pool, dataset, dir.id));
                            return Ok(());
                        }
                        print(dataset, dir.id, out)
                    })?,
                    Err(e) => {
                        complain("inspect", e);
                        well = false;
                    }
                }
            }
        }
    }
    if args.json {
        writeln!(out, "{}", json!({ "datasets": all }))?;
    }
    Ok(well)
}

fn print(dataset: &Dataset, dir: DirId, out: &mut dyn Write) -> Result<()> {
    let phys = &dataset.phys;
    let created = time::local(phys.creation_time_s, c"%Y-%m-%d %H:%M:%S %z");
    let crypt = if phys.bp.uses_crypt() { ", encrypted" } else { "" };
    writeln!(out, "{}", dataset.name)?;
    writeln!(out, "    object {}, directory {dir}, guid {}{crypt}", dataset.id, phys.guid)?;
    writeln!(out, "    created in txg {}, {created}", phys.creation_txg)?;
    let sizes = [phys.referenced_bytes, phys.compressed_bytes, phys.uncompressed_bytes, phys.unique_bytes];
    let [referenced, compressed, uncompressed, unique] = sizes.map(nicebytes);
    writeln!(out, "    {referenced} referenced, {compressed} compressed from {uncompressed}, {unique} unique")?;
    if phys.prev_snap.is_some() {
        writeln!(out, "    previous snapshot: object {}, txg {}", phys.prev_snap, phys.prev_snap_txg)?;
    }
    Ok(writeln!(out, "    {}", Pointer(&phys.bp))?)
}

fn to_json(pool: &Pool, dataset: &Dataset, dir: DirId) -> Json {
    let phys = &dataset.phys;
    let kind = pool.dsl().objset(dataset, dmu::Mode::Raw).map(|objset| objset.kind().name()).ok();
    json!({
        "name": dataset.name,
        "kind": kind,
        "snapshot": dataset.is_snapshot(),
        "object": dataset.id,
        "directory": dir,
        "guid": phys.guid,
        "creation_txg": phys.creation_txg,
        "creation": phys.creation_time_s,
        "previous_snapshot": phys.prev_snap,
        "previous_snapshot_txg": phys.prev_snap_txg,
        "deadlist": phys.deadlist,
        "referenced_bytes": phys.referenced_bytes,
        "compressed_bytes": phys.compressed_bytes,
        "uncompressed_bytes": phys.uncompressed_bytes,
        "unique_bytes": phys.unique_bytes,
        "flags": phys.flags,
        "encrypted": phys.bp.uses_crypt(),
        "bp": Pointer(&phys.bp).to_string(),
    })
}
