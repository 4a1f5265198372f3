//! `zpool` as a user meets it: the program, its pool processes and their sockets, on pools of the corpus.
//!
//! A transcript is compared as a whole; the folder of the test is written `DIR` in it.

mod advice;
mod analytics;
mod cache_advice;
mod caches;
mod confined;
mod counters;
mod counts;
mod cuts;
mod descriptors;
mod diff;
mod doors;
mod draid;
mod emulated;
mod events;
mod expansion;
mod exporter;
mod frozen;
mod growth;
mod heads;
mod history;
mod hung;
mod imports;
mod iscsi;
mod killed;
mod lab;
mod layouts;
mod livelists;
mod nbd;
mod older_files;
mod opens;
mod profiles;
mod projects;
mod properties;
mod pulled;
mod quotas;
mod rates;
mod reattach;
mod rebuilds;
mod redaction;
mod reflinks;
mod replaced;
mod replicas;
mod resumed;
mod returns;
mod scrubs;
mod snapdir;
mod snapshots;
mod spares;
mod stale;
mod streams;
mod suspended;
mod tables;
mod traces;
mod unfit_streams;
mod vdevs;
mod vhost;
mod vhost_killed;
mod volumes;
mod ways;
mod writers;
mod zinject;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::Env;
use device::{Device, FileDevice, OpenMode};
use dmu::zap::ZapValue;
use pool::{LivePool, PoolState};
use testkit::corpus;
use testkit::workload::{candidate, options};

/// Debian's Chromium finds nothing wrong with a page, wide, narrow and dark, and these words on it. Without Chromium nothing
/// is found out.
fn look_at_page(address: &str, words: &[&str]) {
    if !Command::new("chromium").arg("--version").output().is_ok_and(|told| told.status.success()) {
        eprintln!("NOT TESTED: {address} in a browser, as there is no chromium (package chromium)");
        return;
    }
    let look = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients/look-at-page");
    let words = serde_json::to_string(words).unwrap();
    let seen = Command::new(look).arg(address).env("LOOK_FOR", words).output().unwrap();
    let said = String::from_utf8_lossy(&seen.stdout).into_owned() + &String::from_utf8_lossy(&seen.stderr);
    assert!(seen.status.success(), "{said}");
}

/// A folder with the images of some cases, and a place for sockets of its own.
struct World {
    dir: PathBuf,
}

impl World {
    fn new(name: &str, cases: &[&str]) -> World {
        let dir = std::env::temp_dir().join(format!("cenote-zpool-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        for case in cases {
            std::fs::create_dir_all(dir.join(case)).unwrap();
            corpus::case(case).extract(&dir.join(case)).unwrap();
        }
        let world = World { dir };
        world.tune("cenote_deaths_max", 0); // a kill is a power cut, but in `reattach`
        world
    }

    fn zpool(&self, line: &str) -> Output {
        self.cenote(&format!("zpool {line}"))
    }

    /// Sets a tunable of all pools.
    fn tune(&self, name: &str, value: u64) {
        std::fs::create_dir_all(self.dir.join("parameters")).unwrap();
        std::fs::write(self.dir.join("parameters").join(name), value.to_string()).unwrap();
    }

    /// The program with a command line.
    fn cenote(&self, line: &str) -> Output {
        let line = line.replace("DIR", self.dir.to_str().unwrap());
        let mut command = self.command(env!("CARGO_BIN_EXE_cenote"));
        command.args(line.split_whitespace()).output().expect("the program starts")
    }

    /// Any program that is to see this world only.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("CENOTE_RUN", self.dir.join("run"))
            .env("CENOTE_PARAMETERS", self.dir.join("parameters"))
            .env("CENOTE_ZED_DIR", self.dir.join("zed.d"))
            .env("TZ", "UTC")
            .env("ZFS_HOSTID", "0")
            .env_remove("CENOTE_LOG");
        command
    }

    /// Output and errors of `zfs`, and its exit code.
    fn zfs(&self, line: &str) -> (String, i32) {
        self.told(&format!("zfs {line}"))
    }

    /// Those of the program with a command line.
    fn told(&self, line: &str) -> (String, i32) {
        let output = self.cenote(line);
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (text.replace(self.dir.to_str().unwrap(), "DIR"), output.status.code().unwrap())
    }

    /// Output, errors and exit code of a command line. What is said to be busy, and should not be, is asked again
    /// for a while: whenever a test starts a program, the child has all files of this process until it runs it.
    fn check(&self, line: &str, code: i32, expect: &str) {
        let began = Instant::now();
        loop {
            let output = self.zpool(line);
            let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
            let text = text.replace(self.dir.to_str().unwrap(), "DIR");
            if text != expect && text.ends_with("is busy\n") && began.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
            assert_eq!(text, expect, "{line}");
            assert_eq!(output.status.code(), Some(code), "{line}");
            return;
        }
    }

    /// Pool `fresh` has been written to, and all that it wrote has been timed.
    fn check_io(&self) {
        let numbers = |line: &str| -> Vec<Vec<u64>> {
            let text = String::from_utf8(self.zpool(line).stdout).unwrap();
            let row = |line: &str| line.split('\t').skip(1).map(|cell| cell.parse().unwrap_or(0)).collect();
            text.lines().map(row).collect()
        };
        let rows = numbers("iostat -Hpv fresh");
        assert_eq!(rows.iter().map(Vec::len).collect::<Vec<_>>(), [6; 4], "pool, mirror, two disks");
        assert!(rows[0][0] > 0 && rows[0][0..2] == rows[1][0..2] && rows[2][0..2] == [0, 0], "{rows:?}");
        assert!(rows[0][5] > 0 && rows[2][5] >= rows[1][5], "{rows:?}");
        // bytes of a row are a rate; a histogram has all
        let sizes: u64 = numbers("iostat -Hpr fresh DIR/a")[2..].iter().flatten().sum();
        let times: Vec<u64> = numbers("iostat -Hpw fresh DIR/a")[2..].iter().map(|row| row[1] + row[0]).collect();
        assert!(sizes > 0 && times.iter().sum::<u64>() >= sizes, "{sizes} {times:?}");
        assert!(numbers("iostat -Hpl fresh")[0][7] > 0, "average time of writes");
        self.check("iostat nope", 1, "Unable to parse pools/vdevs list.\n\n");
        self.check("iostat -wl", 2, &format!("[-r|-w] isn't allowed with [-c|-l|-q]\nusage:\n{IOSTAT}"));
    }

    /// Id of the process of a pool.
    fn process_of(&self, pool: &str) -> String {
        let lock = self.dir.join("run").join(format!("{pool}.lock"));
        let is_open = |process: &Path| {
            // its keeper has the lock, too
            let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
            let files = process.join("fd").read_dir().into_iter().flatten().flatten();
            let has_lock = files.map(|file| file.path().read_link()).any(|link| link.is_ok_and(|link| link == lock));
            has_lock && !line.ends_with(b"mount-helper\0")
        };
        let processes = Path::new("/proc").read_dir().unwrap().flatten().map(|entry| entry.path());
        let process = processes.into_iter().find(|process| is_open(process)).expect("the pool has a process");
        process.file_name().unwrap().to_str().unwrap().to_owned()
    }

    /// Kills the process of a pool, and waits until it is gone.
    fn kill(&self, pool: &str) {
        let process = self.process_of(pool);
        assert!(Command::new("kill").args(["-9", &process]).status().unwrap().success());
        // nobody may have waited for it, but its threads have let go of its files
        let tasks = Path::new("/proc").join(process).join("task");
        let is_alive = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
            stat.is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
        };
        while tasks.read_dir().is_ok_and(|mut tasks| tasks.any(is_alive)) {
            std::thread::yield_now();
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.zpool("export -af"));
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

#[test]
fn a_pool_comes_and_goes() {
    let world = World::new("life", &["mirror"]);
    world.check("list", 0, "no pools available\n");
    world.check("status", 0, "no pools available\n");
    let ro = "import -N -o readonly=on -d DIR/mirror";
    world.check(&format!("{ro} t_mirror"), 0, "");
    world.check("list -H -o name,size,health,altroot", 0, "t_mirror\t48M\tONLINE\t-\n");
    world.check("get -H -o value readonly,guid t_mirror", 0, "on\n571998073368044272\n");
    let status = String::from_utf8(world.zpool("status t_mirror").stdout).unwrap();
    // the name column is as wide as the folder's name makes it
    let words: Vec<&str> = status.split_whitespace().collect();
    let expect = format!(
        "pool: t_mirror state: ONLINE config: NAME STATE READ WRITE CKSUM t_mirror ONLINE 0 0 0 mirror-0 ONLINE 0 0 0 \
         {0}/vda.img ONLINE 0 0 0 {0}/vdb.img ONLINE 0 0 0 errors: No known data errors",
        world.dir.join("mirror").display()
    );
    assert_eq!(words.join(" "), expect);
    world.check("status -x", 0, "all pools are healthy\n");
    world.check("clear t_mirror", 1, "cannot clear errors for t_mirror: pool is read-only\n");
    let again = "cannot import 't_mirror': a pool with that name already exists\n\
                 use the form 'zpool import <pool | id> <newpool>' to give it a new name\n";
    world.check(&format!("{ro} t_mirror"), 1, again);
    world.check("import -d DIR/mirror", 0, "no pools available to import\n");
    world.check("export t_mirror", 0, "");
    world.check("list", 0, "no pools available\n");
    world.check(&format!("{ro} 571998073368044272 other"), 0, "");
    world.check("list -Ho name", 0, "other\n");
    world.check("export -a", 0, "");
}

/// Standard output on a full disk is an error that is told, and not a bug.
#[test]
fn nowhere_to_print_to() {
    let full = || std::fs::File::create("/dev/full").unwrap();
    for command in ["--version", "zpool list", "zpool version", "zfs version"] {
        let mut cenote = std::process::Command::new(env!("CARGO_BIN_EXE_cenote"));
        cenote.args(command.split(' ')).env("CENOTE_RUN", "/nonexistent");
        let ended = cenote.stdout(full()).output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{command}: {said}");
        assert!(said.contains("cannot write to standard output: No space left on device"), "{command}: {said}");
        let silent = cenote.stderr(full()).status().unwrap();
        assert_eq!(silent.code(), Some(1), "{command}");
    }
}

#[test]
fn a_killed_process_is_a_power_cut() {
    let world = World::new("kill", &["single"]);
    let import = "import -N -o readonly=on -d DIR/single t_single";
    world.check(import, 0, "");
    world.kill("t_single");
    world.check("list", 0, "no pools available\n");
    // what is left is cleared away by an import, and by an export
    world.check(import, 0, "");
    world.kill("t_single");
    world.check("export t_single", 0, "");
    world.check("export t_single", 1, "cannot open 't_single': no such pool\n");
}

/// Whether file systems can be mounted; says so of `what` if not.
fn can_mount(what: &str) -> bool {
    let can = nix::unistd::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("SKIPPED {what}: needs root and /dev/fuse");
    }
    can
}

#[test]
fn dead_mounts_of_a_pool_that_lives() {
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED dead mounts: nothing can be mounted here");
        return;
    }
    let worlds = ["killed", "living"].map(|name| World::new(name, &[]));
    for (world, options) in worlds.iter().zip(["-R DIR/mnt", "-O mountpoint=none"]) {
        std::fs::File::create(world.dir.join("disk")).unwrap().set_len(128 << 20).unwrap();
        world.check(&format!("create {options} namesake DIR/disk"), 0, "");
    }
    let [killed, living] = worlds;
    killed.kill("namesake");
    living.check("export namesake", 0, "");
    living.check("list", 0, "no pools available\n");
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(killed.dir.to_str().unwrap()), "{mounts}");
}

#[test]
fn what_can_be_imported() {
    let world = World::new("list", &["raidz1", "logcache"]);
    std::fs::remove_file(world.dir.join("raidz1/vdb.img")).unwrap();
    let text = String::from_utf8(world.zpool("import -d DIR/raidz1").stdout).unwrap();
    let head = "  pool: t_raidz1
    id: 6692179775455050453
 state: DEGRADED
status: One or more devices are missing from the system.
action: The pool can be imported despite missing or damaged devices.  The
\tfault tolerance of the pool may be compromised if imported.
   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-2Q
config:

\tt_raidz1 ";
    assert!(text.starts_with(head), "{text}");
    let vdevs: Vec<&str> = text[head.len()..].split_whitespace().collect();
    assert!(vdevs.starts_with(&["DEGRADED", "raidz1-0", "DEGRADED"]), "{text}");
    assert!(text.contains("  UNAVAIL  cannot open\n"), "{text}");
    // a log device that is gone is for the user to give up
    for name in ["vdc.img", "vdd.img"] {
        std::fs::remove_file(world.dir.join("logcache").join(name)).unwrap();
    }
    let import = "import -N -o readonly=on -d DIR/logcache t_logcache";
    let output = world.zpool(import);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stdout).unwrap().contains("use '-m' to import the pool anyway:\n"));
    world.check(&format!("{import} -m"), 0, "");
}

/// Makes the pool on a device use a feature that nobody knows.
fn use_unknown_feature(path: &Path) {
    let device: Arc<dyn Device> = Arc::new(FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap());
    let pool = LivePool::import(&Env::real(), &candidate(&[device]).unwrap(), &options(), (0, "here".into())).unwrap();
    let used = pool.run(|context| {
        let change = &context.change;
        change.set(change.in_directory("features_for_write")?, "com.example:future", &ZapValue::one(1))
    });
    used.unwrap();
    pool.close(PoolState::Exported).unwrap();
}

#[test]
fn what_goes_wrong_is_said_in_the_usual_words() {
    let world = World::new("wrong", &["single", "longnames"]);
    use_unknown_feature(&world.dir.join("longnames/vda.img"));
    let import = "import -N -o readonly=on -d DIR/single";
    world.check(&format!("{import} nope"), 1, "cannot import 'nope': no such pool available\n");
    world.check(&format!("{import} t_single mirror1"), 1, "cannot import 'mirror1': name is reserved\n");
    world.check(
        "import -N -d DIR/longnames t_longnames",
        1,
        "This pool uses the following feature(s) not supported by this system:\n\
         \tcom.example:future\n\
         All unsupported features are only required for writing to the pool.\n\
         The pool can be imported using '-o readonly=on'.\n\
         cannot import 't_longnames': unsupported version or feature\n",
    );
    let ring = "cannot import 't_single': no such state: the uberblocks are of txg 4 to 26\n";
    world.check(&format!("{import} --at-txg 3 t_single"), 1, ring);
    world.check("import -d /no/such/folder", 0, "no pools available to import\n");
    world.check("list a/b", 1, "cannot open 'a/b': invalid character '/' in pool name\n");
    world.check("get size nope", 1, "Cannot get properties of nope: no such pool available.\n");
    world.check("export", 2, "missing pool argument\nusage:\n\texport [-afF] <pool> ...\n");
    world.check("history -x", 2, "invalid option 'x'\nusage:\n\thistory [-il] [<pool>] ...\n");
}

#[test]
fn a_new_pool_is_used_and_destroyed() {
    let world = World::new("create", &[]);
    let disks = ["a", "b"].map(|name| world.dir.join(name));
    disks.iter().for_each(|disk| std::fs::File::create(disk).unwrap().set_len(128 << 20).unwrap());
    world.check(
        "create -d -O mountpoint=none fresh DIR/a special DIR/b",
        1,
        "cannot create 'fresh': special and dedup vdevs need feature@allocation_classes\n",
    );
    let create = "create -o failmode=continue -O mountpoint=none fresh mirror DIR/a DIR/b";
    world.check(create, 0, "");
    world.check(create, 1, TAKEN);
    world.check("sync fresh", 0, "");
    world.check_io();
    world.check("set comment=mine fresh", 0, "");
    world.check("set delegation=off fresh", 0, "");
    world.check("set org.me:note=short fresh", 0, "");
    let props = "get -H -o value,source failmode,delegation,comment,org.me:note,readonly fresh";
    let values = "continue\tlocal\noff\tlocal\nmine\tlocal\nshort\tlocal\noff\t-\n";
    world.check(props, 0, values);
    world.check("set ashift=8 fresh", 1, "cannot set property for 'fresh': property 'ashift' number 8 is invalid, only values between 9 and 16 are allowed.\n");
    world.check(
        "labelclear -f DIR/a",
        1,
        "DIR/a is a member (ACTIVE) of pool \"fresh\". Offline the disk first to clear its label.\n",
    );
    world.check("export fresh", 0, "");
    world.check("import -d DIR fresh", 0, "");
    world.check(props, 0, values);
    world.check("destroy fresh", 0, "");
    world.check("destroy fresh", 1, "cannot open 'fresh': no such pool\n");
    world.check("labelclear DIR/a", 0, "");
    world.check("labelclear DIR/a", 1, "failed to read label from DIR/a\n");
}

/// The uberblocks on a device.
fn uberblocks(pool: &str, disk: &Path) -> Vec<serde_json::Value> {
    let mut inspect = Command::new(env!("CARGO_BIN_EXE_cenote"));
    let output = inspect.args(["inspect", "uberblocks", "-j", pool, "-d"]).arg(disk).output().unwrap();
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    found["devices"][0]["uberblocks"].as_array().unwrap().clone()
}

#[test]
fn a_forced_sync_writes_a_group() {
    let world = World::new("forced", &[]);
    let disk = world.dir.join("a");
    std::fs::File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    world.check(
        "create -n -O volsize=1M fresh DIR/a",
        1,
        "cannot create 'fresh': 'volsize' does not apply to datasets of this type\n",
    );
    world.check("create -o ashift=9 -O mountpoint=none fresh DIR/a", 0, "");
    let before = uberblocks("fresh", &disk).len();
    (0..10).for_each(|_| world.check("sync -f fresh", 0, ""));
    let now = uberblocks("fresh", &disk).len();
    assert!(now >= before + 10, "{now} uberblocks, and {before} before");
    world.check("destroy fresh", 0, "");
}

#[test]
fn a_pool_goes_back_to_an_earlier_group() {
    let world = World::new("rewind", &[]);
    let disk = world.dir.join("a");
    std::fs::File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    world.check("create -O mountpoint=none back DIR/a", 0, "");
    world.check("export back", 0, "");
    // nothing is wrong: nothing is said, and nothing is done
    world.check("import -F -n -d DIR back", 0, "");
    world.check("list", 0, "no pools available\n");
    let ring = uberblocks("back", &disk);
    let last = ring.iter().find(|uberblock| uberblock["in_force"] == true).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&disk).unwrap();
    for copy in last["rootbp"].as_str().unwrap().split("=<0:").skip(1) {
        let offset = u64::from_str_radix(copy.split(':').next().unwrap(), 16).unwrap();
        file.write_all_at(&[0xa5; 512], offset + (4 << 20)).unwrap();
    }
    let told = |line: &str, code: i32| {
        let output = world.zpool(line);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat()
    };
    let text = told("import -d DIR back", 1);
    assert!(text.contains("cannot import 'back'"), "{text}");
    let text = told("import -F -n -d DIR back", 0);
    assert!(text.starts_with("Would be able to return back to its state as of "), "{text}");
    world.check("list", 0, "no pools available\n");
    let text = told("import -F -d DIR back", 0);
    assert!(text.starts_with("Pool back returned to its state as of "), "{text}");
    world.check("sync back", 0, "");
    world.check("export back", 0, "");
    world.check("import -d DIR back", 0, "");
}

#[test]
fn a_pool_gets_features_a_guid_and_names() {
    let world = World::new("upgrade", &[]);
    std::fs::File::create(world.dir.join("a")).unwrap().set_len(128 << 20).unwrap();
    world.check("create -d -o compatibility=legacy -O mountpoint=none -t short plain DIR/a", 0, "");
    world.check("list -Ho name", 0, "short\n");
    let head = "This system supports ZFS pool feature flags.\n\n";
    let done = format!("{head}Pool 'short' already has all supported and requested features enabled.\n");
    world.check("upgrade short", 0, &done);
    world.check("upgrade -V 29 short", 2, &format!("invalid version '29'\nusage:\n{UPGRADE}"));
    world.check("set compatibility=off short", 0, "");
    world.check("set feature@skein=enabled short", 0, "");
    world.check(
        "get -Ho value feature@skein,feature@extensible_dataset,feature@edonr short",
        0,
        "enabled\nenabled\ndisabled\n",
    );
    let text = String::from_utf8(world.zpool("upgrade -a").stdout).unwrap();
    let start = format!("{head}Enabled the following features on 'short':\n  async_destroy\n  empty_bpobj\n");
    assert!(text.starts_with(&start) && !text.contains("skein") && text.ends_with("\n\n"), "{text}");
    world.check("upgrade short", 0, &done);
    world.check("get -Ho value feature@hole_birth,feature@edonr short", 0, "active\nenabled\n");
    world.check("reguid -g -1 short", 0, "");
    world.check("get -Ho value guid short", 0, "18446744073709551615\n");
    world.check("reguid -g 4711 short", 0, "");
    world.check("reguid -g x short", 2, "invalid GUID: x\nusage:\n\treguid [-g guid] <pool>\n");
    world.check("reguid -g 4711 short", 1, "cannot reguid 'short': pool already exists\n");
    world.check("get -Ho value guid short", 0, "4711\n");
    // what is imported is not there to be imported, whatever its guid
    world.check("import -d DIR", 0, "no pools available to import\n");
    world.check("export short", 0, "");
    world.check("import -d DIR -t 4711 temp", 0, "");
    world.check("reguid temp", 0, "");
    world.check("export temp", 0, "");
    world.check("import -d DIR plain lasting", 0, "");
    assert_ne!(world.zpool("get -Ho value guid lasting").stdout, b"4711\n");
    world.check("export lasting", 0, "");
    world.check("import -d DIR lasting", 0, "");
    // a file that tells of devices
    world.check("get -Ho value,source cachefile lasting", 0, "-\tdefault\n");
    world.check("set cachefile=DIR/cache lasting", 0, "");
    world.check("export lasting", 0, "");
    assert!(!world.dir.join("cache").exists());
    world.check("import -d DIR -o cachefile=DIR/cache lasting", 0, "");
    std::fs::copy(world.dir.join("cache"), world.dir.join("copy")).unwrap();
    world.check("set cachefile=none lasting", 0, "");
    assert!(!world.dir.join("cache").exists());
    world.check("get -Ho value,source cachefile lasting", 0, "none\tlocal\n");
    world.check("export lasting", 0, "");
    world.check("import -c DIR/copy lasting", 0, "");
    world.check("export lasting", 0, "");
    std::fs::write(world.dir.join("cache"), "precious").unwrap();
    let output = world.zpool("import -d DIR -o cachefile=DIR/cache lasting");
    assert!(
        output.status.success() && String::from_utf8(output.stderr).unwrap().starts_with("cannot write cache file '")
    );
}

/// A name that another pool has, a copy of a disk from before, and devices that have moved since a file told of them.
#[test]
fn nothing_is_mistaken_for_another() {
    let world = World::new("mistaken", &[]);
    for (pool, disk) in [("one", "a"), ("two", "b")] {
        std::fs::File::create(world.dir.join(disk)).unwrap().set_len(128 << 20).unwrap();
        world.check(&format!("create -O mountpoint=none {pool} DIR/{disk}"), 0, "");
    }
    world.check("export one", 0, "");
    world.check("import -d DIR one two", 1, "cannot import 'one' as 'two': pool already exists\n");
    world.check("import -d DIR -o cachefile=DIR/cache one", 0, "");
    std::fs::copy(world.dir.join("cache"), world.dir.join("copy")).unwrap();
    world.check("export one", 0, "");
    std::fs::copy(world.dir.join("a"), world.dir.join("old")).unwrap();
    world.check("import -d DIR one", 0, "");
    world.check("set org.me:note=newer one", 0, "");
    world.check("export one", 0, "");
    world.check("import -d DIR one", 0, "");
    world.check("get -Ho value org.me:note one", 0, "newer\n");
    world.check("export one", 0, "");
    std::fs::rename(world.dir.join("a"), world.dir.join("moved")).unwrap();
    world.check("import -c DIR/copy one", 0, "");
    world.check("get -Ho value org.me:note one", 0, "newer\n");
    let state = || {
        let found = pool::discover(&Env::real(), std::slice::from_ref(&world.dir)).unwrap();
        pool::Candidate::pick(&pool::Candidate::all(&found), "one").unwrap().state
    };
    world.check("export -F one", 0, "");
    assert_eq!(state(), PoolState::Active, "another host has to be sure");
    world.check("import -d DIR one", 0, "");
    world.check("export -f one", 0, "");
    assert_eq!(state(), PoolState::Exported);
    world.check("import -d DIR -o readonly=on one", 0, "");
    world.check("destroy one", 0, "'one' is imported read-only: it is exported, and not destroyed\n");
    assert_eq!(state(), PoolState::Exported);
}

/// What a pool has and does not use may lose its label, if that is asked for twice.
#[test]
fn the_label_of_a_device_that_is_offline_goes() {
    let world = World::new("unlabelled", &[]);
    for disk in ["a", "b"] {
        std::fs::File::create(world.dir.join(disk)).unwrap().set_len(128 << 20).unwrap();
    }
    world.check("create -O mountpoint=none tank mirror DIR/a DIR/b", 0, "");
    let used = "DIR/b is a member (ACTIVE) of pool \"tank\"";
    world.check("labelclear -f DIR/b", 1, &format!("{used}. Offline the disk first to clear its label.\n"));
    for how in ["offline", "offline -f"] {
        world.check(&format!("{how} tank DIR/b"), 0, "");
        world.check("labelclear DIR/b", 1, &format!("{used}\n"));
        world.check("labelclear -f DIR/b", 0, "");
        world.check("replace -w tank DIR/b", 0, "");
        world.check("get -Ho value health tank", 0, "ONLINE\n");
    }
}

const UPGRADE: &str = "\tupgrade\n\tupgrade -v\n\tupgrade [-V version] <-a | pool ...>\n";
const IOSTAT: &str = "\tiostat [[-lq]|[-rw]] [-T d | u] [-ghHLpPvy]\n\
                      \t    [[pool ...]|[pool vdev ...]|[vdev ...]] [[-n] interval [count]]\n";
const TAKEN: &str = "invalid vdev specification\nuse '-f' to override the following errors:\n\
                     DIR/a is part of active pool 'fresh'\nDIR/b is part of active pool 'fresh'\n";
