//! A panic in any thread of the pool's process ends it at once, as a power cut would: who waits for it hears of that,
//! and after the next import all is there that was synced.

use std::io::Write;
use std::path::PathBuf;

use super::*;

/// Failpoints: threads by the beginnings of their names, places, and how often they are passed before they fail.
const FAILPOINTS: [&str; 14] = [
    "txg_sync/group closed/1",
    "txg_sync/head written/1",
    "txg_sync/tasks done/2",
    "txg_sync/worker/7",
    "txg_sync/pass written/2",
    "txg_sync/blocks flushed/1",
    "txg_sync/labels written/2",
    "txg_sync/group on disk/1",
    "write/batch taken/25",
    "write/batch written/25",
    "fuse/log write/3",
    "fuse/log flush/3",
    "fuse/request/100",
    "client/answer/3",
];
/// Rounds of the load until a failpoint must have been passed.
const ROUNDS_MAX: usize = 300;

/// Writes files and has them synced in every way, until the process has ended. Those that are to be there.
fn load(nest: &Nest, name: &str) -> Vec<(PathBuf, String)> {
    let (mut written, mut kept) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS_MAX {
        let path = nest.dir.join("mnt/nest/a").join(format!("{}-{round}", name.replace(' ', "-")));
        let text = format!("{name} {round} ").repeat(1 + round * 37 % 5000);
        let Ok(mut file) = File::create(&path) else { break };
        if file.write_all(text.as_bytes()).is_err() {
            break;
        }
        written.push((path, text));
        match round % 3 {
            0 if file.sync_all().is_ok() => kept.push(written[round].clone()),
            1 if nest.run("zpool sync nest").status.success() => kept.clone_from(&written),
            2 => {
                nest.run(&format!("zfs set quota={}G nest/d", 1 + round));
            }
            _ => break,
        }
    }
    kept
}

#[test]
fn a_panic_is_a_power_cut() {
    if !cfg!(debug_assertions) {
        return eprintln!("SKIPPED: failpoints of the pool's process are of debug builds only");
    }
    let Some(nest) = Nest::new("panic") else { return };
    for failpoint in FAILPOINTS {
        let [thread, place, _] = failpoint.split('/').collect::<Vec<_>>()[..] else { unreachable!() };
        nest.done("zpool export nest");
        let import = nest.finish(nest.start_with(failpoint, IMPORT), IMPORT);
        assert!(import.status.success(), "{place}: {}", String::from_utf8_lossy(&import.stderr));
        let process = nest.processes("serve")[0];
        let kept = load(&nest, place);
        assert!(within(DEATH_TIME, || is_gone(process)), "{place}: threads live on:\n{}", stacks(process));
        assert!(within(DEATH_TIME, || nest.processes("mount-helper").is_empty()), "its helper is still there");
        let log = fs::read_to_string(nest.dir.join("run/nest.log")).unwrap();
        let said = [&format!("thread '{thread}"), &format!("failpoint: {place}"), "process of pool 'nest' ends"];
        assert!(said.iter().all(|words| log.contains(*words)), "{place}: {log}");
        let asked = nest.run("zpool sync nest");
        let text = String::from_utf8(asked.stderr).unwrap();
        assert_eq!((text.as_str(), asked.status.code()), ("cannot open 'nest': no such pool\n", Some(1)));
        nest.import();
        nest.check();
        for (path, text) in &kept {
            assert!(fs::read_to_string(path).is_ok_and(|now| now == *text), "{place}: {}", path.display());
        }
        nest.done("zpool export nest");
        let checked = nest.run("zdb -bcc -p DIR/img nest");
        let text = String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success() && text.contains("No leaks"), "{place}: {text}");
        nest.import();
    }
}

/// An import that panics says so, and nothing of it is left.
#[test]
fn a_panic_of_an_import_is_told() {
    if !cfg!(debug_assertions) {
        return eprintln!("SKIPPED: failpoints of the pool's process are of debug builds only");
    }
    let Some(nest) = Nest::new("panic-import") else { return };
    nest.done("zpool export nest");
    let import = nest.finish(nest.start_with("main/worker/20", IMPORT), IMPORT);
    let text = String::from_utf8(import.stderr).unwrap();
    assert!(text.contains("failpoint: worker") && text.contains("this is a bug of cenote's"), "{text}");
    assert!(text.ends_with("the pool's process ended early, and says above why: signal: 6 (SIGABRT)\n"), "{text}");
    assert_eq!(import.status.code(), Some(1));
    nest.import();
    nest.check();
}

/// Whichever thread cannot be started, the pool is imported without it, or not at all; in the end it is whole.
#[test]
fn threads_that_cannot_be_started() {
    if !cfg!(debug_assertions) {
        return eprintln!("SKIPPED: failpoints of the pool's process are of debug builds only");
    }
    let Some(nest) = Nest::new("threads") else { return };
    // among the first ones are those of the pool; the others are of mounts, and of what is asked of these
    for n in [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 18, 22] {
        nest.done("zpool export nest");
        let import = nest.finish(nest.start_with(&format!("/thread start/{n}"), IMPORT), IMPORT);
        let said = String::from_utf8(import.stderr).unwrap();
        let is_told =
            |line: &str| line.ends_with(": the system gives no more threads") || line.starts_with("Import was");
        assert!(import.status.success() && said.lines().all(is_told), "{n}: {said}");
        // what could not be mounted then can be now
        nest.done("zfs unmount -a");
        // a thread that is started only when there is something to do may be the one
        let mount = nest.run("zfs mount -a");
        let said = String::from_utf8(mount.stderr).unwrap();
        assert!(mount.status.success() || said.lines().all(is_told), "{n}: {said}");
        nest.done("zfs mount -a");
        nest.check();
        let path = nest.dir.join(format!("mnt/nest/a/{n}"));
        fs::write(&path, "all the same").and_then(|()| File::open(&path)?.sync_all()).unwrap();
        nest.done("zpool export nest");
        nest.import();
        assert_eq!(fs::read_to_string(&path).unwrap(), "all the same");
    }
}

/// Whatever the system refuses, memory, threads or open files: a command does what it should or says why not, in time;
/// nothing hangs or is left mounted, and the pool is whole.
#[test]
fn what_the_system_refuses() {
    let Some(nest) = Nest::new("refused") else { return };
    nest.done("zpool export nest");
    let memory = [3000, 1500, 1100, 900, 700, 500, 350, 200].map(|mib: u64| format!("--as={}", mib << 20));
    let files = [200, 64, 48, 40, 32, 24, 20, 16].map(|count| format!("--nofile={count}"));
    let mut imported = 0;
    for limit in memory.iter().chain(&files) {
        let import = nest.finish(nest.start_limited(limit, IMPORT), IMPORT);
        if import.status.success() {
            imported += 1;
            let wish = format!("dd if=/dev/zero of={}/mnt/nest/a/new bs=1M count=4 conv=fsync", nest.dir.display());
            let mut command = Command::new("timeout");
            command.args(["-s", "KILL", "30"]).args(wish.split(' ')).stderr(Stdio::null());
            let wrote = command.status().unwrap();
            assert!(wrote.code().is_some(), "{limit}: writing hangs");
            let export = nest.run("zpool export nest");
            let log = fs::read_to_string(nest.dir.join("run/nest.log")).unwrap();
            let has_died = log.contains("memory allocation of");
            let said = String::from_utf8_lossy(&export.stderr);
            assert!(export.status.success() || has_died, "{limit}: {said}its process says: {log}");
            if has_died {
                // as after any death, this clears away what was mounted
                nest.run("zpool export nest");
            }
        } else {
            let said = String::from_utf8(import.stderr).unwrap();
            let told = said.lines().filter(|line| line.starts_with("cannot import 'nest': ")).count();
            let is_of_client = said.contains("memory allocation of");
            assert!(told == 1 || is_of_client, "{limit}: {said}");
        }
        assert!(within(DEATH_TIME, || nest.processes("serve").is_empty()), "{limit}: the process is still there");
        assert!(within(DEATH_TIME, || nest.processes("mount-helper").is_empty()), "{limit}: its helper is still there");
        assert_eq!(nest.mounts(), Vec::<String>::new(), "{limit}");
        nest.import();
        nest.check();
        nest.done("zpool export nest");
    }
    assert!(imported >= 4, "{imported}");
    let checked = nest.run("zdb -bcc -p DIR/img nest");
    let text = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success() && text.contains("No leaks"), "{text}");
    let judge = Command::new("zdb").args(["-e", "-bcc", "-p"]).arg(nest.dir.join("img")).arg("nest").output();
    match judge {
        Ok(judge) => assert!(judge.status.success(), "{}", String::from_utf8_lossy(&judge.stdout)),
        Err(_) => eprintln!("SKIPPED: zdb of OpenZFS is not installed"),
    }
    nest.import();
}
