//! Asking the processes of imported pools.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Error, Kind, Mutex, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{PidfdFlags, pidfd_open};

use crate::cut::{CutOrder, CutStage};
use crate::rundir::{RunDir, stem};
use crate::streams::StreamNote;
use crate::wire::{self, Answer, Hello, PoolReply, Request};
use crate::{beside, datasets};

/// How long a process may take to greet: it does so before anything else.
const HELLO_TIME: Duration = Duration::from_secs(10);
/// How long it may take to end when it has closed the connection.
const ENDS_WITHIN: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// How the message about a process that hangs ends.
pub const DOES_NOT_ANSWER: &str = "does not answer";
/// How long a process may take none of the bytes of a request: it reads one as soon as it comes.
const WRITE_TIME: Duration = Duration::from_secs(20);
/// For how long another attempt is made where a process closes the connection before it greets: it was just ending, and the
/// next one listens at the same socket.
const ENDING_TIME: Duration = Duration::from_secs(2);
/// What is between two attempts to connect where many others wait.
const BACKLOG_PAUSE: Duration = Duration::from_millis(50);
/// After how long without an answer a process is asked whether it lives: it greets others at any time.
const PROBE_EVERY: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// A connection to the process of one pool.
pub struct Connection {
    stream: UnixStream,
    hello: Hello,
}

/// The imported pools.
#[derive(Debug, Default)]
pub struct ImportedPools {
    /// Their greetings, sorted by name.
    pub hellos: Vec<Hello>,
    /// Names of those that do not greet, each with why.
    pub silent: Vec<(String, Error)>,
}

/// All imported pools that this user may ask about.
pub fn survey() -> Result<ImportedPools> {
    let mut survey = ImportedPools::default();
    for dir in RunDir::all()? {
        for stem in dir.sockets()? {
            match greet(&dir, &stem) {
                Ok(Some(connection)) => survey.hellos.push(connection.hello),
                Ok(None) => {}
                Err(e) => survey.silent.push((stem, e)),
            }
        }
    }
    survey.hellos.sort_by(|a, b| a.pool.cmp(&b.pool));
    Ok(survey)
}

/// The greetings of all imported pools, sorted by name, for those to which pools that do not greet make no difference, or
/// that have told of these.
pub fn hellos() -> Result<Vec<Hello>> {
    Ok(survey()?.hellos)
}

/// Asks the processes of all imported pools at the same time. Those that do not greet are errors, and so is every
/// answer that takes longer than `time`.
pub fn each<T: Send>(time: Duration, ask: impl Fn(Connection) -> Result<T> + Sync) -> Result<Vec<Result<T>>> {
    let mut sockets = Vec::new();
    for dir in RunDir::all()? {
        let stems = dir.sockets()?;
        let dir = Arc::new(dir);
        sockets.extend(stems.into_iter().map(|stem| (dir.clone(), stem)));
    }
    let limited = |connection: Connection| {
        connection.stream.set_read_timeout(Some(time))?;
        connection.stream.set_write_timeout(Some(time))?;
        ask(connection)
    };
    let one = |dir: &RunDir, stem: &str| Some(greet_within(time, dir, stem).transpose()?.and_then(limited));
    let lost = || Some(Err(Error::new(Kind::Io, "a thread that asks has panicked")));
    let answers = std::thread::scope(|scope| {
        let threads: Vec<_> = sockets.iter().map(|(dir, stem)| scope.spawn(|| one(dir, stem))).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap_or_else(|_| lost())).collect()
    });
    Ok(answers)
}

/// The folder of all processes; `None` if there are none.
pub fn folder() -> Result<Option<PathBuf>> {
    Ok(RunDir::find()?.map(|dir| dir.path().to_owned()))
}

/// The same, which is made if there is none.
pub fn made_folder() -> Result<PathBuf> {
    Ok(RunDir::make()?.path().to_owned())
}

/// Connects to the process of the pool `name`; `None` if no such pool is imported.
pub fn connect(name: &str) -> Result<Option<Connection>> {
    for dir in RunDir::all()? {
        if let Some(connection) = greet(&dir, &stem(name))? {
            return Ok(Some(connection));
        }
    }
    Ok(None)
}

/// Connects to a socket of `dir`; `None` if no process is there, or one that just dies.
pub fn greet(dir: &RunDir, stem: &str) -> Result<Option<Connection>> {
    greet_within(HELLO_TIME, dir, stem)
}

fn greet_within(time: Duration, dir: &RunDir, stem: &str) -> Result<Option<Connection>> {
    let socket = (dir.path().to_owned(), stem.to_owned());
    if let Some((since, what)) = SILENT.lock().get(&socket)
        && since.elapsed() < time
    {
        return Err(Error::new(Kind::Interrupted, what.clone()));
    }
    let began = Instant::now();
    loop {
        let stream = match dir.connect(stem) {
            Ok(Some(stream)) => stream,
            Ok(None) => return Ok(None),
            // more wait to be heard than may
            Err(error) if error.kind() == Kind::Busy && began.elapsed() < time => {
                std::thread::sleep(BACKLOG_PAUSE);
                continue;
            }
            Err(error) if error.kind() == Kind::Busy => return Err(silent(socket, None)),
            Err(error) => return Err(error),
        };
        let process = socket_peercred(&stream).ok().map(|peer| peer.pid.as_raw_nonzero().get());
        match Connection::greet(stream, time) {
            Err(error) if began.elapsed() < ENDING_TIME && (is_reset(&error) || error.kind() == Kind::Busy) => {
                std::thread::sleep(BACKLOG_PAUSE);
            }
            Err(error) if is_reset(&error) => return Ok(None),
            Err(error) if error.kind() == Kind::Io => return Err(silent(socket, process)),
            greeted => return greeted.map(Some),
        }
    }
}

/// Sockets whose processes did not greet, and when: a command that asks a pool twice waits for it once.
static SILENT: Mutex<BTreeMap<(PathBuf, String), (Instant, String)>> = Mutex::new(BTreeMap::new());

/// Says that a process does not answer, and notes that.
fn silent(socket: (PathBuf, String), process: Option<i32>) -> Error {
    let error = does_not_answer(&socket.1, process);
    SILENT.lock().insert(socket, (Instant::now(), error.what().to_owned()));
    error
}

/// The error of a pool whose process hangs.
fn does_not_answer(pool: &str, process: Option<impl std::fmt::Display>) -> Error {
    let process = process.map_or(String::new(), |pid| format!(" (pid {pid})"));
    Error::new(Kind::Interrupted, format!("pool '{pool}': its process{process} {DOES_NOT_ANSWER}"))
}

/// Whether a process that had not answered yet has ended.
fn is_reset(error: &Error) -> bool {
    is_of(error, std::io::ErrorKind::ConnectionReset)
}

/// Whether an error is of that kind for the system.
fn is_of(error: &Error, kind: std::io::ErrorKind) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|source| source.kind() == kind)
}

/// A reply that is none to what was asked.
pub fn off_topic() -> Error {
    Error::new(Kind::Unsupported, "the pool's process answers another question")
}

impl Connection {
    fn greet(mut stream: UnixStream, time: Duration) -> Result<Connection> {
        stream.set_read_timeout(Some(time))?;
        let hello: Option<Hello> = wire::receive(&mut stream, wire::REQUEST_BYTES_MAX)?;
        // it has no place for one more, or is just ending
        let hello = hello.ok_or_else(|| Error::new(Kind::Busy, "the pool's process does not answer"))?;
        if hello.protocol != wire::PROTOCOL {
            let what = format!(
                "the pool's process speaks version {} of the protocol, not {}: export the pool with the program \
                 that imported it",
                hello.protocol,
                wire::PROTOCOL
            );
            return Err(Error::new(Kind::Unsupported, what));
        }
        // reading from a pool may take its time
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(Some(WRITE_TIME))?;
        Ok(Connection { stream, hello })
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.hello.pid
    }

    /// Asks for what is answered at once.
    pub fn ask(&mut self, request: &Request) -> Result<PoolReply> {
        self.ask_in_parts(request, |_| {})
    }

    /// Asks, and gives the process copies of `descriptors`, as many as [`Request::descriptors`] says.
    pub fn ask_with(&mut self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> Result<PoolReply> {
        let sent = beside::send(&self.stream, request, descriptors);
        self.check_sent(sent)?;
        self.answer(|_| {})
    }

    /// Asks, and calls `part` with each part of the answer but the last, which is returned.
    pub fn ask_in_parts(&mut self, request: &Request, part: impl FnMut(PoolReply)) -> Result<PoolReply> {
        let sent = wire::send(&mut self.stream, request);
        self.check_sent(sent)?;
        self.answer(part)
    }

    /// Errors: the request was not sent; of a process that took none of it for too long, that it does not answer.
    fn check_sent(&self, sent: Result<()>) -> Result<()> {
        sent.map_err(|error| match is_of(&error, std::io::ErrorKind::WouldBlock) {
            true => does_not_answer(&self.hello.pool, Some(self.hello.pid)),
            false => error,
        })
    }

    fn answer(&mut self, mut part: impl FnMut(PoolReply)) -> Result<PoolReply> {
        loop {
            self.wait_for_answer()?;
            match wire::receive(&mut self.stream, wire::REPLY_BYTES_MAX)? {
                Some(Answer::Part(reply)) => part(reply),
                Some(Answer::Done(reply)) => return Ok(reply),
                Some(Answer::Failed { errno, why }) => return Err(Error::new(Kind::of_errno(errno), why)),
                None => return Err(self.gone()),
            }
        }
    }

    /// Waits until the process answers, or has ended, however long that takes, as long as it greets others. Errors: it
    /// hangs.
    fn wait_for_answer(&self) -> Result<()> {
        // a limit that somebody has set counts
        if self.stream.read_timeout()?.is_some() {
            return Ok(());
        }
        while let Ok(0) = poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&PROBE_EVERY)) {
            for dir in RunDir::all()? {
                match greet(&dir, &stem(&self.hello.pool)) {
                    // there is no more to be said of one that is busy
                    Err(error) if error.what().ends_with(DOES_NOT_ANSWER) => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// The process has ended without an answer.
    fn gone(&self) -> Error {
        let mut what = "the pool's process is gone".to_owned();
        if let Ok(Some(dir)) = RunDir::find() {
            what += &format!("; its last words are in {}", dir.log_of(&self.hello.pool).display());
        }
        Error::new(Kind::Missing, what)
    }

    /// Asks about datasets.
    pub fn zfs(&mut self, request: &datasets::DatasetRequest) -> Result<datasets::Response> {
        let request = Request::Zfs(request.clone());
        datasets::Response::joined(|add| {
            let last = self.ask_in_parts(&request, |part| {
                if let PoolReply::Zfs(part) = part {
                    // it is only kept
                    let _ = add(part);
                }
            })?;
            match last {
                PoolReply::Zfs(last) => Ok(last),
                _ => Err(off_topic()),
            }
        })
    }

    /// As [`Connection::zfs`], with descriptors beside the request; `note` gets what is told meanwhile.
    pub fn zfs_with(
        &mut self,
        request: &datasets::DatasetRequest,
        descriptors: &[BorrowedFd<'_>],
        note: &mut dyn FnMut(StreamNote),
    ) -> Result<datasets::Response> {
        let sent = beside::send(&self.stream, &Request::Zfs(request.clone()), descriptors);
        self.check_sent(sent)?;
        let reply = self.answer(|reply| {
            if let PoolReply::Zfs(datasets::Response::Note(told)) = reply {
                note(told);
            }
        })?;
        match reply {
            PoolReply::Zfs(response) => Ok(response),
            _ => Err(off_topic()),
        }
    }

    /// Takes snapshots as steps say that come by the other end of `steps`; `told` gets what is done, the last included.
    pub fn cut(&mut self, order: &CutOrder, steps: BorrowedFd<'_>, told: &mut dyn FnMut(CutStage)) -> Result<()> {
        let request = Request::Zfs(datasets::DatasetRequest::Cut(order.clone()));
        let sent = beside::send(&self.stream, &request, &[steps]);
        self.check_sent(sent)?;
        let mut tell = |reply| match reply {
            PoolReply::Zfs(datasets::Response::Cut(stage)) => {
                told(stage);
                Ok(())
            }
            _ => Err(off_topic()),
        };
        let last = self.answer(|part| {
            // what is none is waited for in vain
            let _ = tell(part);
        })?;
        tell(last)
    }

    /// Waits until the process has ended, and has nothing open any more.
    pub fn wait_for_end(mut self) {
        // as it is known here, where process numbers may be others
        let process = socket_peercred(&self.stream).and_then(|peer| pidfd_open(peer.pid, PidfdFlags::empty()));
        while let Ok(Some(_)) = wire::receive::<Answer>(&mut self.stream, wire::REPLY_BYTES_MAX) {}
        // its devices may be closed after the connection
        if let Ok(process) = process {
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&ENDS_WITHIN));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that is stopped reads nothing: what waits to be sent to it does not wait for ever.
    #[test]
    fn a_request_that_nobody_reads_is_given_up() {
        let (mut process, stream) = UnixStream::pair().unwrap();
        wire::send(&mut process, &Hello { protocol: wire::PROTOCOL, pool: "tank".into(), pid: 7, ..Hello::default() })
            .unwrap();
        let mut connection = Connection::greet(stream, HELLO_TIME).unwrap();
        assert_eq!(connection.stream.write_timeout().unwrap(), Some(WRITE_TIME));
        connection.stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        let long = Request::Set { name: "comment".into(), value: "x".repeat(3 << 20), history: String::new() };
        let error = connection.ask(&long).unwrap_err();
        assert_eq!(error.what(), "pool 'tank': its process (pid 7) does not answer");
        let error = connection.ask_with(&long, &[]).unwrap_err();
        assert_eq!(error.what(), "pool 'tank': its process (pid 7) does not answer");
    }
}
