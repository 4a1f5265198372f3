//! The standard input of a command, read for as long as the command is there.
//!
//! Others may hold the other end of a pipe open, so that it has no end when the command is killed.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};

use base::Result;
use protocol::streams::StreamNote;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::host::Host;

/// How often it is looked whether the command is there still.
const LOOK_NS: u64 = 100_000_000;
pub(super) const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: LOOK_NS as i64 };

/// Tells the command something.
pub(super) struct Teller<'a>(RefCell<&'a mut dyn FnMut(StreamNote) -> Result<()>>);

impl<'a> Teller<'a> {
    pub(super) fn new(note: &'a mut dyn FnMut(StreamNote) -> Result<()>) -> Teller<'a> {
        Teller(RefCell::new(note))
    }

    /// Errors: `Io` if the command has gone.
    pub(super) fn tell(&self, note: StreamNote) -> Result<()> {
        (self.0.borrow_mut())(note)
    }
}

/// What a command has as its standard input.
pub(super) struct CommandInput<'a> {
    from: File,
    host: &'a dyn Host,
    teller: &'a Teller<'a>,
    looked_ns: u64,
}

impl<'a> CommandInput<'a> {
    pub(super) fn new(from: File, host: &'a dyn Host, teller: &'a Teller<'a>) -> CommandInput<'a> {
        CommandInput { from, host, teller, looked_ns: host.now_ns() }
    }

    /// Errors if the command has gone.
    fn look(&mut self) -> io::Result<()> {
        self.looked_ns = self.host.now_ns();
        self.teller.tell(StreamNote::Alive).map_err(|_| io::Error::other("the command that receives has ended"))
    }
}

impl Read for CommandInput<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.host.now_ns() >= self.looked_ns.saturating_add(LOOK_NS) {
            self.look()?;
        }
        while poll(&mut [PollFd::new(&self.from, PollFlags::IN)], Some(&LOOK))? == 0 {
            self.look()?;
        }
        self.from.read(buf)
    }
}
