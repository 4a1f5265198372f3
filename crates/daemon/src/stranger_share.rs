//! How much of the process those users may have together that may ask, and not command.
//!
//! ```text
//!   request ──▶ wait for a turn ──▶ answer, in parts ──▶ rest, three times as long as it took ──▶ next turn
//! ```
//!
//! Few requests are answered at once, so that what answers take while they are made is bounded, and a turn rests after
//! its work, so that all turns together have about one processor at most. One user has half of the turns. An
//! answer that is made for too long, or not taken, ends.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use base::{Condvar, Error, Kind, Mutex, Result};

/// Most requests that are answered at once, of all strangers and of one user.
const AT_ONCE_MAX: usize = 4;
const OF_ONE_USER_MAX: usize = 2;
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
            if own < OF_ONE_USER_MAX && taken.len() < AT_ONCE_MAX {
                let number = (0..).find(|number| taken.iter().all(|turn| turn.number != *number)).unwrap_or_default();
                taken.push(TakenTurn { number, user, until: None });
                return Ok(StrangerTurn { share: self, number, began: now, sending: Duration::ZERO });
            }
            if now >= deadline {
                return Err(Error::new(
                    Kind::Busy,
                    "too much is being asked by users that do not own the pool: try again",
                ));
            }
            let next = taken.iter().filter_map(|turn| turn.until).min().map_or(deadline, |until| until.min(deadline));
            taken = self.freed.wait_timeout(taken, next.saturating_duration_since(now));
        }
    }
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
    fn patience_ends() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut patient = PatientStream::new(&ours, Duration::from_millis(50));
        let began = Instant::now();
        assert!(patient.write_all(&vec![0; 64 << 20]).is_err());
        assert!(began.elapsed() < Duration::from_secs(20) && patient.left().is_zero());
    }
}
