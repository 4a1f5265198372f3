//! Properties of the pool: what `zpool set` asks for.
//!
//! ```text
//!   object directory ─ pool_props ─▶ table: a number or a text by name
//!   configuration, labels            comment, compatibility: seen before the pool is open
//! ```

use base::Result;
use dmu::zap::ZapValue;
use dsl::PropertyValue;
use format::object_type::ObjectType;

use super::{LivePool, SyncContext};
use crate::mos::DIRECTORY;

/// The table's name in the object directory.
const TABLE: &str = "pool_props";

/// The property by which devices are told what has become free.
const AUTOTRIM: &str = "autotrim";

impl LivePool {
    /// Takes up what properties say of the allocator.
    pub(super) fn take_up_autotrim(&self) -> Result<()> {
        let properties = self.view().stored_props()?;
        let is_on = properties.iter().any(|(name, value)| name == AUTOTRIM && *value == PropertyValue::Number(1));
        self.cache().zio().allocator()?.set_autotrim(is_on);
        Ok(())
    }

    /// Sets properties of the pool, all in one group. What they mean is the caller's concern; an empty text
    /// takes a property away. Errors: those of writing; `Suspended`.
    pub fn set_pool_properties(&self, properties: Vec<(String, PropertyValue)>) -> Result<()> {
        self.run(move |context| {
            for (name, value) in &properties {
                match (name.as_str(), value) {
                    ("comment", PropertyValue::Text(text)) => context.pool.config().comment = some(text),
                    ("compatibility", PropertyValue::Text(text)) => context.pool.config().compatibility = some(text),
                    _ => context.store_property(name, value)?,
                }
                let value = match value {
                    PropertyValue::Number(number) => number.to_string(),
                    PropertyValue::Text(text) => text.clone(),
                };
                context.log_event("set", &format!("{name}={value}"));
            }
            if properties.iter().any(|(name, _)| matches!(name.as_str(), "comment" | "compatibility")) {
                context.write_config()?;
            }
            Ok(())
        })
    }
}

impl SyncContext<'_> {
    fn store_property(&self, name: &str, value: &PropertyValue) -> Result<()> {
        self.pool.suspension().note_property(name, value);
        self.pool.multihost().note_property(name, value);
        self.pool.dedup_changes().note_property(name, value);
        self.pool.leaf_watch().note_property(name, value);
        self.pool.multihost().guard();
        if name == AUTOTRIM {
            self.pool.cache().zio().allocator()?.set_autotrim(*value == PropertyValue::Number(1));
        }
        let change = &self.change;
        let table = change.object_id(DIRECTORY, TABLE)?;
        if *value == PropertyValue::Text(String::new()) {
            return table.map_or(Ok(()), |table| change.remove(table, name).map(drop));
        }
        let table = match table {
            Some(table) => table,
            None => {
                let table = change.create_table(ObjectType::POOL_PROPS)?;
                change.add(DIRECTORY, TABLE, table.get())?;
                table
            }
        };
        match value {
            PropertyValue::Number(number) => change.set(table, name, &ZapValue::one(*number)),
            PropertyValue::Text(text) => change.set(table, name, &ZapValue::of_text(text)),
        }
    }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
