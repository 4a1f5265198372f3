//! The numbers of the protocol, and the messages of clients.
//!
//! ```text
//!   option    "IHAVEOPT" | number u32 | length u32 | data
//!     GO, INFO            length of name u32 | name | count u16 | kinds of information u16 ...
//!     ..._META_CONTEXT    length of name u32 | name | count u32 | (length u32 | query) ...
//!   request   magic u32 | flags u16 | command u16 | cookie u64 | offset u64 | length u32 | data of a write
//!   extended  another magic, and length u64; data follow what says so by a flag
//!     BLOCK_STATUS with data   length of the range u64 | numbers of contexts u32 ...
//! ```
//!
//! All numbers are big-endian.

use base::{Endian, Error, Reader, Result};

pub(crate) const SERVER_MAGIC: &[u8; 8] = b"NBDMAGIC";
pub(crate) const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub(crate) const CHUNK_MAGIC: u32 = 0x668e_33ef;
pub(crate) const EXTENDED_CHUNK_MAGIC: u32 = 0x6e8a_278c;

/// Bytes of the head of an option.
pub(crate) const OPTION_HEAD_BYTES: usize = 16;
/// Bytes of the head of a request, at most.
pub(crate) const REQUEST_HEAD_BYTES_MAX: usize = 32;
/// Longest data of an option: a name of 4096 bytes, and some queries.
pub(crate) const OPTION_BYTES_MAX: u32 = 64 << 10;
/// Longest name and query.
const TEXT_BYTES_MAX: u32 = 4096;
/// Queries of one option.
const QUERIES_MAX: u32 = 64;
/// Most bytes of one read or write.
pub(crate) const DATA_BYTES_MAX: u32 = 32 << 20;

/// Flags of the handshake, of both sides.
pub(crate) const FIXED_NEWSTYLE: u16 = 1;
pub(crate) const NO_ZEROES: u16 = 2;

/// Numbers of options.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
    pub(crate) const EXTENDED_HEADERS: u32 = 11;
}

/// Numbers of answers to options.
pub(crate) mod answer {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const UNSUPPORTED: u32 = 0x8000_0001;
    pub(crate) const POLICY: u32 = 0x8000_0002;
    pub(crate) const INVALID: u32 = 0x8000_0003;
    pub(crate) const TLS_REQUIRED: u32 = 0x8000_0005;
    pub(crate) const UNKNOWN: u32 = 0x8000_0006;
    pub(crate) const TOO_BIG: u32 = 0x8000_0009;
}

/// Kinds of information about an export.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// What an export can do.
pub(crate) mod can {
    pub(crate) const HAS_FLAGS: u16 = 1;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const FLUSH: u16 = 1 << 2;
    pub(crate) const FUA: u16 = 1 << 3;
    pub(crate) const TRIM: u16 = 1 << 5;
    pub(crate) const WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const DF: u16 = 1 << 7;
    pub(crate) const MULTI_CONN: u16 = 1 << 8;
    pub(crate) const CACHE: u16 = 1 << 10;
    pub(crate) const FAST_ZERO: u16 = 1 << 11;
    pub(crate) const BLOCK_STATUS_PAYLOAD: u16 = 1 << 12;
}

/// Flags of a request.
pub(crate) mod flag {
    pub(crate) const FUA: u16 = 1;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
    pub(crate) const PAYLOAD: u16 = 1 << 5;
}

/// Errors of the protocol.
pub(crate) mod errno {
    pub(crate) const EPERM: u32 = 1;
    pub(crate) const EIO: u32 = 5;
    pub(crate) const EINVAL: u32 = 22;
    pub(crate) const ENOSPC: u32 = 28;
    pub(crate) const EOVERFLOW: u32 = 75;
    pub(crate) const ENOTSUP: u32 = 95;
    pub(crate) const ESHUTDOWN: u32 = 108;
}

/// Types of chunks, and the flag of the last one.
pub(crate) mod chunk {
    pub(crate) const DONE: u16 = 1;
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const OFFSET_HOLE: u16 = 2;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const BLOCK_STATUS_EXTENDED: u16 = 6;
    pub(crate) const ERROR: u16 = 0x8001;
}

/// What `base:allocation` says of a range.
pub(crate) const STATE_HOLE_AND_ZERO: u32 = 3;
pub(crate) const STATE_DATA: u32 = 0;

/// The head of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OptionHead {
    pub(crate) option: u32,
    pub(crate) len: u32,
}

/// Names an export, and what a client wants to know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InfoWish {
    pub(crate) name: String,
    pub(crate) kinds: Vec<u16>,
}

/// Names an export, and the contexts of block states that a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContextWish {
    pub(crate) name: String,
    pub(crate) queries: Vec<String>,
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NbdCommand {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    Cache,
    WriteZeroes,
    BlockStatus,
    /// One that is not known.
    Other(u16),
}

/// What requests and answers look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// One answer to each request.
    Simple,
    /// Answers come in chunks.
    Structured,
    /// They do, and lengths have 64 bits.
    Extended,
}

/// A request without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NbdRequest {
    pub(crate) flags: u16,
    pub(crate) command: NbdCommand,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Bytes that follow the head.
    pub(crate) data_len: u64,
}

impl OptionHead {
    /// Errors: `Corrupt`.
    pub(crate) fn parse(bytes: &[u8; OPTION_HEAD_BYTES]) -> Result<OptionHead> {
        let mut r = Reader::new(bytes, Endian::Big);
        if r.take(OPTION_MAGIC.len())? != OPTION_MAGIC {
            return Err(Error::corrupt("an option that begins with other bytes"));
        }
        Ok(OptionHead { option: r.u32()?, len: r.u32()? })
    }
}

impl InfoWish {
    /// Errors: `Corrupt`.
    pub(crate) fn parse(data: &[u8]) -> Result<InfoWish> {
        let mut r = Reader::new(data, Endian::Big);
        let name = text(&mut r)?;
        let kinds = (0..r.u16()?).map(|_| r.u16()).collect::<Result<_>>()?;
        ended(&r)?;
        Ok(InfoWish { name, kinds })
    }
}

impl ContextWish {
    /// Errors: `Corrupt`.
    pub(crate) fn parse(data: &[u8]) -> Result<ContextWish> {
        let mut r = Reader::new(data, Endian::Big);
        let (name, count) = (text(&mut r)?, r.u32()?);
        if count > QUERIES_MAX {
            return Err(Error::corrupt(format!("{count} queries")));
        }
        let queries = (0..count).map(|_| text(&mut r)).collect::<Result<_>>()?;
        ended(&r)?;
        Ok(ContextWish { name, queries })
    }
}

impl NbdRequest {
    /// Errors: `Corrupt`: nothing that follows makes sense then.
    pub(crate) fn parse(bytes: &[u8], framing: Framing) -> Result<NbdRequest> {
        let mut r = Reader::new(bytes, Endian::Big);
        let is_extended = framing == Framing::Extended;
        if r.u32()? != if is_extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC } {
            return Err(Error::corrupt("a request that begins with other bytes"));
        }
        let (flags, command) = (r.u16()?, r.u16()?);
        let command = match command {
            0 => NbdCommand::Read,
            1 => NbdCommand::Write,
            2 => NbdCommand::Disconnect,
            3 => NbdCommand::Flush,
            4 => NbdCommand::Trim,
            5 => NbdCommand::Cache,
            6 => NbdCommand::WriteZeroes,
            7 => NbdCommand::BlockStatus,
            other => NbdCommand::Other(other),
        };
        let (cookie, offset) = (r.u64()?, r.u64()?);
        let len = if is_extended { r.u64()? } else { r.u32()?.into() };
        let has_data = command == NbdCommand::Write || is_extended && flags & flag::PAYLOAD != 0;
        Ok(NbdRequest { flags, command, cookie, offset, len, data_len: if has_data { len } else { 0 } })
    }

    /// The request for block states that it is, with the range from its data, if it has any; and whether it asks for
    /// those of `context`. Errors: `Corrupt`.
    pub(crate) fn range_in(&self, data: &[u8], context: u32) -> Result<(NbdRequest, bool)> {
        if self.data_len == 0 {
            return Ok((*self, true));
        }
        let mut r = Reader::new(data, Endian::Big);
        let (len, mut is_asked) = (r.u64()?, false);
        while !r.rest().is_empty() {
            is_asked |= r.u32()? == context;
        }
        Ok((NbdRequest { len, ..*self }, is_asked))
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

impl Framing {
    /// Bytes of the head of a request.
    pub(crate) fn request_head_bytes(self) -> usize {
        if self == Framing::Extended { REQUEST_HEAD_BYTES_MAX } else { 28 }
    }

    /// Whether answers come in chunks.
    pub(crate) fn has_chunks(self) -> bool {
        self != Framing::Simple
    }
}

/// A name or query with its length before it.
fn text(r: &mut Reader<'_>) -> Result<String> {
    let len = r.u32()?;
    if len > TEXT_BYTES_MAX {
        return Err(Error::corrupt(format!("a name of {len} bytes")));
    }
    String::from_utf8(r.take(len as usize)?.to_vec()).map_err(|_| Error::corrupt("a name that is no UTF-8"))
}

fn ended(r: &Reader<'_>) -> Result<()> {
    if r.rest().is_empty() { Ok(()) } else { Err(Error::corrupt("bytes behind the end of an option")) }
}

/// Parses any bytes as all messages that a client can send.
pub fn fuzz(bytes: &[u8]) {
    let _ = (InfoWish::parse(bytes), ContextWish::parse(bytes));
    if let Some(head) = bytes.first_chunk() {
        let _ = OptionHead::parse(head);
    }
    for framing in [Framing::Simple, Framing::Extended] {
        let Some((head, data)) = bytes.split_at_checked(framing.request_head_bytes()) else { return };
        if let Ok(request) = NbdRequest::parse(head, framing) {
            let is_plain = framing == Framing::Simple && request.command != NbdCommand::Write;
            assert!(request.data_len == 0 || !is_plain && request.data_len == request.len);
            let _ = request.range_in(data, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_what_they_say() {
        let mut head = [0; OPTION_HEAD_BYTES];
        head[..8].copy_from_slice(OPTION_MAGIC);
        head[11] = 7;
        head[15] = 9;
        assert_eq!(OptionHead::parse(&head).unwrap(), OptionHead { option: option::GO, len: 9 });
        head[0] = b'X';
        assert!(OptionHead::parse(&head).is_err());

        let go = [&[0, 0, 0, 3][..], b"t/v", &[0, 2, 0, 3, 0, 1]].concat();
        let wish = InfoWish::parse(&go).unwrap();
        assert_eq!((wish.name.as_str(), &wish.kinds[..]), ("t/v", &[3, 1][..]));
        for len in 0..go.len() {
            assert!(InfoWish::parse(&go[..len]).is_err(), "{len}");
        }
        assert!(InfoWish::parse(&[&go[..], &[0]].concat()).is_err(), "more than it says");

        let contexts = [&[0, 0, 0, 1][..], b"v", &[0, 0, 0, 1, 0, 0, 0, 5], b"base:"].concat();
        assert_eq!(ContextWish::parse(&contexts).unwrap().queries, ["base:"]);
        let many = [&[0, 0, 0, 0][..], &u32::MAX.to_be_bytes()].concat();
        assert!(ContextWish::parse(&many).is_err());
        assert!(ContextWish::parse(&u32::MAX.to_be_bytes()).is_err());
    }

    #[test]
    fn requests_are_what_they_say() {
        let mut head = Vec::from(REQUEST_MAGIC.to_be_bytes());
        head.extend([0, 1, 0, 1]);
        head.extend(7u64.to_be_bytes());
        head.extend(4096u64.to_be_bytes());
        head.extend(512u32.to_be_bytes());
        let request = NbdRequest::parse(&head, Framing::Structured).unwrap();
        assert!(request.has(flag::FUA) && !request.has(flag::DF));
        assert_eq!((request.command, request.cookie, request.offset), (NbdCommand::Write, 7, 4096));
        assert_eq!(request.data_len, 512);
        head[7] = 99;
        assert_eq!(NbdRequest::parse(&head, Framing::Simple).unwrap().command, NbdCommand::Other(99));
        assert!(NbdRequest::parse(&head, Framing::Extended).is_err());
        head[0] = 0;
        assert!(NbdRequest::parse(&head, Framing::Simple).is_err());
    }

    #[test]
    fn lengths_of_64_bits() {
        let mut head = Vec::from(EXTENDED_REQUEST_MAGIC.to_be_bytes());
        head.extend([0, 0x20, 0, 7]);
        head.extend([7u64, 4096, 16].iter().flat_map(|number| number.to_be_bytes()));
        assert!(NbdRequest::parse(&head[..28], Framing::Extended).is_err());
        let request = NbdRequest::parse(&head, Framing::Extended).unwrap();
        assert_eq!((request.command, request.data_len), (NbdCommand::BlockStatus, 16));
        let data = [&(1u64 << 40).to_be_bytes()[..], &[0, 0, 0, 9, 0, 0, 0, 1]].concat();
        let (range, is_asked) = request.range_in(&data, 1).unwrap();
        assert_eq!((range.len, is_asked), (1 << 40, true));
        assert!(!request.range_in(&data, 2).unwrap().1);
        assert!(request.range_in(&data[..15], 1).is_err());
        head[5] = 0;
        assert_eq!(NbdRequest::parse(&head, Framing::Extended).unwrap().data_len, 0);
    }
}
