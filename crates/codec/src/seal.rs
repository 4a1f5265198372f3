//! The ciphers of encrypted sets: six suites, the keys of blocks, MACs over spans of one message, wrapping keys.
//!
//! ```text
//!   passphrase ──PBKDF2──▶ wrapping key (32 bytes) ──opens──▶ master key, key of MACs ([`DataKeys`])
//!                                                                │ HKDF with the salt of each block
//!                                                                ▼
//!                                                             key of a block ([`cipher`])
//! ```
//!
//! A suite is AES with a key of 128, 192 or 256 bits in CCM or GCM mode, with vectors of 12 bytes and MACs of 16.
//! Nothing here tells more of a wrong key or of changed bytes than that they are not right; what was opened in vain is
//! wiped. `ring` does GCM with keys of 128 and 256 bits, as it is twice as fast as OpenSSL; `aes-gcm` those of 192,
//! which `ring` has not; CCM is ours over `aes`, as the crate `ccm` goes block by block, at a third of OpenSSL's rate.

mod ccm;
mod cipher;
mod keys;
mod secret;
#[cfg(test)]
mod tests;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha512};

pub use keys::{DataKeys, WrappedKeys};
pub use secret::SecretBytes;

/// Bytes of an initialization vector.
pub const IV_SIZE: usize = 12;
/// Bytes of a MAC.
pub const MAC_SIZE: usize = 16;
/// Bytes of the salt that the key of a block comes from.
pub const SALT_SIZE: usize = 8;
/// Bytes of a wrapping key, whatever the suite.
pub const WRAPPING_SIZE: usize = 32;

/// A cipher and the length of its key, by the number on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Suite {
    /// AES-CCM with keys of 128 bits.
    Aes128Ccm = 3,
    /// AES-CCM with keys of 192 bits.
    Aes192Ccm = 4,
    /// AES-CCM with keys of 256 bits.
    Aes256Ccm = 5,
    /// AES-GCM with keys of 128 bits.
    Aes128Gcm = 6,
    /// AES-GCM with keys of 192 bits.
    Aes192Gcm = 7,
    /// AES-GCM with keys of 256 bits.
    Aes256Gcm = 8,
}

impl Suite {
    /// All of them.
    pub const ALL: [Suite; 6] =
        [Suite::Aes128Ccm, Suite::Aes192Ccm, Suite::Aes256Ccm, Suite::Aes128Gcm, Suite::Aes192Gcm, Suite::Aes256Gcm];

    /// The suite of that number; `None` if there is none.
    pub fn of_number(number: u64) -> Option<Suite> {
        Suite::ALL.into_iter().find(|suite| *suite as u64 == number)
    }

    /// Bytes of a key.
    pub fn key_size(self) -> usize {
        match self {
            Suite::Aes128Ccm | Suite::Aes128Gcm => 16,
            Suite::Aes192Ccm | Suite::Aes192Gcm => 24,
            Suite::Aes256Ccm | Suite::Aes256Gcm => 32,
        }
    }

    /// The suite of the same mode that wraps keys.
    fn of_wrapping(self) -> Suite {
        match self {
            Suite::Aes128Ccm | Suite::Aes192Ccm | Suite::Aes256Ccm => Suite::Aes256Ccm,
            Suite::Aes128Gcm | Suite::Aes192Gcm | Suite::Aes256Gcm => Suite::Aes256Gcm,
        }
    }
}

/// What one message was sealed with, as byte strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SealedWith {
    /// From this and the master key comes the key of the block.
    pub salt: [u8; SALT_SIZE],
    /// The initialization vector.
    pub iv: [u8; IV_SIZE],
    /// What the message and the additional data authenticate to.
    pub mac: [u8; MAC_SIZE],
}

/// The wrapping key of a passphrase: PBKDF2 with HMAC-SHA-1, over the eight bytes of `salt`, lowest first. `rounds` are
/// at least 1; a million takes about half a second.
pub fn derive(passphrase: &[u8], salt: u64, rounds: u32) -> SecretBytes<WRAPPING_SIZE> {
    SecretBytes::make(|key| pbkdf2::pbkdf2_hmac::<sha1::Sha1>(passphrase, &salt.to_le_bytes(), rounds, key))
}

/// Wipes bytes that were secret.
pub fn wipe(bytes: &mut [u8]) {
    zeroize::Zeroize::zeroize(bytes);
}

/// SHA-512 over spans of one message.
pub fn sha512<'a>(spans: impl IntoIterator<Item = &'a [u8]>) -> [u8; 64] {
    let mut hash = Sha512::new();
    spans.into_iter().for_each(|span| hash.update(span));
    hash.finalize().into()
}

/// HMAC with SHA-512.
type HmacSha512 = Hmac<Sha512>;

/// HMAC with SHA-512 and a key of any length.
fn hmac_of(key: &[u8]) -> HmacSha512 {
    HmacSha512::new_from_slice(key).expect("HMAC takes keys of any length")
}

/// HMAC over spans of one message, with a key that `started` has.
fn hmac_over<'a>(started: &HmacSha512, spans: impl IntoIterator<Item = &'a [u8]>) -> [u8; 64] {
    let mut hmac = started.clone();
    spans.into_iter().for_each(|span| hmac.update(span));
    hmac.finalize().into_bytes().into()
}
