//! The keys of the data of a clone family: unwrapped, and what is done with them.

use std::sync::Arc;

use base::Mutex;
use zeroize::Zeroize;

use super::cipher::Cipher;
use super::{
    HmacSha512, IV_SIZE, MAC_SIZE, SALT_SIZE, SealedWith, SecretBytes, Suite, WRAPPING_SIZE, hmac_of, hmac_over,
};

/// Bytes of the longest master key; there is room for so many, whatever the suite.
pub const MASTER_SIZE_MAX: usize = 32;
/// Bytes of the key of MACs.
pub const HMAC_KEY_SIZE: usize = 64;
/// Keys of blocks that are remembered: blocks that were written after one load of the key share a salt.
const REMEMBERED: usize = 32;
/// What a pair of keys is known by in this process is the MAC of that.
const NAME: &[u8] = b"which keys these are";

/// The keys of data as they are on disk: sealed with the wrapping key.
pub struct WrappedKeys<'a> {
    /// What the data is sealed with; its mode wraps the keys, too.
    pub suite: Suite,
    /// Initialization vector of the wrapping.
    pub iv: [u8; IV_SIZE],
    /// MAC of the wrapping.
    pub mac: [u8; MAC_SIZE],
    /// What is authenticated with them.
    pub additional: &'a [u8],
    /// The master key, and what is behind it if it is shorter.
    pub master: [u8; MASTER_SIZE_MAX],
    /// The key of MACs.
    pub hmac: [u8; HMAC_KEY_SIZE],
}

/// The keys of data, ready for use.
pub struct DataKeys {
    suite: Suite,
    /// The key of HKDF, extracted from the master key.
    extracted: HmacSha512,
    hmac: HmacSha512,
    name: u64,
    remembered: [Mutex<Option<KeyOfSalt>>; REMEMBERED],
}

/// The key of all blocks with that salt.
type KeyOfSalt = ([u8; SALT_SIZE], Arc<Cipher>);

impl DataKeys {
    /// Unwraps keys; `None` if the wrapping key is not theirs, or something of them was changed.
    pub fn unwrap(wrapped: &WrappedKeys<'_>, wrapping: &SecretBytes<WRAPPING_SIZE>) -> Option<DataKeys> {
        let size = wrapped.suite.key_size();
        let mut message = SecretBytes::<{ MASTER_SIZE_MAX + HMAC_KEY_SIZE }>::make(|message| {
            message[..size].copy_from_slice(&wrapped.master[..size]);
            message[size..size + HMAC_KEY_SIZE].copy_from_slice(&wrapped.hmac);
        });
        let message = &mut message.bytes_mut()[..size + HMAC_KEY_SIZE];
        let cipher = Cipher::new(wrapped.suite.of_wrapping(), wrapping.bytes());
        let is_open = cipher.open(&wrapped.iv, wrapped.additional, message, &wrapped.mac);
        is_open.then(|| DataKeys::new(wrapped.suite, &message[..size], &message[size..]))
    }

    /// Of a master key and a key of MACs; panics if the first is not as long as the suite's.
    pub fn new(suite: Suite, master: &[u8], hmac_key: &[u8]) -> DataKeys {
        assert_eq!(master.len(), suite.key_size(), "bytes of the master key");
        let mut extracted = hmac_over(&hmac_of(&[0; 64]), [master]);
        let hmac = hmac_of(hmac_key);
        let name = hmac_over(&hmac, [NAME]);
        let keys = DataKeys {
            suite,
            extracted: hmac_of(&extracted),
            name: u64::from_le_bytes(*name.first_chunk().expect("a MAC has 64 bytes")),
            hmac,
            remembered: std::array::from_fn(|_| Mutex::new(None)),
        };
        extracted.zeroize();
        keys
    }

    /// Their suite.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// By what they are known in this process: other keys have another number, the same keys the same one.
    pub fn name(&self) -> u64 {
        self.name
    }

    /// Opens a message in place. False if anything of it was changed; it is wiped then.
    #[must_use]
    pub fn open(&self, with: &SealedWith, additional: &[u8], message: &mut [u8]) -> bool {
        self.cipher(with.salt).open(&with.iv, additional, message, &with.mac)
    }

    /// Seals a message in place; its MAC. No two messages may be sealed with one salt and vector. `None` if the suite
    /// cannot seal one of that length: CCM ends before 16 MiB.
    pub fn seal(
        &self,
        salt: [u8; SALT_SIZE],
        iv: &[u8; IV_SIZE],
        additional: &[u8],
        message: &mut [u8],
    ) -> Option<[u8; MAC_SIZE]> {
        self.cipher(salt).seal(iv, additional, message)
    }

    /// The MAC of a message, given as its spans.
    pub fn mac<'a>(&self, spans: impl IntoIterator<Item = &'a [u8]>) -> [u8; 64] {
        hmac_over(&self.hmac, spans)
    }

    /// The key of blocks with that salt.
    fn cipher(&self, salt: [u8; SALT_SIZE]) -> Arc<Cipher> {
        let place = u64::from_le_bytes(salt) % REMEMBERED as u64;
        let mut remembered = self.remembered[place as usize].lock();
        match &*remembered {
            Some((known, cipher)) if *known == salt => cipher.clone(),
            _ => {
                let cipher = Arc::new(self.new_cipher(salt));
                *remembered = Some((salt, cipher.clone()));
                cipher
            }
        }
    }

    /// HKDF with the salt as its information; one round of it has enough bytes for every suite.
    pub(super) fn key_of_salt(&self, salt: [u8; SALT_SIZE]) -> [u8; 64] {
        hmac_over(&self.extracted, [&salt[..], &[1]])
    }

    fn new_cipher(&self, salt: [u8; SALT_SIZE]) -> Cipher {
        let mut key = self.key_of_salt(salt);
        let cipher = Cipher::new(self.suite, &key[..self.suite.key_size()]);
        key.zeroize();
        cipher
    }
}
