//! Answers to requests.
//!
//! ```text
//!   simple       magic u32 | error u32 | cookie u64 | data of a read
//!   structured   magic u32 | flags u16 | type u16 | cookie u64 | length u32 | payload        one chunk, or several
//! ```

use std::io::{self, IoSlice, Write};

use base::Piece;

use crate::wire::{CHUNK_MAGIC, SIMPLE_REPLY_MAGIC, chunk};

/// An answer.
pub(crate) enum NbdAnswer {
    /// It is done, or it failed with an error of the protocol.
    Done(Result<(), u32>),
    /// What was read: parts in their order, without a gap.
    Read(Vec<ReadPart>),
    /// The states of ranges, one behind the other: lengths and flags.
    States(Vec<(u32, u32)>),
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
    structured: bool,
    cookie: u64,
    answer: &NbdAnswer,
    context: u32,
) -> io::Result<()> {
    match answer {
        NbdAnswer::Done(done) if !structured => simple(to, cookie, done.err().unwrap_or(0), &[]),
        NbdAnswer::Done(Ok(())) => chunk_of(to, chunk::DONE, chunk::NONE, cookie, &[]),
        NbdAnswer::Done(Err(error)) => {
            let payload = [&error.to_be_bytes()[..], &[0, 0]].concat();
            chunk_of(to, chunk::DONE, chunk::ERROR, cookie, &[&payload])
        }
        NbdAnswer::Read(parts) if !structured => {
            let pieces: Vec<Piece> = parts
                .iter()
                .flat_map(|part| match part {
                    ReadPart::Data(_, pieces) => pieces.clone(),
                    ReadPart::Hole(_, len) => Piece::zeros(*len as usize).collect(),
                })
                .collect();
            simple(to, cookie, 0, &pieces)
        }
        NbdAnswer::Read(parts) => {
            for (at, part) in parts.iter().enumerate() {
                let flags = if at + 1 == parts.len() { chunk::DONE } else { 0 };
                match part {
                    ReadPart::Data(offset, pieces) => {
                        let offset = offset.to_be_bytes();
                        let slices: Vec<&[u8]> =
                            [&offset[..]].into_iter().chain(pieces.iter().map(|p| &p[..])).collect();
                        chunk_of(to, flags, chunk::OFFSET_DATA, cookie, &slices)?;
                    }
                    ReadPart::Hole(offset, len) => {
                        let payload = [&offset.to_be_bytes()[..], &len.to_be_bytes()].concat();
                        chunk_of(to, flags, chunk::OFFSET_HOLE, cookie, &[&payload])?;
                    }
                }
            }
            Ok(())
        }
        NbdAnswer::States(states) => {
            let mut payload = Vec::from(context.to_be_bytes());
            for (len, flags) in states {
                payload.extend(len.to_be_bytes());
                payload.extend(flags.to_be_bytes());
            }
            chunk_of(to, chunk::DONE, chunk::BLOCK_STATUS, cookie, &[&payload])
        }
    }
}

fn simple(to: &mut impl Write, cookie: u64, error: u32, pieces: &[Piece]) -> io::Result<()> {
    let mut head = Vec::from(SIMPLE_REPLY_MAGIC.to_be_bytes());
    head.extend(error.to_be_bytes());
    head.extend(cookie.to_be_bytes());
    let slices: Vec<&[u8]> = [&head[..]].into_iter().chain(pieces.iter().map(|piece| &piece[..])).collect();
    write_all(to, &slices)
}

fn chunk_of(to: &mut impl Write, flags: u16, kind: u16, cookie: u64, payload: &[&[u8]]) -> io::Result<()> {
    let len: usize = payload.iter().map(|slice| slice.len()).sum();
    let mut head = Vec::from(CHUNK_MAGIC.to_be_bytes());
    head.extend(flags.to_be_bytes());
    head.extend(kind.to_be_bytes());
    head.extend(cookie.to_be_bytes());
    // what is read at once is at most 32 MiB
    head.extend((len as u32).to_be_bytes());
    let slices: Vec<&[u8]> = [&head[..]].into_iter().chain(payload.iter().copied()).collect();
    write_all(to, &slices)
}

/// Writes slices one behind the other, in as few calls as can be.
fn write_all(to: &mut impl Write, slices: &[&[u8]]) -> io::Result<()> {
    let mut left: Vec<IoSlice<'_>> = slices.iter().filter(|s| !s.is_empty()).map(|slice| IoSlice::new(slice)).collect();
    let mut left = &mut left[..];
    while !left.is_empty() {
        match to.write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(structured: bool, answer: &NbdAnswer) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, structured, 5, answer, 1).unwrap();
        out
    }

    #[test]
    fn answers_in_both_forms() {
        assert_eq!(
            bytes(false, &NbdAnswer::Done(Err(22))),
            [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 22, 0, 0, 0, 0, 0, 0, 0, 5]
        );
        let error = bytes(true, &NbdAnswer::Done(Err(22)));
        assert_eq!(error[4..8], [0, 1, 0x80, 1]);
        assert_eq!(error[16..], [0, 0, 0, 6, 0, 0, 0, 22, 0, 0]);
        let block = base::Block::from(base::AlignedBuf::zeroed(512));
        let read = NbdAnswer::Read(vec![ReadPart::Data(1024, vec![Piece::of(block, 0..3)]), ReadPart::Hole(1027, 9)]);
        assert_eq!(bytes(false, &read).len(), 16 + 12);
        let chunks = bytes(true, &read);
        assert_eq!(chunks.len(), 20 + 8 + 3 + 20 + 12);
        assert_eq!((chunks[5], chunks[31 + 5]), (0, 1), "the last one says so");
    }
}
