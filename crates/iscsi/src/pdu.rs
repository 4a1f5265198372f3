//! Messages of both sides.
//!
//! ```text
//!   head of 48 bytes | more heads | sum | data, padded to 4 bytes | sum
//!     0    opcode, bit 6: at once       8   logical unit
//!     1    flags                        16  tag of the initiator's task
//!     4    words of more heads          24  number of the command, or of the answer
//!     5    bytes of data, 24 bits       ...  each kind has its own
//! ```
//!
//! All numbers are big-endian. A sum is there if both sides have agreed on it; it is CRC32C, the least byte first.

use std::io::{self, Read};

use base::{Error, Result};

/// Bytes of a head.
pub(crate) const HEAD_BYTES: usize = 48;
/// Bytes of data that are taken in one message before anything is agreed on, and in discovery (RFC 7143, 13.12).
pub(crate) const EARLY_DATA_BYTES_MAX: usize = 8 << 10;
/// Bytes of data that this side takes in one message.
pub(crate) const DATA_BYTES_MAX: usize = 256 << 10;
/// No tag.
pub(crate) const NO_TAG: u32 = u32::MAX;
/// The last message of several, or of all.
pub(crate) const FINAL: u8 = 0x80;
/// More of the same text follows.
pub(crate) const CONTINUES: u8 = 0x40;

/// What messages are for.
pub(crate) mod opcode {
    pub(crate) const NOP_OUT: u8 = 0x00;
    pub(crate) const COMMAND: u8 = 0x01;
    pub(crate) const TASK_MANAGEMENT: u8 = 0x02;
    pub(crate) const LOGIN: u8 = 0x03;
    pub(crate) const TEXT: u8 = 0x04;
    pub(crate) const DATA_OUT: u8 = 0x05;
    pub(crate) const LOGOUT: u8 = 0x06;
    pub(crate) const NOP_IN: u8 = 0x20;
    pub(crate) const RESPONSE: u8 = 0x21;
    pub(crate) const TASK_MANAGEMENT_RESPONSE: u8 = 0x22;
    pub(crate) const LOGIN_RESPONSE: u8 = 0x23;
    pub(crate) const TEXT_RESPONSE: u8 = 0x24;
    pub(crate) const DATA_IN: u8 = 0x25;
    pub(crate) const LOGOUT_RESPONSE: u8 = 0x26;
    pub(crate) const READY: u8 = 0x31;
    pub(crate) const REJECT: u8 = 0x3f;
}

/// The first 48 bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PduHead(pub(crate) [u8; HEAD_BYTES]);

/// A message that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pdu {
    pub(crate) head: PduHead,
    pub(crate) data: Vec<u8>,
}

/// Which sums messages have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digests {
    pub(crate) head: bool,
    pub(crate) data: bool,
}

impl PduHead {
    /// One of this side.
    pub(crate) fn new(opcode: u8, flags: u8, tag: u32) -> PduHead {
        let mut head = PduHead([0; HEAD_BYTES]);
        (head.0[0], head.0[1]) = (opcode, flags);
        head.put_u32(16, tag);
        head
    }

    pub(crate) fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    /// It is no part of the order of commands.
    pub(crate) fn is_immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    pub(crate) fn flags(&self) -> u8 {
        self.0[1]
    }

    pub(crate) fn is_final(&self) -> bool {
        self.flags() & FINAL != 0
    }

    /// The tag of the initiator's task.
    pub(crate) fn tag(&self) -> u32 {
        self.u32(16)
    }

    /// The number of a command.
    pub(crate) fn number(&self) -> u32 {
        self.u32(24)
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    pub(crate) fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    pub(crate) fn put_u32(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Bytes of data, without padding.
    pub(crate) fn data_len(&self) -> usize {
        self.u32(4) as usize & 0xff_ffff
    }

    pub(crate) fn put_data_len(&mut self, len: usize) {
        self.put_u32(4, len as u32 & 0xff_ffff);
    }

    /// Bytes of the heads that follow.
    fn more_len(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// The logical unit; `None` for a form of number that is not used here.
    pub(crate) fn lun(&self) -> Option<u64> {
        let lun = u16::from_be_bytes([self.0[8], self.0[9]]);
        // by number in one level: as a bus and its unit, or flat
        (matches!(lun >> 14, 0 | 1) && self.0[10..16] == [0; 6]).then_some(u64::from(lun & 0x3fff))
    }
}

impl Pdu {
    /// Reads a message. Errors: `Corrupt` for too many data, and wrong sums; those of the connection.
    pub(crate) fn read(from: &mut impl Read, digests: Digests) -> Result<Pdu> {
        Pdu::read_within(from, digests, DATA_BYTES_MAX)
    }

    /// Reads a message of no more than so many bytes of data. Errors: as of [`Pdu::read`].
    pub(crate) fn read_within(from: &mut impl Read, digests: Digests, most: usize) -> Result<Pdu> {
        let mut head = PduHead([0; HEAD_BYTES]);
        from.read_exact(&mut head.0)?;
        let len = head.data_len();
        if len > most {
            return Err(Error::corrupt(format!("a message with {len} bytes of data")));
        }
        let mut more = [0; 255 * 4];
        let more = &mut more[..head.more_len()];
        from.read_exact(more)?;
        if digests.head {
            check_sum(from, crc32c::crc32c_append(crc32c::crc32c(&head.0), more))?;
        }
        let mut data = vec![0; len.next_multiple_of(4)];
        from.read_exact(&mut data)?;
        if digests.data && len > 0 {
            check_sum(from, crc32c::crc32c(&data))?;
        }
        data.truncate(len);
        Ok(Pdu { head, data })
    }
}

/// The sum over the head, as it is sent.
pub(crate) fn sum_of(bytes: &[&[u8]]) -> [u8; 4] {
    bytes.iter().fold(0, |sum, bytes| crc32c::crc32c_append(sum, bytes)).to_le_bytes()
}

fn check_sum(from: &mut impl Read, sum: u32) -> Result<()> {
    let mut stored = [0; 4];
    from.read_exact(&mut stored)?;
    match u32::from_le_bytes(stored) == sum {
        true => Ok(()),
        false => Err(Error::corrupt("a message whose sum is wrong")),
    }
}

/// Whether a connection has ended where a message could begin.
pub(crate) fn has_ended(error: &Error) -> bool {
    use std::error::Error as _;
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_with_and_without_sums() {
        let mut head = PduHead::new(opcode::COMMAND | 0x40, FINAL, 7);
        head.put_data_len(3);
        head.0[4] = 1;
        head.0[9] = 5;
        let more = [9; 4];
        let plain = [&head.0[..], &more, b"abc\0"].concat();
        let pdu = Pdu::read(&mut &plain[..], Digests::default()).unwrap();
        assert_eq!((pdu.head.opcode(), pdu.head.tag(), &pdu.data[..]), (opcode::COMMAND, 7, &b"abc"[..]));
        assert!(pdu.head.is_immediate() && pdu.head.is_final());
        assert_eq!(pdu.head.lun(), Some(5));
        let both = Digests { head: true, data: true };
        let summed = [&head.0[..], &more, &sum_of(&[&head.0, &more]), b"abc\0", &sum_of(&[b"abc\0"])].concat();
        assert_eq!(Pdu::read(&mut &summed[..], both).unwrap(), pdu);
        for at in [20, 50, 53, 56, 61] {
            let mut wrong = summed.clone();
            wrong[at] ^= 1;
            assert!(Pdu::read(&mut &wrong[..], both).is_err(), "{at}");
        }
        for len in 0..plain.len() {
            assert!(Pdu::read(&mut &plain[..len], Digests::default()).is_err());
        }
        let mut large = head;
        large.put_data_len(DATA_BYTES_MAX + 1);
        assert!(Pdu::read(&mut io::Cursor::new(large.0).chain(io::repeat(0)), Digests::default()).is_err());
    }

    #[test]
    fn the_sum_is_that_of_the_standard() {
        // of 32 zeros, as in appendix A.4 of the RFC
        assert_eq!(sum_of(&[&[0; 16], &[0; 16]]), [0xaa, 0x36, 0x91, 0x8a]);
    }
}
