//! Keys of encrypted datasets: what may be known without them, the wrapped key's parameters; [`record`], how they are
//! unwrapped; [`opened`], what they are asked for.
//!
//! The directories of one encryption root share its wrapping key. Each has a ZAP that holds its own
//! master key, wrapped, and how to get at the wrapping key.

mod opened;
mod record;

use base::{Error, Kind, Result, ResultExt};
use dmu::zap::Zap;
use format::ids::{DirId, Guid};

use crate::{Dir, Dsl};

pub use opened::SetOfKeys;
pub use record::{EncryptionRoot, KeyFormat};

/// Where a directory has the object of its wrapped key.
pub(crate) const KEY_FIELD: &str = "com.datto:crypto_key_obj";
/// Which initialization vectors an encrypted snapshot has: raw streams go on from the same ones only.
pub(crate) const IVSET_GUID: &str = "com.datto:ivset_guid";

/// The only version of keys that data is written with today. Those of ZFS on Linux before 0.8 have none.
const VERSION: u64 = 1;

/// Parameters of the wrapped key of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyInfo {
    /// Cipher and key length: a value of the property `encryption`.
    pub suite: Option<u64>,
    /// Unique id of the key.
    pub guid: Option<Guid>,
    /// A value of the property `keyformat`.
    pub format: Option<u64>,
    /// Salt of the key derivation.
    pub salt: Option<u64>,
    /// Rounds of the key derivation.
    pub iterations: Option<u64>,
    /// Name of the encryption root.
    pub root: Option<String>,
}

impl Dsl {
    /// The parameters of the key of a directory; `None` if it is not encrypted.
    pub fn key_info(&self, dir: &Dir) -> Result<Option<KeyInfo>> {
        let Some(object) = self.key_object(dir)? else { return Ok(None) };
        let read = || {
            let zap = Zap::open(self.mos().object(object)?)?;
            let root = match zap.u64("DSL_CRYPTO_ROOT_DDOBJ")?.map(DirId::new) {
                Some(id) if id == dir.id => Some(dir.name.clone()),
                Some(id) => Some(self.name_of(self.dir(id, "encryption root")?.phys.head_dataset)?),
                None => None,
            };
            Ok::<_, base::Error>(KeyInfo {
                suite: zap.u64("DSL_CRYPTO_SUITE")?,
                guid: zap.u64("DSL_CRYPTO_GUID")?.map(Guid::new),
                format: zap.u64("keyformat")?,
                salt: zap.u64("pbkdf2salt")?,
                iterations: zap.u64("pbkdf2iters")?,
                root,
            })
        };
        read().map(Some).in_dataset(&dir.name)
    }

    /// Whether a directory has a key of an old version: what is encrypted with it can only be read. Errors: those
    /// of reading.
    pub fn has_old_key(&self, dir: &Dir) -> Result<bool> {
        let Some(object) = self.key_object(dir)? else { return Ok(false) };
        let version = Zap::open(self.mos().object(object)?)?.u64("DSL_CRYPTO_VERSION").in_dataset(&dir.name)?;
        Ok(version != Some(VERSION))
    }

    /// Whether a directory may get another parent without another key: what inherits one goes only where
    /// it inherits the same. Errors: `Encrypted`.
    pub(crate) fn check_key_stays(&self, dir: &Dir, parent: &Dir) -> Result<()> {
        match self.key_root(dir)? {
            Some(root) if root != dir.id && self.key_root(parent)? != Some(root) => {
                Err(Error::new(Kind::Encrypted, "cannot move encrypted child outside of its encryption root"))
            }
            _ => Ok(()),
        }
    }

    /// The directory whose wrapping key a directory has; `None` if it is not encrypted.
    fn key_root(&self, dir: &Dir) -> Result<Option<DirId>> {
        let Some(object) = self.key_object(dir)? else { return Ok(None) };
        let root = Zap::open(self.mos().object(object)?)?.u64("DSL_CRYPTO_ROOT_DDOBJ").in_dataset(&dir.name)?;
        Ok(root.map(DirId::new))
    }

    /// Refuses to change what would have to change keys, too.
    pub(crate) fn refuse_encrypted(&self, dir: &Dir) -> Result<()> {
        match self.key_object(dir)? {
            None => Ok(()),
            Some(_) => {
                Err(Error::new(Kind::Encrypted, "the dataset is encrypted, and changing those is not supported"))
            }
        }
    }
}
