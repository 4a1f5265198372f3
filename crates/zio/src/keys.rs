//! Keys of encrypted sets, and what readers do with blocks of such sets.
//!
//! ```text
//!   sealed        ─▶ sum right? ─▶ open, with the MAC in its pointer ─▶ decompress     with the key
//!   authenticated ─▶ sum right? ─▶ HMAC that in its pointer? ─────────▶ decompress     unverified without it
//!   head          ─▶ sum right? ─▶ HMACs those in it? ────────────────────────────     unverified without it
//!   indirect      ─▶ sum right? ─▶ sum of MACs that in its pointer? ──▶ decompress     no key
//! ```
//!
//! A set is read by a handle to the cache that has its keys, and they go with it: there is no table of keys.
//! What was opened is never where the bytes on disk are: these go to cache devices.

use std::sync::Arc;

use base::{AlignedBuf, Endian, Error, Kind, Result};
use codec::compress::Compress;
use codec::seal;
use format::blkptr::BlkPtr;
use format::sealing::{SealVersion, StoredBytes, records_of_indirect};

use crate::contents::{BlockContents, Mode, Physical, ReadRequest};
use crate::pointer::{compress_kind, is_verifiable, turn};
use crate::zio::Zio;

/// Opens and verifies the blocks of an encrypted set.
pub trait Keys: Send + Sync {
    /// By what the keys are known in this process; not 0. The same keys have the same name.
    fn name(&self) -> u64;

    /// Which records pointers have.
    fn version(&self) -> SealVersion;

    /// Opens the bytes of a sealed block, whose checksum is right, into `plain`, which is as long; that is zeros if they
    /// do not open. Errors: `Checksum` if they are not what was sealed.
    fn open(&self, bp: &BlkPtr, stored: &[u8], plain: &mut [u8]) -> Result<()>;

    /// Opens a log block in place, whose checksum is right and whose bytes are in that order; what is sealed of it is
    /// zeros if that is in vain. Errors: `Checksum` if they are not what was sealed; `Corrupt`.
    fn open_log(&self, bp: &BlkPtr, endian: Endian, block: &mut [u8]) -> Result<()>;

    /// Verifies the bytes of a block that is authenticated only, or of a head. Errors: `Checksum` if they are not what
    /// was authenticated.
    fn verify(&self, bp: &BlkPtr, stored: &[u8]) -> Result<()>;
}

/// What is known of the set that blocks are read of.
#[derive(Clone, Default)]
pub enum SetKeys {
    /// It is not encrypted.
    #[default]
    Plain,
    /// It is encrypted, and there is no key.
    Locked,
    /// It is encrypted, with these keys.
    Open(Arc<dyn Keys>),
}

impl SetKeys {
    /// The keys, if there are any.
    pub fn keys(&self) -> Option<&dyn Keys> {
        match self {
            SetKeys::Open(keys) => Some(&**keys),
            SetKeys::Plain | SetKeys::Locked => None,
        }
    }

    /// Whether the set can have a block with such a pointer, and the reader can do with it what it wants to.
    #[inline]
    pub fn admits(&self, request: &ReadRequest) -> bool {
        match self {
            // what is looked at raw may be of any set
            SetKeys::Plain => !request.bp.uses_crypt() || request.mode == Mode::Raw,
            SetKeys::Locked | SetKeys::Open(_) => self.check(request).is_ok(),
        }
    }

    /// Errors: `Corrupt` if the set cannot have a block with such a pointer; `Encrypted` without the key.
    #[inline]
    pub(crate) fn check(&self, request: &ReadRequest) -> Result<()> {
        match self {
            SetKeys::Plain if !request.bp.uses_crypt() => Ok(()),
            _ => self.check_encrypted(request),
        }
    }

    fn check_encrypted(&self, request: &ReadRequest) -> Result<()> {
        let ReadRequest { bp, mode, .. } = request;
        let is_mixed = match self {
            _ if bp.is_hole() => false,
            SetKeys::Plain => *mode == Mode::Plain && !bp.is_encrypted(),
            SetKeys::Locked | SetKeys::Open(_) => !bp.uses_crypt() || bp.is_embedded(),
        };
        if is_mixed {
            let what = match self {
                SetKeys::Plain => "block of an encrypted set in one that is not encrypted",
                SetKeys::Locked | SetKeys::Open(_) => "block that is not encrypted in an encrypted set",
            };
            return Err(Error::corrupt(what));
        }
        match self {
            SetKeys::Plain | SetKeys::Locked if *mode == Mode::Plain && bp.is_encrypted() => {
                Err(Error::new(Kind::Encrypted, "block is encrypted"))
            }
            _ => Ok(()),
        }
    }
}

impl Zio {
    /// The contents of a block of an encrypted set, from its bytes on disk, which have the right checksum.
    pub(crate) fn decode_of_set(
        &self,
        request: &ReadRequest,
        keys: &SetKeys,
        physical: AlignedBuf,
    ) -> Result<BlockContents> {
        let (bp, keys) = (&request.bp, keys.keys());
        if bp.level() > 0 {
            let contents = self.decode_plain(bp, physical)?;
            verify_indirect(bp, &contents.data, keys.map(Keys::version))?;
            return Ok(contents);
        }
        match keys {
            Some(keys) if bp.is_encrypted() && request.mode == Mode::Plain => self.decode_sealed(bp, keys, physical),
            // compressed, then sealed: nothing to decompress without the key
            _ if bp.is_encrypted() && compress_kind(bp)? != Compress::Off => {
                Ok(BlockContents { data: physical, physical: Physical::Nowhere })
            }
            _ if bp.is_encrypted() => {
                let contents = self.decode_plain(bp, physical)?;
                Ok(BlockContents { physical: Physical::Nowhere, ..contents })
            }
            Some(keys) => {
                keys.verify(bp, &physical)?;
                self.decode_plain(bp, physical)
            }
            None => self.decode_plain(bp, physical),
        }
    }

    fn decode_sealed(&self, bp: &BlkPtr, keys: &dyn Keys, physical: AlignedBuf) -> Result<BlockContents> {
        let data = self.open(bp, keys, &physical)?;
        let physical = match is_verifiable(bp) {
            true => Physical::Apart(StoredBytes::of_device(physical)),
            false => Physical::Nowhere,
        };
        Ok(BlockContents { data, physical })
    }

    /// The contents of a sealed block.
    pub(crate) fn open(&self, bp: &BlkPtr, keys: &dyn Keys, stored: &[u8]) -> Result<AlignedBuf> {
        let mut plain = AlignedBuf::for_overwrite(stored.len());
        keys.open(bp, stored, &mut plain)?;
        if compress_kind(bp)? != Compress::Off {
            return self.unpack_plain(bp, &plain);
        }
        if bp.lsize() != stored.len() as u64 {
            return Err(Error::corrupt(format!("sealed block of {} bytes in {}", bp.lsize(), stored.len())));
        }
        turn(bp, &mut plain);
        Ok(plain)
    }
}

/// Verifies the MACs of all that an indirect block points to, by their sum in its own pointer. Without a key the version
/// is not known.
fn verify_indirect(bp: &BlkPtr, contents: &[u8], version: Option<SealVersion>) -> Result<()> {
    let is_right = |version| {
        let records = records_of_indirect(contents, Endian::Little, version);
        seal::sha512([&records[..]])[..seal::MAC_SIZE] == bp.mac_bytes()
    };
    let is_good = match version {
        Some(version) => is_right(version),
        None => is_right(SealVersion::One) || is_right(SealVersion::Zero),
    };
    let wrong = || Error::new(Kind::Checksum, "the MACs of a block's pointers do not sum to its own");
    is_good.then_some(()).ok_or_else(wrong)
}
