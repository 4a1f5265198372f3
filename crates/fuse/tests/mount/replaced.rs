//! The root is replaced under a mount: nothing of the old one is shown as if it were of the new one.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Env, Error, Kind, Result, RwLock};
use format::ids::DatasetId;
use fuse::{DatasetSpace, FileTree, MountOptions, Snapshot, Source, TreeFile, WriteBackCache};
use nix::sys::sendfile::sendfile;
use pool::LivePool;
use zpl::{NewFs, Zpl, create_fs};

use crate::harness::{Dir, Mounted, errno, is_kept, mounted, mounted_tree, require, unmount, wait_until, writable};
use crate::memory::{Memory, MemorySource, ROOT};
use crate::rules::new_pool;

/// Puts a tree in the place of the live one.
fn replace(m: &Mounted, tree: Memory) -> Arc<Memory> {
    let tree = Arc::new(tree);
    m.mount.freeze().unwrap();
    *m.source.next.lock() = Some(tree.clone());
    m.mount.thaw().unwrap();
    tree
}

fn names(m: &Mounted, dir: &str) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(m.path(dir)).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn read(m: &Mounted, name: &str) -> String {
    fs::read_to_string(m.path(name)).unwrap()
}

fn read_at(file: &File) -> std::io::Result<String> {
    let mut buf = [0; 64];
    let len = file.read_at(&mut buf, 0)?;
    Ok(String::from_utf8_lossy(&buf[..len]).into_owned())
}

/// Whether the kernel has dropped the name that a file was opened by.
fn is_dropped(file: &File) -> bool {
    let place = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    place.to_string_lossy().ends_with(" (deleted)")
}

#[test]
fn back_to_an_earlier_root() {
    require!(root);
    let m = writable();
    fs::create_dir(m.path("dir")).unwrap();
    for (name, contents) in [("kept", "earlier"), ("removed", "again"), ("dir/moved", "in its place")] {
        fs::write(m.path(name), contents).unwrap();
    }
    let earlier = m.live().copy();

    fs::write(m.path("kept"), "later, and longer").unwrap();
    fs::remove_file(m.path("removed")).unwrap();
    fs::rename(m.path("dir/moved"), m.path("elsewhere")).unwrap();
    let removed = earlier.read().lookup(ROOT, b"removed").unwrap();
    wait_until(|| m.live().read().get(removed).is_err());
    fs::write(m.path("taker"), "has the number of what was removed").unwrap();
    fs::write(m.path("young"), "not there").unwrap();
    fs::create_dir(m.path("young-dir")).unwrap();
    fs::write(m.path("young-dir/file"), "nor this").unwrap();
    let open = |name| OpenOptions::new().read(true).write(true).open(m.path(name)).unwrap();
    let (kept, young, moved, taker) = (open("kept"), open("young"), open("elsewhere"), open("taker"));
    let number = |name: &str| m.live().read().lookup(ROOT, name.as_bytes()).unwrap();
    assert_eq!(number("taker"), removed);
    let young_dir = File::open(m.path("young-dir")).unwrap();
    // the kernel has it all, also that names are not there
    let look = || {
        assert_eq!((read(&m, "kept").len(), read(&m, "young").len()), (17, 9));
        assert_eq!(names(&m, "dir"), [""; 0]);
        assert!(!m.path("removed").exists() && !m.path("dir/moved").exists());
    };
    look();
    assert_eq!(read_at(&young).unwrap(), "not there");

    let tree = replace(&m, earlier);
    // before anybody asks: a program that got its answer before that may yet say how long a name is kept
    assert_eq!([&young, &taker, &moved, &young_dir, &kept].map(is_dropped), [true, true, true, false, false]);
    assert_eq!(names(&m, ""), ["dir", "kept", "removed"]);
    assert_eq!(names(&m, "dir"), ["moved"]);
    assert_eq!(fs::metadata(m.path("kept")).unwrap().len(), 7);
    assert_eq!([read(&m, "kept"), read(&m, "removed"), read(&m, "dir/moved")], ["earlier", "again", "in its place"]);
    for name in ["taker", "young", "young-dir", "young-dir/file", "elsewhere"] {
        assert_eq!(errno(fs::metadata(m.path(name))), libc::ENOENT, "{name}");
    }
    // a file that is in both roots goes on
    assert_eq!((read_at(&kept).unwrap(), kept.metadata().unwrap().len()), ("earlier".to_owned(), 7));
    assert_eq!(read_at(&moved).unwrap(), "in its place");
    kept.write_all_at(b"L", 0).unwrap();
    assert_eq!(read(&m, "kept"), "Larlier");
    // one that is gone does not
    assert_eq!(errno(read_at(&young)), libc::ESTALE);
    assert_eq!(errno(young.write_at(b"x", 0)), libc::ESTALE);
    assert_eq!(errno(young.sync_all()), libc::ESTALE);
    assert_eq!(errno(young_dir.metadata()), libc::ESTALE);

    // nor one whose number is another's: the kernel itself refuses it
    fs::write(m.path("other"), "a stranger").unwrap();
    assert_eq!(fs::metadata(m.path("other")).unwrap().ino(), number("young").get());
    for file in [&young, &taker] {
        assert!(read_at(file).is_err() && file.write_at(b"x", 0).is_err());
    }
    assert_eq!(read(&m, "other"), "a stranger");
    // and the kernel keeps what it is told, as before
    let asked = || tree.calls.total();
    assert!(is_kept(&asked, &|| drop((read(&m, "kept"), fs::metadata(m.path("removed"))))));
    drop((kept, young, moved, taker, young_dir));
    unmount(&m.mount);
    assert_eq!(tree.read().lookup(ROOT, b"young").unwrap_err().kind(), Kind::NotFound);
}

/// As when a rollback has taken a file away, and a receive brings it back.
#[test]
fn a_file_that_comes_back_is_there() {
    require!(root);
    let m = writable();
    let earlier = m.live().copy();
    fs::create_dir(m.path("dir")).unwrap();
    fs::write(m.path("dir/file"), "contents").unwrap();
    let later = m.live().copy();
    // the kernel knows it all the while
    let (dir, file) = (File::open(m.path("dir")).unwrap(), File::open(m.path("dir/file")).unwrap());

    replace(&m, earlier);
    assert_eq!(errno(fs::metadata(m.path("dir"))), libc::ENOENT);
    assert_eq!((errno(dir.metadata()), errno(read_at(&file))), (libc::ESTALE, libc::ESTALE));
    replace(&m, later);
    assert_eq!(names(&m, "dir"), ["file"]);
    assert_eq!(read(&m, "dir/file"), "contents");
    drop((dir, file));
    unmount(&m.mount);
}

#[test]
fn nothing_is_answered_while_it_is_frozen() {
    require!(root);
    let m = writable();
    fs::write(m.path("file"), "one").unwrap();
    let copy = m.live().copy();
    fs::write(m.path("file"), "two").unwrap();
    m.mount.freeze().unwrap();
    let is_answered = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (m, answered) = (&m, &is_answered);
        let reader = scope.spawn(move || {
            let contents = read(m, "file");
            answered.store(true, Ordering::SeqCst);
            contents
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!is_answered.load(Ordering::SeqCst));
        *m.source.next.lock() = Some(Arc::new(copy));
        m.mount.thaw().unwrap();
        assert_eq!(reader.join().unwrap(), "one");
    });
    // frozen for nothing
    m.mount.freeze().unwrap();
    m.mount.thaw().unwrap();
    m.mount.thaw().unwrap();
    assert_eq!(read(&m, "file"), "one");
}

/// Ends what runs beside a test, however that ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Programs that read, look up and list all the while fill the kernel's cache at every moment.
#[test]
fn no_moment_is_too_early_or_too_late() {
    require!(root);
    const ROUNDS: u64 = 40;
    let mut tree = Memory::writable();
    // the kernel is told to forget these last
    for n in 0..500 {
        tree.file(ROOT, &format!("padding-{n}"), 1);
    }
    let m = mounted_tree(tree);
    let name = |round: u64| format!("dir/is-{round}");
    fs::create_dir(m.path("dir")).unwrap();
    fs::write(m.path(&name(0)), "").unwrap();
    let copy = |round: u64| {
        fs::write(m.path("dir/round"), format!("{round:08}")).unwrap();
        fs::rename(m.path(&name(round - 1)), m.path(&name(round))).unwrap();
        m.live().copy()
    };
    let trees: Vec<Memory> = (1..=ROUNDS).map(copy).collect();
    let is_there = |round: u64| m.path(&name(round)).exists();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&ends);
        for _ in 0..2 {
            scope.spawn(|| {
                let file = File::open(m.path("dir/round")).unwrap();
                while !ends.load(Ordering::SeqCst) {
                    assert_eq!(read_at(&file).unwrap().len(), 8);
                    let found = (0..=ROUNDS).filter(|round| is_there(*round)).count();
                    let listed = fs::read_dir(m.path("dir")).unwrap().count();
                    assert!(found <= 3 && listed >= 2, "{found} at once");
                }
            });
        }
        for (tree, round) in trees.into_iter().zip(1..) {
            replace(&m, tree);
            assert_eq!(read(&m, "dir/round"), format!("{round:08}"));
            assert_eq!(names(&m, "dir"), [format!("is-{round}"), "round".to_owned()]);
            let others = (0..=ROUNDS).filter(|other| *other != round && is_there(*other)).count();
            assert_eq!((others, is_there(round)), (0, true), "round {round}");
        }
    });
    unmount(&m.mount);
}

#[test]
fn a_root_that_cannot_be_opened_leaves_no_files() {
    require!(root);
    let m = writable();
    fs::write(m.path("file"), "data").unwrap();
    let file = File::open(m.path("file")).unwrap();
    m.mount.freeze().unwrap();
    m.source.next_fails.store(true, Ordering::SeqCst);
    assert_eq!(m.mount.thaw().unwrap_err().kind(), Kind::Checksum);
    assert_eq!(errno(read_at(&file)), libc::ESTALE);
    assert_eq!(errno(fs::metadata(m.path("other"))), libc::ESTALE);
    drop(file);
    unmount(&m.mount);
}

#[test]
fn what_cannot_be_frozen_says_so() {
    require!(root);
    let is_refused = |m: &Mounted| m.mount.freeze().unwrap_err().kind() == Kind::Unsupported;
    assert!(is_refused(&mounted(MemorySource::new(Memory::new()), |_| {})));
    let m = mounted(MemorySource::new(Memory::writable()), |options| options.write_back = WriteBackCache::On);
    // no helper can go to its files: it finds something else there
    nix::mount::mount(Some("none"), &m.path(""), Some("tmpfs"), nix::mount::MsFlags::empty(), None::<&str>).unwrap();
    assert!(is_refused(&m));
    nix::mount::umount2(&m.path(""), nix::mount::MntFlags::MNT_DETACH).unwrap();
    m.mount.freeze().unwrap();
    m.mount.thaw().unwrap();
    unmount(&m.mount);
}

/// With its write-back cache the kernel asks for no size and no time of what it knows.
#[test]
fn sizes_and_times_that_the_kernel_keeps() {
    require!(root);
    let m = mounted(MemorySource::new(Memory::writable()), |options| options.write_back = WriteBackCache::On);
    let open = |name: &str| OpenOptions::new().create(true).truncate(false).read(true).write(true).open(m.path(name));
    let [cut, grown, same] = ["cut", "grown", "same"].map(|name| open(name).unwrap());
    [&cut, &grown, &same].iter().for_each(|file| file.write_all_at(b"precious", 0).unwrap());
    grown.write_all_at(b"end", 9000).unwrap();
    m.mount.send_pages();
    let earlier = m.live().copy();
    let seen = |file: &File| file.metadata().map(|stat| (stat.len(), stat.mtime(), stat.mtime_nsec())).unwrap();
    let before = [&cut, &grown, &same].map(seen);

    std::thread::sleep(Duration::from_millis(20));
    cut.write_all_at(&[7; 100_000], 0).unwrap();
    grown.set_len(3).unwrap();
    let gone = open("gone").unwrap();
    gone.write_all_at(b"never was", 0).unwrap();
    let tree = replace(&m, earlier);
    assert_eq!([&cut, &grown, &same].map(seen), before);
    let size = |name: &str| {
        let object = tree.read().lookup(ROOT, name.as_bytes()).unwrap();
        tree.stat(object).unwrap().size
    };
    assert_eq!(["cut", "grown", "same"].map(size), [8, 9003, 8], "the tree is as it was");
    assert_eq!(read(&m, "cut"), "precious");
    let mut end = [0; 5];
    assert_eq!((grown.read_at(&mut end, 9000).unwrap(), &end[..3]), (3, &b"end"[..]));
    // the kernel appends where the file ends now
    OpenOptions::new().append(true).open(m.path("cut")).unwrap().write_all(b", still").unwrap();
    assert_eq!(read(&m, "cut"), "precious, still");
    assert_eq!(errno(gone.write_at(b"x", 0).and_then(|_| gone.sync_all())), libc::ESTALE);
    drop((cut, grown, same, gone));
    unmount(&m.mount);
}

/// A file system of a pool whose root can be replaced.
struct PoolFiles {
    pool: Arc<LivePool>,
    id: DatasetId,
    zpl: RwLock<Arc<Zpl>>,
}

impl PoolFiles {
    fn open(pool: &Arc<LivePool>, name: &str) -> PoolFiles {
        let id = pool.view().dsl().find(name).unwrap().id;
        PoolFiles { zpl: RwLock::new(files_of(pool, id).unwrap()), pool: pool.clone(), id }
    }
}

fn files_of(pool: &Arc<LivePool>, id: DatasetId) -> Result<Arc<Zpl>> {
    let head = pool.open_head(id)?;
    let (objset, log) = (head.objset().clone(), Some(head.log().clone()));
    let zpl = Zpl::open_writable(objset, pool.txgs().clone(), Env::real(), Default::default(), log)?;
    zpl.clean_unlinked()?;
    Ok(Arc::new(zpl))
}

impl Source for PoolFiles {
    type Tree = Zpl;

    fn tree(&self) -> Arc<Zpl> {
        self.zpl.read().clone()
    }

    fn reopened(&self) -> Result<Option<Arc<Zpl>>> {
        if Arc::ptr_eq(self.pool.open_head(self.id)?.objset(), self.tree().objset()) {
            return Ok(None);
        }
        let zpl = files_of(&self.pool, self.id)?;
        *self.zpl.write() = zpl.clone();
        Ok(Some(zpl))
    }

    fn space(&self) -> Result<DatasetSpace> {
        Ok(DatasetSpace {
            available_bytes: 1 << 30,
            record_bytes: 128 << 10,
            name_bytes_max: 255,
            ..DatasetSpace::default()
        })
    }

    fn snapshots(&self) -> Result<Vec<Snapshot>> {
        Ok(Vec::new())
    }

    fn open_snapshot(&self, _: &Snapshot) -> Result<Arc<Zpl>> {
        Err(Error::new(Kind::NotFound, "there are no snapshots"))
    }
}

/// Where the pointer to its root is in a dataset (`ds_bp` of `dsl_dataset_phys_t`).
const ROOT_AT: usize = 128;

#[test]
fn another_root_of_a_pool() {
    require!(root);
    let pool = new_pool();
    pool.create_dataset("rules/other", Vec::new(), |set, tx, _| create_fs(set, tx, &NewFs::default())).unwrap();
    let source = Arc::new(PoolFiles::open(&pool, "rules"));
    let dir = Dir::new();
    let path = |name: &str| dir.0.join(name);
    let mounts = |source: &Arc<PoolFiles>| {
        let mut options = MountOptions::new("rules", &dir.0);
        options.atime = false;
        crate::harness::mount(source.clone(), &options).unwrap()
    };
    let other = mounts(&Arc::new(PoolFiles::open(&pool, "rules/other")));
    fs::create_dir(path("dir")).unwrap();
    fs::write(path("both"), "of the other root").unwrap();
    fs::write(path("dir/file"), vec![2; 1 << 20]).unwrap();
    unmount(&other);
    pool.sync().unwrap();
    let root = pool.view().dsl().find("rules/other").unwrap().phys.bp;

    let mount = mounts(&source);
    fs::write(path("both"), "of the old").unwrap();
    fs::write(path("only-old"), vec![1; 1 << 20]).unwrap();
    fs::create_dir(path("dir")).unwrap();
    let file = File::open(path("only-old")).unwrap();
    assert!(!path("dir/file").exists() && fs::read(path("both")).unwrap() == b"of the old");

    mount.freeze().unwrap();
    let id = source.id;
    let replaced = pool.replace_root(id, move |context| {
        context.change.mos.object(id.object())?.update(context.change.tx, |dnode| {
            dnode.bonus[ROOT_AT..ROOT_AT + root.raw().len()].copy_from_slice(root.raw());
        })
    });
    mount.thaw().unwrap();
    replaced.unwrap();
    assert_eq!(fs::read(path("both")).unwrap(), b"of the other root");
    assert!(fs::read(path("dir/file")).unwrap() == vec![2; 1 << 20]);
    assert_eq!(errno(fs::metadata(path("only-old"))), libc::ENOENT);
    assert!(read_at(&file).is_err());
    let mut names: Vec<_> = fs::read_dir(&dir.0).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["both", "dir"]);
    drop(file);
    unmount(&mount);
}

/// The kernel does not ask how long a file is before it appends to it.
#[test]
fn what_is_appended_goes_to_the_end_that_is_there() {
    require!(root);
    let m = writable();
    let appends = |name: &str| OpenOptions::new().append(true).read(true).open(m.path(name)).unwrap();
    for name in ["cut", "grown", "same"] {
        fs::write(m.path(name), "precious\n").unwrap();
    }
    let earlier = m.live().copy();
    fs::write(m.path("cut"), "").unwrap();
    let [mut cut, mut grown, mut same] = ["cut", "grown", "same"].map(appends);
    cut.write_all(b"x").unwrap();
    grown.write_all(b"another line, which is long\n").unwrap();

    replace(&m, earlier);
    // nobody has asked for attributes yet
    for file in [&mut cut, &mut grown, &mut same] {
        file.write_all(b"new\n").unwrap();
        file.write_all(b"and more\n").unwrap();
    }
    for file in [&cut, &grown, &same] {
        assert_eq!(read_at(file).unwrap(), "precious\nnew\nand more\n");
    }
    assert_eq!(["cut", "grown", "same"].map(|name| read(&m, name)), ["precious\nnew\nand more\n"; 3]);
    for file in [&mut cut, &mut grown, &mut same] {
        file.write_all(b"end\n").unwrap();
    }
    assert_eq!(["cut", "grown", "same"].map(|name| read(&m, name)), ["precious\nnew\nand more\nend\n"; 3]);
    drop((cut, grown, same));
    unmount(&m.mount);
}

/// Nor before it reads by way of memory that is mapped, or copies without a program.
#[test]
fn what_has_grown_is_read_to_its_end() {
    require!(root);
    let m = writable();
    fs::write(m.path("file"), "short").unwrap();
    let file = File::open(m.path("file")).unwrap();
    assert_eq!(read_at(&file).unwrap(), "short");
    let later = m.live().copy();
    let long: Vec<u8> = (0..200_001_u32).map(|n| n as u8).collect();
    let object = later.read().lookup(ROOT, b"file").unwrap();
    later.open_file(object).unwrap().write(0, (&long).into()).unwrap();
    replace(&m, later);
    let dir = Dir::new();
    let to = File::create(dir.0.join("copy")).unwrap();
    let mut copied = 0;
    loop {
        match sendfile(&to, &file, None, 1 << 20).unwrap() {
            0 => break,
            part => copied += part,
        }
    }
    assert!(copied == long.len() && fs::read(dir.0.join("copy")).unwrap() == long, "{copied}");
    drop(file);
    unmount(&m.mount);
}
