//! Who takes the steps: for each user a thread that is that user, in a working directory of its own.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use super::steps::Step;
use crate::harness::{as_user, c_path};

/// User and group numbers of those who ask.
pub const USERS: [(u32, u32); 3] = [(0, 0), (1000, 2000), (1001, 2000)];

/// What a system call returned, or its error.
pub type Answer = Result<i64, i32>;

/// An actor for each user.
pub struct Actors(Vec<Actor>);

struct Actor {
    steps: Option<Sender<Step>>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
}

impl Actors {
    /// Actors that work in `root`, where everybody may write.
    pub fn new(root: &Path) -> Actors {
        let path = c_path(root);
        // SAFETY: a live string.
        assert_eq!(unsafe { libc::chmod(path.as_ptr(), 0o777) }, 0);
        Actors(USERS.iter().map(|&(uid, gid)| Actor::new(root, uid, gid)).collect())
    }

    /// Lets the step's user take it.
    pub fn run(&self, step: &Step) -> Answer {
        let actor = &self.0[step.user];
        actor.steps.as_ref().unwrap().send(step.clone()).unwrap();
        actor.answers.recv().unwrap()
    }
}

impl Actor {
    fn new(root: &Path, uid: u32, gid: u32) -> Actor {
        let (to, steps) = mpsc::channel::<Step>();
        let (from, answers) = mpsc::channel();
        let root = c_path(root);
        let act = move || {
            for step in steps {
                from.send(step.take()).unwrap();
            }
        };
        let become_user = move || as_user(uid, gid, act);
        let thread = std::thread::spawn(move || {
            // SAFETY: calls with live strings, of this thread and the one that it starts: they get a umask, a
            // working directory and a root of their own, so that no `..` leads out.
            unsafe {
                assert_eq!(libc::unshare(libc::CLONE_FS), 0);
                assert_eq!(libc::chroot(root.as_ptr()), 0);
                assert_eq!(libc::chdir(c"/".as_ptr()), 0);
            }
            become_user()
        });
        Actor { steps: Some(to), answers, thread: Some(thread) }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        drop(self.steps.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
