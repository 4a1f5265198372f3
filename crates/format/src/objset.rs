//! The head of an object set: the dnode of its dnodes, its log, its kind.
//!
//! ```text
//!    0  meta dnode
//!  512  log header (192 bytes, see `zil`)
//!  704  kind u64 | flags u64 | portable MAC [32] | local MAC [32] | 0 ...
//! 1024  dnode of space used by users   (from version 15 of the pool: 2048 bytes in all)
//! 1536  dnode of space used by groups
//! 2048  dnode of space used by projects (project_quota: 4096 bytes in all)
//! ```

use base::{Error, Result};

use serde::{Deserialize, Serialize};

use crate::dnode::{Dnode, SLOT_SIZE};
use crate::feature::VERSION;

/// From that version of pools on space is counted by users and groups.
pub const VERSION_OF_ACCOUNTING: u64 = 15;

/// By whom space is used. The head of an object set has a dnode of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Owner {
    /// A user.
    User,
    /// A group.
    Group,
    /// A project.
    Project,
}

/// What an object set is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjsetType {
    /// The pool's own: the MOS.
    Meta,
    /// A file system.
    Zfs,
    /// A volume.
    Zvol,
    /// Anything else, such as ztest's.
    Other(u64),
}

impl ObjsetType {
    /// Name as zdb prints it.
    pub fn name(self) -> &'static str {
        match self {
            ObjsetType::Meta => "META",
            ObjsetType::Zfs => "ZPL",
            ObjsetType::Zvol => "ZVOL",
            ObjsetType::Other(4) => "OTHER",
            ObjsetType::Other(5) => "ANY",
            ObjsetType::Other(_) => "NONE",
        }
    }

    /// Its number.
    pub fn number(self) -> u64 {
        match self {
            ObjsetType::Meta => 1,
            ObjsetType::Zfs => 2,
            ObjsetType::Zvol => 3,
            ObjsetType::Other(n) => n,
        }
    }

    /// The type of that number.
    pub fn of_number(number: u64) -> ObjsetType {
        match number {
            1 => ObjsetType::Meta,
            2 => ObjsetType::Zfs,
            3 => ObjsetType::Zvol,
            n => ObjsetType::Other(n),
        }
    }
}

/// The checked head of an object set.
#[derive(Clone, Debug)]
pub struct ObjsetPhys {
    /// The dnode whose data are the dnodes of the set.
    pub meta_dnode: Dnode,
    /// The log header, not parsed.
    pub log_header: [u8; 192],
    /// What it is for.
    pub kind: ObjsetType,
    /// Of an encrypted set, what its contents authenticate to: the portable MAC, the local one.
    pub macs: [u8; 64],
    /// Flags: 1 space accounting is complete, 2 object accounting, 4 project accounting.
    pub flags: u64,
    /// ZAPs of space used by users, groups, projects.
    pub accounting: [Option<Dnode>; 3],
}

impl ObjsetPhys {
    /// Bytes of a head in a pool of that version: with the dnodes of accounting by users and groups, and by projects,
    /// where there is such accounting.
    pub fn size_in(pool_version: u64) -> usize {
        if pool_version < VERSION_OF_ACCOUNTING {
            1024
        } else if pool_version < VERSION {
            2048
        } else {
            4096
        }
    }

    /// Writes the head; `out` is 1024, 2048 or 4096 bytes, and what does not fit in it is left out.
    pub fn write(&self, out: &mut [u8]) {
        self.meta_dnode.write(&mut out[..SLOT_SIZE]);
        out[512..704].copy_from_slice(&self.log_header);
        out[704..712].copy_from_slice(&self.kind.number().to_le_bytes());
        out[712..720].copy_from_slice(&self.flags.to_le_bytes());
        out[720..784].copy_from_slice(&self.macs);
        for (dnode, slot) in self.accounting.iter().zip(out[1024..].chunks_exact_mut(SLOT_SIZE)) {
            match dnode {
                Some(dnode) => dnode.write(slot),
                None => slot.fill(0),
            }
        }
    }

    /// From the block that the object set's pointer leads to.
    pub fn parse(bytes: &[u8]) -> Result<ObjsetPhys> {
        let short = || Error::corrupt(format!("object set head of {} bytes", bytes.len()));
        let head = bytes.get(..1024).ok_or_else(short)?;
        let meta_dnode =
            Dnode::parse(&head[..SLOT_SIZE])?.ok_or_else(|| Error::corrupt("object set without dnodes"))?;
        let word = |at: usize| u64::from_le_bytes(*head[at..].first_chunk().expect("the head is 1024 bytes"));
        let kind = ObjsetType::of_number(word(704));
        let mut accounting = [None, None, None];
        for (i, slot) in accounting.iter_mut().enumerate() {
            if let Some(raw) = bytes.get(1024 + i * SLOT_SIZE..1024 + (i + 1) * SLOT_SIZE) {
                *slot = Dnode::parse(raw)?;
            }
        }
        let log_header = *head[512..].first_chunk().expect("the head is 1024 bytes");
        let macs = *head[720..].first_chunk().expect("the head is 1024 bytes");
        Ok(ObjsetPhys { meta_dnode, log_header, kind, flags: word(712), macs, accounting })
    }
}
