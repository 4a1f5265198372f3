//! What the dataset layer of a pool gets when the pool comes to a later version.
//!
//! ```text
//!   11   $ORIGIN@$ORIGIN, an empty snapshot, becomes the origin of all that had none; snapshots know their clones
//!   26   $FREE, the list of what is to be freed; directories know their clones
//! ```
//!
//! Dead lists that are one plain list stay so: those of later snapshots have parts.

use base::{Error, Result};
use dmu::bpobj::{self, Bpobj};
use format::ids::{DatasetId, Txg};

use super::{Change, DIRECTORY, create, versions};
use crate::Dsl;

/// Makes what a pool has that was of version `before`, and is of another one by now. `dsl` is that of the MOS that is
/// being changed. Errors: those of reading it.
pub fn upgrade_datasets(change: &Change<'_>, dsl: &Dsl, before: u64) -> Result<()> {
    let comes = |version: u64| Ok::<_, Error>(before < version && change.is_since(version)?);
    if comes(versions::ORIGIN)? {
        give_origins(change, dsl)?;
    }
    if comes(versions::DEADLISTS)? {
        let root = change.root_dir()?;
        create::create_dir(change, Some((root, "$FREE")))?;
        let list = Bpobj::create(change.mos, change.tx, bpobj::BLOCK_SIZE, true)?;
        change.add(DIRECTORY, "free_bpobj", list.get())?;
        for dir in dsl.walk()?.into_iter().filter(|dir| dir.phys.head_dataset.is_some()) {
            let dir = change.dir(dir.id)?;
            if dir.origin.is_some() {
                create::note_clone(change, change.dataset(dir.origin)?.dir, dir.head_dataset)?;
            }
        }
    }
    Ok(())
}

/// Makes the snapshot that all begin with, and notes for each snapshot which clones it has.
fn give_origins(change: &Change<'_>, dsl: &Dsl) -> Result<()> {
    let dirs = dsl.walk()?;
    let origin = create::create_origin(change, change.root_dir()?)?;
    for dir in dirs.into_iter().filter(|dir| dir.phys.head_dataset.is_some()) {
        let (mut at, mut txg) = (dir.phys.head_dataset, Txg::MAX);
        // the oldest one of the directory's own, and what it comes from
        let from = loop {
            let phys = change.dataset(at)?;
            if phys.prev_snap.is_none() {
                break DatasetId::NONE;
            }
            if phys.prev_snap_txg >= txg {
                return Err(Error::corrupt("chain of snapshots does not go back in time").in_dataset(&dir.name));
            }
            txg = phys.prev_snap_txg;
            if change.dataset(phys.prev_snap)?.next_snap != at {
                break phys.prev_snap;
            }
            at = phys.prev_snap;
        };
        if from.is_none() {
            let origin_txg = change.dataset(origin)?.creation_txg;
            change.update_dataset(at, |phys| (phys.prev_snap, phys.prev_snap_txg) = (origin, origin_txg))?;
            change.update_dir(dir.id, |phys| phys.origin = origin)?;
            change.update_dataset(origin, |phys| phys.num_children += 1)?;
        }
        create::note_next_clone(change, if from.is_none() { origin } else { from }, at)?;
    }
    Ok(())
}
