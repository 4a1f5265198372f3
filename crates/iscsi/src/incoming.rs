//! What an initiator sends, until something can be done about it.
//!
//! ```text
//!   commands   in the order of their numbers; one that comes too early is held, one that may not come is ignored
//!   writes     data come with the command, behind it if that was agreed on, and then as they are asked for
//! ```
//!
//! Invariants: data that are asked for take `WRITE_BYTES_MAX` at most of a connection, and `ALL_BYTES_MAX` of all
//! together, but for one command of each connection, so that none waits for another. More is asked for only when there
//! is room. Commands that are held are fewer than may be under way.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::BufReader;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::{Error, Mutex, Result};
use export::ClientSocket;

use crate::params::Params;
use crate::pdu::{NO_TAG, Pdu, PduHead, opcode};
use crate::tasks::{CommandWindow, Tasks};

/// Most bytes that one command writes.
pub(crate) const COMMAND_BYTES_MAX: u32 = 8 << 20;
/// Bytes of data that are asked for at a time.
const WRITE_BYTES_MAX: usize = 64 << 20;
/// Bytes of data that all connections ask for at a time.
const ALL_BYTES_MAX: usize = 256 << 20;
/// Bytes that are read from the connection at a time, at least.
const READ_BYTES: usize = 64 << 10;

/// Something that can be done now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// A command with all its data.
    Command(Pdu),
    /// A command whose data did not come as they had to.
    BadData(PduHead),
    /// A command that wants to write more than one may.
    TooMuch(PduHead),
    /// Anything else, in its order.
    Other(Pdu),
}

/// Asks for data: of a command, by a tag, in a sequence, at an offset, so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataAsk {
    pub(crate) command: PduHead,
    pub(crate) tag: u32,
    pub(crate) sequence: u32,
    pub(crate) range: (u32, u32),
}

/// What comes in.
pub(crate) struct IscsiIncoming {
    reader: BufReader<OwnedSocket>,
    params: Params,
    held: BTreeMap<u32, Pdu>,
    window: Arc<CommandWindow>,
}

/// A socket that is read.
struct OwnedSocket(ClientSocket);

impl std::io::Read for OwnedSocket {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        (&self.0).read(buf)
    }
}

impl IscsiIncoming {
    pub(crate) fn new(socket: ClientSocket, params: Params, window: Arc<CommandWindow>) -> IscsiIncoming {
        let reader = BufReader::with_capacity(READ_BYTES, OwnedSocket(socket));
        IscsiIncoming { reader, params, held: BTreeMap::new(), window }
    }

    /// Whether something has come that is not taken yet.
    pub(crate) fn has_more(&self) -> bool {
        !self.reader.buffer().is_empty() || self.reader.get_ref().0.has_input()
    }

    /// The next message whose turn it is. Errors: as of [`Pdu::read`].
    fn next(&mut self) -> Result<Pdu> {
        loop {
            let (next, _) = self.window.bounds();
            if let Some(pdu) = self.held.remove(&next) {
                return Ok(pdu);
            }
            let pdu = Pdu::read(&mut self.reader, self.params.digests)?;
            // neither data nor requests to send again have numbers
            if pdu.head.is_immediate() || matches!(pdu.head.opcode(), opcode::DATA_OUT | 0x10) {
                return Ok(pdu);
            }
            match self.window.distance(pdu.head.number()) {
                Some(0) => return Ok(pdu),
                Some(_) => drop(self.held.insert(pdu.head.number(), pdu)),
                None => tracing::debug!("a command of iSCSI whose number may not come is ignored"),
            }
        }
    }

    /// What can be done next; `ask` is called with what is to be asked for meanwhile. Errors: `Corrupt`; those of the
    /// connection.
    pub(crate) fn take(
        &mut self,
        tasks: &Tasks,
        writes: &Writes,
        ask: &mut dyn FnMut(DataAsk) -> Result<()>,
    ) -> Result<Job> {
        loop {
            let pdu = self.next()?;
            if pdu.head.opcode() == opcode::DATA_OUT {
                match writes.add(pdu) {
                    Some(Next::Ask(next)) => ask(next)?,
                    Some(Next::Do(job)) => return Ok(job),
                    None => {}
                }
                continue;
            }
            let is_ordered = !pdu.head.is_immediate() && pdu.head.opcode() != 0x10;
            let is_command = pdu.head.opcode() == opcode::COMMAND;
            if is_command && !tasks.begin(pdu.head.tag(), is_ordered.then_some(&*self.window)) {
                return Err(Error::corrupt("a command with the tag of another, or too many"));
            }
            if is_ordered {
                self.window.advance();
            }
            if !is_command {
                return Ok(Job::Other(pdu));
            }
            match writes.begin(pdu, &self.params)? {
                Some(Next::Ask(next)) => ask(next)?,
                Some(Next::Do(job)) => return Ok(job),
                None => {}
            }
        }
    }
}

/// What follows from a message.
enum Next {
    Ask(DataAsk),
    Do(Job),
}

/// Writes whose data are not all here, and how much room there is for them.
pub(crate) struct Writes(Mutex<WritesState>);

/// Bytes of data that all connections of a server have asked for.
pub(crate) type SharedRoom = Arc<AtomicUsize>;

struct WritesState {
    all: SharedRoom,
    pending: HashMap<u32, PendingWrite>,
    /// Bytes of commands that data were asked for, until they are done.
    rooms: HashMap<u32, usize>,
    /// Their sum.
    taken: usize,
    /// Those that nothing was asked for yet, as there was no room.
    waiting: VecDeque<u32>,
    next_tag: u32,
}

struct PendingWrite {
    command: PduHead,
    expected: usize,
    data: Vec<u8>,
    /// Data come without being asked for.
    is_unasked: bool,
    /// The tag of what may come now, and up to where it goes.
    asked: (u32, usize),
    /// Sequences that were asked for.
    sequence: u32,
    /// Messages of this sequence that have come.
    messages: u32,
    burst_bytes: usize,
}

impl Drop for WritesState {
    fn drop(&mut self) {
        self.all.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

impl Writes {
    /// Of a connection, beside others.
    pub(crate) fn new(all: SharedRoom) -> Writes {
        Writes(Mutex::new(WritesState {
            all,
            pending: HashMap::new(),
            rooms: HashMap::new(),
            taken: 0,
            waiting: VecDeque::new(),
            next_tag: 0,
        }))
    }

    /// A command has come, with data perhaps. Errors: `Corrupt`.
    fn begin(&self, pdu: Pdu, params: &Params) -> Result<Option<Next>> {
        let Pdu { head, data } = pdu;
        let expected = if head.flags() & 0x20 != 0 { head.u32(20) } else { 0 };
        let most = params.first_burst_bytes.min(params.burst_bytes).min(expected) as usize;
        if data.len() > most || !data.is_empty() && !params.immediate_data {
            return Err(Error::corrupt("a command with more data than it may have"));
        }
        if expected > COMMAND_BYTES_MAX {
            return Ok(Some(Next::Do(Job::TooMuch(head))));
        }
        if data.len() == expected as usize {
            return Ok(Some(Next::Do(Job::Command(Pdu { head, data }))));
        }
        let is_unasked = !head.is_final();
        if is_unasked && params.initial_ready {
            return Err(Error::corrupt("data that nobody asked for are to follow"));
        }
        let (expected, burst_bytes) = (expected as usize, params.burst_bytes as usize);
        let asked = (NO_TAG, most);
        let write =
            PendingWrite { command: head, expected, data, is_unasked, asked, sequence: 0, messages: 0, burst_bytes };
        let mut state = self.0.lock();
        state.pending.insert(head.tag(), write);
        if is_unasked { Ok(None) } else { Ok(state.ask(head.tag()).map(Next::Ask)) }
    }

    /// Data of a write have come.
    fn add(&self, pdu: Pdu) -> Option<Next> {
        let (mut state, tag) = (self.0.lock(), pdu.head.tag());
        // those of a command that was aborted, or has failed, are not for anybody
        let write = state.pending.get_mut(&tag)?;
        let end = write.data.len() + pdu.data.len();
        let is_right = pdu.head.u32(20) == write.asked.0
            && pdu.head.u32(36) == write.messages
            && pdu.head.u32(40) as usize == write.data.len()
            && end <= write.asked.1
            && (write.is_unasked || pdu.head.is_final() == (end == write.asked.1));
        if !is_right {
            return state.pending.remove(&tag).map(|write| Next::Do(Job::BadData(write.command)));
        }
        write.data.extend(pdu.data);
        write.messages = write.messages.wrapping_add(1);
        if end == write.expected {
            let write = state.pending.remove(&tag)?;
            return Some(Next::Do(Job::Command(Pdu { head: write.command, data: write.data })));
        }
        if !pdu.head.is_final() {
            return None;
        }
        write.is_unasked = false;
        state.ask(tag).map(Next::Ask)
    }

    /// A command is done, whatever has come of it; returns what can be asked for now.
    pub(crate) fn end(&self, tag: u32) -> Vec<DataAsk> {
        let mut state = self.0.lock();
        state.pending.remove(&tag);
        let room = state.rooms.remove(&tag).unwrap_or(0);
        state.taken -= room;
        state.all.fetch_sub(room, Ordering::Relaxed);
        let mut asks = Vec::new();
        while let Some(&next) = state.waiting.front() {
            let expected = state.pending.get(&next).map_or(0, |write| write.expected);
            if !state.has_room(expected) {
                break;
            }
            state.waiting.pop_front();
            asks.extend(state.ask(next));
        }
        asks
    }

    /// The tags of all writes whose data are not all here.
    pub(crate) fn pending(&self) -> Vec<u32> {
        self.0.lock().pending.keys().copied().collect()
    }
}

impl WritesState {
    fn has_room(&self, bytes: usize) -> bool {
        // another one that sees the same room takes a command more
        let all = || self.all.load(Ordering::Relaxed) + bytes;
        self.taken == 0 || self.taken + bytes <= WRITE_BYTES_MAX && all() <= ALL_BYTES_MAX
    }

    /// The next data of a command; none if it has to wait.
    fn ask(&mut self, tag: u32) -> Option<DataAsk> {
        let expected = self.pending.get(&tag)?.expected;
        if !self.rooms.contains_key(&tag) {
            if !self.has_room(expected) {
                self.waiting.push_back(tag);
                return None;
            }
            self.taken += expected;
            self.all.fetch_add(expected, Ordering::Relaxed);
            self.rooms.insert(tag, expected);
        }
        self.next_tag = self.next_tag.wrapping_add(1) & 0x7fff_ffff;
        let (next_tag, write) = (self.next_tag, self.pending.get_mut(&tag)?);
        let at = write.data.len();
        write.data.reserve_exact(expected - at);
        let end = (at + write.burst_bytes).min(expected);
        let sequence = write.sequence;
        (write.asked, write.messages, write.sequence) = ((next_tag, end), 0, sequence.wrapping_add(1));
        Some(DataAsk { command: write.command, tag: next_tag, sequence, range: (at as u32, (end - at) as u32) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pdu::FINAL;

    fn write(tag: u32, expected: u32, data: usize) -> Pdu {
        let mut head = PduHead::new(opcode::COMMAND, FINAL | 0x20, tag);
        head.put_u32(20, expected);
        Pdu { head, data: vec![1; data] }
    }

    fn data(ask: &DataAsk, number: u32, (at, len): (u32, u32), is_final: bool) -> Pdu {
        let mut head = PduHead::new(opcode::DATA_OUT, if is_final { FINAL } else { 0 }, ask.command.tag());
        head.put_u32(20, ask.tag);
        head.put_u32(36, number);
        head.put_u32(40, at);
        Pdu { head, data: vec![2; len as usize] }
    }

    fn asked(next: Option<Next>) -> DataAsk {
        match next {
            Some(Next::Ask(ask)) => ask,
            _ => panic!("nothing is asked for"),
        }
    }

    #[test]
    fn data_are_asked_for() {
        let (writes, params) = (Writes::new(SharedRoom::default()), Params { burst_bytes: 1000, ..Params::default() });
        let ask = asked(writes.begin(write(1, 2500, 500), &params).unwrap());
        assert_eq!((ask.range, ask.sequence), ((500, 1000), 0));
        assert!(writes.add(data(&ask, 0, (500, 400), false)).is_none());
        let ask = asked(writes.add(data(&ask, 1, (900, 600), true)));
        assert_eq!((ask.range, ask.sequence), ((1500, 1000), 1));
        let Some(Next::Do(Job::Command(pdu))) = writes.add(data(&ask, 0, (1500, 1000), true)) else { panic!() };
        assert_eq!((pdu.data.len(), pdu.data[499], pdu.data[500]), (2500, 1, 2));
        assert!(writes.end(1).is_empty());
    }

    #[test]
    fn data_that_nobody_asked_for_are_bounded() {
        let (writes, params) =
            (Writes::new(SharedRoom::default()), Params { initial_ready: false, ..Params::default() });
        let mut command = write(1, 100_000, 0);
        command.head.0[1] = 0x20;
        assert!(writes.begin(command.clone(), &params).unwrap().is_none());
        let own = DataAsk { command: command.head, tag: NO_TAG, sequence: 0, range: (0, 0) };
        let ask = asked(writes.add(data(&own, 0, (0, 65536), true)));
        assert_eq!(ask.range, (65536, 100_000 - 65536));
        command.head.put_u32(16, 2);
        writes.begin(command, &params).unwrap();
        let own = DataAsk { command: write(2, 0, 0).head, ..own };
        assert!(matches!(writes.add(data(&own, 0, (0, 65537), true)), Some(Next::Do(Job::BadData(_)))));
        assert!(writes.begin(write(3, 10, 11), &params).is_err());
        let next = writes.begin(write(3, COMMAND_BYTES_MAX + 1, 0), &params).unwrap();
        assert!(matches!(next, Some(Next::Do(Job::TooMuch(_)))));
    }

    #[test]
    fn numbers_and_places_have_to_be_right() {
        let params = Params::default();
        for (number, range, is_final) in [
            (1, (0, 4096), true),
            (0, (1, 4095), true),
            (0, (0, 4096), false),
            (0, (0, 4095), true),
            (0, (0, 4097), true),
        ] {
            let writes = Writes::new(SharedRoom::default());
            let ask = asked(writes.begin(write(1, 4096, 0), &params).unwrap());
            let next = writes.add(data(&ask, number, range, is_final));
            assert!(matches!(next, Some(Next::Do(Job::BadData(_)))), "{number} {range:?}");
            assert!(writes.add(data(&ask, 0, (0, 4096), true)).is_none(), "it is over");
        }
    }

    #[test]
    fn writes_wait_for_room() {
        let (writes, params) = (Writes::new(SharedRoom::default()), Params::default());
        let begin = |tag| writes.begin(write(tag, COMMAND_BYTES_MAX, 0), &params).unwrap();
        for tag in 1..=8 {
            asked(begin(tag));
        }
        assert!(begin(9).is_none() && begin(10).is_none());
        assert_eq!(writes.end(2).iter().map(|ask| ask.command.tag()).collect::<Vec<_>>(), [9]);
        // one that is aborted while it waits
        assert!(writes.end(10).is_empty());
        assert!([1, 3, 4, 5, 6, 7, 8, 9].iter().all(|tag| writes.end(*tag).is_empty()));
        asked(begin(11));
    }

    /// Each connection has one command, whatever others have; more only from what is left of all.
    #[test]
    fn connections_share_room() {
        let (all, params) = (SharedRoom::default(), Params::default());
        let begin = |writes: &Writes, tag| writes.begin(write(tag, COMMAND_BYTES_MAX, 0), &params).unwrap();
        let many: Vec<_> = (0..100).map(|_| Writes::new(all.clone())).collect();
        let count = |writes: &Writes| (0..20).filter(|tag| begin(writes, *tag).is_some()).count();
        let counts: Vec<_> = many.iter().map(count).collect();
        assert_eq!((counts[..4].to_vec(), counts[4..].to_vec()), (vec![8; 4], vec![1; 96]));
        assert_eq!(all.load(Ordering::Relaxed), ALL_BYTES_MAX + 96 * COMMAND_BYTES_MAX as usize);
        // its own end lets one go on, and the end of a connection gives back all
        assert_eq!(many[9].end(0).len(), 1);
        drop(many);
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }
}
