//! Which snapshot was before which, through clones and what they were made of.

use std::collections::HashSet;

use base::Result;

use crate::{Dataset, Dsl};

impl Dsl {
    /// Whether a snapshot is older than another one, and of the same file system or volume, or of one that it is a clone
    /// of. Errors: those of reading.
    pub fn is_before(&self, earlier: &Dataset, later: &Dataset) -> Result<bool> {
        let mut latest = later.phys.creation_txg;
        if earlier.phys.creation_txg >= latest {
            return Ok(false);
        }
        let mut at = self.dir(later.phys.dir, later.file_system())?;
        let mut seen = HashSet::new();
        while at.id != earlier.phys.dir {
            if at.phys.origin.is_none() || !seen.insert(at.id) {
                return Ok(false);
            }
            let origin = self.dataset(at.phys.origin, &self.name_of(at.phys.origin)?)?;
            latest = origin.phys.creation_txg;
            at = self.dir(origin.phys.dir, origin.file_system())?;
        }
        Ok(earlier.phys.creation_txg <= latest)
    }
}
