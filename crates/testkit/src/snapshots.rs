//! Snapshots at random: taken and destroyed, and what grows from them, beside the model of a [`Workload`].

use base::{Error, Result};
use format::ids::Txg;

use crate::rng::Rng;
use crate::streams;
use crate::workload::{NAME, Workload};

/// Snapshots of a pool.
const SNAPSHOTS_MAX: usize = 24;
/// Datasets of a pool.
const DATASETS_MAX: usize = 8;

/// Makes one change, which is on disk then. Returns the group.
pub fn step(load: &mut Workload, rng: &mut Rng) -> Result<Txg> {
    let snapshots: Vec<String> = load.model.sets.keys().filter(|name| name.contains('@')).cloned().collect();
    match rng.below(26) {
        0..8 if snapshots.len() < SNAPSHOTS_MAX => take(load, rng)?,
        8..10 if !snapshots.is_empty() => roll_back(load, rng)?,
        10..13 if !snapshots.is_empty() => clone(load, rng, &snapshots)?,
        13..15 => promote(load, rng)?,
        15 if !snapshots.is_empty() => rename(load, rng, &snapshots)?,
        20.. => return streams::step(load, rng).map(|(txg, _)| txg),
        16..18 if !snapshots.is_empty() => mark(load, rng, &snapshots)?,
        _ if !snapshots.is_empty() => destroy(load, rng, &snapshots)?,
        _ => take(load, rng)?,
    }
    Ok(load.pool.view().uberblock().txg)
}

/// Notes what the group will hold that is open.
fn note(load: &mut Workload) {
    load.groups.insert(load.pool.txgs().open_txg(), load.model.clone());
}

/// The parts of a snapshot's name.
fn parts(name: &str) -> (&str, &str) {
    name.split_once('@').unwrap_or((name, ""))
}

fn roll_back(load: &mut Workload, rng: &mut Rng) -> Result<()> {
    let names = load.names();
    let name = rng.pick(&names).clone();
    let view = load.pool.view();
    let Some(latest) = view.dsl().snapshots(&view.dsl().find(&name)?)?.pop() else { return Ok(()) };
    let bookmarks = view.dsl().bookmarks(&view.dsl().find(&name)?)?;
    if bookmarks.iter().any(|one| one.creation_txg > latest.phys.creation_txg) {
        return Ok(());
    }
    load.close(&name)?;
    let contents = load.model.sets[&latest.name].clone();
    load.model.sets.insert(name, contents);
    note(load);
    load.pool.rollback(&latest.name)
}

fn clone(load: &mut Workload, rng: &mut Rng, snapshots: &[String]) -> Result<()> {
    let (snapshot, new) = (rng.pick(snapshots).clone(), format!("{NAME}/{}", rng.below(1000)));
    if load.names().len() >= DATASETS_MAX || load.has_dataset(&new) {
        return Ok(());
    }
    let contents = load.model.sets[&snapshot].clone();
    load.model.sets.insert(new.clone(), contents);
    note(load);
    load.pool.clone_snapshot(&snapshot, &new, &[("compression".to_owned(), "off".to_owned())])
}

fn promote(load: &mut Workload, rng: &mut Rng) -> Result<()> {
    let view = load.pool.view();
    let dsl = view.dsl();
    let mut clones = Vec::new();
    for name in load.names() {
        let origin = dsl.find_dir(&name)?.phys.origin;
        let origin_name = if origin.is_none() { String::new() } else { dsl.name_of(origin)? };
        if !origin_name.is_empty() && !origin_name.contains('$') {
            clones.push((name, origin_name));
        }
    }
    if clones.is_empty() {
        return Ok(());
    }
    let (name, origin) = rng.pick(&clones).clone();
    let (fs, _) = parts(&origin);
    let last = dsl.find(&origin)?.phys.creation_txg;
    let all = dsl.snapshots(&dsl.find(fs)?)?;
    let moved: Vec<String> = all.into_iter().filter(|one| one.phys.creation_txg <= last).map(|one| one.name).collect();
    let to = |one: &String| format!("{name}@{}", parts(one).1);
    let has_conflict = moved.iter().any(|one| load.model.sets.contains_key(&to(one)));
    if !has_conflict {
        for one in &moved {
            let contents = load.model.sets.remove(one).expect("the model has all snapshots");
            load.model.sets.insert(to(one), contents);
        }
    }
    note(load);
    match load.pool.promote(&name)?.is_empty() != has_conflict {
        true => Ok(()),
        false => Err(Error::corrupt(format!("conflicts of promoting {name} are not told"))),
    }
}

/// Makes a bookmark, or destroys one: neither changes what anything holds.
fn mark(load: &mut Workload, rng: &mut Rng, snapshots: &[String]) -> Result<()> {
    let snapshot = rng.pick(snapshots);
    let fs = parts(snapshot).0;
    let view = load.pool.view();
    let bookmarks = view.dsl().bookmarks(&view.dsl().find(fs)?)?;
    note(load);
    match bookmarks.first().filter(|_| rng.below(3) == 0) {
        Some(oldest) => load.pool.destroy_bookmark(&oldest.name),
        None => load.pool.bookmark(&format!("{fs}#{}", rng.number()), snapshot),
    }
}

fn rename(load: &mut Workload, rng: &mut Rng, snapshots: &[String]) -> Result<()> {
    let old = rng.pick(snapshots).clone();
    let new = format!("{}@{}", parts(&old).0, rng.below(1000));
    if load.model.sets.contains_key(&new) {
        return Ok(());
    }
    let contents = load.model.sets.remove(&old).expect("it was picked");
    load.model.sets.insert(new.clone(), contents);
    note(load);
    load.pool.rename_snapshot(&old, &new, false)
}

/// Takes snapshots of some datasets.
pub fn take(load: &mut Workload, rng: &mut Rng) -> Result<()> {
    let own = rng.below(1000);
    let mut names = load.names();
    names.retain(|name| name != NAME && rng.below(2) == 0);
    let names: Vec<String> = names.into_iter().map(|name| format!("{name}@{own}")).collect();
    let names: Vec<String> = names.into_iter().filter(|name| !load.model.sets.contains_key(name)).collect();
    if names.is_empty() {
        return Ok(());
    }
    for name in &names {
        let contents = load.model.sets[parts(name).0].clone();
        load.model.sets.insert(name.clone(), contents);
    }
    note(load);
    expect_none(load.pool.snapshot(&names, &[("a:b".to_owned(), own.to_string())])?)
}

fn destroy(load: &mut Workload, rng: &mut Rng, snapshots: &[String]) -> Result<()> {
    let view = load.pool.view();
    let mut names = snapshots.to_vec();
    names.retain(|name| rng.below(4) == 0 && view.dsl().find(name).is_ok_and(|one| one.phys.num_children < 2));
    names.iter().for_each(|name| drop(load.model.sets.remove(name)));
    note(load);
    expect_none(load.pool.destroy_snapshots(&names, false)?)
}

fn expect_none(refused: pool::RefusedChanges) -> Result<()> {
    match refused.into_iter().next() {
        None => Ok(()),
        Some((name, error)) => Err(Error::corrupt(format!("{name}: {error}"))),
    }
}
