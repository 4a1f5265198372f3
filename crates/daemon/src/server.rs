//! Listening on a pool's socket: one thread a connection, a bounded number of them.
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

use crate::stranger_share::{PatientStream, StrangerShare};

/// What answers requests.
pub trait AnswersRequests: Send + Sync + 'static {
    /// The guids of the pool, of its vdevs, and of its spares and cache devices.
    fn guids(&self) -> (Guid, Vec<Guid>, Vec<Guid>);
    /// AnswersRequests a request; all but the last part of the answer go to `part`. The descriptors are those that came beside
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
/// How long a stranger may not take what is sent, and a client may be silent for which others wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long, and how many bytes of it, a request is read that is not taken.
const READ_OUT_TIME: Duration = Duration::from_secs(5);
const READ_OUT_BYTES_MAX: usize = 64 << 20;

/// AnswersRequests clients for as long as the process lives.
pub fn listen<A: AnswersRequests>(listener: &UnixListener, served: &Arc<A>, hello: &Hello) {
    let (guests, share) = (Arc::new(Guests::default()), Arc::new(StrangerShare::default()));
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => stream,
            Err(e) => {
                // such as too many open files
                tracing::warn!("connection not accepted: {e}");
                guests.dismiss_one();
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let Ok(peer) = getsockopt(&stream, PeerCredentials) else { continue };
        let is_owner = peer.uid() == 0 || peer.uid() == geteuid().as_raw();
        let stranger = (!is_owner).then_some(peer.uid());
        let Some(guest) = guests.seat(&stream, stranger) else { continue };
        let (served, hello, share) = (served.clone(), hello.clone(), share.clone());
        let talk = move |idle_time| {
            if let Err(e) = talk(stream, &guest, idle_time, (&*served, &share), &hello) {
                tracing::debug!("connection ends: {e}");
            }
        };
        // here, or on the thread
        let talk = Arc::new(Mutex::new(Some(talk)));
        let talk_there = talk.clone();
        let take = |talk: &Mutex<Option<_>>| talk.lock().take();
        let work = move || take(&talk_there).into_iter().for_each(|talk| talk(IDLE_TIME));
        if let Err(e) = std::thread::Builder::new().name("client".to_owned()).spawn(work) {
            tracing::warn!("there is no thread for a connection, and the next ones wait: {e}");
            take(&talk).into_iter().for_each(|talk| talk(PATIENCE));
        }
    }
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

fn talk<A: AnswersRequests>(
    mut stream: UnixStream,
    guest: &Guest,
    idle_time: Duration,
    (served, share): (&A, &StrangerShare),
    hello: &Hello,
) -> Result<()> {
    stream.set_read_timeout(Some(idle_time))?;
    stream.set_write_timeout(Some(if guest.stranger.is_some() { PATIENCE } else { idle_time }))?;
    let (guid, vdevs, aux) = served.guids();
    wire::send(&mut stream, &Hello { guid, vdevs, aux, ..hello.clone() })?;
    let bytes_max = if guest.stranger.is_some() { wire::STRANGER_BYTES_MAX } else { wire::REQUEST_BYTES_MAX };
    loop {
        let (request, descriptors) = match beside::receive::<Request>(&stream, bytes_max) {
            Ok(Some(came)) => came,
            Ok(None) => return Ok(()),
            Err(e) => {
                if matches!(e.kind(), Kind::TooBig | Kind::Corrupt) {
                    refuse(&mut stream, &e)?;
                }
                return Err(e);
            }
        };
        guest.note(false);
        match (check(&request, descriptors.len(), guest.stranger.is_some()), guest.stranger) {
            (Err(e), _) => wire::send(&mut stream, &failed(&e))?,
            (Ok(()), Some(user)) => answer_stranger(&stream, &request, descriptors, served, (share, user))?,
            (Ok(()), None) => {
                let part = &mut |part| wire::send(&mut stream, &Answer::Part(part));
                let last = last_of(served.answer(&request, descriptors, part));
                wire::send(&mut stream, &last)?;
                served.answered(&last);
            }
        }
        guest.note(true);
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

/// AnswersRequests one that may only ask, within what all of these may take together. Errors: the connection ends, also as the
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
