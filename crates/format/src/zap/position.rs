//! The cursor of a table, made of hashes.

use super::fat::hash_bits;
use super::hash::mask;

/// A place in a table's listing order: by hash, then by collision differentiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ZapPosition {
    /// Hash of the entry at, or next after, this place.
    pub hash: u64,
    /// Its collision differentiator.
    pub cd: u32,
}

impl ZapPosition {
    /// The place that a cookie stands for, in a table of these flags.
    ///
    /// ```text
    ///  63              28 or 48                 0
    /// +--------------+--------------------------+
    /// |      cd      | upper 28 or 48 hash bits |
    /// +--------------+--------------------------+
    /// ```
    pub fn from_cookie(cookie: u64, flags: u64) -> ZapPosition {
        let bits = hash_bits(flags);
        ZapPosition { hash: cookie << (64 - bits), cd: (cookie >> bits) as u32 }
    }

    /// The cookie of this place.
    pub fn cookie(self, flags: u64) -> u64 {
        let bits = hash_bits(flags);
        (self.hash >> (64 - bits)) | (u64::from(self.cd) << bits)
    }

    /// The cookie of the next possible place; cookies made so from one entry to the next never lead back.
    pub fn cookie_after(self, flags: u64) -> u64 {
        let bits = hash_bits(flags);
        let cd_max = (u64::MAX >> bits).min(u32::MAX.into()) as u32;
        let unit = 1 << (64 - bits);
        match (self.cd < cd_max, self.hash.checked_add(unit)) {
            (true, _) => ZapPosition { cd: self.cd + 1, ..self }.cookie(flags),
            (false, Some(hash)) => ZapPosition { hash, cd: 0 }.cookie(flags),
            (false, None) => u64::MAX,
        }
    }

    /// Whether the hash has no bits that a hash in a table of these flags cannot have.
    pub fn is_possible(self, flags: u64) -> bool {
        self.hash & !mask(flags) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zap::fat::ZapHeader;

    #[test]
    fn cookies_round_trip() {
        for flags in [0, ZapHeader::FLAG_HASH64] {
            let position = ZapPosition { hash: 0xabcd_ef12_3456_789a & mask(flags), cd: 7 };
            assert_eq!(ZapPosition::from_cookie(position.cookie(flags), flags), position);
            assert_eq!(
                ZapPosition::from_cookie(position.cookie_after(flags), flags),
                ZapPosition { cd: 8, ..position }
            );
            assert!(position.is_possible(flags) && !ZapPosition { hash: 1, cd: 0 }.is_possible(flags));
        }
        let full = ZapPosition { hash: 5 << 16, cd: 0xffff };
        assert_eq!(full.cookie_after(ZapHeader::FLAG_HASH64), 6);
        let last = ZapPosition { hash: !0xffff, cd: 0xffff };
        assert_eq!(last.cookie_after(ZapHeader::FLAG_HASH64), u64::MAX);
        assert_eq!(ZapPosition::from_cookie(0, 0), ZapPosition::default());
    }
}
