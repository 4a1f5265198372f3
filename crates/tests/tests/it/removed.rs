//! Pools of which devices were removed are written to: what was on these is freed where it is now.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Device, FileDevice, OpenMode};
use pool::{AttachAs, LivePool, PoolState};
use testkit::corpus;
use testkit::workload::{candidate, options};
use zpl::Zpl;

use crate::live::judge_called;
use crate::replace::{finish, put_beside};
use crate::scrub::{hasty, scrub};

fn import(paths: &[PathBuf]) -> Arc<LivePool> {
    let open = |path: &PathBuf| -> Arc<dyn Device> {
        Arc::new(FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap())
    };
    let devices: Vec<Arc<dyn Device>> = paths.iter().map(open).collect();
    LivePool::import(&hasty(), &candidate(&devices).unwrap(), &options(), (7, "here".into())).unwrap()
}

/// Takes a pool of which OpenZFS removed a device out of the corpus.
fn extract(dir: &Path) -> Vec<PathBuf> {
    corpus::case("removal").extract(dir).unwrap()
}

/// Exports the pool, and lets zdb look for what is lost or leaks.
fn judge(pool: Arc<LivePool>, dir: &Path) {
    let name = pool.name().to_owned();
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    judge_called(dir, &name);
}

/// All its files are destroyed: nothing is left allocated, nor freed twice.
#[test]
fn what_was_on_removed_devices_is_freed() {
    let dir = tempfile::tempdir().unwrap();
    let paths = extract(dir.path());
    let pool = import(&paths);
    assert!(pool.tree().tops().any(|top| top.kind() == vdev::VdevKind::Indirect), "a device was removed");
    let before: u64 = pool.view().top_spaces().unwrap().iter().map(|top| top.allocated_bytes).sum();
    let dirs = pool.view().dsl().walk().unwrap();
    let mut freed = 0;
    for dir in dirs.iter().filter(|dir| !dir.name.contains('$')) {
        let Ok(subject) = pool.view().dsl().find(&dir.name) else { continue };
        let Ok(set) = pool.head(subject.id) else { continue };
        let zpl = Zpl::open_writable(set, pool.txgs().clone(), hasty(), Default::default(), None);
        let Ok(zpl) = zpl else { continue };
        let mut names = Vec::new();
        let note = &mut |entry: zpl::DirEntry| {
            names.push(entry.name.to_vec());
            std::ops::ControlFlow::Continue(())
        };
        zpl.readdir(zpl.root(), 0, note).unwrap();
        for name in names {
            if let Ok(Some(gone)) = zpl.unlink(zpl.root(), &name) {
                zpl.reclaim(gone).unwrap();
                freed += 1;
            }
        }
        pool.sync().unwrap();
    }
    assert!(freed > 0, "there were files");
    (0..4).for_each(|_| pool.sync().unwrap());
    let after: u64 = pool.view().top_spaces().unwrap().iter().map(|top| top.allocated_bytes).sum();
    assert!(after < before, "{before} bytes before, {after} after");
    judge(pool, dir.path());
    judge(import(&paths), dir.path());
}

/// A disk that has what was on a removed one is replaced: it leads to the new disk from then on.
#[test]
fn a_disk_beside_removed_ones_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let paths = extract(dir.path());
    let pool = import(&paths);
    let leaves: Vec<PathBuf> = pool.tree().leaves().map(|leaf| leaf.name().into()).collect();
    let (old, new) = (&leaves[0], dir.path().join("new"));
    let bytes = old.metadata().unwrap().len();
    put_beside(&pool, old, &new, bytes, AttachAs::Replacement).unwrap();
    finish(&pool);
    assert!(pool.tree().leaves().all(|leaf| leaf.name() != old.to_str().unwrap()));
    std::fs::remove_file(old).unwrap();
    assert_eq!(scrub(&pool).errors, 0);
    judge(pool, dir.path());
    let pool = import(&[new, leaves[1].clone()]);
    assert_eq!(scrub(&pool).errors, 0);
    assert_eq!(pool.view().error_count().unwrap(), 0);
    judge(pool, dir.path());
}
