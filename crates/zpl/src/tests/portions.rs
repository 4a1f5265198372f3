//! Files of very many blocks go in several groups.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Bytes below one block of pointers.
const REACH: u64 = 1024 * 512;
/// So many blocks of pointers, each of which may lead to 1024 blocks, does one group free at most, and some more.
const FREED_MAX: usize = (1 << 18) / 1024 + 80;
const COUNT: u64 = 900;

/// Counts what lives, by level.
struct Counts<'a>(&'a Zio, Txg, usize);

impl Ledger for Counts<'_> {
    fn born(&mut self, _bp: &BlkPtr) {}

    fn killed(&mut self, bp: &BlkPtr) -> Result<()> {
        self.2 += usize::from(bp.level() == 1);
        self.0.free(self.1, bp, dmu::OnFailure::Fail).map(drop)
    }
}

/// Syncs a group, and tells how many blocks of pointers it freed.
fn sync(fs: &Fs) -> usize {
    let set = fs.zpl.objset();
    let txg = fs.txgs.close();
    let zio = set.cache().zio();
    let mut ledger = Counts(zio, txg, 0);
    let synced = set.sync(&fs.txgs.in_sync(txg), &mut ledger).unwrap();
    zio.finish_writes().unwrap();
    let freed = ledger.2;
    synced.into_iter().for_each(|synced| set.commit(synced));
    zio.allocator().unwrap().take_changes(txg);
    zio.allocator().unwrap().synced(txg);
    fs.txgs.synced(txg);
    freed
}

/// A file with a block here and there, far apart.
fn sparse(fs: &Fs, name: &str) -> ObjectId {
    let ino = fs.file(fs.root, name);
    let file = fs.zpl.open_file(ino).unwrap();
    for at in 0..COUNT {
        file.write(at * REACH, &[at as u8 | 1; 600][..]).unwrap();
    }
    fs.sync(|| ());
    ino
}

/// Does something while groups are synced; how many blocks of pointers each freed.
fn in_groups(fs: &Fs, work: impl FnOnce() + Send) -> Vec<usize> {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            work();
            is_done.store(true, Ordering::SeqCst);
        });
        let mut freed = Vec::new();
        while !is_done.load(Ordering::SeqCst) {
            match fs.txgs.wait_for_work() {
                true => freed.push(sync(fs)),
                false => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        }
        freed.push(sync(fs));
        freed
    })
}

fn options() -> ZplOptions {
    ZplOptions { record_bytes: 512, ..ZplOptions::default() }
}

fn check(freed: &[usize]) {
    assert!(freed.iter().sum::<usize>() >= COUNT as usize, "{freed:?}");
    assert!(freed.iter().all(|count| *count <= FREED_MAX), "{freed:?}");
}

#[test]
fn a_file_of_very_many_blocks_goes_in_several_groups() {
    let fs = fs_with(NewFs::default(), options());
    let ino = sparse(&fs, "sparse");
    let gone = fs.zpl.unlink(fs.root, b"sparse").unwrap().unwrap();
    check(&in_groups(&fs, || fs.zpl.reclaim(gone).unwrap()));
    assert_eq!((fs.queued(), kind(fs.zpl.stat(ino))), (0, Kind::NotFound));
}

#[test]
fn a_crash_leaves_the_rest_to_the_next_mount() {
    let fs = fs_with(NewFs::default(), options());
    let ino = sparse(&fs, "sparse");
    let gone = fs.zpl.unlink(fs.root, b"sparse").unwrap().unwrap();
    let rest = fs.zpl.free_some(gone, 0..u64::MAX, &|_, _| Ok(())).unwrap();
    assert!(rest.is_some_and(|rest| 0 < rest && rest < COUNT * REACH), "{rest:?}");
    fs.sync(|| ());
    let again = fs.reopened();
    assert_eq!((again.queued(), again.stat(ino).nlink), (1, 0));
    check(
        &[sync(&again), 64]
            .into_iter()
            .chain(in_groups(&again, || assert_eq!(again.zpl.clean_unlinked().unwrap(), 1)))
            .collect::<Vec<_>>(),
    );
    assert_eq!((again.queued(), kind(again.zpl.stat(ino))), (0, Kind::NotFound));
}

#[test]
fn a_file_is_cut_off_and_punched_in_several_groups() {
    let fs = fs_with(NewFs::default(), options());
    let (cut, punched) = (sparse(&fs, "cut"), sparse(&fs, "punched"));
    let set = SetAttr { size: Some(700), ..SetAttr::default() };
    check(&in_groups(&fs, || assert_eq!(fs.zpl.set_attr(cut, &set).unwrap().size, 700)));
    let mut start = vec![1; 600];
    start.resize(700, 0);
    assert_eq!(fs.contents(cut), start);
    let file = fs.zpl.open_file(punched).unwrap();
    let size = file.size();
    check(&in_groups(&fs, || file.allocate(Allocate::PunchHole, 1, size).unwrap()));
    let mut byte = [9; 2];
    assert_eq!((file.read(0, &mut byte).unwrap(), byte), (2, [1, 0]));
    assert_eq!((fs.stat(punched).size, file.read(size - 1, &mut byte).unwrap(), byte[0]), (size, 1, 0));
}

/// What may not be cut off keeps all of its contents.
#[test]
fn a_file_that_may_not_be_changed_is_not_freed_in_part() {
    let fs = fs_with(NewFs::default(), options());
    let ino = sparse(&fs, "kept");
    let flags = SetFlags { flags: FLAG_IMMUTABLE, project: None };
    fs.zpl.set_flags(ino, &flags).unwrap();
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    assert_eq!(kind(fs.zpl.set_attr(ino, &set)), Kind::Forbidden);
    let mut byte = [0];
    fs.zpl.open_file(ino).unwrap().read((COUNT - 1) * REACH, &mut byte).unwrap();
    assert_eq!(byte[0], (COUNT - 1) as u8 | 1);
}
