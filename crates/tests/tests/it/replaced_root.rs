//! The root of a head is replaced while it is open.

use std::sync::Arc;

use base::{Env, Kind, Result};
use format::blkptr::BlkPtr;
use format::ids::{DatasetId, ObjectId};
use pool::{HeadKind, LivePool, NewVdevShape, SyncContext};
use zpl::{New, NewKind, Zpl};

use super::live::{make_fs, new_pool};

/// Where the pointer to its root is in a dataset (`ds_bp` of `dsl_dataset_phys_t`).
const ROOT_AT: usize = 128;

fn open(pool: &Arc<LivePool>, id: DatasetId) -> Zpl {
    let head = pool.open_head(id).unwrap();
    head.log().reopen();
    let (objset, log) = (head.objset().clone(), Some(head.log().clone()));
    let zpl = Zpl::open_writable(objset, pool.txgs().clone(), Env::real(), Default::default(), log).unwrap();
    assert_eq!(zpl.replay_log().unwrap().unwrap().records, 0);
    zpl
}

fn write(zpl: &Zpl, name: &str, contents: &[u8]) -> ObjectId {
    let new = New { kind: NewKind::File, mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let ino = zpl.create(zpl.root(), name.as_bytes(), &new).unwrap().ino;
    zpl.open_file(ino).unwrap().write(0, contents).unwrap();
    ino
}

fn read(zpl: &Zpl, name: &str) -> Result<Vec<u8>> {
    let file = zpl.open_file(zpl.lookup(zpl.root(), name.as_bytes())?)?;
    let mut buf = vec![0; 100];
    let len = file.read(0, &mut buf)?;
    buf.truncate(len);
    Ok(buf)
}

/// Gives a dataset another root, and changes nothing else: its books are wrong then.
fn set_root(context: &SyncContext<'_>, id: DatasetId, root: &BlkPtr) -> Result<()> {
    let dataset = context.change.mos.object(id.object())?;
    dataset.update(context.change.tx, |dnode| {
        dnode.bonus[ROOT_AT..ROOT_AT + BlkPtr::SIZE].copy_from_slice(root.raw());
    })
}

#[test]
fn a_head_is_opened_anew_under_another_root() {
    let dir = tempfile::tempdir().unwrap();
    let (new, devices) = new_pool(dir.path(), NewVdevShape::Single, 1);
    let pool = LivePool::create(&Env::real(), &new, &devices, |set, tx, _| make_fs(set, tx, 7)).unwrap();
    pool.start();
    pool.create_dataset("live/other", Vec::new(), |set, tx, _| make_fs(set, tx, 8)).unwrap();
    let id_of = |name| pool.view().dsl().find(name).unwrap().id;
    let (id, other_id) = (id_of("live"), id_of("live/other"));
    let (old, other) = (open(&pool, id), open(&pool, other_id));
    write(&other, "there", b"of the other root");
    let ino = write(&old, "here", b"of the old root");
    // its log has blocks
    old.sync_object(ino).unwrap();
    pool.sync().unwrap();
    let root = pool.view().dsl().find("live/other").unwrap().phys.bp;
    assert_eq!(pool.open_head(id).unwrap().kind(), HeadKind::Files);

    // a change that nobody keeps off comes into the group that is open
    let (racing, racing_root) = (old.clone(), root);
    pool.run_later(move |_| {
        write(&racing, "meanwhile", b"late");
        Ok(())
    });
    let refused = pool.replace_root(id, move |context| set_root(context, id, &racing_root));
    assert_eq!(refused.unwrap_err().kind(), Kind::Busy);
    assert_eq!(read(&open(&pool, id), "meanwhile").unwrap(), b"late");

    // one that the task refuses
    let before = pool.open_head(id).unwrap();
    let refused = pool.replace_root(id, |_| Err::<(), _>(base::Error::new(Kind::Invalid, "no")));
    assert_eq!(refused.unwrap_err().kind(), Kind::Invalid);
    assert!(Arc::ptr_eq(before.objset(), pool.open_head(id).unwrap().objset()));

    old.sync_object(ino).unwrap();
    pool.replace_root(id, move |context| set_root(context, id, &root)).unwrap();
    let after = pool.open_head(id).unwrap();
    assert!(!Arc::ptr_eq(before.objset(), after.objset()) && after.id() == id);
    let zpl = open(&pool, id);
    assert_eq!(read(&zpl, "there").unwrap(), b"of the other root");
    assert_eq!(read(&zpl, "here").unwrap_err().kind(), Kind::NotFound);
    // it is on disk: the view has it, and no log
    let dataset = pool.view().dsl().find("live").unwrap();
    let set = pool.view().dsl().objset(&dataset, dmu::Mode::Plain).unwrap();
    assert_eq!(set.phys().log_header, [0; 192]);
    assert_eq!(read(&Zpl::open(set).unwrap(), "there").unwrap(), b"of the other root");
    // and it can be changed
    let ino = write(&zpl, "new", b"after");
    zpl.sync_object(ino).unwrap();
    assert_eq!(read(&zpl, "new").unwrap(), b"after");
}
