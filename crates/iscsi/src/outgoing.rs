//! Answers, in the order of their numbers.
//!
//! ```text
//!   DATA_IN ... DATA_IN with status     what was read, in messages as long as the initiator takes them
//!   RESPONSE                            status, and why
//!   READY                               the initiator is to send data of a write
//! ```
//!
//! Each message but DATA_IN without status and READY takes a number. All say which commands may come next.

use std::io::{self, Write};
use std::sync::Arc;

use base::{Mutex, Piece};
use export::{ClientSocket, write_slices};

use crate::params::Params;
use crate::pdu::{Digests, FINAL, HEAD_BYTES, NO_TAG, PduHead, opcode, sum_of};
use crate::tasks::CommandWindow;

/// What comes of a command.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommandAnswer {
    pub(crate) status: u8,
    /// What was read.
    pub(crate) data: Vec<Piece>,
    /// Why it failed, in the fixed form.
    pub(crate) sense: Vec<u8>,
    /// Bytes that the command itself asks to transfer.
    pub(crate) wants: u64,
    /// Ports whose commands are to be aborted before it is sent.
    pub(crate) aborts: Vec<String>,
}

/// What is sent on one connection.
pub(crate) struct Outgoing {
    state: Mutex<OutgoingState>,
    window: Arc<CommandWindow>,
}

struct OutgoingState {
    socket: ClientSocket,
    digests: Digests,
    receive_bytes: usize,
    burst_bytes: usize,
    next_number: u32,
}

impl Outgoing {
    /// The first answer will have that number.
    pub(crate) fn new(socket: ClientSocket, params: &Params, next_number: u32, window: Arc<CommandWindow>) -> Outgoing {
        let state = OutgoingState {
            socket,
            digests: params.digests,
            receive_bytes: params.receive_bytes as usize,
            burst_bytes: params.burst_bytes as usize,
            next_number,
        };
        Outgoing { state: Mutex::new(state), window }
    }

    /// The initiator takes messages of another length from now on.
    pub(crate) fn set_receive_bytes(&self, bytes: u32) {
        self.state.lock().receive_bytes = bytes as usize;
    }

    /// Sends an answer that takes a number. Errors: those of the connection.
    pub(crate) fn answer(&self, head: PduHead, data: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.send_numbered(&self.window, head, data)
    }

    /// Asks for data of a write: `len` bytes from an offset on. Errors: those of the connection.
    pub(crate) fn ready(
        &self,
        command: &PduHead,
        tag: u32,
        sequence: u32,
        (offset, len): (u32, u32),
    ) -> io::Result<()> {
        let mut head = PduHead::new(opcode::READY, FINAL, command.tag());
        head.0[8..16].copy_from_slice(&command.0[8..16]);
        head.put_u32(20, tag);
        head.put_u32(36, sequence);
        head.put_u32(40, offset);
        head.put_u32(44, len);
        let mut state = self.state.lock();
        head.put_u32(24, state.next_number);
        state.send(&self.window, head, &[])
    }

    /// Sends what comes of a command, of which the initiator expects to transfer so many bytes, if `is_answered` says so
    /// when it is its turn. Errors: those of the connection.
    pub(crate) fn respond(
        &self,
        command: &PduHead,
        expected: u32,
        answer: &CommandAnswer,
        is_answered: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        let is_read = command.flags() & 0x40 != 0;
        let read: u64 = answer.data.iter().map(|piece| piece.len() as u64).sum();
        let sent = if is_read { read.min(expected.into()) as u32 } else { 0 };
        let wanted = if is_read { read } else { answer.wants };
        let residual = match wanted.cmp(&u64::from(expected)) {
            std::cmp::Ordering::Greater => (0x04, u32::try_from(wanted - u64::from(expected)).unwrap_or(u32::MAX)),
            std::cmp::Ordering::Less => (0x02, expected - wanted as u32),
            std::cmp::Ordering::Equal => (0, 0),
        };
        let mut state = self.state.lock();
        if !is_answered() {
            return Ok(());
        }
        let has_data = sent > 0 && answer.sense.is_empty();
        let mut messages = 0;
        if has_data {
            messages = state.send_read(&self.window, command, (&answer.data, sent), (answer.status, residual))?;
        }
        if has_data && answer.status == 0 {
            return Ok(());
        }
        let mut head = PduHead::new(opcode::RESPONSE, FINAL | residual.0, command.tag());
        head.0[3] = answer.status;
        head.put_u32(36, messages);
        head.put_u32(44, residual.1);
        let sense = match answer.sense.is_empty() {
            true => Vec::new(),
            false => [&(answer.sense.len() as u16).to_be_bytes()[..], &answer.sense].concat(),
        };
        state.send_numbered(&self.window, head, &sense)
    }
}

impl OutgoingState {
    fn send_numbered(&mut self, window: &CommandWindow, mut head: PduHead, data: &[u8]) -> io::Result<()> {
        head.put_u32(24, self.next_number);
        self.next_number = self.next_number.wrapping_add(1);
        head.put_data_len(data.len());
        self.send(window, head, &[data])
    }

    /// Sends the first bytes of what was read, with the status if it is a good one; returns in how many messages.
    fn send_read(
        &mut self,
        window: &CommandWindow,
        command: &PduHead,
        (pieces, len): (&[Piece], u32),
        (status, residual): (u8, (u8, u32)),
    ) -> io::Result<u32> {
        let (mut at, mut sequence, mut number) = (0usize, 0usize, 0u32);
        let mut slices = pieces.iter().map(|piece| &piece[..]).filter(|slice| !slice.is_empty());
        let mut rest: &[u8] = &[];
        let len = len as usize;
        while at < len {
            let part_len = self.receive_bytes.min(self.burst_bytes - sequence).min(len - at);
            let (mut part, mut left) = (Vec::new(), part_len);
            while left > 0 {
                if rest.is_empty() {
                    rest = slices.next().unwrap_or(&[]);
                }
                let (now, later) = rest.split_at(left.min(rest.len()));
                part.push(now);
                (rest, left) = (later, left - now.len());
            }
            let is_last = at + part_len == len;
            sequence += part_len;
            let ends_burst = is_last || sequence == self.burst_bytes;
            let mut head = PduHead::new(opcode::DATA_IN, if ends_burst { FINAL } else { 0 }, command.tag());
            head.put_data_len(part_len);
            head.put_u32(20, NO_TAG);
            head.put_u32(36, number);
            head.put_u32(40, at as u32);
            if is_last && status == 0 {
                head.0[1] |= 1 | residual.0;
                head.put_u32(44, residual.1);
                head.put_u32(24, self.next_number);
                self.next_number = self.next_number.wrapping_add(1);
            }
            self.send(window, head, &part)?;
            at += part_len;
            number += 1;
            if ends_burst {
                sequence = 0;
            }
        }
        Ok(number)
    }

    fn send(&mut self, window: &CommandWindow, mut head: PduHead, data: &[&[u8]]) -> io::Result<()> {
        let (next, last) = window.bounds();
        head.put_u32(28, next);
        head.put_u32(32, last);
        write(&mut &self.socket, self.digests, &head, data)
    }
}

/// Writes a message whose head has the length of its data. Errors: those of the connection.
pub(crate) fn write(to: &mut impl Write, digests: Digests, head: &PduHead, data: &[&[u8]]) -> io::Result<()> {
    const PADDING: [u8; 4] = [0; 4];
    let padding = &PADDING[..head.data_len().wrapping_neg() % 4];
    let head_sum = if digests.head { Some(sum_of(&[&head.0[..HEAD_BYTES]])) } else { None };
    let all: Vec<&[u8]> = data.iter().copied().chain([padding]).collect();
    let data_sum = (digests.data && head.data_len() > 0).then(|| sum_of(&all));
    let mut slices: Vec<&[u8]> = vec![&head.0];
    slices.extend(head_sum.iter().map(|sum| &sum[..]));
    slices.extend(all);
    slices.extend(data_sum.iter().map(|sum| &sum[..]));
    write_slices(to, &slices)
}
