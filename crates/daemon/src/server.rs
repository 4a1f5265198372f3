//! Listening on a pool's socket: one thread a connection, a bounded number of them. Where the system gives no thread, the
//! one that listens answers in turn with others, so that no client waits for one that says nothing.
//!
//! The user whose process this is, and root, may ask for everything. Others may ask what OpenZFS lets everybody ask,
//! if the folder of the socket lets them in.
//!
//! Each user has a share of the connections. One more than that takes the place of the one that has been silent for
//! longest, or that has sent half a request; only if all are being answered is the new one closed. So nobody is kept
//! out by connections that do nothing, their own or others'. Their requests are short, and answered within a share of
//! the process that they have together ([`crate::stranger_share`]).

use std::io::Read;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base::{Error, Kind, Mutex, Result};
use format::ids::Guid;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use protocol::beside;
use protocol::wire::{self, Answer, Hello, PoolReply, Request};
use rustix::event::{PollFd, PollFlags, poll};

use crate::stranger_share::{PatientStream, StrangerShare};

/// What answers requests.
pub trait AnswersRequests: Send + Sync + 'static {
    /// The guids of the pool, of its vdevs, and of its spares and cache devices.
    fn guids(&self) -> (Guid, Vec<Guid>, Vec<Guid>);
    /// Answers a request; all but the last part of the answer go to `part`. The descriptors are those that came beside
    /// it, as many as [`Request::descriptors`] says.
    fn answer(
        &self,
        request: &Request,
        descriptors: Vec<OwnedFd>,
        part: &mut dyn FnMut(PoolReply) -> Result<()>,
    ) -> Result<PoolReply>;
    /// One that may ask for everything was given the last part of an answer.
    fn answered(&self, last: &Answer);
}

/// Most connections of users that may do everything, of one other user, and of all others.
const OF_OWNER_MAX: usize = 128;
const OF_STRANGER_MAX: usize = 16;
const OF_STRANGERS_MAX: usize = 64;
/// How long a client may be silent, or not take what is sent to it.
const IDLE_TIME: Duration = Duration::from_secs(600);
/// How long a stranger may not take what is sent.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the rest of a request may take to come where others wait for their turn.
const REST_TIME: Duration = Duration::from_secs(2);
/// Until another attempt where the system is out of something.
const SYSTEM_PAUSE: Duration = Duration::from_millis(100);

/// How long, and how many bytes of it, a request is read that is not taken.
const READ_OUT_TIME: Duration = Duration::from_secs(5);
const READ_OUT_BYTES_MAX: usize = 64 << 20;

/// Answers clients for as long as the process lives.
pub fn listen<A: AnswersRequests>(listener: &UnixListener, served: &Arc<A>, hello: &Hello) {
    let (guests, share) = (Arc::new(Guests::default()), Arc::new(StrangerShare::default()));
    // those for which there was no thread
    let mut waiting: Vec<Talk<A>> = Vec::new();
    loop {
        let (has_new, asking) = wait(listener, &waiting);
        for at in asking.into_iter().rev() {
            let talk = waiting.swap_remove(at);
            // there may be a thread by now
            waiting.extend(start(talk).and_then(Talk::turn_among_others));
        }
        if !has_new {
            continue;
        }
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(e) => {
                // such as too many open files
                tracing::warn!("connection not accepted: {e}");
                guests.dismiss_one();
                std::thread::sleep(SYSTEM_PAUSE);
                continue;
            }
        };
        let Ok(peer) = getsockopt(&stream, PeerCredentials) else { continue };
        let Ok(()) = stream.set_read_timeout(Some(IDLE_TIME)) else { continue };
        let is_owner = peer.uid() == 0 || peer.uid() == geteuid().as_raw();
        let stranger = (!is_owner).then_some(peer.uid());
        let Some(guest) = guests.seat(&stream, stranger) else { continue };
        let talk = Talk { stream, guest, served: served.clone(), share: share.clone(), greeting: Some(hello.clone()) };
        let Some(talk) = start(talk) else { continue };
        tracing::warn!("there is no thread for a connection, which is answered in turn with others");
        waiting.extend(talk.turn_among_others());
    }
}

/// Waits until somebody connects, or one of those that wait asks; whether somebody has, and which of those have.
fn wait<A: AnswersRequests>(listener: &UnixListener, waiting: &[Talk<A>]) -> (bool, Vec<usize>) {
    let mut fds: Vec<PollFd<'_>> = waiting.iter().map(|talk| PollFd::new(&talk.stream, PollFlags::IN)).collect();
    fds.push(PollFd::new(listener, PollFlags::IN));
    while poll(&mut fds, None).is_err() {
        // it is interrupted, or the system has no memory for it
        std::thread::sleep(SYSTEM_PAUSE);
    }
    let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
    let has_new = fds.pop().is_some_and(|fd| is_ready(&fd));
    (has_new, fds.iter().enumerate().filter(|(_, fd)| is_ready(fd)).map(|(at, _)| at).collect())
}

/// Talks on a thread of its own, until the connection ends. Gives back what was to be talked where there is no thread.
fn start<A: AnswersRequests>(talk: Talk<A>) -> Option<Talk<A>> {
    // here, or on the thread
    let talk = Arc::new(Mutex::new(Some(talk)));
    let there = talk.clone();
    let work = move || {
        let talk = there.lock().take();
        talk.into_iter().for_each(|mut talk| while talk.turn() {});
    };
    let started = std::thread::Builder::new().name("client".to_owned()).spawn(work);
    started.err().and_then(|_| talk.lock().take())
}

/// The connections.
#[derive(Default)]
struct Guests {
    seats: Mutex<Vec<ClientSeat>>,
    count: AtomicUsize,
}

struct ClientSeat {
    number: usize,
    stream: UnixStream,
    /// The user; `None` for those that may do everything.
    stranger: Option<u32>,
    /// Since when nothing is to be answered.
    silent_since: Option<Instant>,
}

/// A connection that counts, until it is dropped.
struct Guest {
    guests: Arc<Guests>,
    number: usize,
    /// As in [`ClientSeat`].
    stranger: Option<u32>,
}

impl Guests {
    /// A place for a connection; `None` if there is none, and none that could be closed for it.
    fn seat(self: &Arc<Self>, stream: &UnixStream, stranger: Option<u32>) -> Option<Guest> {
        let mut seats = self.seats.lock();
        let is_alike = |seat: &ClientSeat| seat.stranger == stranger;
        let is_any_stranger = |seat: &ClientSeat| stranger.is_some() && seat.stranger.is_some();
        let limit = if stranger.is_some() { OF_STRANGER_MAX } else { OF_OWNER_MAX };
        make_room(&mut seats, limit, &is_alike).then_some(())?;
        make_room(&mut seats, OF_STRANGERS_MAX, &is_any_stranger).then_some(())?;
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let silent_since = Some(Instant::now());
        seats.push(ClientSeat { number, stream: stream.try_clone().ok()?, stranger, silent_since });
        Some(Guest { guests: self.clone(), number, stranger })
    }

    /// Closes the connection that is silent for longest, if any is.
    fn dismiss_one(&self) {
        make_room(&mut self.seats.lock(), 0, &|_| true);
    }
}

/// Makes room for one more among those that `counts`, if need be by closing the one that is silent for longest. False
/// if all are being answered.
fn make_room(seats: &mut Vec<ClientSeat>, limit: usize, counts: &dyn Fn(&ClientSeat) -> bool) -> bool {
    if seats.iter().filter(|seat| counts(seat)).count() < limit {
        return true;
    }
    let silent = seats.iter().enumerate().filter(|(_, seat)| counts(seat) && seat.silent_since.is_some());
    let Some((at, _)) = silent.min_by_key(|(_, seat)| seat.silent_since) else { return false };
    // its thread finds out, and ends
    let _ = seats.swap_remove(at).stream.shutdown(Shutdown::Both);
    true
}

impl Guest {
    fn note(&self, is_silent: bool) {
        let mut seats = self.guests.seats.lock();
        let own = seats.iter_mut().find(|seat| seat.number == self.number);
        own.into_iter().for_each(|seat| seat.silent_since = is_silent.then(Instant::now));
    }
}

/// Whether a request is answered that this many descriptors came with.
fn check(request: &Request, descriptors: usize, is_stranger: bool) -> Result<()> {
    let due = request.descriptors();
    if is_stranger && !request.is_for_everybody() {
        return Err(Error::new(Kind::Permission, "permission denied"));
    }
    if descriptors != due {
        let what = format!("{descriptors} descriptors came with a request that takes {due}");
        return Err(Error::new(Kind::Invalid, what));
    }
    Ok(())
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.guests.seats.lock().retain(|seat| seat.number != self.number);
    }
}

/// A connection, and what is needed to answer it.
struct Talk<A: AnswersRequests> {
    stream: UnixStream,
    guest: Guest,
    served: Arc<A>,
    share: Arc<StrangerShare>,
    /// `None` once it is sent.
    greeting: Option<Hello>,
}

impl<A: AnswersRequests> Talk<A> {
    /// Greets, or answers the next request. False if the connection ends.
    fn turn(&mut self) -> bool {
        let goes_on = match self.greeting.take() {
            Some(hello) => self.greet(hello).map(|()| true),
            None => self.answer_next(),
        };
        goes_on.unwrap_or_else(|e| {
            tracing::debug!("connection ends: {e}");
            false
        })
    }

    /// The same, where others wait for their turn; `None` if the connection ends.
    fn turn_among_others(mut self) -> Option<Self> {
        let limit = |talk: &Self, time| talk.stream.set_read_timeout(Some(time)).is_ok();
        let goes_on = limit(&self, REST_TIME) && self.turn() && limit(&self, IDLE_TIME);
        goes_on.then_some(self)
    }

    fn greet(&mut self, hello: Hello) -> Result<()> {
        self.stream.set_write_timeout(Some(if self.guest.stranger.is_some() { PATIENCE } else { IDLE_TIME }))?;
        let (guid, vdevs, aux) = self.served.guids();
        wire::send(&mut self.stream, &Hello { guid, vdevs, aux, ..hello })
    }

    /// Errors: of the connection, or the request is none.
    fn answer_next(&mut self) -> Result<bool> {
        let (stream, served) = (&mut self.stream, &*self.served);
        let stranger = self.guest.stranger;
        let bytes_max = if stranger.is_some() { wire::STRANGER_BYTES_MAX } else { wire::REQUEST_BYTES_MAX };
        let (request, descriptors) = match beside::receive::<Request>(stream, bytes_max) {
            Ok(Some(came)) => came,
            Ok(None) => return Ok(false),
            Err(e) => {
                if matches!(e.kind(), Kind::TooBig | Kind::Corrupt) {
                    refuse(stream, &e)?;
                }
                return Err(e);
            }
        };
        self.guest.note(false);
        match (check(&request, descriptors.len(), stranger.is_some()), stranger) {
            (Err(e), _) => wire::send(stream, &failed(&e))?,
            (Ok(()), Some(user)) => answer_stranger(stream, &request, descriptors, served, (&self.share, user))?,
            (Ok(()), None) => {
                let part = &mut |part| wire::send(stream, &Answer::Part(part));
                let last = last_of(served.answer(&request, descriptors, part));
                wire::send(stream, &last)?;
                served.answered(&last);
            }
        }
        self.guest.note(true);
        Ok(true)
    }
}

/// Says why a request is not taken, of which some may be left to read, so that no other one can follow. Without reading
/// it, a client that still sends would find a broken connection, and not the reason.
fn refuse(stream: &mut UnixStream, why: &Error) -> Result<()> {
    wire::send(stream, &failed(why))?;
    stream.shutdown(Shutdown::Write)?;
    let (began, mut bytes, mut read) = (Instant::now(), vec![0; 64 << 10], 0);
    while read < READ_OUT_BYTES_MAX {
        let left = READ_OUT_TIME.saturating_sub(began.elapsed());
        if left.is_zero() {
            break;
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(len) => read += len,
        }
    }
    Ok(())
}

fn failed(error: &Error) -> Answer {
    Answer::Failed { errno: error.errno(), why: error.to_string() }
}

fn last_of(result: Result<PoolReply>) -> Answer {
    result.map_or_else(|e| failed(&e), Answer::Done)
}

/// Answers one that may only ask, within what all of these may take together. Errors: the connection ends, also as the
/// answer is not taken.
fn answer_stranger<A: AnswersRequests>(
    stream: &UnixStream,
    request: &Request,
    descriptors: Vec<OwnedFd>,
    served: &A,
    (share, user): (&StrangerShare, u32),
) -> Result<()> {
    let mut patient = PatientStream::new(stream, PATIENCE);
    let mut turn = match share.enter(user, PATIENCE) {
        Ok(turn) => turn,
        Err(e) => return wire::send(&mut patient, &failed(&e)),
    };
    let part = &mut |part| {
        turn.check()?;
        let before = patient.left();
        let sent = wire::send(&mut patient, &Answer::Part(part));
        turn.note_sending(before.saturating_sub(patient.left()));
        sent
    };
    let last = last_of(served.answer(request, descriptors, part));
    let before = patient.left();
    let sent = wire::send(&mut patient, &last);
    turn.note_sending(before.saturating_sub(patient.left()));
    sent
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    use super::*;

    fn connected() -> (UnixStream, UnixStream) {
        UnixStream::pair().unwrap()
    }

    fn is_open(mut end: &UnixStream) -> bool {
        end.set_nonblocking(true).unwrap();
        !matches!(end.read(&mut [0]), Ok(0))
    }

    #[test]
    fn the_silent_make_room() {
        let guests = Arc::new(Guests::default());
        let pairs: Vec<_> = (0..=OF_STRANGER_MAX).map(|_| connected()).collect();
        let seat = |at: usize, user| guests.seat(&pairs[at].0, Some(user));
        let seated: Vec<Guest> = (0..OF_STRANGER_MAX).map(|at| seat(at, 7).unwrap()).collect();
        seated[0].note(false);
        let _one_more = seat(OF_STRANGER_MAX, 7).unwrap();
        let open: Vec<bool> = pairs.iter().map(|(_, client)| is_open(client)).collect();
        assert_eq!(open.iter().filter(|open| !**open).count(), 1);
        assert!(open[0] && !open[1], "the first is being answered, the second is silent for longest");
        drop(seated);
        assert_eq!(guests.seats.lock().len(), 1);
    }

    #[test]
    fn others_keep_nobody_out() {
        let guests = Arc::new(Guests::default());
        let (ours, _theirs) = connected();
        let strangers: Vec<Guest> =
            (0..OF_STRANGERS_MAX as u32).map(|user| guests.seat(&ours, Some(100 + user / 16)).unwrap()).collect();
        strangers.iter().for_each(|guest| guest.note(false));
        assert!(guests.seat(&ours, Some(5)).is_none(), "all are being answered");
        assert!(guests.seat(&ours, None).is_some(), "the owner has places of their own");
    }

    struct Refuses;

    impl AnswersRequests for Refuses {
        fn guids(&self) -> (Guid, Vec<Guid>, Vec<Guid>) {
            (Guid::new(1), Vec::new(), Vec::new())
        }

        fn answer(
            &self,
            _: &Request,
            _: Vec<OwnedFd>,
            _: &mut dyn FnMut(PoolReply) -> Result<()>,
        ) -> Result<PoolReply> {
            Err(Error::new(Kind::Busy, "not now"))
        }

        fn answered(&self, _: &Answer) {}
    }

    /// A client that says nothing, and one that sends half a request, hold up none that is answered by the same thread.
    #[test]
    fn those_without_a_thread_are_answered_in_turn() {
        use std::io::Write;
        let (guests, share) = (Arc::new(Guests::default()), Arc::new(StrangerShare::default()));
        let talk_with = |stream: UnixStream| {
            let guest = guests.seat(&stream, None).unwrap();
            let greeting = Some(Hello::default());
            Talk { stream, guest, served: Arc::new(Refuses), share: share.clone(), greeting }
        };
        let [(_silent, first), (mut half, second), (mut whole, third)] = [(); 3].map(|()| connected());
        let name = format!("cenote-in-turn-{}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        let greeted = |stream| talk_with(stream).turn_among_others().unwrap();
        let mut waiting = Vec::from([first, second, third].map(greeted));
        half.write_all(&[9, 0]).unwrap();
        wire::send(&mut whole, &Request::Report).unwrap();
        let (has_new, asking) = wait(&listener, &waiting);
        assert_eq!((has_new, asking.as_slice()), (false, &[1, 2][..]));
        let third = waiting.swap_remove(2).turn_among_others().expect("it goes on");
        assert!(waiting.swap_remove(1).turn_among_others().is_none(), "the rest of its request does not come");
        let hello: Hello = wire::receive(&mut whole, wire::REQUEST_BYTES_MAX).unwrap().unwrap();
        assert_eq!(hello.guid, Guid::new(1));
        let answer: Answer = wire::receive(&mut whole, wire::REQUEST_BYTES_MAX).unwrap().unwrap();
        assert!(matches!(answer, Answer::Failed { errno: libc::EBUSY, .. }), "{answer:?}");
        drop((waiting, whole));
        assert!(third.turn_among_others().is_none());
    }

    #[test]
    fn a_request_that_is_too_long_is_told_why() {
        use std::io::Write;
        let (mut ours, mut theirs) = connected();
        let client = std::thread::spawn(move || {
            let request = vec![b' '; 8 * wire::STRANGER_BYTES_MAX as usize];
            theirs.write_all(&(request.len() as u32).to_le_bytes())?;
            theirs.write_all(&request)?;
            wire::receive::<Answer>(&mut theirs, wire::REQUEST_BYTES_MAX).map_err(std::io::Error::other)
        });
        let error = beside::receive::<Request>(&ours, wire::STRANGER_BYTES_MAX).unwrap_err();
        assert_eq!(error.kind(), Kind::TooBig);
        refuse(&mut ours, &error).unwrap();
        drop(ours);
        let told = client.join().unwrap().expect("nothing is broken while it sends").unwrap();
        assert!(matches!(told, Answer::Failed { errno: libc::EFBIG, .. }), "{told:?}");
        // one that sends for ever is not waited for
        let (mut ours, mut theirs) = connected();
        let client = std::thread::spawn(move || while theirs.write_all(&[0; 4096]).is_ok() {});
        refuse(&mut ours, &error).unwrap();
        drop(ours);
        client.join().unwrap();
    }
}
