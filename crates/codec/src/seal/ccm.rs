//! AES-CCM with vectors of 12 bytes: CTR, many blocks at a time, beside a CBC-MAC, which has to go one after the other.
//!
//! ```text
//!   B0 = flags | vector (12) | length (3)      then the additional data, with its length in front, then the message,
//!                                              each filled up with zeros to blocks of 16: chained into the MAC
//!   Ai = 2 | vector (12) | i (3)               A0 seals the MAC, A1 and on the message
//! ```
//!
//! A whole message goes through the processor's instructions at once: asked block by block, `aes` would choose them and
//! load its keys anew for each.
//!
//! Source: NIST SP 800-38C.

use aes::cipher::consts::U16;
use aes::cipher::typenum::Unsigned;
use aes::cipher::{Block, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, ParBlocks};

use super::{IV_SIZE, MAC_SIZE};

/// What AES of all key lengths can do.
pub(super) trait Aes: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16> {}
impl<C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>> Aes for C {}

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
    pass(aes, iv, additional, message, true)
}

/// Opens the message in place; the MAC that it should have had. `None` if it is longer than the mode can count.
pub(super) fn open<C: Aes>(
    aes: &C,
    iv: &[u8; IV_SIZE],
    additional: &[u8],
    message: &mut [u8],
) -> Option<[u8; MAC_SIZE]> {
    pass(aes, iv, additional, message, false)
}

fn pass<C: Aes>(
    aes: &C,
    iv: &[u8; IV_SIZE],
    additional: &[u8],
    message: &mut [u8],
    seals: bool,
) -> Option<[u8; MAC_SIZE]> {
    if message.len() > LENGTH_MAX {
        return None;
    }
    let mut mac = [0; MAC_SIZE];
    aes.encrypt_with_backend(CcmPass { iv, additional, message, seals, mac: &mut mac });
    Some(mac)
}

/// One message.
struct CcmPass<'a> {
    iv: &'a [u8; IV_SIZE],
    additional: &'a [u8],
    message: &'a mut [u8],
    seals: bool,
    mac: &'a mut [u8; MAC_SIZE],
}

impl BlockSizeUser for CcmPass<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for CcmPass<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let mut chain = CbcMac { backend, state: self.first_block().into() };
        backend.encrypt_block_inplace(&mut chain.state);
        if !self.additional.is_empty() {
            chain.take_additional(self.additional);
        }
        let mut stream = KeyStream { backend, iv: self.iv, next: 0 };
        let first = stream.block();
        let run = <B::ParBlocksSize as Unsigned>::USIZE * 16;
        for piece in self.message.chunks_mut(run) {
            if self.seals {
                chain.take(piece);
                stream.apply(piece);
            } else {
                stream.apply(piece);
                chain.take(piece);
            }
        }
        *self.mac = xored(chain.state.into(), first);
    }
}

impl CcmPass<'_> {
    fn first_block(&self) -> [u8; 16] {
        let mut block = [0; 16];
        // a MAC of 16 bytes, a length of 3
        block[0] = if self.additional.is_empty() { 0x3a } else { 0x7a };
        block[1..13].copy_from_slice(self.iv);
        block[13..].copy_from_slice(&(self.message.len() as u32).to_be_bytes()[1..]);
        block
    }
}

#[inline(always)]
fn xored(a: [u8; 16], b: [u8; 16]) -> [u8; 16] {
    (u128::from_ne_bytes(a) ^ u128::from_ne_bytes(b)).to_ne_bytes()
}

/// A CBC-MAC.
struct CbcMac<'a, B: BlockCipherEncBackend<BlockSize = U16>> {
    backend: &'a B,
    state: Block<B>,
}

impl<B: BlockCipherEncBackend<BlockSize = U16>> CbcMac<'_, B> {
    #[inline(always)]
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
    #[inline(always)]
    fn take(&mut self, bytes: &[u8]) {
        let mut state = self.state;
        let (blocks, rest) = bytes.as_chunks::<16>();
        for block in blocks {
            state = xored(state.into(), *block).into();
            self.backend.encrypt_block_inplace(&mut state);
        }
        if !rest.is_empty() {
            let mut last = [0; 16];
            last[..rest.len()].copy_from_slice(rest);
            state = xored(state.into(), last).into();
            self.backend.encrypt_block_inplace(&mut state);
        }
        self.state = state;
    }
}

/// The key stream of CTR.
struct KeyStream<'a, B: BlockCipherEncBackend<BlockSize = U16>> {
    backend: &'a B,
    iv: &'a [u8; IV_SIZE],
    next: u32,
}

impl<B: BlockCipherEncBackend<BlockSize = U16>> KeyStream<'_, B> {
    #[inline(always)]
    fn counter(&mut self) -> [u8; 16] {
        let mut counter = [0; 16];
        counter[0] = 2;
        counter[1..13].copy_from_slice(self.iv);
        counter[13..].copy_from_slice(&self.next.to_be_bytes()[1..]);
        self.next += 1;
        counter
    }

    /// The next block of it.
    #[inline(always)]
    fn block(&mut self) -> [u8; 16] {
        let mut block = self.counter().into();
        self.backend.encrypt_block_inplace(&mut block);
        block.into()
    }

    /// The next bytes of it are added to these: as many as the processor takes at once, or the last of the message.
    #[inline(always)]
    fn apply(&mut self, bytes: &mut [u8]) {
        let (blocks, rest) = bytes.as_chunks_mut::<16>();
        if blocks.len() == <B::ParBlocksSize as Unsigned>::USIZE {
            let mut stream = ParBlocks::<B>::default();
            stream.iter_mut().for_each(|block| *block = self.counter().into());
            self.backend.encrypt_par_blocks_inplace(&mut stream);
            blocks.iter_mut().zip(&stream).for_each(|(block, key)| *block = xored(*block, (*key).into()));
            return;
        }
        blocks.iter_mut().for_each(|block| *block = xored(*block, self.block()));
        if !rest.is_empty() {
            let key = self.block();
            rest.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        }
    }
}
