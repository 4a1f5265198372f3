//! Every command of `zpool` and `zfs` meets a pool whose process hangs, one that is suspended, one whose run folder is
//! full, and one on a host whose file systems are full.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::suspended::{Small, noise, wait_for, write};
use super::{World, can_mount};

/// Longest time that a command may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Words that would be false of a pool that is there.
const FALSE_WORDS: [&str; 11] = [
    "does not exist",
    "no such pool",
    "no such device",
    "not a ZFS filesystem",
    "no valid replicas",
    "panicked",
    "no pools available\n",
    "are healthy",
    "All pools are",
    "Every feature flags pool",
    "All filesystems are",
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

/// A command line for a pool `tank` that works: what takes a pool or its datasets away is asked of others.
fn harmless_line_of(program: &str, name: &str) -> &'static str {
    match (program, name) {
        ("zpool", "destroy") => "destroy doomed",
        ("zpool", "export") => "export leaving",
        ("zfs", "rename") => "rename tank/before tank/after",
        _ => line_of(program, name),
    }
}

/// All that a command says, and its exit code; `None` if it takes too long.
fn run(world: &World, program: &str, line: &str) -> (String, Option<i32>) {
    let line = line.replace("DIR", world.dir.to_str().unwrap());
    let mut command = world.command(env!("CARGO_BIN_EXE_cenote"));
    let out = world.dir.join(format!("said-{program}-{}", line.replace(['/', ' '], "_")));
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
    line_of: fn(&str, &str) -> &'static str,
    judge: &(dyn Fn(&str, &str, &str, i32) -> Option<&'static str> + Sync),
) -> Vec<String> {
    let of = |program: &'static str| commands(world, program).into_iter().map(move |name| (program, name));
    let all: Vec<(&str, String)> = of("zpool").chain(of("zfs")).collect();
    let look = |(program, name): &(&'static str, String)| {
        let (said, code) = run(world, program, line_of(program, name));
        let why = match code {
            None => Some("hangs"),
            // a disk that is alone has no replica
            Some(_) if name == "offline" && said.ends_with("disk: no valid replicas\n") => None,
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

/// Forms of commands that ask all pools, or a pool in another way, of which one hangs: all that is wrong with them.
fn forms_of_all(world: &World, told: &str) -> Vec<String> {
    let lines = [
        ("zpool", "status"),
        ("zpool", "status -x"),
        ("zpool", "status -x tank"),
        ("zpool", "status -vj"),
        ("zpool", "list -v"),
        ("zpool", "list -j"),
        ("zpool", "iostat"),
        ("zpool", "iostat -v tank"),
        ("zpool", "get -H size"),
        ("zpool", "upgrade"),
        ("zpool", "upgrade -a"),
        ("zpool", "history"),
        ("zpool", "sync"),
        ("zfs", "list -t all"),
        ("zfs", "get -H all"),
        ("zfs", "upgrade"),
        ("zfs", "upgrade -a"),
        ("zfs", "mount -a"),
        ("zfs", "unmount -a"),
        ("zfs", "snapshot -r tank@all"),
        ("zfs", "destroy -r tank@all"),
        ("upgrade", "-a"),
        ("upgrade", "tank"),
        ("where", "tank"),
        ("zilstat", "-p tank 1 1"),
        ("volumes", "tank"),
    ];
    let look = |(program, line): &(&str, &str)| {
        let (said, code) = run(world, program, line);
        let is_right = code.is_some_and(|code| code != 0) && said.contains(told) && !said.contains("usage:");
        let is_false = FALSE_WORDS.iter().any(|words| said.contains(words));
        (!is_right || is_false).then(|| format!("{program} {line}: {code:?} {said}"))
    };
    std::thread::scope(|scope| {
        let runs: Vec<_> = lines.iter().map(|line| scope.spawn(|| look(line))).collect();
        runs.into_iter().filter_map(|run| run.join().unwrap()).collect()
    })
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
    let wrong = table(&world, 16, line_of, &|program, name, said, code| match (program, name) {
        // of no pool that is there, or of a file
        (_, "version") | ("zfs", "project") => None,
        // that the name or the device is taken is true, too
        ("zpool", "create" | "labelclear") => (code == 0).then_some("succeeds"),
        _ if code == 0 => Some("succeeds"),
        _ if !said.contains(&told) => Some("does not tell"),
        _ => None,
    });
    let all = ["zpool list -Ho name", "zfs list -Ho name"].map(|line| world.told(line));
    let more = forms_of_all(&world, &told);
    signal(&process, "-CONT");
    assert!(wrong.is_empty() && more.is_empty(), "{}", [wrong, more].concat().join("\n"));
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
    let wrong = table(&world, 1, line_of, &|_, _, _, _| None);
    for line in ["advise cache tank", "trace record tank -o DIR/trace"] {
        let (said, code) = world.told(line);
        assert!(code == 1 && said.contains("cannot open 'tank': pool I/O is currently suspended"), "{line}: {said}");
    }
    let (said, code) = run(&world, "zpool", "export -f tank");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!((said.as_str(), code), ("", Some(0)));
    drop(writer.join().unwrap());
}

/// Takes all room of a file system: first that for bytes, and with `files` that for files, too.
fn fill(place: &Path, files: bool) {
    let mut filler = File::create(place.join("filler")).unwrap();
    let mut number = 0;
    // once more: counters that were being written anew the first time have given room back
    for _ in 0..2 {
        while filler.write_all(&[1; 4096]).is_ok() {}
        while files && File::create(place.join(format!("filler{number}"))).is_ok() {
            number += 1;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Gives it back.
fn empty(place: &Path) {
    for entry in place.read_dir().unwrap().flatten() {
        if entry.file_name().to_str().unwrap().starts_with("filler") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}

/// Pools for [`harmless_line_of`], `tank` on a disk in the folder `small`.
fn pools(world: &World, options: &str) {
    world.disks(&["free", "doomed", "leaving"]);
    for name in ["doomed", "leaving"] {
        world.check(&format!("create -O mountpoint=none {name} DIR/{name}"), 0, "");
    }
    world.check(&format!("create {options} tank DIR/small/disk"), 0, "");
    for line in ["create -o mountpoint=none tank/home", "create -o mountpoint=none tank/before", "snapshot tank/home@s"]
    {
        assert_eq!(world.zfs(line), (String::new(), 0));
    }
}

#[test]
fn every_command_meets_a_full_run_folder() {
    let first = World::new("fullrun", &[]);
    let run = first.dir.join("run");
    let Some(_small) = Small::mount_sized(&run, "4m,nr_inodes=300,mode=755") else {
        return eprintln!("SKIPPED fullrun: nothing can be mounted here");
    };
    // goes before the mount
    let world = World { dir: first.dir.clone() };
    std::mem::forget(first);
    fs::create_dir(world.dir.join("small")).unwrap();
    world.disks(&["small/disk", "new"]);
    pools(&world, "-O mountpoint=none");
    let no_room = |line: &str, code| {
        let (said, was) = world.told(line);
        assert!(
            was == code && said.contains("cannot use DIR/run") && said.contains("No space left on device\n"),
            "{said}"
        );
    };
    fill(&run, false);
    no_room("zpool create -O mountpoint=none new DIR/new", 1);
    empty(&run);
    fill(&run, true);
    no_room("zpool create -O mountpoint=none new DIR/new", 1);
    assert!(
        fs::read(world.dir.join("new")).unwrap().iter().all(|byte| *byte == 0),
        "a pool that is not there is on disk"
    );
    let wrong = table(&world, 1, harmless_line_of, &|_, _, _, _| None);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // that it left is kept nowhere, and nothing of it is lost; what it and the destroyed one had there is free again
    fill(&run, true);
    no_room("zpool import -d DIR leaving", 1);
    world.kill("tank");
    no_room("zpool import -f -d DIR/small -d DIR tank", 1);
    empty(&run);
    world.check("import -d DIR leaving", 0, "");
    world.check("import -d DIR/small -d DIR tank", 0, "");
    assert_eq!(world.zfs("list -Ho name tank/home tank/after"), ("tank/after\ntank/home\n".to_owned(), 0));
    world.check("create -O mountpoint=none new DIR/new", 0, "");
    world.check("list -Ho name", 0, "leaving\nnew\ntank\n");
    world.check("export -a", 0, "");
}

#[test]
fn every_command_meets_a_full_host() {
    let world = World::new("fullhost", &[]);
    let place = world.dir.join("small");
    let Some(_small) = Small::mount_sized(&place, "100m,nr_inodes=60").filter(|_| Path::new("/dev/fuse").exists())
    else {
        return eprintln!("SKIPPED fullhost: nothing can be mounted here");
    };
    fs::write(place.join("disk"), vec![0; 96 << 20]).unwrap();
    world.disks(&["new"]);
    pools(&world, "-R DIR/small/mnt -o cachefile=DIR/small/cache");
    let file = world.dir.join("small/mnt/tank/file");
    let bytes = noise(1 << 20, 1);
    write(&file, &bytes).unwrap();
    fill(&place, true);
    let is_cached = || fs::read(place.join("cache")).unwrap().windows(4).any(|four| four == b"tank");
    let (said, code) = world.told("zpool set cachefile=DIR/small/other tank");
    let refused = "cannot set property for 'tank': cannot write cache file 'DIR/small/other': No space left on device";
    assert!(code == 1 && said.starts_with(refused), "{said}");
    world.check("get -Ho value cachefile tank", 0, "DIR/small/cache\n");
    assert!(is_cached());
    let (said, code) = world.told("zpool create -o cachefile=DIR/small/other -O mountpoint=none new DIR/new");
    assert!(code == 0 && said.starts_with("cannot write cache file 'DIR/small/other': No space left"), "{said}");
    let (said, code) = world.told("zfs create -o mountpoint=/sub tank/sub");
    assert!(code == 1 && said.contains("No space left on device") && said.contains("successfully created"), "{said}");
    let wrong = table(&world, 1, harmless_line_of, &|_, _, _, _| None);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(fs::read(&file).unwrap() == bytes && is_cached());
    // what could not be written is written when there is room
    empty(&place);
    world.check("set comment=y tank", 0, "");
    world.check("set comment=y new", 0, "");
    assert!(fs::read(place.join("other")).unwrap().windows(3).any(|three| three == b"new"));
    world.check("export new", 0, "");
    world.check("export tank", 0, "");
    world.check("import -d DIR/small -d DIR tank", 0, "");
    world.check("export tank", 0, "");
}

/// Paths that lie on a mount of a process that hangs.
#[test]
fn paths_on_a_mount_that_hangs() {
    if !can_mount("hungmount") {
        return;
    }
    let world = World::new("hungmount", &[]);
    world.disks(&["a", "free"]);
    world.check("create -R DIR/mnt tank DIR/a", 0, "");
    fs::create_dir(world.dir.join("mnt/tank/folder")).unwrap();
    let process = world.process_of("tank");
    signal(&process, "-STOP");
    let lines = [
        ("zfs", "list DIR/mnt/tank/folder"),
        ("zfs", "get all DIR/mnt/tank/folder"),
        ("zfs", "unmount DIR/mnt/tank"),
        ("zfs", "project DIR/mnt/tank/folder/x"),
        ("zpool", "create other DIR/mnt/tank/folder/disk"),
        ("zpool", "add tank DIR/mnt/tank/folder/disk"),
        ("zpool", "online tank DIR/mnt/tank/folder/disk"),
    ];
    let told: Vec<_> = lines.iter().map(|(program, line)| run(&world, program, line)).collect();
    signal(&process, "-CONT");
    for ((program, line), (said, code)) in lines.iter().zip(told) {
        assert!(code.is_some_and(|code| code != 0), "{program} {line}: {code:?} {said}");
        assert!(said.contains("does not answer") || said.contains("cannot resolve path"), "{program} {line}: {said}");
    }
    world.check("list -Ho name", 0, "tank\n");
    world.check("export tank", 0, "");
}
