//! The actors that take the steps: for each kind of user a process that is that user, with the tree as its root.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::sched::CloneFlags;
use nix::unistd::{ForkResult, Gid, Uid};
use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitySet, CapabilitySets};
use testkit::rng::Rng;

use super::steps::{Step, WITH_MARKS, WITH_PROJECTS};

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
        std::fs::set_permissions(root, Permissions::from_mode(0o777)).unwrap();
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
    let (user, root) = (USERS[user.parse::<usize>().unwrap()], Path::new(root));
    // SAFETY: it only splits off this process.
    match unsafe { nix::unistd::fork() }.unwrap() {
        ForkResult::Parent { child } => drop(nix::sys::wait::waitpid(child, None)),
        ForkResult::Child => {
            become_user(user, root);
            for line in std::io::stdin().lines() {
                let answer = Step::random(line.unwrap().parse().unwrap()).take();
                println!("answer {}", answer.unwrap_or_else(|errno| -i64::from(errno)));
            }
            std::process::exit(0);
        }
    }
}

/// Makes this process, which has one thread, that user, with `root` as its root.
fn become_user(user: User, root: &Path) {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    let enter = || {
        nix::unistd::chroot(root).unwrap();
        nix::unistd::chdir("/").unwrap();
    };
    let is_apart = matches!(user.rights, Rights::OwnNamespace | Rights::RootOfOwnNamespace);
    if !is_apart {
        enter();
    }
    let groups: Vec<Gid> = user.groups.iter().map(|&group| Gid::from_raw(group)).collect();
    nix::unistd::setgroups(&groups).unwrap();
    nix::unistd::setresgid(gid, gid, gid).unwrap();
    nix::unistd::setresuid(uid, uid, uid).unwrap();
    if user.rights == Rights::None {
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, sets).unwrap();
    }
    if is_apart {
        // its files in /proc are its own only so
        rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
        nix::sched::unshare(CloneFlags::CLONE_NEWUSER).unwrap();
        if user.rights == Rights::RootOfOwnNamespace {
            std::fs::write("/proc/self/setgroups", "deny").unwrap();
            std::fs::write("/proc/self/uid_map", format!("0 {uid} 1")).unwrap();
            std::fs::write("/proc/self/gid_map", format!("0 {gid} 1")).unwrap();
        }
        enter();
    }
}

/// A step of a random user.
pub fn random_step(rng: &mut Rng) -> Step {
    Step::random(rng.number() & !WITH_MARKS)
}

/// The same, also about flags and attributes, and about projects.
pub fn random_marked_step(has_projects: bool, rng: &mut Rng) -> Step {
    let bits = if has_projects { WITH_MARKS | WITH_PROJECTS } else { WITH_MARKS };
    Step::random(rng.number() & !WITH_PROJECTS | bits)
}
