//! AES-CCM with vectors of 12 bytes: CTR, many blocks at a time, beside a CBC-MAC, which has to go one after the other.
//!
//! ```text
//!   B0 = flags | vector (12) | length (3)      then the additional data, with its length in front, then the message,
//!                                              each filled up with zeros to blocks of 16: chained into the MAC
//!   Ai = 2 | vector (12) | i (3)               A0 seals the MAC, A1 and on the message
//! ```
//!
//! Source: NIST SP 800-38C.

use aes::cipher::consts::U16;
use aes::cipher::{Block, BlockCipherEncrypt, BlockSizeUser};
use zeroize::Zeroize;

use super::{IV_SIZE, MAC_SIZE};

/// What AES of all key lengths can do.
pub(super) trait Aes: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16> {}
impl<C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>> Aes for C {}

/// Blocks whose key stream is made at once.
const RUN: usize = 16;
/// Bytes that a length of three bytes can count.
const LENGTH_MAX: usize = (1 << 24) - 1;
/// From here on, the length of additional data is written with six bytes.
const SHORT_ADDITIONAL_END: usize = 0xff00;

/// Seals the message in place; its MAC. `None` if it is longer than the mode can count.
pub(super) fn seal<C: Aes>(
    aes: &C,
    iv: &[u8; IV_SIZE],
    additional: &[u8],
    message: &mut [u8],
) -> Option<[u8; MAC_SIZE]> {
    let mut chain = CbcMac::begin(aes, iv, additional, message.len())?;
    let mut stream = KeyStream::new(aes, iv);
    let first = stream.first;
    for run in message.chunks_mut(RUN * 16) {
        chain.take(run);
        stream.apply(run);
    }
    Some(chain.end(&first))
}

/// Opens the message in place; the MAC that it should have had. `None` if it is longer than the mode can count.
pub(super) fn open<C: Aes>(
    aes: &C,
    iv: &[u8; IV_SIZE],
    additional: &[u8],
    message: &mut [u8],
) -> Option<[u8; MAC_SIZE]> {
    let mut chain = CbcMac::begin(aes, iv, additional, message.len())?;
    let mut stream = KeyStream::new(aes, iv);
    let first = stream.first;
    for run in message.chunks_mut(RUN * 16) {
        stream.apply(run);
        chain.take(run);
    }
    Some(chain.end(&first))
}

/// A CBC-MAC.
struct CbcMac<'a, C: Aes> {
    aes: &'a C,
    state: Block<C>,
}

impl<C: Aes> CbcMac<'_, C> {
    fn begin<'a>(aes: &'a C, iv: &[u8; IV_SIZE], additional: &[u8], len: usize) -> Option<CbcMac<'a, C>> {
        if len > LENGTH_MAX {
            return None;
        }
        // a MAC of 16 bytes, a length of 3
        let flags = if additional.is_empty() { 0x3a } else { 0x7a };
        let mut state = [0; 16];
        state[0] = flags;
        state[1..13].copy_from_slice(iv);
        state[13..].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
        let mut state = Block::<C>::from(state);
        aes.encrypt_block(&mut state);
        let mut chain = CbcMac { aes, state };
        if !additional.is_empty() {
            chain.take_additional(additional);
        }
        Some(chain)
    }

    fn take_additional(&mut self, additional: &[u8]) {
        let len = additional.len();
        let mut head = [0; 16];
        let prefix = if len < SHORT_ADDITIONAL_END {
            head[..2].copy_from_slice(&(len as u16).to_be_bytes());
            2
        } else {
            head[..2].copy_from_slice(&[0xff, 0xfe]);
            head[2..6].copy_from_slice(&(len as u32).to_be_bytes());
            6
        };
        let beside = len.min(16 - prefix);
        head[prefix..prefix + beside].copy_from_slice(&additional[..beside]);
        self.take(&head);
        self.take(&additional[beside..]);
    }

    /// Whole blocks, but for the last of what is taken in.
    #[inline]
    fn take(&mut self, bytes: &[u8]) {
        let mut state = self.state;
        let (blocks, rest) = bytes.as_chunks::<16>();
        for block in blocks {
            let mixed = u128::from_ne_bytes(state.into()) ^ u128::from_ne_bytes(*block);
            state = mixed.to_ne_bytes().into();
            self.aes.encrypt_block(&mut state);
        }
        if !rest.is_empty() {
            state.iter_mut().zip(rest).for_each(|(state, byte)| *state ^= byte);
            self.aes.encrypt_block(&mut state);
        }
        self.state = state;
    }

    fn end(self, first: &[u8; 16]) -> [u8; MAC_SIZE] {
        let state: [u8; 16] = self.state.into();
        std::array::from_fn(|at| state[at] ^ first[at])
    }
}

/// The key stream of CTR from block 1 on.
struct KeyStream<'a, C: Aes> {
    aes: &'a C,
    counter: [u8; 16],
    next: u32,
    /// Block 0, which seals the MAC.
    first: [u8; 16],
}

impl<C: Aes> KeyStream<'_, C> {
    fn new<'a>(aes: &'a C, iv: &[u8; IV_SIZE]) -> KeyStream<'a, C> {
        let mut counter = [0; 16];
        counter[0] = 2;
        counter[1..13].copy_from_slice(iv);
        let mut first = Block::<C>::from(counter);
        aes.encrypt_block(&mut first);
        KeyStream { aes, counter, next: 1, first: first.into() }
    }

    /// The next bytes of it are added to these, at most [`RUN`] blocks.
    #[inline]
    fn apply(&mut self, bytes: &mut [u8]) {
        let mut stream: [Block<C>; RUN] = std::array::from_fn(|at| {
            let mut counter = self.counter;
            counter[13..].copy_from_slice(&(self.next + at as u32).to_be_bytes()[1..]);
            counter.into()
        });
        self.aes.encrypt_blocks(&mut stream);
        self.next += RUN as u32;
        let (blocks, rest) = bytes.as_chunks_mut::<16>();
        for (block, key) in blocks.iter_mut().zip(&stream) {
            *block = (u128::from_ne_bytes(*block) ^ u128::from_ne_bytes((*key).into())).to_ne_bytes();
        }
        if let Some(key) = stream.get(blocks.len()) {
            rest.iter_mut().zip(key.iter()).for_each(|(byte, key)| *byte ^= key);
        }
    }
}

impl<C: Aes> Drop for KeyStream<'_, C> {
    fn drop(&mut self) {
        self.first.zeroize();
    }
}
