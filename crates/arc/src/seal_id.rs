//! For whom contents of encrypted sets are kept: readers that have the keys by which they were opened or verified, and
//! a pointer with the same salt, vector and MAC. A pointer that was forged, or is of another set, finds nothing.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;
use std::sync::OnceLock;

use format::blkptr::BlkPtr;
use zio::{Keys, SetKeys};

/// A number for keys and what a block was sealed or authenticated with; not to be foreseen, so that nobody can make two
/// that are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SealId(NonZeroU64);

impl SealId {
    /// That of a block; `None` if its set is not encrypted.
    #[inline]
    pub(crate) fn of(bp: &BlkPtr, keys: &SetKeys) -> Option<SealId> {
        bp.uses_crypt().then(|| SealId::of_encrypted(bp, keys))
    }

    fn of_encrypted(bp: &BlkPtr, keys: &SetKeys) -> SealId {
        static RANDOM: OnceLock<RandomState> = OnceLock::new();
        // MACs of indirect blocks need no key
        let name = keys.keys().filter(|_| bp.level() == 0).map_or(0, Keys::name);
        let sealed = bp.is_encrypted().then(|| (bp.salt_bytes(), bp.iv_bytes()));
        let [.., high, low] = bp.checksum();
        let hash = RANDOM.get_or_init(RandomState::new).hash_one((name, bp.prop(), sealed, [high, low]));
        SealId(NonZeroU64::new(hash).unwrap_or(NonZeroU64::MAX))
    }
}
