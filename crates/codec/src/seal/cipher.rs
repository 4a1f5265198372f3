//! One key of a suite, ready for messages.

use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::consts::U12;
use aes_gcm::{AeadInOut, AesGcm, KeyInit};
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

use super::{IV_SIZE, MAC_SIZE, Suite, ccm};

/// A key of a suite.
pub(super) enum Cipher {
    Gcm(LessSafeKey),
    Gcm192(AesGcm<Aes192, U12>),
    Ccm128(Aes128),
    Ccm192(Aes192),
    Ccm256(Aes256),
}

const SIZED: &str = "keys are as long as their suite says";

impl Cipher {
    /// Of a key of that suite; panics if it is of another length.
    pub(super) fn new(suite: Suite, key: &[u8]) -> Cipher {
        let ring = |kind| Cipher::Gcm(LessSafeKey::new(UnboundKey::new(kind, key).expect(SIZED)));
        match suite {
            Suite::Aes128Gcm => ring(&AES_128_GCM),
            Suite::Aes256Gcm => ring(&AES_256_GCM),
            Suite::Aes192Gcm => Cipher::Gcm192(AesGcm::new_from_slice(key).expect(SIZED)),
            Suite::Aes128Ccm => Cipher::Ccm128(Aes128::new_from_slice(key).expect(SIZED)),
            Suite::Aes192Ccm => Cipher::Ccm192(Aes192::new_from_slice(key).expect(SIZED)),
            Suite::Aes256Ccm => Cipher::Ccm256(Aes256::new_from_slice(key).expect(SIZED)),
        }
    }

    /// Opens a message in place. False if message, additional data or MAC are not those that were sealed with this
    /// key: the message is wiped then.
    #[must_use]
    pub(super) fn open(&self, iv: &[u8; IV_SIZE], additional: &[u8], message: &mut [u8], mac: &[u8; MAC_SIZE]) -> bool {
        let is_right = |due: Option<[u8; MAC_SIZE]>| due.is_some_and(|due| due.ct_eq(mac).into());
        let is_open = match self {
            Cipher::Gcm(key) => {
                let (nonce, tag) = (Nonce::assume_unique_for_key(*iv), Tag::from(*mac));
                key.open_in_place_separate_tag(nonce, Aad::from(additional), tag, message, 0..).is_ok()
            }
            Cipher::Gcm192(key) => {
                let (iv, mac) = ((*iv).into(), (*mac).into());
                key.decrypt_inout_detached(&iv, additional, (&mut *message).into(), &mac).is_ok()
            }
            Cipher::Ccm128(aes) => is_right(ccm::open(aes, iv, additional, message)),
            Cipher::Ccm192(aes) => is_right(ccm::open(aes, iv, additional, message)),
            Cipher::Ccm256(aes) => is_right(ccm::open(aes, iv, additional, message)),
        };
        if !is_open {
            message.zeroize();
        }
        is_open
    }

    /// Seals a message in place; its MAC. `None` if the suite cannot seal one of that length.
    pub(super) fn seal(&self, iv: &[u8; IV_SIZE], additional: &[u8], message: &mut [u8]) -> Option<[u8; MAC_SIZE]> {
        match self {
            Cipher::Gcm(key) => {
                let nonce = Nonce::assume_unique_for_key(*iv);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(additional), message).ok()?;
                tag.as_ref().try_into().ok()
            }
            Cipher::Gcm192(key) => {
                key.encrypt_inout_detached(&(*iv).into(), additional, message.into()).ok().map(Into::into)
            }
            Cipher::Ccm128(aes) => ccm::seal(aes, iv, additional, message),
            Cipher::Ccm192(aes) => ccm::seal(aes, iv, additional, message),
            Cipher::Ccm256(aes) => ccm::seal(aes, iv, additional, message),
        }
    }
}
