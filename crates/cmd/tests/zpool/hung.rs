//! Every command of `zpool` and `zfs` meets a pool whose process hangs, and one that is suspended; and a disk that is
//! pulled and comes back as another one.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::World;
use super::suspended::{Small, noise, wait_for, write};

/// Longest time that a command may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Words that would be false of a pool that is there.
const FALSE_WORDS: [&str; 7] = [
    "does not exist",
    "no such pool",
    "no pools available\n",
    "no such device",
    "not a ZFS filesystem",
    "no valid replicas",
    "panicked",
];

/// Names of the commands in a usage message, which is made from the table of commands.
fn commands(world: &World, program: &str) -> Vec<String> {
    let (text, code) = world.told(&format!("{program} help"));
    assert_eq!(code, 0, "{text}");
    let is_command = |line: &&str| line.starts_with('\t') && !line.starts_with("\t ");
    let mut names: Vec<String> =
        text.lines().filter(is_command).filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect();
    names.dedup();
    assert!(names.len() > 20, "{text}");
    names
}

/// A command line that asks the pool `tank` for something. Panics of a command that is not listed here.
fn line_of(program: &str, name: &str) -> &'static str {
    match (program, name) {
        ("zpool", "version") => "version",
        ("zpool", "create") => "create tank DIR/free",
        ("zpool", "destroy") => "destroy tank",
        ("zpool", "checkpoint") => "checkpoint tank",
        ("zpool", "prefetch") => "prefetch -t ddt tank",
        ("zpool", "add") => "add tank DIR/free",
        ("zpool", "remove") => "remove tank DIR/small/disk",
        ("zpool", "list") => "list tank",
        ("zpool", "iostat") => "iostat tank",
        ("zpool", "status") => "status tank",
        ("zpool", "initialize") => "initialize tank",
        ("zpool", "scrub") => "scrub tank",
        ("zpool", "resilver") => "resilver tank",
        ("zpool", "trim") => "trim tank",
        ("zpool", "wait") => "wait -t scrub tank",
        ("zpool", "online") => "online tank DIR/small/disk",
        ("zpool", "offline") => "offline tank DIR/small/disk",
        ("zpool", "reopen") => "reopen tank",
        ("zpool", "clear") => "clear tank",
        ("zpool", "attach") => "attach tank DIR/small/disk DIR/free",
        ("zpool", "detach") => "detach tank DIR/small/disk",
        ("zpool", "replace") => "replace tank DIR/small/disk DIR/free",
        ("zpool", "split") => "split tank new",
        ("zpool", "import") => "import -d DIR/small",
        ("zpool", "export") => "export tank",
        ("zpool", "labelclear") => "labelclear DIR/small/disk",
        ("zpool", "upgrade") => "upgrade tank",
        ("zpool", "reguid") => "reguid tank",
        ("zpool", "history") => "history tank",
        ("zpool", "events") => "events tank",
        ("zpool", "get") => "get all tank",
        ("zpool", "set") => "set comment=x tank",
        ("zpool", "sync") => "sync tank",
        ("zpool", "ddtprune") => "ddtprune -d 1 tank",
        ("zfs", "version") => "version",
        ("zfs", "create") => "create tank/new",
        ("zfs", "destroy") => "destroy tank/home",
        ("zfs", "snapshot") => "snapshot tank/home@new",
        ("zfs", "rollback") => "rollback tank/home@s",
        ("zfs", "clone") => "clone tank/home@s tank/clone",
        ("zfs", "promote") => "promote tank/home",
        ("zfs", "rename") => "rename tank/home tank/other",
        ("zfs", "list") => "list tank/home",
        ("zfs", "set") => "set atime=off tank/home",
        ("zfs", "get") => "get all tank/home",
        ("zfs", "inherit") => "inherit atime tank/home",
        ("zfs", "upgrade") => "upgrade tank/home",
        ("zfs", "userspace") => "userspace tank/home",
        ("zfs", "groupspace") => "groupspace tank/home",
        ("zfs", "projectspace") => "projectspace tank/home",
        ("zfs", "project") => "project DIR/free",
        ("zfs", "mount") => "mount tank/home",
        ("zfs", "unmount") => "unmount tank/home",
        ("zfs", "bookmark") => "bookmark tank/home@s tank/home#b",
        ("zfs", "redact") => "redact tank/home@s b tank/home@s",
        ("zfs", "receive") => "receive tank/got",
        ("zfs", "send") => "send tank/home@s",
        ("zfs", "hold") => "hold tag tank/home@s",
        ("zfs", "release") => "release tag tank/home@s",
        ("zfs", "holds") => "holds tank/home@s",
        ("zfs", "wait") => "wait tank/home",
        ("zfs", "diff") => "diff tank/home@s tank/home",
        _ => panic!("the table of this test lacks `{program} {name}`"),
    }
}

/// All that a command says, and its exit code; `None` if it takes too long.
fn run(world: &World, program: &str, line: &str) -> (String, Option<i32>) {
    let line = line.replace("DIR", world.dir.to_str().unwrap());
    let mut command = world.command(env!("CARGO_BIN_EXE_cenote"));
    let out = world.dir.join(format!("said-{program}-{}", line.split_whitespace().next().unwrap()));
    let said = File::create(&out).unwrap();
    command.arg(program).args(line.split_whitespace()).stdin(Stdio::null());
    let mut child = command.stdout(said.try_clone().unwrap()).stderr(said).spawn().unwrap();
    let began = Instant::now();
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if began.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    (String::from_utf8_lossy(&fs::read(out).unwrap()).into_owned(), code)
}

/// Runs all commands, so many at a time; returns all that is wrong with them, as `judge` sees it.
fn table(
    world: &World,
    at_once: usize,
    judge: &(dyn Fn(&str, &str, &str, i32) -> Option<&'static str> + Sync),
) -> Vec<String> {
    let of = |program: &'static str| commands(world, program).into_iter().map(move |name| (program, name));
    let all: Vec<(&str, String)> = of("zpool").chain(of("zfs")).collect();
    let look = |(program, name): &(&'static str, String)| {
        let (said, code) = run(world, program, line_of(program, name));
        let why = match code {
            None => Some("hangs"),
            Some(_) if FALSE_WORDS.iter().any(|words| said.contains(words)) => Some("says what is not so"),
            Some(code) => judge(program, name, &said, code),
        };
        why.map(|why| format!("{program} {name} {why}: {code:?} {said}"))
    };
    let mut wrong = Vec::new();
    for some in all.chunks(at_once) {
        std::thread::scope(|scope| {
            let runs: Vec<_> = some.iter().map(|command| scope.spawn(|| look(command))).collect();
            wrong.extend(runs.into_iter().filter_map(|run| run.join().unwrap()));
        });
    }
    wrong
}

fn signal(process: &str, signal: &str) {
    assert!(Command::new("kill").args([signal, process]).status().unwrap().success());
}

#[test]
fn every_command_meets_a_process_that_hangs() {
    let world = World::new("hung", &[]);
    world.disks(&["a", "free"]);
    fs::create_dir(world.dir.join("small")).unwrap();
    world.disks(&["small/disk"]);
    world.check("create -O mountpoint=none other DIR/a", 0, "");
    world.check("create -O mountpoint=none tank DIR/small/disk", 0, "");
    assert_eq!(world.zfs("create tank/home"), (String::new(), 0));
    assert_eq!(world.zfs("snapshot tank/home@s"), (String::new(), 0));
    let process = world.process_of("tank");
    signal(&process, "-STOP");
    let told = format!("pool 'tank': its process (pid {process}) does not answer");
    let wrong = table(&world, 16, &|program, name, said, code| match (program, name) {
        // of no pool that is there, or of a file
        (_, "version") | ("zfs", "project") => None,
        // that the name or the device is taken is true, too
        ("zpool", "create" | "labelclear") => (code == 0).then_some("succeeds"),
        _ if code == 0 => Some("succeeds"),
        _ if !said.contains(&told) => Some("does not tell"),
        _ => None,
    });
    let all = ["zpool list -Ho name", "zfs list -Ho name"].map(|line| world.told(line));
    signal(&process, "-CONT");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (said, code) in all {
        assert!(code == 1 && said.contains("other\n") && said.contains(&told), "{code} {said}");
    }
    world.check("list -Ho name", 0, "other\ntank\n");
}

#[test]
fn every_command_meets_a_suspended_pool() {
    let world = World::new("halted", &[]);
    let place = world.dir.join("small");
    let Some(_small) = Small::mount_sized(&place, "40m").filter(|_| Path::new("/dev/fuse").exists()) else {
        return eprintln!("SKIPPED halted: nothing can be mounted here");
    };
    world.disks(&["free"]);
    File::create(place.join("disk")).unwrap().set_len(256 << 20).unwrap();
    world.check("create -O compression=off -R DIR/mnt tank DIR/small/disk", 0, "");
    assert_eq!(world.zfs("create -o mountpoint=none tank/home"), (String::new(), 0));
    assert_eq!(world.zfs("snapshot tank/home@s"), (String::new(), 0));
    let file = world.dir.join("mnt/tank/file");
    let writer = std::thread::spawn(move || write(&file, &noise(60 << 20, 1)));
    wait_for("the suspension", || world.told("zpool list -Ho health tank").0 == "SUSPENDED\n");
    let wrong = table(&world, 1, &|_, _, _, _| None);
    let (said, code) = run(&world, "zpool", "export -f tank");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!((said.as_str(), code), ("", Some(0)));
    drop(writer.join().unwrap());
}

fn losetup(file: &Path) -> Option<String> {
    let made = Command::new("losetup").args(["-f", "--show"]).arg(file).output().ok()?;
    made.status.success().then(|| String::from_utf8(made.stdout).unwrap().trim().to_owned())
}

/// Lets a disk have so many bytes, as the kernel lets one that was pulled have none; 0 for all.
fn resize(disk: &str, bytes: u64) {
    const GET_STATUS: libc::Ioctl = 0x4c05;
    const SET_STATUS: libc::Ioctl = 0x4c04;
    use std::os::fd::AsRawFd;
    let disk = File::options().read(true).write(true).open(disk).unwrap();
    let mut status = [0u8; 232];
    // SAFETY: the kernel reads and writes 232 bytes, a loop_info64.
    assert_eq!(unsafe { libc::ioctl(disk.as_raw_fd(), GET_STATUS, status.as_mut_ptr()) }, 0);
    status[32..40].copy_from_slice(&bytes.to_ne_bytes());
    // SAFETY: as above.
    assert_eq!(unsafe { libc::ioctl(disk.as_raw_fd(), SET_STATUS, status.as_ptr()) }, 0);
}

/// A disk is pulled, the pool is suspended, and another device with its bytes is at its path: the pool goes on.
#[test]
fn a_pulled_disk_comes_back_as_another_one() {
    let world = World::new("pulled", &[]);
    fs::create_dir(&world.dir).ok();
    world.disks(&["bytes"]);
    let bytes = world.dir.join("bytes");
    let Some(first) = losetup(&bytes) else { return eprintln!("SKIPPED pulled: there are no loop devices here") };
    let path = world.dir.join("disk");
    std::os::unix::fs::symlink(&first, &path).unwrap();
    world.check("create -O mountpoint=none tank DIR/disk", 0, "");
    assert_eq!(world.zfs("create tank/home"), (String::new(), 0));
    world.check("sync tank", 0, "");
    resize(&first, 4096);
    std::thread::scope(|scope| {
        let change = scope.spawn(|| world.zfs("create tank/later"));
        wait_for("the suspension", || world.told("zpool list -Ho health tank").0 == "SUSPENDED\n");
        world.check("clear tank", 1, "cannot clear errors for tank: I/O error\n");
        // another disk over the same bytes
        let second = losetup(&bytes).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&second, &path).unwrap();
        world.check("clear tank", 0, "");
        assert_eq!(change.join().unwrap(), (String::new(), 0));
        let names = world.zfs("list -Ho name");
        world.check("export tank", 0, "");
        assert_eq!(names, ("tank\ntank/home\ntank/later\n".to_owned(), 0));
        for disk in [&first, &second] {
            Command::new("losetup").args(["-d", disk]).status().unwrap();
        }
    });
}
