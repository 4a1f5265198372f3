//! What is stored of the properties of vdevs.

use base::{Result, ResultExt};
use dmu::zap::Zap;
use dsl::PropertyValue;
use format::ids::ObjectId;
use vdev::Vdev;

use crate::Pool;

/// Entries of these tables that are no properties begin so.
const INTERNAL: [&str; 4] = ["com.delphix:", "com.klarasystems:", "org.openzfs:", "org.zfsonlinux:"];
/// Longest text that is taken for a value, in bytes.
const TEXT_BYTES_MAX: usize = 8192;

impl Pool {
    /// The properties of a vdev that were set.
    pub fn vdev_properties(&self, vdev: &Vdev) -> Result<Vec<(String, PropertyValue)>> {
        let table = table_of(vdev);
        if table.is_none() {
            return Ok(Vec::new());
        }
        let entries =
            self.mos().object(table).and_then(Zap::open).and_then(|zap| zap.entries()).in_pool(self.name())?;
        let property = |entry: dmu::zap::ZapEntry| {
            let name = entry.name.to_string();
            let is_internal = INTERNAL.iter().any(|prefix| name.starts_with(prefix));
            let value = match entry.value.width() {
                _ if is_internal || entry.value.bytes().len() > TEXT_BYTES_MAX => return None,
                1 => PropertyValue::Text(entry.value.text()),
                _ => PropertyValue::Number(entry.value.first_u64()?),
            };
            Some((name, value))
        };
        Ok(entries.into_iter().filter_map(property).collect())
    }
}

/// The table with the properties of a vdev; 0 if it has none.
pub(crate) fn table_of(vdev: &Vdev) -> ObjectId {
    match (vdev.top_spec(), vdev.leaf_spec()) {
        (Some(top), _) if top.zap.is_some() => top.zap,
        (_, Some(leaf)) => leaf.zap,
        _ => ObjectId::NONE,
    }
}
