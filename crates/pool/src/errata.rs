//! Old mistakes that a pool suffers from, by the numbers that OpenZFS gives them.

use format::feature::{BOOKMARK_V2, ENCRYPTION};

use crate::{FeatureState, Pool};

/// Encrypted datasets whose keys are of the version before 0.8 of ZFS on Linux. They can only be read.
const OLD_KEYS: u64 = 3;
/// Encrypted snapshots and bookmarks that raw streams cannot go on from.
const ENCRYPTED_BOOKMARKS: u64 = 4;

impl Pool {
    /// The number of the gravest; 0 if there is none. Directories that cannot be read are passed over. Their keys are
    /// looked at once, as OpenZFS does: the number stays until the pool is imported again.
    pub fn errata(&self) -> u64 {
        let state = |guid| self.features().state(guid);
        match self.config().opt_u64("errata") {
            Some(number) if number != 0 => number,
            _ if state(ENCRYPTION) == FeatureState::Active && *self.old_keys().get_or_init(|| self.has_old_keys()) => {
                OLD_KEYS
            }
            _ if state(ENCRYPTION) != FeatureState::Disabled && state(BOOKMARK_V2) == FeatureState::Disabled => {
                ENCRYPTED_BOOKMARKS
            }
            _ => 0,
        }
    }

    fn has_old_keys(&self) -> bool {
        let dirs = self.dsl().walk().unwrap_or_default();
        dirs.iter().any(|dir| self.dsl().has_old_key(dir).unwrap_or(false))
    }
}
