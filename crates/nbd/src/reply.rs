//! Answers to requests.
//!
//! ```text
//!   simple       magic u32 | error u32 | cookie u64 | data of a read
//!   structured   magic u32 | flags u16 | type u16 | cookie u64 | length u32 | payload        one chunk, or several
//!   extended     magic u32 | flags u16 | type u16 | cookie u64 | offset u64 | length u64 | payload
//! ```

use std::io::{self, Write};

use base::Piece;
use export::write_slices;

use crate::wire::{CHUNK_MAGIC, EXTENDED_CHUNK_MAGIC, Framing, NbdRequest, SIMPLE_REPLY_MAGIC, chunk};

/// An answer.
pub(crate) enum NbdAnswer {
    /// It is done, or it failed with an error of the protocol.
    Done(Result<(), u32>),
    /// What was read: parts in their order, without a gap.
    Read(Vec<ReadPart>),
    /// The states of ranges, one behind the other: lengths and flags.
    States(Vec<(u64, u32)>),
}

/// Part of what was read.
pub(crate) enum ReadPart {
    /// Bytes, from an offset on.
    Data(u64, Vec<Piece>),
    /// Zeros, from an offset on, so many.
    Hole(u64, u32),
}

/// Writes the answer to a request. `contexts` is the number of the context of block states.
pub(crate) fn write(
    to: &mut impl Write,
    framing: Framing,
    request: &NbdRequest,
    answer: &NbdAnswer,
    context: u32,
) -> io::Result<()> {
    let mut chunk_of = |flags, kind, payload: &[&[u8]]| chunk_of(to, framing, request, (flags, kind), payload);
    match answer {
        NbdAnswer::Done(done) if !framing.has_chunks() => simple(to, request.cookie, done.err().unwrap_or(0), &[]),
        NbdAnswer::Done(Ok(())) => chunk_of(chunk::DONE, chunk::NONE, &[]),
        NbdAnswer::Done(Err(error)) => {
            let payload = [&error.to_be_bytes()[..], &[0, 0]].concat();
            chunk_of(chunk::DONE, chunk::ERROR, &[&payload])
        }
        NbdAnswer::Read(parts) if !framing.has_chunks() => {
            let pieces: Vec<Piece> = parts
                .iter()
                .flat_map(|part| match part {
                    ReadPart::Data(_, pieces) => pieces.clone(),
                    ReadPart::Hole(_, len) => Piece::zeros(*len as usize).collect(),
                })
                .collect();
            simple(to, request.cookie, 0, &pieces)
        }
        NbdAnswer::Read(parts) => {
            for (at, part) in parts.iter().enumerate() {
                let flags = if at + 1 == parts.len() { chunk::DONE } else { 0 };
                match part {
                    ReadPart::Data(offset, pieces) => {
                        let offset = offset.to_be_bytes();
                        let slices: Vec<&[u8]> =
                            [&offset[..]].into_iter().chain(pieces.iter().map(|p| &p[..])).collect();
                        chunk_of(flags, chunk::OFFSET_DATA, &slices)?;
                    }
                    ReadPart::Hole(offset, len) => {
                        let payload = [&offset.to_be_bytes()[..], &len.to_be_bytes()].concat();
                        chunk_of(flags, chunk::OFFSET_HOLE, &[&payload])?;
                    }
                }
            }
            Ok(())
        }
        NbdAnswer::States(states) => {
            let mut payload = Vec::from(context.to_be_bytes());
            if framing == Framing::Extended {
                payload.extend((states.len() as u32).to_be_bytes());
                states.iter().for_each(|(len, state)| {
                    payload.extend(len.to_be_bytes());
                    payload.extend(u64::from(*state).to_be_bytes());
                });
                return chunk_of(chunk::DONE, chunk::BLOCK_STATUS_EXTENDED, &[&payload]);
            }
            for (len, state) in states {
                // as long as the request at most, of which the length had 32 bits
                payload.extend((*len as u32).to_be_bytes());
                payload.extend(state.to_be_bytes());
            }
            chunk_of(chunk::DONE, chunk::BLOCK_STATUS, &[&payload])
        }
    }
}

fn simple(to: &mut impl Write, cookie: u64, error: u32, pieces: &[Piece]) -> io::Result<()> {
    let mut head = Vec::from(SIMPLE_REPLY_MAGIC.to_be_bytes());
    head.extend(error.to_be_bytes());
    head.extend(cookie.to_be_bytes());
    let slices: Vec<&[u8]> = [&head[..]].into_iter().chain(pieces.iter().map(|piece| &piece[..])).collect();
    write_slices(to, &slices)
}

fn chunk_of(
    to: &mut impl Write,
    framing: Framing,
    request: &NbdRequest,
    (flags, kind): (u16, u16),
    payload: &[&[u8]],
) -> io::Result<()> {
    let len: usize = payload.iter().map(|slice| slice.len()).sum();
    let is_extended = framing == Framing::Extended;
    let mut head = Vec::from(if is_extended { EXTENDED_CHUNK_MAGIC } else { CHUNK_MAGIC }.to_be_bytes());
    head.extend(flags.to_be_bytes());
    head.extend(kind.to_be_bytes());
    head.extend(request.cookie.to_be_bytes());
    if is_extended {
        head.extend(request.offset.to_be_bytes());
        head.extend((len as u64).to_be_bytes());
    } else {
        // what is read at once is at most 32 MiB
        head.extend((len as u32).to_be_bytes());
    }
    let slices: Vec<&[u8]> = [&head[..]].into_iter().chain(payload.iter().copied()).collect();
    write_slices(to, &slices)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(framing: Framing, answer: &NbdAnswer) -> Vec<u8> {
        let (command, offset) = (crate::wire::NbdCommand::Read, 1024);
        let request = NbdRequest { flags: 0, command, cookie: 5, offset, len: 12, data_len: 0 };
        let mut out = Vec::new();
        write(&mut out, framing, &request, answer, 1).unwrap();
        out
    }

    #[test]
    fn answers_in_both_forms() {
        assert_eq!(
            bytes(Framing::Simple, &NbdAnswer::Done(Err(22))),
            [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 22, 0, 0, 0, 0, 0, 0, 0, 5]
        );
        let error = bytes(Framing::Structured, &NbdAnswer::Done(Err(22)));
        assert_eq!(error[4..8], [0, 1, 0x80, 1]);
        assert_eq!(error[16..], [0, 0, 0, 6, 0, 0, 0, 22, 0, 0]);
        let block = base::Block::from(base::AlignedBuf::zeroed(512));
        let read = NbdAnswer::Read(vec![ReadPart::Data(1024, vec![Piece::of(block, 0..3)]), ReadPart::Hole(1027, 9)]);
        assert_eq!(bytes(Framing::Simple, &read).len(), 16 + 12);
        let chunks = bytes(Framing::Structured, &read);
        assert_eq!(chunks.len(), 20 + 8 + 3 + 20 + 12);
        assert_eq!((chunks[5], chunks[31 + 5]), (0, 1), "the last one says so");
        let chunks = bytes(Framing::Extended, &read);
        assert_eq!(chunks.len(), 32 + 8 + 3 + 32 + 12);
        assert_eq!((&chunks[16..24], &chunks[24..32]), (&1024u64.to_be_bytes()[..], &11u64.to_be_bytes()[..]));
        let states = bytes(Framing::Extended, &NbdAnswer::States(vec![(1 << 40, 3)]));
        assert_eq!((states[7], &states[36..40], states.len()), (6, &[0, 0, 0, 1][..], 32 + 8 + 16));
        assert_eq!(states[40..48], (1u64 << 40).to_be_bytes());
    }
}
