//! The keys of an encrypted set, as the pipeline asks them.

use base::{Endian, Error, Kind, Result};
use codec::seal::{DataKeys, MAC_SIZE, SealedWith, wipe};
use format::blkptr::BlkPtr;
use format::object_type::ObjectType;
use format::sealing::{
    HEAD_MAC_SIZE, SealVersion, local_data, mac_of_log, macs_of_head, portable_data, spans_of_dnodes, spans_of_log,
};
use zio::Keys;

/// The unwrapped keys of a set. All handles by which the set is read have them; with the last they are gone, and wiped.
pub struct SetOfKeys {
    keys: DataKeys,
    version: SealVersion,
}

impl SetOfKeys {
    pub(super) fn new(keys: DataKeys, version: SealVersion) -> SetOfKeys {
        SetOfKeys { keys, version }
    }

    /// Opens a block of dnodes: what is sealed of them is one message, and the rest is authenticated with it.
    fn open_dnodes(&self, bp: &BlkPtr, with: &SealedWith, stored: &[u8], plain: &mut [u8]) -> Result<()> {
        if bp.lsize() != bp.psize() {
            return Err(Error::corrupt("dnodes that are compressed in an encrypted set"));
        }
        let spans = spans_of_dnodes(stored, bp.endian(), self.version)?;
        let mut message = spans.gather(stored);
        if !self.keys.open(with, &spans.additional, &mut message) {
            return Err(wrong());
        }
        plain.copy_from_slice(stored);
        spans.scatter(&message, plain);
        wipe(&mut message);
        Ok(())
    }

    /// Of the two MACs of a head, the local one is of accounts. If it is missing where it should be, they are as if
    /// they were not there; that is for those that write.
    fn verify_head(&self, bp: &BlkPtr, head: &[u8]) -> Result<()> {
        let [portable, local] = macs_of_head(head)?;
        let mac = |data: Vec<u8>| -> [u8; HEAD_MAC_SIZE] {
            *self.keys.mac([&data[..]]).first_chunk().expect("a MAC of 64 bytes")
        };
        if mac(portable_data(head, bp.endian(), self.version)?) != portable {
            return Err(Error::new(Kind::Checksum, "object set head is not what was authenticated"));
        }
        let due = local_data(head, bp.endian(), self.version)?.map_or([0; HEAD_MAC_SIZE], mac);
        if due != local && local != [0; HEAD_MAC_SIZE] {
            return Err(Error::new(Kind::Checksum, "accounts in an object set head are not what was authenticated"));
        }
        Ok(())
    }
}

impl Keys for SetOfKeys {
    fn name(&self) -> u64 {
        self.keys.name()
    }

    fn version(&self) -> SealVersion {
        self.version
    }

    fn open(&self, bp: &BlkPtr, stored: &[u8], plain: &mut [u8]) -> Result<()> {
        let with = SealedWith { salt: bp.salt_bytes(), iv: bp.iv_bytes(), mac: bp.mac_bytes() };
        if bp.object_type() == ObjectType::DNODE {
            return self.open_dnodes(bp, &with, stored, plain).inspect_err(|_| plain.fill(0));
        }
        plain.copy_from_slice(stored);
        self.keys.open(&with, &[], plain).then_some(()).ok_or_else(wrong)
    }

    fn open_log(&self, bp: &BlkPtr, endian: Endian, block: &mut [u8]) -> Result<()> {
        let spans = spans_of_log(block, endian)?;
        let mac = mac_of_log(block)?;
        let with = SealedWith { salt: bp.salt_bytes(), iv: bp.iv_bytes(), mac };
        let mut message = spans.gather(block);
        let is_open = self.keys.open(&with, &spans.additional, &mut message);
        spans.scatter(&message, block);
        wipe(&mut message);
        is_open.then_some(()).ok_or_else(|| Error::new(Kind::Checksum, "log block is not what was sealed"))
    }

    fn verify(&self, bp: &BlkPtr, stored: &[u8]) -> Result<()> {
        if bp.object_type() == ObjectType::OBJSET {
            return self.verify_head(bp, stored);
        }
        let is_right = self.keys.mac([stored])[..MAC_SIZE] == bp.mac_bytes();
        is_right.then_some(()).ok_or_else(|| Error::new(Kind::Checksum, "block is not what was authenticated"))
    }
}

fn wrong() -> Error {
    Error::new(Kind::Checksum, "block is not what was sealed")
}
