//! Key objects: the wrapped keys of a clone family, checked.
//!
//! ```text
//!   directory ── com.datto:crypto_key_obj ──▶ ZAP: suite, guid, version, wrapped keys with vector and MAC
//!                                             root ──▶ directory with the wrapping key: its ZAP says how to get at that
//! ```

use base::{Error, Kind, Result, ResultExt};
use codec::seal::{DataKeys, IV_SIZE, MAC_SIZE, SecretBytes, Suite, WRAPPING_SIZE, WrappedKeys, derive, wipe};
use dmu::zap::Zap;
use format::ids::{DirId, Guid};
use format::sealing::SealVersion;

use super::SetOfKeys;
use crate::{Dir, Dsl};

/// The most rounds that are made of a passphrase: half an hour.
const ROUNDS_MAX: u64 = 1 << 31;

/// How a wrapping key is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFormat {
    /// 32 bytes.
    Raw,
    /// 64 hexadecimal digits.
    Hex,
    /// A passphrase.
    Passphrase {
        /// Salt of the derivation.
        salt: u64,
        /// Its rounds: 1 to 2^31.
        rounds: u32,
    },
}

/// The directory whose wrapping key opens others, too, and how that key is asked for.
#[derive(Clone, Debug)]
pub struct EncryptionRoot {
    /// The directory.
    pub id: DirId,
    /// Its name.
    pub name: String,
    /// How its key is written down.
    pub format: KeyFormat,
}

/// The wrapped keys of a directory.
struct KeyRecord {
    suite: Suite,
    guid: Guid,
    version: SealVersion,
    root: DirId,
    iv: [u8; IV_SIZE],
    mac: [u8; MAC_SIZE],
    master: [u8; 32],
    hmac: [u8; 64],
}

impl EncryptionRoot {
    /// The wrapping key from what somebody has written down: the text of a line without its end, or the bytes of a raw
    /// key. `text` is wiped. Errors: `Invalid` if it cannot be a key of this format.
    pub fn wrapping_key(&self, text: &mut [u8]) -> Result<SecretBytes<WRAPPING_SIZE>> {
        let wrong = |what: String| Err(Error::new(Kind::Invalid, what).in_dataset(&self.name));
        match self.format {
            KeyFormat::Raw => {
                let len = text.len();
                SecretBytes::take(text).map_or_else(|| wrong(format!("a raw key has 32 bytes, not {len}")), Ok)
            }
            KeyFormat::Hex => {
                let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
                let is_hex = text.len() == 2 * WRAPPING_SIZE && (0..text.len()).all(|at| digit(at).is_some());
                if !is_hex {
                    return wrong("a key in hex has 64 digits".to_owned());
                }
                let byte = |at: usize| (digit(2 * at).unwrap_or(0) << 4 | digit(2 * at + 1).unwrap_or(0)) as u8;
                let key = SecretBytes::make(|key| (0..).zip(key).for_each(|(at, out)| *out = byte(at)));
                wipe(text);
                Ok(key)
            }
            KeyFormat::Passphrase { salt, rounds } => {
                // it is a C string to those that set it
                let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
                let key = derive(&text[..end], salt, rounds);
                wipe(text);
                Ok(key)
            }
        }
    }
}

impl Dsl {
    /// The encryption root of a directory; `None` if that is not encrypted. Errors: `Corrupt` for a key object that makes
    /// no sense, `Unsupported` for one of a later version, and for more than 2^31 rounds.
    pub fn encryption_root(&self, dir: &Dir) -> Result<Option<EncryptionRoot>> {
        let Some(record) = self.key_record(dir)? else { return Ok(None) };
        let read = || {
            let lost = || Error::corrupt("the encryption root is not there");
            let name = match record.root == dir.id {
                true => dir.name.clone(),
                false => self.name_of(self.dir(record.root, "encryption root")?.phys.head_dataset)?,
            };
            let root = self.find_dir(&name).map_err(|_| lost())?;
            let zap = Zap::open(self.mos().object(self.key_object(&root)?.ok_or_else(lost)?)?)?;
            if root.id != record.root || zap.u64("DSL_CRYPTO_ROOT_DDOBJ")? != Some(root.id.get()) {
                return Err(Error::corrupt(format!("its encryption root '{name}' is none")));
            }
            let format = key_format(&zap)?;
            Ok(Some(EncryptionRoot { id: root.id, name, format }))
        };
        read().in_dataset(&dir.name)
    }

    /// The keys of the data of a directory, unwrapped with the key of its encryption root; `None` if it is not encrypted.
    /// Errors: `Permission` if that is another key; as from [`Dsl::encryption_root`].
    pub fn unwrap_keys(&self, dir: &Dir, wrapping: &SecretBytes<WRAPPING_SIZE>) -> Result<Option<SetOfKeys>> {
        let Some(record) = self.key_record(dir)? else { return Ok(None) };
        let keys = record.unwrap(wrapping).in_dataset(&dir.name)?;
        Ok(Some(SetOfKeys::new(keys, record.version)))
    }

    fn key_record(&self, dir: &Dir) -> Result<Option<KeyRecord>> {
        let Some(object) = self.key_object(dir)? else { return Ok(None) };
        let read = || KeyRecord::read(&Zap::open(self.mos().object(object)?)?);
        read().map(Some).in_dataset(&dir.name)
    }
}

impl KeyRecord {
    fn read(zap: &Zap) -> Result<KeyRecord> {
        let suite = zap.require_u64("DSL_CRYPTO_SUITE")?;
        let version = zap.u64("DSL_CRYPTO_VERSION")?.unwrap_or(0);
        let unknown = |what: &str, number: u64| Error::new(Kind::Unsupported, format!("{what} {number} is unknown"));
        Ok(KeyRecord {
            suite: Suite::of_number(suite).ok_or_else(|| unknown("encryption suite", suite))?,
            guid: Guid::new(zap.require_u64("DSL_CRYPTO_GUID")?),
            version: SealVersion::of_number(version).ok_or_else(|| unknown("version of keys", version))?,
            root: DirId::new(zap.require_u64("DSL_CRYPTO_ROOT_DDOBJ")?),
            iv: bytes(zap, "DSL_CRYPTO_IV")?,
            mac: bytes(zap, "DSL_CRYPTO_MAC")?,
            master: bytes(zap, "DSL_CRYPTO_MASTER_KEY_1")?,
            hmac: bytes(zap, "DSL_CRYPTO_HMAC_KEY_1")?,
        })
    }

    fn unwrap(&self, wrapping: &SecretBytes<WRAPPING_SIZE>) -> Result<DataKeys> {
        let numbers: &[u64] = match self.version {
            SealVersion::Zero => &[self.guid.get()],
            SealVersion::One => &[self.guid.get(), self.suite as u64, 1],
        };
        let additional: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let wrapped = WrappedKeys {
            suite: self.suite,
            iv: self.iv,
            mac: self.mac,
            additional: &additional,
            master: self.master,
            hmac: self.hmac,
        };
        DataKeys::unwrap(&wrapped, wrapping).ok_or_else(|| Error::new(Kind::Permission, "incorrect key"))
    }
}

/// An entry of so many bytes.
fn bytes<const N: usize>(zap: &Zap, name: &str) -> Result<[u8; N]> {
    let value = zap.lookup(name.as_bytes())?.ok_or_else(|| Error::corrupt(format!("key object without '{name}'")))?;
    let is_it = value.width() == 1;
    let bytes = value.bytes().try_into().ok().filter(|_| is_it);
    bytes.ok_or_else(|| Error::corrupt(format!("'{name}' of a key object is {} bytes, not {N}", value.bytes().len())))
}

fn key_format(zap: &Zap) -> Result<KeyFormat> {
    let format = zap.require_u64("keyformat")?;
    match format {
        1 => Ok(KeyFormat::Raw),
        2 => Ok(KeyFormat::Hex),
        3 => {
            let (salt, rounds) = (zap.require_u64("pbkdf2salt")?, zap.require_u64("pbkdf2iters")?);
            match u32::try_from(rounds) {
                Ok(0) => Err(Error::corrupt("a passphrase of 0 rounds")),
                Ok(counted) if rounds <= ROUNDS_MAX => Ok(KeyFormat::Passphrase { salt, rounds: counted }),
                _ => {
                    let what = format!("a passphrase of {rounds} rounds: more than {ROUNDS_MAX} are not made");
                    Err(Error::new(Kind::Unsupported, what))
                }
            }
        }
        _ => Err(Error::new(Kind::Unsupported, format!("format {format} of keys is unknown"))),
    }
}
