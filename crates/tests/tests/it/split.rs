//! One leaf of each mirror becomes a pool of its own.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Env, Kind};
use device::{Device, FileDevice, OpenMode};
use format::feature::{DEVICE_REMOVAL, OBSOLETE_COUNTS};
use format::ids::{Guid, VdevNumber};
use pool::{LivePool, NewDevices, NewLeaf, NewVdev, NewVdevShape, PoolState};
use testkit::workload::{candidate, options};
use vdev::VdevKind;

use crate::heal::{DEVICE_BYTES, contents, file_of, import_disks, make, open, read};
use crate::live::judge_called;
use crate::scrub::scrub;

fn import(dir: &Path, disks: &[usize]) -> Arc<LivePool> {
    let open = |number: &usize| -> Arc<dyn Device> {
        let path = dir.join(format!("disk{number}"));
        Arc::new(FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap())
    };
    let devices: Vec<Arc<dyn Device>> = disks.iter().map(open).collect();
    LivePool::import(&Env::real(), &candidate(&devices).unwrap(), &options(), (7, "here".into())).unwrap()
}

#[test]
fn a_mirror_becomes_two_pools() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Mirror, 3, "1", &[]);
    let pool = import_disks(dir.path(), 3);
    let guids: Vec<Guid> = pool.tree().leaves().map(|leaf| leaf.guid()).collect();
    let comment = || vec![("comment".to_owned(), dsl::PropertyValue::Text("half".into()))];
    for wrong in [&[][..], &guids[..2], &[Guid::new(7)]] {
        assert_eq!(pool.split("half", wrong, comment(), "zpool split").unwrap_err().kind(), Kind::Invalid);
    }
    let guid = pool.view().guid();
    let (paths, half) = pool.split("half", &guids[1..2], comment(), "zpool split live half").unwrap();
    assert_eq!(paths, [dir.path().join("disk1").display().to_string()]);
    assert_ne!(half, guid);
    assert_eq!(pool.tree().leaves().count(), 2);
    file_of(&open(&pool)).write(0, b"of the old pool").unwrap();
    pool.sync().unwrap();
    assert_eq!(pool.split("half", &guids[..2], comment(), "").unwrap_err().kind(), Kind::Invalid);
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    judge_called(dir.path(), "live");
    judge_called(dir.path(), "half");

    let old = import(dir.path(), &[0, 2]);
    assert!(read(&open(&old)).unwrap().starts_with(b"of the old pool"));
    let lost = scrub(&old).errors;
    assert_eq!((lost, old.view().guid()), (0, guid));
    old.close(PoolState::Exported).unwrap();
    let new = import(dir.path(), &[1]);
    assert_eq!((new.name(), new.tree().iter().count()), ("half", 2), "the root and a disk");
    assert!(new.view().guid() != guid && new.view().config().opt_str("comment") == Some("half"));
    let id = new.view().dsl().find("half").unwrap().id;
    let zpl = zpl::Zpl::open_writable(new.head(id).unwrap(), new.txgs().clone(), Env::real(), Default::default(), None);
    let zpl = zpl.unwrap();
    let mut bytes = vec![0; contents().len()];
    zpl.open_file(zpl.resolve(b"/file").unwrap()).unwrap().read(0, &mut bytes).unwrap();
    assert!(bytes == contents());
    assert_eq!(scrub(&new).errors, 0);
    new.close(PoolState::Exported).unwrap();
}

/// What was on a vdev that was removed is found in both pools.
#[test]
fn pools_with_removed_devices_are_split() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Mirror, 2, "1", &[DEVICE_REMOVAL, OBSOLETE_COUNTS]);
    let pool = import_disks(dir.path(), 2);
    let paths = [2, 3].map(|number| dir.path().join(format!("disk{number}")));
    let mut devices: HashMap<PathBuf, Arc<dyn Device>> = HashMap::new();
    for path in &paths {
        std::fs::File::create(path).unwrap().set_len(DEVICE_BYTES).unwrap();
        let device = FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap();
        devices.insert(path.clone(), Arc::new(device));
    }
    let leaf = |path: &PathBuf| NewLeaf { path: path.display().to_string(), is_file: true };
    let leaves = paths.iter().map(leaf).collect();
    let vdevs = vec![NewVdev { shape: NewVdevShape::Mirror, bias: None, leaves }];
    pool.add(&NewDevices { vdevs, ashift: Some(12), ..NewDevices::default() }, &devices).unwrap();
    let first = pool.tree().top(VdevNumber::new(0)).unwrap().guid();
    pool.remove(first).unwrap();
    for _ in 0..100_000 {
        if pool.tree().top(VdevNumber::new(0)).unwrap().kind() == VdevKind::Indirect {
            break;
        }
        pool.sync().unwrap();
    }
    let last = pool.tree().leaves().last().unwrap().guid();
    pool.split("half", &[last], Vec::new(), "zpool split live half").unwrap();
    assert!(read(&open(&pool)).unwrap() == contents());
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    for disk in ["disk0", "disk1"] {
        std::fs::remove_file(dir.path().join(disk)).unwrap();
    }
    judge_called(dir.path(), "live");
    judge_called(dir.path(), "half");
    let new = import(dir.path(), &[3]);
    assert_eq!(scrub(&new).errors, 0);
    new.close(PoolState::Exported).unwrap();
}
