//! How much of the process those users may have together that may ask, and not command.
//!
//! ```text
//!   request ──▶ wait for a turn ──▶ answer, in parts ──▶ rest, three times as long as it took ──▶ next turn
//! ```
//!
//! Few requests are answered at once, so that what answers take while they are made is bounded, and a turn rests after
//! its work, so that all turns together have about one processor at most. One user has half of the turns. An
//! answer that is made for too long, or not taken, ends.
//!
//! An answer may wait for what does not come, as a pool is suspended or a device hangs. Its turn takes no processor: it
//! keeps its own user from more turns, and some of these keep no other one.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use base::{Condvar, Error, Kind, Mutex, Result};
use rustix::process::Pid;
use rustix::thread::gettid;

/// Most requests that are answered at once, of all strangers and of one user.
const AT_ONCE_MAX: usize = 4;
const OF_ONE_USER_MAX: usize = 2;
/// Turns that wait for what does not come, and keep nobody else out.
const STUCK_MAX: usize = 16;
/// A turn is stuck that has worked for so long, and whose thread had less than that part of the time on a processor.
const STUCK_TIME: Duration = Duration::from_secs(5);
const STUCK_PART: u32 = 50;
/// How much longer a turn rests than it worked, and at most.
const REST_FACTOR: u32 = 3;
const REST_MAX: Duration = Duration::from_secs(30);
/// How long an answer may be made.
const WORK_MAX: Duration = Duration::from_secs(60);

/// The turns of strangers.
#[derive(Default)]
pub struct StrangerShare {
    taken: Mutex<Vec<TakenTurn>>,
    freed: Condvar,
}

/// A turn that somebody has.
struct TakenTurn {
    number: u64,
    user: u32,
    began: Instant,
    thread: Pid,
    /// The end of its rest; `None` while it works.
    until: Option<Instant>,
}

/// One turn, which rests when it is dropped.
pub struct StrangerTurn<'a> {
    share: &'a StrangerShare,
    number: u64,
    began: Instant,
    /// What of the time went to a client that was slow.
    sending: Duration,
}

impl StrangerShare {
    /// A turn of a user. Errors: `Busy` if there is none for as long as `patience`.
    pub fn enter(&self, user: u32, patience: Duration) -> Result<StrangerTurn<'_>> {
        let deadline = Instant::now() + patience;
        let mut taken = self.taken.lock();
        loop {
            let now = Instant::now();
            taken.retain(|turn| turn.until.is_none_or(|until| until > now));
            let own = taken.iter().filter(|turn| turn.user == user).count();
            if own < OF_ONE_USER_MAX && has_room(&taken, now) {
                let number = (0..).find(|number| taken.iter().all(|turn| turn.number != *number)).unwrap_or_default();
                taken.push(TakenTurn { number, user, began: now, thread: gettid(), until: None });
                return Ok(StrangerTurn { share: self, number, began: now, sending: Duration::ZERO });
            }
            if now >= deadline {
                return Err(Error::new(
                    Kind::Busy,
                    "too much is being asked by users that do not own the pool: try again",
                ));
            }
            // one that works may be stuck the next time
            let next = taken.iter().map(|turn| turn.until.unwrap_or(now + STUCK_TIME)).fold(deadline, Instant::min);
            taken = self.freed.wait_timeout(taken, next.saturating_duration_since(now));
        }
    }
}

/// Whether there is room for one more turn.
fn has_room(taken: &[TakenTurn], now: Instant) -> bool {
    let stuck = || taken.iter().filter(|turn| turn.is_stuck(now)).count().min(STUCK_MAX);
    taken.len() < AT_ONCE_MAX || taken.len() - stuck() < AT_ONCE_MAX
}

impl TakenTurn {
    fn is_stuck(&self, now: Instant) -> bool {
        let worked = now.saturating_duration_since(self.began);
        self.until.is_none()
            && worked >= STUCK_TIME
            && time_on_processor(self.thread).is_some_and(|time| time * STUCK_PART < worked)
    }
}

/// How long a thread of this process has run; `None` where the kernel does not tell.
fn time_on_processor(thread: Pid) -> Option<Duration> {
    let path = format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero());
    let text = std::fs::read_to_string(path).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

impl StrangerTurn<'_> {
    fn worked(&self) -> Duration {
        self.began.elapsed().saturating_sub(self.sending)
    }

    /// Errors: `Busy` if the answer has been made for too long.
    pub fn check(&self) -> Result<()> {
        match self.worked() {
            worked if worked > WORK_MAX => Err(Error::new(Kind::Busy, "the answer takes too long: ask for less")),
            _ => Ok(()),
        }
    }

    /// Does not charge what sending took.
    pub fn note_sending(&mut self, time: Duration) {
        self.sending += time;
    }
}

impl Drop for StrangerTurn<'_> {
    fn drop(&mut self) {
        let until = Instant::now() + (self.worked() * REST_FACTOR).min(REST_MAX);
        let mut taken = self.share.taken.lock();
        taken.iter_mut().filter(|turn| turn.number == self.number).for_each(|turn| turn.until = Some(until));
        self.share.freed.notify_all();
    }
}

/// A socket whose other end may take so long to read an answer, all its waits together.
pub struct PatientStream<'a> {
    stream: &'a UnixStream,
    left: Duration,
}

impl PatientStream<'_> {
    /// One answer's.
    pub fn new(stream: &UnixStream, patience: Duration) -> PatientStream<'_> {
        PatientStream { stream, left: patience }
    }

    /// What is left of the patience.
    pub fn left(&self) -> Duration {
        self.left
    }
}

impl Write for PatientStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not take its answer"));
        }
        self.stream.set_write_timeout(Some(self.left))?;
        let began = Instant::now();
        let written = self.stream.write(bytes);
        self.left = self.left.saturating_sub(began.elapsed());
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Duration = Duration::ZERO;

    #[test]
    fn turns_are_bounded() {
        let share = StrangerShare::default();
        let [_a, _b, other, _c] = [7, 7, 8, 9].map(|user| share.enter(user, AT_ONCE).unwrap());
        let of = |user| share.enter(user, AT_ONCE).err().map(|error| error.kind());
        assert_eq!(of(10), Some(Kind::Busy), "all are taken");
        drop(other);
        share.taken.lock().iter_mut().for_each(|turn| turn.until = turn.until.map(|_| Instant::now()));
        assert_eq!(of(7), Some(Kind::Busy), "a user has half of them");
        assert_eq!(of(10), None);
    }

    #[test]
    fn turns_rest() {
        let share = StrangerShare::default();
        let turn = share.enter(7, AT_ONCE).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        drop(turn);
        let until = share.taken.lock()[0].until.unwrap();
        assert!(until > Instant::now() + Duration::from_millis(30), "for longer than it worked");
        let mut turn = share.enter(7, AT_ONCE).unwrap();
        assert!(share.enter(7, AT_ONCE).is_err(), "a turn that rests counts");
        assert!(share.enter(7, Duration::from_secs(10)).is_ok(), "and is over in time");
        turn.began = Instant::now().checked_sub(WORK_MAX * 2).unwrap();
        assert!(turn.check().is_err());
        turn.note_sending(WORK_MAX + WORK_MAX / 2);
        assert!(turn.check().is_ok());
        turn.began = Instant::now();
    }

    #[test]
    fn turns_that_wait_for_a_suspended_pool_keep_no_other_user_out() {
        let share = StrangerShare::default();
        let of = |user| share.enter(user, AT_ONCE).map_err(|error| error.kind());
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = Mutex::new(held);
        std::thread::scope(|scope| {
            let (entered, has_entered) = std::sync::mpsc::channel();
            for user in [7, 7, 8, 8] {
                let (entered, held, of) = (entered.clone(), &held, &of);
                scope.spawn(move || {
                    let turn = of(user).unwrap();
                    entered.send(()).unwrap();
                    let _ = held.lock().recv();
                    drop(turn);
                });
            }
            (0..4).for_each(|_| has_entered.recv().unwrap());
            assert_eq!(of(9).err(), Some(Kind::Busy), "they may be at work");
            let long_ago = Instant::now().checked_sub(2 * STUCK_TIME).unwrap();
            share.taken.lock().iter_mut().for_each(|turn| turn.began = long_ago);
            let others = [9, 9, 10, 10].map(|user| of(user).unwrap());
            assert_eq!(of(7).err(), Some(Kind::Busy), "they do count for their own user");
            assert_eq!(of(11).err(), Some(Kind::Busy), "those that work count for all");
            // one that works for as long is not stuck
            let began = Instant::now();
            while began.elapsed() < STUCK_TIME / 10 {}
            share.taken.lock().iter_mut().for_each(|turn| turn.began = Instant::now() - STUCK_TIME);
            assert_eq!(of(11).err(), Some(Kind::Busy), "this thread has worked");
            drop(others);
            drop(release);
        });
    }

    #[test]
    fn patience_ends() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut patient = PatientStream::new(&ours, Duration::from_millis(50));
        let began = Instant::now();
        assert!(patient.write_all(&vec![0; 64 << 20]).is_err());
        assert!(began.elapsed() < Duration::from_secs(20) && patient.left().is_zero());
    }
}
