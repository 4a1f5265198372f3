//! One leaf of each mirror becomes a pool of its own.

use std::path::Path;
use std::sync::Arc;

use base::{Env, Kind};
use device::{Device, FileDevice, OpenMode};
use format::ids::Guid;
use pool::{LivePool, NewVdevShape, PoolState};
use testkit::workload::{candidate, options};

use crate::heal::{contents, file_of, import_disks, make, open, read};
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
    let paths = pool.split("half", &guids[1..2], comment(), "zpool split live half").unwrap();
    assert_eq!(paths, [dir.path().join("disk1").display().to_string()]);
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
