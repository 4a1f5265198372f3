//! Mounts outlive the process that serves them: it is killed under programs, and these go on.

mod kept;
mod volumes;
mod written;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg, RenameFlags, renameat2};
use nix::unistd::Pid;
use protocol::wire::{self, Answer, PoolReply};

use super::suspended::{noise, wait_for};
use super::{World, can_mount};

/// A pool whose mounts outlive its process.
struct Surviving {
    world: World,
    name: &'static str,
    mnt: PathBuf,
}

impl Surviving {
    /// `None` where nothing can be mounted, or the kernel sends no request twice.
    fn new(name: &str, options: &str) -> Option<Surviving> {
        Surviving::named(name, "tank", options)
    }

    /// The same, but what is not on disk is lost with the process: the kernel keeps none of it either.
    fn losing(name: &str, options: &str) -> Option<Surviving> {
        Surviving::with(name, "tank", &format!("-O org.cenote:writeback=off {options}"), 0)
    }

    fn named(name: &str, pool: &'static str, options: &str) -> Option<Surviving> {
        Surviving::with(name, pool, options, 64 << 20)
    }

    fn with(name: &str, pool: &'static str, options: &str, memory_log: u64) -> Option<Surviving> {
        if !can_mount(name) {
            return None;
        }
        let world = World::new(name, &[]);
        world.tune("cenote_deaths_max", 1000);
        world.tune("cenote_memory_log_max", memory_log);
        File::create(world.dir.join("disk")).unwrap().set_len(512 << 20).unwrap();
        world.check(&format!("create -R DIR/mnt -O org.cenote:reattach=on {options} {pool} DIR/disk"), 0, "");
        let log = fs::read_to_string(world.dir.join(format!("run/{pool}.log"))).unwrap();
        if log.contains("its mount ends with this process") {
            eprintln!("SKIPPED {name}: the kernel is older than Linux 6.9");
            return None;
        }
        let mnt = world.dir.join("mnt").join(pool);
        Some(Surviving { world, name: pool, mnt })
    }

    /// One of which each process dies at a failpoint: `THREAD/PLACE/N`.
    #[cfg(debug_assertions)]
    fn failing(name: &str, place: &str, sync: &str) -> Surviving {
        let world = World::new(name, &[]);
        world.tune("cenote_deaths_max", 1000);
        File::create(world.dir.join("disk")).unwrap().set_len(512 << 20).unwrap();
        let create = format!(
            "zpool create -R {0}/mnt -O org.cenote:reattach=on -O sync={sync} -O atime=off tank {0}/disk",
            world.dir.display()
        );
        let mut command = world.command(env!("CARGO_BIN_EXE_cenote"));
        let created = command.args(create.split(' ')).env("CENOTE_FAIL", place).status();
        assert!(created.unwrap().success());
        Surviving { mnt: world.dir.join("mnt/tank"), name: "tank", world }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.mnt.join(name)
    }

    /// Kills the process, and returns when another one serves the pool.
    fn kill(&self) {
        let before = self.world.process_of(self.name);
        self.world.kill(self.name);
        wait_for("the next process", || self.is_served_by_another(&before));
    }

    /// Asks the process to hand the pool over to the program of another one.
    fn ask_for_upgrade(&self, process: u32) -> Answer {
        let mut stream = UnixStream::connect(self.world.dir.join("run/tank.sock")).unwrap();
        wire::receive::<wire::Hello>(&mut stream, 1 << 20).unwrap().unwrap();
        wire::send(&mut stream, &wire::Request::Upgrade { process }).unwrap();
        wire::receive(&mut stream, 1 << 20).unwrap().unwrap()
    }

    fn is_served_by_another(&self, before: &str) -> bool {
        let told = self.world.told(&format!("zpool list -Ho health {}", self.name));
        told == ("ONLINE\n".to_owned(), 0) && self.world.process_of(self.name) != before
    }

    /// Everything can be unmounted, and no process is left.
    fn leaves(&self) {
        self.world.check(&format!("export {}", self.name), 0, "");
        let run = self.world.dir.join("run");
        let is_ours = |process: fs::DirEntry| {
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            let of_run = format!("CENOTE_RUN={}", run.display());
            environment.split(|byte| *byte == 0).any(|variable| variable == of_run.as_bytes())
        };
        wait_for("the end of all processes", || !Path::new("/proc").read_dir().unwrap().flatten().any(is_ours));
    }
}

#[test]
fn programs_go_on() {
    let Some(pool) = Surviving::new("reattach", "-O snapdir=visible") else { return };
    let contents = noise(3 << 20, 1);
    fs::write(pool.at("file"), &contents).unwrap();
    fs::create_dir(pool.at("folder")).unwrap();
    assert_eq!(pool.world.zfs("snapshot tank@one"), (String::new(), 0));
    assert_eq!(pool.world.zfs("snapshot tank@two"), (String::new(), 0));
    // what is mounted within a mount stays there
    assert_eq!(pool.world.zfs("create tank/child"), (String::new(), 0));
    fs::write(pool.at("child/file"), "child").unwrap();
    fs::create_dir(pool.at("within")).unwrap();
    nix::mount::mount(Some("none"), &pool.at("within"), Some("tmpfs"), nix::mount::MsFlags::empty(), None::<&str>)
        .unwrap();
    fs::write(pool.at("within/file"), "within").unwrap();
    let child = File::open(pool.at("child/file")).unwrap();
    let read = |mut file: &File| {
        let mut read = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut read).unwrap();
        assert!(read == contents);
    };
    let open = File::open(pool.at("file")).unwrap();
    let in_snapshot = File::open(pool.at(".zfs/snapshot/two/file")).unwrap();
    let locked = Flock::lock(File::open(pool.at("file")).unwrap(), FlockArg::LockExclusiveNonblock).unwrap();
    let mut shell = Command::new("sleep").arg("1000").current_dir(pool.at("folder")).spawn().unwrap();
    let inode = fs::metadata(pool.at("file")).unwrap().ino();
    // the places of snapshots stay, also where one before them is gone
    assert_eq!(pool.world.zfs("destroy tank@one"), (String::new(), 0));
    for round in 0..3 {
        pool.kill();
        read(&open);
        read(&in_snapshot);
        assert_eq!(fs::metadata(pool.at("file")).unwrap().ino(), inode);
        assert_eq!(fs::read_to_string(pool.at("child/file")).unwrap(), "child");
        assert_eq!(fs::read_to_string(pool.at("within/file")).unwrap(), "within");
        let cwd = fs::read_link(format!("/proc/{}/cwd", shell.id())).unwrap();
        assert_eq!(cwd, pool.at("folder"), "round {round}");
        fs::write(cwd.join(format!("new{round}")), "new").unwrap();
        let second = File::open(pool.at("file")).unwrap();
        let refused = Flock::lock(second, FlockArg::LockExclusiveNonblock);
        assert!(refused.is_err(), "the lock is the kernel's");
        // what is asked of the pool works
        pool.world.check("sync tank", 0, "");
        assert_eq!(pool.world.zfs(&format!("snapshot tank@later{round}")), (String::new(), 0));
        let later = pool.at(&format!(".zfs/snapshot/later{round}/folder/new{round}"));
        assert_eq!(fs::read_to_string(later).unwrap(), "new");
    }
    drop((open, in_snapshot, locked, child));
    nix::mount::umount(&pool.at("within")).unwrap();
    shell.kill().unwrap();
    shell.wait().unwrap();
    pool.leaves();
}

#[test]
fn lost_changes_are_told_once() {
    let Some(pool) = Surviving::losing("reattachlost", "") else { return };
    // groups come only when they are asked for
    pool.world.tune("zfs_txg_timeout", 1000);
    fs::write(pool.at("kept"), "kept").unwrap();
    pool.world.check("sync tank", 0, "");
    let mut synced = File::create(pool.at("synced")).unwrap();
    synced.write_all(b"synced").unwrap();
    synced.sync_all().unwrap();
    let kept = OpenOptions::new().read(true).write(true).open(pool.at("kept")).unwrap();
    kept.write_all_at(b"lost", 0).unwrap();
    let new = File::create(pool.at("new")).unwrap();
    new.write_all_at(b"new", 0).unwrap();
    fs::write(pool.at("again"), "1").unwrap();
    fs::remove_file(pool.at("again")).unwrap();
    pool.kill();
    // what was on disk is there, and nothing else: the kernel does not show pages of what was lost
    let mut bytes = [0; 4];
    kept.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"kept");
    assert_eq!(fs::read_to_string(pool.at("synced")).unwrap(), "synced");
    let names: Vec<_> = fs::read_dir(&pool.mnt).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    let (events, _) = pool.world.told("zpool events -v");
    let lost: Vec<&str> = events.split("ereport.fs.cenote.changes_lost\n").skip(1).collect();
    assert!(lost.iter().any(|event| event.contains("path = \"/kept\"")), "{events}");
    assert!(!lost.iter().any(|event| event.contains("path = \"/synced\"")), "{events}");
    synced.sync_all().unwrap();
    assert_eq!(kept.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    kept.sync_all().unwrap();
    assert!(new.sync_all().is_err() && new.write_all_at(b"more", 0).is_err(), "the file is not there any more");
    let folder = File::open(&pool.mnt).unwrap();
    assert_eq!(folder.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO), "names were lost");
    // it is told again until the kernel has dropped these names
    wait_for("the end of errors", || folder.sync_all().is_ok());
    // the number of a file that was lost is another file's, and the old descriptor does not lead there
    for name in 0..20 {
        fs::write(pool.at(&name.to_string()), "other").unwrap();
    }
    assert!(new.write_all_at(b"more", 0).is_err());
    assert!((0..20).all(|name| fs::read_to_string(pool.at(&name.to_string())).unwrap() == "other"));
    pool.world.check("sync tank", 0, "");
    // one that was not told yet is told by the process after the next
    kept.write_all_at(b"gone", 0).unwrap();
    pool.kill();
    pool.kill();
    // and what was lost with the first one is not laid at the door of files that have its number since
    for name in 0..20 {
        let file = File::open(pool.at(&name.to_string())).unwrap();
        assert_eq!(std::io::read_to_string(&file).unwrap(), "other");
        file.sync_all().unwrap();
    }
    assert!(new.write_all_at(b"more", 0).is_err());
    assert_eq!(kept.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    kept.sync_all().unwrap();
    drop((kept, new, synced, folder));
    pool.leaves();
}

#[test]
fn names_that_were_lost_lead_where_they_led_before() {
    let Some(pool) = Surviving::losing("reattachnames", "") else { return };
    pool.world.tune("zfs_txg_timeout", 1000);
    let long = "n".repeat(255);
    for name in ["moved", "linked", "exchanged", "over", "under", "long"] {
        fs::write(pool.at(name), name).unwrap();
    }
    fs::create_dir_all(pool.at("folder/below")).unwrap();
    pool.world.check("sync tank", 0, "");
    // a second death finds what the first one left untold
    for deaths in 1..=2 {
        let to = |from: &str, to: &str| fs::rename(pool.at(from), pool.at(to)).unwrap();
        to("moved", "moved.1");
        to("moved.1", "folder/moved.2");
        fs::hard_link(pool.at("linked"), pool.at("linked.1")).unwrap();
        fs::write(pool.at("new"), "new").unwrap();
        let root = File::open(&pool.mnt).unwrap();
        renameat2(root.as_fd(), "new", root.as_fd(), "exchanged", RenameFlags::RENAME_EXCHANGE).unwrap();
        to("over", "under");
        to("long", &long);
        to("folder/below", "beside");
        let lost = ["moved.1", "folder/moved.2", "linked.1", "new", &long, "beside"];
        assert_eq!(fs::read_to_string(pool.at(&long)).unwrap(), "long");
        (0..deaths).for_each(|_| pool.kill());
        let folder = File::open(&pool.mnt).unwrap();
        wait_for("the end of errors", || folder.sync_all().is_ok());
        for name in lost {
            assert_eq!(
                fs::metadata(pool.at(name)).map(drop).map_err(|error| error.kind()),
                Err(ErrorKind::NotFound),
                "{deaths}: {name}"
            );
        }
        for name in ["moved", "linked", "exchanged", "over", "under", "long"] {
            assert_eq!(fs::read_to_string(pool.at(name)).unwrap(), name, "{deaths}");
        }
        assert!(pool.at("folder/below").is_dir());
    }
    pool.leaves();
}

#[test]
fn files_without_a_name_stay_while_they_are_open() {
    let Some(pool) = Surviving::new("reattachorphans", "-O compression=off") else { return };
    let contents = noise(8 << 20, 7);
    fs::write(pool.at("file"), &contents).unwrap();
    let open = File::open(pool.at("file")).unwrap();
    let later = File::create_new(pool.at("later")).unwrap();
    later.write_all_at(&contents, 0).unwrap();
    fs::remove_file(pool.at("file")).unwrap();
    pool.world.check("sync tank", 0, "");
    pool.kill();
    fs::remove_file(pool.at("later")).unwrap();
    pool.world.check("sync tank", 0, "");
    pool.kill();
    // one whose last name was removed by what is in the log alone
    pool.world.tune("zfs_txg_timeout", 1000);
    let logged = File::create_new(pool.at("logged")).unwrap();
    logged.write_all_at(&contents, 0).unwrap();
    pool.world.check("sync tank", 0, "");
    fs::remove_file(pool.at("logged")).unwrap();
    File::create_new(pool.at("other")).unwrap().sync_all().unwrap();
    pool.kill();
    assert!(!pool.at("logged").exists());
    for file in [&open, &later, &logged] {
        let mut read = vec![0; contents.len()];
        let file = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file))).unwrap();
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read == contents);
    }
    let used = || -> u64 {
        pool.world.check("sync tank", 0, "");
        pool.world.zfs("list -Hpo refer tank").0.trim().parse().unwrap()
    };
    assert!(used() > 24 << 20);
    drop((open, later, logged));
    wait_for("the room of files that nobody has open", || used() < 1 << 20);
    pool.leaves();
}

/// Each request of a program that looks at every result, while the process dies after having done one and before it answers:
/// the next one answers what was done, and does it no second time.
#[test]
#[cfg(debug_assertions)]
fn no_request_is_done_twice() {
    if !can_mount("reattachtwice") {
        return;
    }
    for (every, sync) in [(3, "standard"), (4, "always"), (5, "standard"), (7, "disabled"), (11, "standard")] {
        let pool = Surviving::failing(&format!("reattachtwice{every}"), &format!("fuse/reply/{every}"), sync);
        change_all_ways(&pool);
        // it dies at replies that an export causes, too
        wait_for("the export", || pool.world.told("zpool export tank").1 == 0);
        pool.world.check("import -N -d DIR tank", 0, "");
        pool.world.check("scrub -w tank", 0, "");
        let status = String::from_utf8(pool.world.zpool("status tank").stdout).unwrap();
        assert!(status.contains("errors: No known data errors"), "{status}");
        pool.leaves();
    }
}

/// All requests that change something.
fn change_all_ways(pool: &Surviving) {
    let at = |name: &str| pool.at(name);
    for round in 0..4 {
        fs::create_dir(at("a")).unwrap();
        assert_eq!(fs::create_dir(at("a")).unwrap_err().kind(), ErrorKind::AlreadyExists);
        File::create_new(at("a/file")).unwrap().write_all(b"12345").unwrap();
        fs::hard_link(at("a/file"), at("a/link")).unwrap();
        symlink("file", at("a/symlink")).unwrap();
        nix::unistd::mkfifo(&at("a/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(fs::metadata(at("a/file")).unwrap().nlink(), 2);
        fs::rename(at("a/file"), at("a/moved")).unwrap();
        fs::rename(at("a/link"), at("a/other")).unwrap();
        fs::write(at("a/x"), "x").unwrap();
        fs::write(at("a/y"), "y").unwrap();
        for _ in 0..3 {
            let folder = File::open(at("a")).unwrap();
            renameat2(folder.as_fd(), "x", folder.as_fd(), "y", RenameFlags::RENAME_EXCHANGE).unwrap();
        }
        assert_eq!(fs::read_to_string(at("a/x")).unwrap(), "y", "three times, round {round}");
        assert_eq!(fs::read_to_string(at("a/y")).unwrap(), "x");
        let attribute = |arguments: &[&str]| {
            Command::new("setfattr").args(arguments).arg(at("a/x")).output().is_ok_and(|set| set.status.success())
        };
        if Command::new("setfattr").arg("--version").output().is_ok() {
            assert!(attribute(&["-n", "user.one", "-v", "1"]) && attribute(&["-x", "user.one"]));
            assert!(!attribute(&["-x", "user.one"]), "it is gone");
        }
        let appended = OpenOptions::new().append(true).open(at("a/moved")).unwrap();
        (&appended).write_all(b"6").unwrap();
        (&appended).write_all(b"7").unwrap();
        assert_eq!(fs::read_to_string(at("a/other")).unwrap(), "1234567");
        appended.set_len(3).unwrap();
        fs::remove_file(at("a/moved")).unwrap();
        assert_eq!(fs::remove_file(at("a/moved")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(fs::metadata(at("a/other")).unwrap().nlink(), 1);
        for name in ["other", "symlink", "fifo", "x", "y"] {
            fs::remove_file(at("a").join(name)).unwrap();
        }
        fs::remove_dir(at("a")).unwrap();
        assert_eq!(fs::remove_dir(at("a")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}

/// Programs that must not notice, while the process is killed again and again.
#[test]
fn kills_under_load() {
    let Some(pool) = Surviving::new("reattachload", "") else { return };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (pool, stop) = (&pool, &stop);
        let workers: Vec<_> = (0..4).map(|worker: u64| scope.spawn(move || work(pool, worker, stop))).collect();
        for _ in 0..8 {
            std::thread::sleep(Duration::from_millis(400));
            pool.kill();
        }
        stop.store(true, Ordering::Relaxed);
        let rounds: Vec<u64> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        assert!(rounds.iter().all(|rounds| *rounds > 0), "{rounds:?}");
    });
    pool.leaves();
}

/// Makes, moves, reads and removes files of its own, and looks at each result.
fn work(pool: &Surviving, worker: u64, stop: &AtomicBool) -> u64 {
    let folder = pool.at(&format!("worker{worker}"));
    fs::create_dir(&folder).unwrap();
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        let contents = noise(100 << 10, worker * 1000 + rounds);
        let [one, two] = ["one", "two"].map(|name| folder.join(name));
        fs::write(&one, &contents).unwrap();
        fs::rename(&one, &two).unwrap();
        assert!(fs::read(&two).unwrap() == contents);
        let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["two"]);
        fs::remove_file(&two).unwrap();
        rounds += 1;
    }
    rounds
}

/// Another program takes the pool over under programs that read and write without a sync, and nothing is lost.
#[test]
fn upgrades_under_load() {
    let Some(pool) = Surviving::new("reattachupgrade", "") else { return };
    let newer = pool.world.dir.join("newer");
    fs::copy(env!("CARGO_BIN_EXE_cenote"), &newer).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (pool, stop) = (&pool, &stop);
        let workers: Vec<_> = (0..3).map(|worker: u64| scope.spawn(move || work(pool, worker, stop))).collect();
        for program in [newer.to_str().unwrap(), env!("CARGO_BIN_EXE_cenote"), newer.to_str().unwrap()] {
            std::thread::sleep(Duration::from_millis(300));
            let upgraded = pool.world.command(program).args(["upgrade", "-a"]).output().unwrap();
            let process = pool.world.process_of("tank");
            assert!(upgraded.status.success(), "{upgraded:?}");
            assert_eq!(String::from_utf8_lossy(&upgraded.stdout), format!("tank: process {process} serves it now\n"));
            assert_eq!(fs::read_link(format!("/proc/{process}/exe")).unwrap(), fs::canonicalize(program).unwrap());
        }
        stop.store(true, Ordering::Relaxed);
        assert!(workers.into_iter().all(|worker| worker.join().unwrap() > 0));
    });
    let log = fs::read_to_string(pool.world.dir.join("run/tank.log")).unwrap();
    assert!(!log.contains("lost changes"), "{log}");
    // a program that cannot serve a pool is not kept, and the one before goes on
    let kept = OpenOptions::new().create_new(true).append(true).open(pool.at("kept")).unwrap();
    kept.write_all_at(b"kept", 0).unwrap();
    let before = pool.world.process_of("tank");
    let mut other = Command::new("/bin/sh").args(["-c", "sleep 1000; :"]).spawn().unwrap();
    assert!(matches!(pool.ask_for_upgrade(other.id()), Answer::Failed { errno: libc::EACCES, .. }));
    // a shell that has a script of that name is no pool's process
    fs::write(pool.world.dir.join("upgrade"), "sleep 1000; :").unwrap();
    let mut unfit = Command::new("/bin/sh").arg("upgrade").current_dir(&pool.world.dir).spawn().unwrap();
    let line = format!("/proc/{}/cmdline", unfit.id());
    wait_for("the shell", || fs::read(&line).is_ok_and(|line| line.ends_with(b"upgrade\0")));
    assert_eq!(pool.ask_for_upgrade(unfit.id()), Answer::Done(PoolReply::HandedOver));
    wait_for("the program before", || pool.is_served_by_another(&before));
    let process = pool.world.process_of("tank");
    assert_eq!(fs::read_link(format!("/proc/{process}/exe")).unwrap(), fs::canonicalize(&newer).unwrap());
    assert_eq!(fs::read_to_string(pool.at("kept")).unwrap(), "kept");
    kept.sync_all().unwrap();
    drop(kept);
    for child in [&mut other, &mut unfit] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    pool.leaves();
}

/// The next process goes back to a snapshot, and knows nothing of what the kernel was told by the one before.
#[test]
fn a_mount_goes_back_after_a_death() {
    let Some(pool) = Surviving::new("reattachback", "-O snapdir=visible") else { return };
    fs::create_dir(pool.at("folder")).unwrap();
    for (name, contents) in [("same", "same"), ("changed", "earlier"), ("folder/moved", "moved"), ("removed", "again")]
    {
        fs::write(pool.at(name), contents).unwrap();
    }
    assert_eq!(pool.world.zfs("snapshot tank@before"), (String::new(), 0));
    fs::write(pool.at("changed"), "later, and longer").unwrap();
    fs::rename(pool.at("folder/moved"), pool.at("elsewhere")).unwrap();
    fs::remove_file(pool.at("removed")).unwrap();
    fs::write(pool.at("young"), "young").unwrap();
    let open = |name: &str| OpenOptions::new().append(true).read(true).open(pool.at(name)).unwrap();
    let [same, changed, moved, young] = ["same", "changed", "elsewhere", "young"].map(open);
    let read = |file: &File| {
        let mut bytes = [0; 64];
        file.read_at(&mut bytes, 0).map(|len| String::from_utf8_lossy(&bytes[..len]).into_owned())
    };
    assert_eq!(read(&young).unwrap(), "young");
    assert!(fs::metadata(pool.at("removed")).is_err(), "the kernel keeps that it is absent");
    pool.world.check("sync tank", 0, "");
    pool.kill();
    assert_eq!(pool.world.zfs("rollback tank@before"), (String::new(), 0));
    for (file, name, contents) in
        [(&same, "same", "same"), (&changed, "changed", "earlier"), (&moved, "folder/moved", "moved")]
    {
        assert_eq!(read(file).unwrap(), contents, "{name}");
        assert_eq!(fs::read_to_string(pool.at(name)).unwrap(), contents);
        assert_eq!(file.metadata().unwrap().len(), contents.len() as u64);
    }
    assert_eq!(fs::read_to_string(pool.at("removed")).unwrap(), "again");
    for absent in ["elsewhere", "young"] {
        assert_eq!(fs::metadata(pool.at(absent)).unwrap_err().kind(), ErrorKind::NotFound, "{absent}");
    }
    assert_eq!(read(&young).unwrap_err().raw_os_error(), Some(libc::ESTALE));
    // the end of the file is where it is now
    (&changed).write_all(b", and more").unwrap();
    assert_eq!(fs::read_to_string(pool.at("changed")).unwrap(), "earlier, and more");
    // once more, with nothing new in between
    pool.kill();
    assert_eq!(pool.world.zfs("rollback tank@before"), (String::new(), 0));
    assert_eq!(read(&changed).unwrap(), "earlier");
    drop((same, changed, moved, young));
    pool.leaves();
}

#[test]
fn what_cannot_be_upgraded_goes_on() {
    // its own name: the process of another world's pool takes away all dead mounts of that name
    let Some(pool) = Surviving::named("reattachrefused", "refused", "") else { return };
    assert_eq!(pool.world.zfs("create -o org.cenote:reattach=off refused/other"), (String::new(), 0));
    let (told, code) = pool.world.told("upgrade refused");
    assert!(code == 1 && told.contains("refused/other ends with its process"), "{told}");
    fs::write(pool.at("file"), "1").unwrap();
    fs::write(pool.at("other/file"), "2").unwrap();
    let (told, code) = pool.world.told("upgrade none");
    assert_eq!((&*told, code), ("cenote upgrade: cannot open 'none': no such pool\n", 1));
    // one dies with the process, and is mounted again by the next
    let open = File::open(pool.at("other/file")).unwrap();
    pool.world.check("sync refused", 0, "");
    pool.kill();
    assert_eq!(open.metadata().unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
    wait_for("the other mount", || fs::read_to_string(pool.at("other/file")).is_ok_and(|read| read == "2"));
    pool.leaves();
}

/// In the place of a process that dies again and again one stands in that fails all requests, until somebody asks for more.
#[test]
fn a_process_that_dies_too_often_stays_away() {
    let Some(pool) = Surviving::named("reattachoften", "often", "-O org.cenote:writeback=off") else { return };
    pool.world.tune("cenote_deaths_max", 2);
    fs::write(pool.at("file"), "1").unwrap();
    pool.world.check("sync often", 0, "");
    let open = File::open(pool.at("file")).unwrap();
    let fails = || fs::read(pool.at("file")).is_err_and(|error| error.raw_os_error() == Some(libc::EIO));
    let die = || {
        pool.kill();
        pool.world.kill("often");
        wait_for("errors", fails);
    };
    die();
    assert_eq!(open.read_at(&mut [0], 0).unwrap_err().raw_os_error(), Some(libc::EIO));
    for line in ["zpool status often", "zpool list often", "zpool scrub often", "zfs list often"] {
        let (told, code) = pool.world.told(line);
        assert!(code != 0 && told.contains("died too often") && told.contains("zpool clear often"), "{line}: {told}");
    }
    let (told, code) = pool.world.told("zpool import -R DIR/mnt -d DIR often");
    assert!(code == 1 && told.contains("already exists"), "{told}");
    assert!(fails());
    pool.world.check("clear often", 0, "");
    pool.world.check("list -Ho health often", 0, "ONLINE\n");
    let mut read = [0];
    open.read_exact_at(&mut read, 0).unwrap();
    assert_eq!((&read, fs::read_to_string(pool.at("file")).unwrap().as_str()), (b"1", "1"));
    // it leaves, too
    die();
    let (told, code) = pool.world.told("zpool export often");
    assert!(code == 1 && told.contains("busy"), "{told}");
    drop(open);
    pool.world.check("export often", 0, "");
    assert!(fs::read(pool.at("file")).is_err_and(|error| error.kind() == ErrorKind::NotFound));
    pool.world.check("import -R DIR/mnt -d DIR often", 0, "");
    assert_eq!(fs::read_to_string(pool.at("file")).unwrap(), "1");
    // one that dies while it stands in for another one ends the mounts
    die();
    pool.world.kill("often");
    wait_for("the end of the mount", || {
        fs::read(pool.at("file")).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
    });
    pool.world.check("import -R DIR/mnt -d DIR often", 0, "");
    pool.leaves();
}

/// Signals, and the end of the keeper.
#[test]
fn what_ends_in_order_stays_ended() {
    let Some(pool) = Surviving::new("reattachends", "") else { return };
    let signal = |process: &str, signal| {
        nix::sys::signal::kill(Pid::from_raw(process.parse().unwrap()), signal).unwrap();
    };
    signal(&pool.world.process_of("tank"), nix::sys::signal::Signal::SIGTERM);
    wait_for("the end of the pool", || pool.world.told("zpool list") == ("no pools available\n".to_owned(), 0));
    assert!(!pool.at(".").join("file").exists());
    std::thread::sleep(Duration::from_millis(300));
    pool.world.check("list", 0, "no pools available\n");
    pool.world.check("import -R DIR/mnt -d DIR tank", 0, "");
    pool.leaves();
}
