//! What may be kept of a dataset's blocks, and where: its properties `primarycache` and `secondarycache`.

use crate::policy::Contents;

/// Which blocks may be kept somewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Which {
    /// `all`
    #[default]
    All,
    /// `metadata`
    Metadata,
    /// `none`
    Nothing,
}

/// What may be kept of a dataset's blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// In RAM: `primarycache`.
    pub in_ram: Which,
    /// On cache devices: `secondarycache`.
    pub on_ssd: Which,
}

impl Which {
    /// The reverse of `as u8`.
    pub fn of_u8(n: u8) -> Which {
        [Which::All, Which::Metadata, Which::Nothing].into_iter().find(|which| *which as u8 == n).unwrap_or_default()
    }

    pub(crate) fn allows(self, contents: Contents) -> bool {
        self == Which::All || self == Which::Metadata && contents == Contents::Metadata
    }
}

impl Keep {
    /// Everything everywhere.
    pub const ALL: Keep = Keep { in_ram: Which::All, on_ssd: Which::All };

    /// Nothing anywhere.
    pub const NOTHING: Keep = Keep { in_ram: Which::Nothing, on_ssd: Which::Nothing };

    /// The reverse of [`Keep::as_u8`].
    pub fn of_u8(n: u8) -> Keep {
        Keep { in_ram: Which::of_u8(n & 15), on_ssd: Which::of_u8(n >> 4) }
    }

    /// As a number.
    pub fn as_u8(self) -> u8 {
        self.in_ram as u8 | (self.on_ssd as u8) << 4
    }
}
