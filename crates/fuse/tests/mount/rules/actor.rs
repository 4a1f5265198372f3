//! The actors that take the steps: for each kind of user a process that is that user, with the tree as its root.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use testkit::rng::Rng;

use super::steps::Step;
use crate::harness::c_path;

/// A kind of user.
#[derive(Clone, Copy, Debug)]
pub struct User {
    uid: u32,
    gid: u32,
    groups: &'static [u32],
    rights: Rights,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rights {
    /// Those that the number brings.
    Usual,
    /// No capability at all.
    None,
    /// All, in a user namespace of its own, that has no numbers.
    OwnNamespace,
    /// The same, where the user is root, and has no other number.
    RootOfOwnNamespace,
}

/// The users that ask.
pub const USERS: [User; 7] = [
    User { uid: 0, gid: 0, groups: &[], rights: Rights::Usual },
    User { uid: 1000, gid: 2000, groups: &[], rights: Rights::Usual },
    User { uid: 1001, gid: 2000, groups: &[], rights: Rights::Usual },
    User { uid: 1001, gid: 2001, groups: &[0, 2000], rights: Rights::Usual },
    User { uid: 0, gid: 0, groups: &[], rights: Rights::None },
    User { uid: 1000, gid: 2000, groups: &[0], rights: Rights::OwnNamespace },
    User { uid: 1000, gid: 2001, groups: &[], rights: Rights::RootOfOwnNamespace },
];

/// The result of a system call, or its error.
pub type Answer = Result<i64, i32>;

/// An actor for each user.
pub struct Actors(Vec<Actor>);

struct Actor {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Actors {
    /// Actors that work in `root`, where everybody may write.
    pub fn new(root: &Path) -> Actors {
        let path = c_path(root);
        // SAFETY: a live string.
        assert_eq!(unsafe { libc::chmod(path.as_ptr(), 0o777) }, 0);
        Actors((0..USERS.len()).map(|user| Actor::new(root, user)).collect())
    }

    /// Lets the step's user take it.
    pub fn run(&mut self, step: &Step) -> Answer {
        let actor = &mut self.0[step.user];
        writeln!(actor.process.stdin.as_mut().unwrap(), "{}", step.seed).unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(actor.answers.read_line(&mut line).unwrap(), 0, "an actor has ended: {:?}", USERS[step.user]);
            // the test's own lines come before
            let Some((_, answer)) = line.trim().split_once("answer ") else { continue };
            let number: i64 = answer.parse().unwrap();
            return if number < 0 { Err(-number as i32) } else { Ok(number) };
        }
    }
}

impl Actor {
    fn new(root: &Path, user: usize) -> Actor {
        let mut command = Command::new("/proc/self/exe");
        command.args(["--ignored", "--exact", "--nocapture", "--test-threads=1", "rules::actor::act"]);
        command.env("CENOTE_ACTOR", format!("{user} {}", root.display()));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Actor { process, answers }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "an actor of another test"]
fn act() {
    let Ok(text) = std::env::var("CENOTE_ACTOR") else { return };
    let (user, root) = text.split_once(' ').unwrap();
    let (user, root) = (USERS[user.parse::<usize>().unwrap()], c_path(Path::new(root)));
    // SAFETY: it only splits off this process.
    let actor = unsafe { libc::fork() };
    if actor == 0 {
        become_user(user, &root);
        for line in std::io::stdin().lines() {
            let answer = Step::random(line.unwrap().parse().unwrap()).take();
            println!("answer {}", answer.unwrap_or_else(|errno| -i64::from(errno)));
        }
        // SAFETY: nothing of this process is to be put in order.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: a child of ours, and no status.
    unsafe { libc::waitpid(actor, std::ptr::null_mut(), 0) };
}

/// Makes this process, which has one thread, that user, with `root` as its root.
fn become_user(user: User, root: &std::ffi::CStr) {
    let (uid, gid) = (user.uid, user.gid);
    // SAFETY: calls with live strings, buffers of the right sizes and plain numbers.
    unsafe {
        let enter = || {
            assert_eq!(libc::chroot(root.as_ptr()), 0);
            assert_eq!(libc::chdir(c"/".as_ptr()), 0);
        };
        let is_apart = matches!(user.rights, Rights::OwnNamespace | Rights::RootOfOwnNamespace);
        if !is_apart {
            enter();
        }
        assert_eq!(libc::setgroups(user.groups.len(), user.groups.as_ptr()), 0);
        assert_eq!((libc::setresgid(gid, gid, gid), libc::setresuid(uid, uid, uid)), (0, 0));
        if user.rights == Rights::None {
            let (header, sets) = ([0x2008_0522u32, 0], [0u32; 6]);
            assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()), 0);
        }
        if is_apart {
            // its files in /proc are its own only so
            assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 1), 0);
            assert_eq!(libc::unshare(libc::CLONE_NEWUSER), 0);
            if user.rights == Rights::RootOfOwnNamespace {
                std::fs::write("/proc/self/setgroups", "deny").unwrap();
                std::fs::write("/proc/self/uid_map", format!("0 {uid} 1")).unwrap();
                std::fs::write("/proc/self/gid_map", format!("0 {gid} 1")).unwrap();
            }
            enter();
        }
    }
}

/// A step of a random user.
pub fn random_step(rng: &mut Rng) -> Step {
    Step::random(rng.number())
}
