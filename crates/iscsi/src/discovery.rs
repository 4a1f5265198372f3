//! A discovery session: an initiator learns of the targets that it may use, and leaves.
//!
//! Everybody may begin one, so it is bounded: in time, in messages and in the bytes of each, and takes no more than one
//! thread. Nothing but text requests, pings and the logout is taken.

use std::time::Duration;

use base::{Error, Result};
use export::ClientSocket;

use crate::login::{InTime, LoggedIn};
use crate::outgoing::write;
use crate::parts::ServerParts;
use crate::pdu::{Digests, EARLY_DATA_BYTES_MAX, FINAL, HEAD_BYTES, NO_TAG, Pdu, PduHead, has_ended, opcode};
use crate::texts::Texts;

/// How long a session may take, and how long it may be silent.
const PATIENCE: Duration = Duration::from_secs(120);
const SILENCE: Duration = Duration::from_secs(30);
/// Messages of one session: an answer of the longest kind takes 2,048 if the initiator takes 512 bytes at a time.
const MESSAGES_MAX: u32 = 4096;
/// Commands that may come before they are answered.
const WINDOW: u32 = 16;
/// Why a message is refused.
const PROTOCOL_ERROR: u8 = 0x04;
const INVALID_FIELD: u8 = 0x09;

/// The answers of a session.
struct Answers<'a> {
    socket: &'a ClientSocket,
    digests: Digests,
    /// Numbers of the next command and the next answer.
    next_command: u32,
    next_answer: u32,
}

impl Answers<'_> {
    fn send(&mut self, mut head: PduHead, data: &[u8]) -> Result<()> {
        head.put_u32(24, self.next_answer);
        head.put_u32(28, self.next_command);
        head.put_u32(32, self.next_command.wrapping_add(WINDOW - 1));
        head.put_data_len(data.len());
        self.next_answer = self.next_answer.wrapping_add(1);
        Ok(write(&mut &*self.socket, self.digests, &head, &[data])?)
    }

    fn reject(&mut self, head: &PduHead, why: u8) -> Result<()> {
        let mut answer = PduHead::new(opcode::REJECT, FINAL, NO_TAG);
        answer.0[2] = why;
        self.send(answer, &head.0[..HEAD_BYTES])
    }
}

/// Serves a session until the initiator leaves, or has had its time. Errors: `Corrupt` for what discovery does not need;
/// those of the connection.
pub(crate) fn serve(shared: &ServerParts, socket: &ClientSocket, agreed: LoggedIn) -> Result<()> {
    let after = |time: Duration| shared.env.ticks_ns().saturating_add(time.as_nanos() as u64);
    let (until_ns, digests) = (after(PATIENCE), agreed.params.digests);
    socket.set_write_timeout(Some(SILENCE))?;
    let mut texts = Texts::new(socket, &agreed);
    let (next_command, next_answer) = (agreed.next_command, agreed.next_answer);
    let mut answers = Answers { socket, digests, next_command, next_answer };
    for _ in 0..MESSAGES_MAX {
        let mut incoming = InTime { env: &shared.env, socket, until_ns: until_ns.min(after(SILENCE)) };
        let pdu = match Pdu::read_within(&mut incoming, digests, EARLY_DATA_BYTES_MAX) {
            Ok(pdu) => pdu,
            Err(error) if has_ended(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        if !pdu.head.is_immediate() {
            if pdu.head.number() != answers.next_command {
                return Err(Error::corrupt("a command of discovery whose number is not the next"));
            }
            answers.next_command = answers.next_command.wrapping_add(1);
        }
        let head = &pdu.head;
        match head.opcode() {
            opcode::NOP_OUT if head.tag() == NO_TAG => {}
            opcode::NOP_OUT => {
                let mut answer = PduHead::new(opcode::NOP_IN, FINAL, head.tag());
                answer.0[8..16].copy_from_slice(&head.0[8..16]);
                answer.put_u32(20, NO_TAG);
                let most = pdu.data.len().min(texts.params.receive_bytes as usize);
                answers.send(answer, &pdu.data[..most])?;
            }
            opcode::TEXT => match texts.answer(shared, &pdu)? {
                Some((answer, out)) => answers.send(answer, &out)?,
                None => answers.reject(head, INVALID_FIELD)?,
            },
            opcode::LOGOUT => {
                let mut answer = PduHead::new(opcode::LOGOUT_RESPONSE, FINAL, head.tag());
                // closing the session, or this connection of it; recovery is none of level 0
                answer.0[2] = if head.flags() & 0x7f <= 1 { 0 } else { 2 };
                return answers.send(answer, &[]);
            }
            other => {
                answers.reject(head, PROTOCOL_ERROR)?;
                return Err(Error::corrupt(format!("discovery needs no message of kind {other:#x}")));
            }
        }
    }
    Err(Error::corrupt("a discovery without an end"))
}
