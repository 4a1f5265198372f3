//! The handshake: what a client and the server agree on.
//!
//! ```text
//!   server   "NBDMAGIC" "IHAVEOPT" flags u16
//!   client   flags u32
//!   client   option ...      server   answers ...        until GO, EXPORT_NAME, or one of both leaves
//! ```
//!
//! What is asked again counts anew. An option that is too long, or too many of them, ends the connection.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use base::{Env, Error, Kind, Result};
use export::DataBudget;

use crate::disk::{Disk, Disks};
use crate::stream::ClientStream;
use crate::tls::Tls;
use crate::wire::{
    ContextWish, DATA_BYTES_MAX, FIXED_NEWSTYLE, Framing, InfoWish, NO_ZEROES, OPTION_BYTES_MAX, OPTION_HEAD_BYTES,
    OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionHead, SERVER_MAGIC, answer, can, info, option,
};

/// Options that a client may send.
const OPTIONS_MAX: usize = 256;
/// How long the handshake may take: a client that goes on byte by byte has its connection no longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The one context of block states, and its number.
const ALLOCATION: &str = "base:allocation";
pub(crate) const ALLOCATION_ID: u32 = 1;
/// Zeros behind the answer to EXPORT_NAME.
const PADDING_BYTES: usize = 124;
/// Bytes of the least request that makes sense.
const BLOCK_BYTES_MIN: u32 = 512;

/// What was agreed on.
pub(crate) struct Agreed {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) framing: Framing,
    /// The client may ask for `base:allocation`.
    pub(crate) has_states: bool,
}

/// What a client sends in time.
struct Incoming<'a> {
    env: &'a Env,
    stream: &'a ClientStream,
    until_ns: u64,
}

impl Incoming<'_> {
    /// Errors: those of the connection, also when the time is over.
    fn fill(&self, mut buf: &mut [u8]) -> Result<()> {
        while !buf.is_empty() {
            let left_ns = self.until_ns.saturating_sub(self.env.ticks_ns());
            if left_ns == 0 {
                return Err(std::io::Error::from(ErrorKind::TimedOut).into());
            }
            self.stream.set_read_timeout(Some(Duration::from_nanos(left_ns)))?;
            match (&*self.stream).read(buf) {
                Ok(0) => return Err(std::io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(len) => buf = &mut buf[len..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// The handshake at work.
struct Handshake<'a> {
    stream: &'a ClientStream,
    disks: &'a dyn Disks,
    tls: Option<&'a Tls>,
    framing: Framing,
    /// The export that contexts were chosen for.
    states_of: Option<String>,
    no_zeroes: bool,
}

/// Agrees with a client, which has to use TLS if there is any. `None` if it leaves. Errors: `Corrupt` for what makes no sense; those of the connection.
pub(crate) fn shake_hands(
    env: &Env,
    stream: &ClientStream,
    disks: &dyn Disks,
    tls: Option<&Tls>,
    budget: &Arc<DataBudget>,
) -> Result<Option<Agreed>> {
    let incoming = Incoming { env, stream, until_ns: env.ticks_ns().saturating_add(PATIENCE.as_nanos() as u64) };
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut hello = [&SERVER_MAGIC[..], OPTION_MAGIC].concat();
    hello.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    (&*stream).write_all(&hello)?;
    let mut flags = [0; 4];
    incoming.fill(&mut flags)?;
    let flags = u32::from_be_bytes(flags);
    if flags & u32::from(FIXED_NEWSTYLE) == 0 || flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
        return Err(Error::corrupt(format!("flags {flags:#x} of a client")));
    }
    let no_zeroes = flags & u32::from(NO_ZEROES) != 0;
    let mut handshake = Handshake { stream, disks, tls, framing: Framing::Simple, states_of: None, no_zeroes };
    for _ in 0..OPTIONS_MAX {
        let mut head = [0; OPTION_HEAD_BYTES];
        incoming.fill(&mut head)?;
        let OptionHead { option, len } = OptionHead::parse(&head)?;
        if len > OPTION_BYTES_MAX {
            handshake.answer(option, answer::TOO_BIG, b"")?;
            return Err(Error::corrupt(format!("an option of {len} bytes")));
        }
        let _grant = budget.take(len.into());
        let mut data = vec![0; len as usize];
        incoming.fill(&mut data)?;
        match handshake.option(option, &data)? {
            HandshakeStep::Next => {}
            HandshakeStep::Leave => return Ok(None),
            HandshakeStep::Use(name, disk) => {
                stream.set_read_timeout(None)?;
                let has_states = handshake.states_of.as_deref() == Some(&name);
                return Ok(Some(Agreed { disk, framing: handshake.framing, has_states }));
            }
        }
    }
    Err(Error::corrupt("a client that only has options"))
}

/// What follows an option.
enum HandshakeStep {
    Next,
    Leave,
    /// The disk of that name is used from now on.
    Use(String, Arc<dyn Disk>),
}

impl Handshake<'_> {
    fn option(&mut self, option: u32, data: &[u8]) -> Result<HandshakeStep> {
        let is_open = self.tls.is_none() || self.stream.has_tls();
        match option {
            option::EXPORT_NAME if is_open => return self.export_name(data),
            option::EXPORT_NAME => return Ok(HandshakeStep::Leave),
            option::ABORT => {
                // it need not wait for that
                let _ = self.answer(option, answer::ACK, b"");
                return Ok(HandshakeStep::Leave);
            }
            option::STARTTLS => self.start_tls(data)?,
            _ if !is_open => self.answer(option, answer::TLS_REQUIRED, b"this server wants TLS")?,
            option::LIST if !data.is_empty() => self.answer(option, answer::INVALID, b"")?,
            option::LIST => {
                for name in self.disks.names()? {
                    let entry = [&(name.len() as u32).to_be_bytes()[..], name.as_bytes()].concat();
                    self.answer(option, answer::SERVER, &entry)?;
                }
                self.answer(option, answer::ACK, b"")?;
            }
            option::INFO | option::GO => return self.go(option, data),
            option::STRUCTURED_REPLY | option::EXTENDED_HEADERS => {
                let wish = if option == option::EXTENDED_HEADERS { Framing::Extended } else { Framing::Structured };
                let can_be = data.is_empty() && self.framing != Framing::Extended;
                if can_be {
                    self.framing = wish;
                }
                self.answer(option, if can_be { answer::ACK } else { answer::INVALID }, b"")?;
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.contexts(option, data)?,
            // what is not known
            _ => self.answer(option, answer::UNSUPPORTED, b"")?,
        }
        Ok(HandshakeStep::Next)
    }

    /// All that was agreed on before is forgotten: anybody may have said it.
    fn start_tls(&mut self, data: &[u8]) -> Result<()> {
        let Some(tls) = self.tls else {
            return self.answer(option::STARTTLS, answer::POLICY, b"no certificate was given to this server");
        };
        if !data.is_empty() || self.stream.has_tls() {
            return self.answer(option::STARTTLS, answer::INVALID, b"");
        }
        self.answer(option::STARTTLS, answer::ACK, b"")?;
        (self.framing, self.states_of) = (Framing::Simple, None);
        self.stream.start_tls(tls)
    }

    /// The old way to choose a disk: one that is not there ends the connection.
    fn export_name(&self, data: &[u8]) -> Result<HandshakeStep> {
        let name = std::str::from_utf8(data).map_err(|_| Error::corrupt("a name that is no UTF-8"))?;
        let Some(disk) = self.disks.find(name)? else { return Ok(HandshakeStep::Leave) };
        let mut reply = self.size_and_flags(&*disk)?;
        if !self.no_zeroes {
            reply.resize(reply.len() + PADDING_BYTES, 0);
        }
        (&*self.stream).write_all(&reply)?;
        Ok(HandshakeStep::Use(name.to_owned(), disk))
    }

    fn go(&self, option: u32, data: &[u8]) -> Result<HandshakeStep> {
        let Ok(wish) = InfoWish::parse(data) else {
            self.answer(option, answer::INVALID, b"")?;
            return Ok(HandshakeStep::Next);
        };
        let found = self
            .disks
            .find(&wish.name)
            .and_then(|found| found.map(|disk| self.size_and_flags(&*disk).map(|facts| (disk, facts))).transpose());
        let (disk, facts) = match found {
            Ok(Some(found)) => found,
            Ok(None) => {
                self.answer(option, answer::UNKNOWN, b"there is no such export")?;
                return Ok(HandshakeStep::Next);
            }
            Err(error) => {
                tracing::warn!("export '{}' of NBD cannot be used: {error}", wish.name);
                self.answer(option, answer::UNKNOWN, b"the export cannot be read")?;
                return Ok(HandshakeStep::Next);
            }
        };
        let export = [&info::EXPORT.to_be_bytes()[..], &facts].concat();
        self.answer(option, answer::INFO, &export)?;
        if wish.kinds.contains(&info::NAME) {
            self.answer(option, answer::INFO, &[&info::NAME.to_be_bytes()[..], wish.name.as_bytes()].concat())?;
        }
        if wish.kinds.contains(&info::BLOCK_SIZE) {
            let preferred = u32::try_from(disk.volume()?.block_size()).unwrap_or(DATA_BYTES_MAX).min(DATA_BYTES_MAX);
            let mut sizes = Vec::from(info::BLOCK_SIZE.to_be_bytes());
            [1, preferred.max(BLOCK_BYTES_MIN), DATA_BYTES_MAX]
                .iter()
                .for_each(|size| sizes.extend(size.to_be_bytes()));
            self.answer(option, answer::INFO, &sizes)?;
        }
        self.answer(option, answer::ACK, b"")?;
        Ok(if option == option::GO { HandshakeStep::Use(wish.name, disk) } else { HandshakeStep::Next })
    }

    fn contexts(&mut self, option: u32, data: &[u8]) -> Result<()> {
        let Ok(wish) = ContextWish::parse(data) else { return self.answer(option, answer::INVALID, b"") };
        let is_set = option == option::SET_META_CONTEXT;
        if is_set {
            self.states_of = None;
            if !self.framing.has_chunks() {
                return self.answer(option, answer::INVALID, b"structured replies come first");
            }
        }
        if self.disks.find(&wish.name)?.is_none() {
            return self.answer(option, answer::UNKNOWN, b"there is no such export");
        }
        // without a query, all that there are are listed
        let names = |query: &String| query == ALLOCATION || !is_set && query == "base:";
        if wish.queries.iter().any(names) || !is_set && wish.queries.is_empty() {
            let id = if is_set { ALLOCATION_ID } else { 0 };
            self.answer(option, answer::META_CONTEXT, &[&id.to_be_bytes()[..], ALLOCATION.as_bytes()].concat())?;
            if is_set {
                self.states_of = Some(wish.name);
            }
        }
        self.answer(option, answer::ACK, b"")
    }

    fn size_and_flags(&self, disk: &dyn Disk) -> Result<Vec<u8>> {
        let volume = disk.volume()?;
        let mut flags = can::HAS_FLAGS | can::FLUSH | can::FUA | can::CACHE | can::MULTI_CONN;
        flags |= match volume.is_read_only() {
            true => can::READ_ONLY,
            false => can::TRIM | can::WRITE_ZEROES | can::FAST_ZERO,
        };
        if self.framing.has_chunks() {
            flags |= can::DF;
        }
        if self.framing == Framing::Extended {
            flags |= can::BLOCK_STATUS_PAYLOAD;
        }
        Ok([&volume.size().to_be_bytes()[..], &flags.to_be_bytes()].concat())
    }

    fn answer(&self, option: u32, kind: u32, data: &[u8]) -> Result<()> {
        let mut reply = Vec::from(OPTION_REPLY_MAGIC.to_be_bytes());
        reply.extend(option.to_be_bytes());
        reply.extend(kind.to_be_bytes());
        let len = u32::try_from(data.len()).map_err(|_| Error::new(Kind::TooBig, "an answer to an option"))?;
        reply.extend(len.to_be_bytes());
        reply.extend(data);
        Ok((&*self.stream).write_all(&reply)?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_handshake_ends_in_time() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = ClientStream::new(ours.into()).unwrap();
        let now_ns = Arc::new(AtomicU64::new(0));
        let clock = now_ns.clone();
        // each look at the clock is a second later
        let env = Env::fixed(0).with_ticks(move || clock.fetch_add(1_000_000_000, Ordering::Relaxed));
        let incoming = Incoming { env: &env, stream: &ours, until_ns: 10_000_000_000 };
        theirs.write_all(&[7; 100]).unwrap();
        incoming.fill(&mut [0; 50]).unwrap();
        for _ in 1..10 {
            incoming.fill(&mut [0]).unwrap();
        }
        assert!(incoming.fill(&mut [0]).is_err(), "the time is over");
        drop(theirs);
    }
}
