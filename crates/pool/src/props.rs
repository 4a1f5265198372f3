//! Properties of a pool as they are stored in it.

use base::{Result, ResultExt};
use dmu::zap::Zap;
use dsl::PropertyValue;
use format::ids::Txg;

use crate::{Pool, object_directory};

impl Pool {
    /// All properties that somebody set, by name, those that users made up among them. What they mean
    /// and what the others are by default is the concern of the commands.
    pub fn stored_props(&self) -> Result<Vec<(String, PropertyValue)>> {
        self.read_props().in_pool(self.name())
    }

    /// Bytes that are still to be freed after something was destroyed, and bytes that cannot be.
    pub fn freeing_and_leaked(&self) -> Result<(u64, u64)> {
        let mut used = (0, 0);
        for (name, id) in self.dsl().child_ids(&self.dsl().root()?)? {
            let bytes = match name.as_str() {
                "$FREE" => &mut used.0,
                "$LEAK" => &mut used.1,
                _ => continue,
            };
            *bytes = self.dsl().dir(id, &name)?.phys.used_bytes;
        }
        Ok(used)
    }

    /// Txg up to which the last scrub went; 0 if the pool does not tell.
    pub fn last_scrubbed_txg(&self) -> Result<Txg> {
        Ok(Txg::new(object_directory(self.mos())?.u64("last_scrubbed_txg")?.unwrap_or(0)))
    }

    fn read_props(&self) -> Result<Vec<(String, PropertyValue)>> {
        let Some(id) = object_directory(self.mos())?.object_id("pool_props")? else { return Ok(Vec::new()) };
        let entries = Zap::open(self.mos().object(id)?)?.entries()?;
        let props = entries.into_iter().map(|entry| {
            let value = match entry.value.first_u64() {
                Some(number) if entry.value.width() == 8 => PropertyValue::Number(number),
                _ => PropertyValue::Text(entry.value.text()),
            };
            (entry.name.to_string(), value)
        });
        Ok(props.collect())
    }
}
