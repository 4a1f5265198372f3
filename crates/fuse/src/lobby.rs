//! Where mounts are that nobody asks anything: one thread of the process waits for all of them.
//!
//! ```text
//!   at rest: thousands of mounts          one thread waits for all, without buffers
//!   a request for one of them          ─▶ this thread serves that mount, and another one waits for the rest
//!   no request for a while             ─▶ the mount is at rest again, and its thread waits for all, or ends if one does
//! ```
//!
//! So an idle mount takes neither a thread nor buffers. Above is [`mount`](crate::mount()); how a mount is served that has
//! requests, [`serve`](crate::serve) says.
//!
//! Invariant: while a mount is at rest, a thread waits here, and never more than one. Where the system gives no more
//! threads, the one that waits serves mounts itself, each for a moment.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use base::{Error, Kind, Mutex, Result};
use nix::errno::Errno;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

/// How long a mount is served when requests have come for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stay {
    /// Until none has come for a while.
    UntilIdle,
    /// As long as one comes after the other: other mounts wait for this thread.
    WhileAsked,
}

/// A mount, as it is here.
pub(crate) trait LobbyGuest: Send {
    /// There is something to do when it can be read.
    fn connection(&self) -> BorrowedFd<'_>;

    /// Serves it on this thread, and on others. Nothing is returned when it has ended.
    fn serve(self: Box<Self>, stay: Stay) -> Option<Box<dyn LobbyGuest>>;

    /// Does that on a thread of its own. False if there are no threads.
    fn spawn(&self, work: Box<dyn FnOnce() + Send>) -> bool;
}

/// The mounts at rest.
pub(crate) struct Lobby {
    bell: OwnedFd,
    resting: Mutex<Resting>,
}

#[derive(Default)]
struct Resting {
    guests: HashMap<u64, Box<dyn LobbyGuest>>,
    /// The last number that was given.
    number: u64,
    has_waiter: bool,
}

static OF_PROCESS: Mutex<Option<Arc<Lobby>>> = Mutex::new(None);

impl Lobby {
    fn new() -> Result<Lobby> {
        let bell = epoll::create(CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
        Ok(Lobby { bell, resting: Mutex::default() })
    }

    /// That of this process. Errors: there are too many open files.
    pub(crate) fn of_process() -> Result<Arc<Lobby>> {
        let mut lobby = OF_PROCESS.lock();
        match &*lobby {
            Some(lobby) => Ok(lobby.clone()),
            None => Ok(lobby.insert(Arc::new(Lobby::new()?)).clone()),
        }
    }

    /// Serves a mount from now on, when requests come. Errors: the system gives no thread, or cannot tell of requests.
    pub(crate) fn admit(self: &Arc<Lobby>, guest: Box<dyn LobbyGuest>) -> Result<()> {
        let mut resting = self.resting.lock();
        if !resting.has_waiter && !self.start_waiter(&*guest) {
            return Err(no_thread());
        }
        resting.has_waiter = true;
        self.settle(&mut resting, guest).map_err(|(_, errno)| std::io::Error::from(errno).into())
    }

    fn start_waiter(self: &Arc<Lobby>, guest: &dyn LobbyGuest) -> bool {
        let lobby = self.clone();
        guest.spawn(Box::new(move || lobby.wait()))
    }

    /// A mount is at rest from now on.
    fn settle(&self, resting: &mut Resting, guest: Box<dyn LobbyGuest>) -> Result<(), (Box<dyn LobbyGuest>, Errno)> {
        resting.number += 1;
        let told = EventData::new_u64(resting.number);
        if let Err(errno) = epoll::add(&self.bell, guest.connection(), told, EventFlags::IN) {
            return Err((guest, Errno::from_raw(errno.raw_os_error())));
        }
        let number = resting.number;
        resting.guests.insert(number, guest);
        Ok(())
    }

    /// The work of the thread that waits.
    fn wait(self: Arc<Lobby>) {
        loop {
            let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }];
            // an error is an interruption
            if epoll::wait(&self.bell, &mut events, None) != Ok(1) {
                continue;
            }
            let Some((mut guest, stay)) = self.take(events[0].data.u64()) else { continue };
            let is_waiter = loop {
                match guest.serve(stay) {
                    None => break self.leave(stay),
                    Some(served) => match self.readmit(served, stay) {
                        Ok(is_waiter) => break is_waiter,
                        // it is served as long as it cannot rest
                        Err(refused) => guest = refused,
                    },
                }
            };
            if !is_waiter {
                return;
            }
        }
    }

    /// The mount with that number is served from now on by this thread, which is the one that waited: another one waits
    /// now, if there is still something to wait for.
    fn take(self: &Arc<Lobby>, number: u64) -> Option<(Box<dyn LobbyGuest>, Stay)> {
        let mut resting = self.resting.lock();
        let guest = resting.guests.remove(&number)?;
        // it is there: it was added
        let _ = epoll::delete(&self.bell, guest.connection());
        resting.has_waiter = !resting.guests.is_empty();
        let is_relieved = !resting.has_waiter || self.start_waiter(&*guest);
        Some((guest, if is_relieved { Stay::UntilIdle } else { Stay::WhileAsked }))
    }

    /// A mount that was served is at rest again: whether this thread is the one that waits now.
    fn readmit(&self, guest: Box<dyn LobbyGuest>, stay: Stay) -> Result<bool, Box<dyn LobbyGuest>> {
        let mut resting = self.resting.lock();
        if let Err((guest, errno)) = self.settle(&mut resting, guest) {
            tracing::debug!("a mount cannot rest: {errno}");
            return Err(guest);
        }
        let is_waiter = stay == Stay::WhileAsked || !resting.has_waiter;
        resting.has_waiter = true;
        Ok(is_waiter)
    }

    /// A mount has ended: whether this thread is the one that waits now.
    fn leave(&self, stay: Stay) -> bool {
        let mut resting = self.resting.lock();
        if stay == Stay::WhileAsked {
            resting.has_waiter = !resting.guests.is_empty();
        }
        stay == Stay::WhileAsked && resting.has_waiter
    }
}

/// The error of the system giving no thread.
pub(crate) fn no_thread() -> Error {
    Error::new(Kind::Io, "the system gives no more threads")
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Read, Write};
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    use super::*;

    /// A mount whose requests are bytes, each of which is answered; a zero takes long, and a one is its end.
    struct Pipe {
        requests: PipeReader,
        answers: Sender<(u8, Stay)>,
        has_threads: Arc<AtomicBool>,
        threads: Arc<AtomicUsize>,
    }

    impl LobbyGuest for Pipe {
        fn connection(&self) -> BorrowedFd<'_> {
            self.requests.as_fd()
        }

        fn serve(self: Box<Self>, stay: Stay) -> Option<Box<dyn LobbyGuest>> {
            let mut byte = [0];
            let len = (&self.requests).read(&mut byte).unwrap();
            if byte[0] == 0 && stay == Stay::UntilIdle {
                std::thread::sleep(Duration::from_millis(300));
            }
            self.answers.send((byte[0], stay)).unwrap();
            (len == 1 && byte[0] != 1).then_some(self)
        }

        fn spawn(&self, work: Box<dyn FnOnce() + Send>) -> bool {
            let threads = self.threads.clone();
            let has_threads = self.has_threads.load(Ordering::SeqCst);
            if has_threads {
                threads.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    work();
                    threads.fetch_sub(1, Ordering::SeqCst);
                });
            }
            has_threads
        }
    }

    /// Waits until there are so many threads.
    fn until(threads: &AtomicUsize, count: usize) {
        while threads.load(Ordering::SeqCst) != count {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn one_thread_waits_for_all() {
        let lobby = Arc::new(Lobby::new().unwrap());
        let (has_threads, threads) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let (answers, answered) = channel();
        let admit = || {
            let (requests, asks) = std::io::pipe().unwrap();
            let (has_threads, threads) = (has_threads.clone(), threads.clone());
            let guest = Pipe { requests, answers: answers.clone(), has_threads, threads };
            lobby.admit(Box::new(guest)).map(|()| asks)
        };
        let mut mounts: Vec<PipeWriter> = (0..300).map(|_| admit().unwrap()).collect();
        let within = || answered.recv_timeout(Duration::from_secs(20)).unwrap();
        for (n, mount) in mounts.iter_mut().enumerate() {
            let byte = 2 + (n % 200) as u8;
            mount.write_all(&[byte]).unwrap();
            assert_eq!(within(), (byte, Stay::UntilIdle));
        }
        until(&threads, 1);
        // those that are slow keep no other one waiting
        mounts[..3].iter_mut().for_each(|mount| mount.write_all(&[0]).unwrap());
        mounts[3].write_all(&[7]).unwrap();
        assert_eq!(within().0, 7);
        (0..3).for_each(|_| assert_eq!(within().0, 0));
        until(&threads, 1);
        // without more threads, this one serves all, each in its turn
        has_threads.store(false, Ordering::SeqCst);
        for _ in 0..3 {
            mounts[..100].iter_mut().for_each(|mount| mount.write_all(&[9]).unwrap());
            (0..100).for_each(|_| assert_eq!(within(), (9, Stay::WhileAsked)));
        }
        assert!(admit().is_ok(), "one that waits is there");
        // all end in whatever way, and nothing is left
        has_threads.store(true, Ordering::SeqCst);
        mounts[..200].iter_mut().for_each(|mount| mount.write_all(&[1]).unwrap());
        drop(mounts);
        assert!((0..301).all(|_| within().0 <= 1));
        until(&threads, 0);
        has_threads.store(false, Ordering::SeqCst);
        assert!(admit().is_err(), "nobody would wait for its requests");
        has_threads.store(true, Ordering::SeqCst);
        admit().unwrap().write_all(&[1]).unwrap();
        assert_eq!(within().0, 1);
        until(&threads, 0);
    }
}
