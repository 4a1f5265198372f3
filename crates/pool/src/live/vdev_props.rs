//! Properties of vdevs: in the table of a top-level vdev, or of a leaf below one.
//!
//! ```text
//!   leaf's table ─ io_n, io_t, checksum_n, ... ─▶ else top-level vdev's table ─▶ else 10 errors in 600 seconds
//! ```

use std::collections::HashMap;

use base::Result;
use dmu::zap::ZapValue;
use dsl::PropertyValue;
use format::ids::Guid;
use vdev::{ErrorRate, ErrorRates, Vdev};

use super::sit_out::AUTOSIT;
use super::vdevs::{no_such_device, not_of_this_type};
use super::{LivePool, SyncContext};
use crate::Pool;
use crate::vdev_props::table_of;

impl LivePool {
    /// Sets a property of a vdev, or takes it away. What it means is the caller's concern.
    ///
    /// Errors: `NotFound` if there is no such vdev; `Unsupported` if it is neither a top-level vdev nor a leaf, or the
    /// pool has no tables of vdevs; those of writing; `Suspended`.
    pub fn set_vdev_property(&self, guid: Guid, name: &str, value: Option<PropertyValue>) -> Result<()> {
        if name == AUTOSIT {
            self.check_autosit(guid)?;
        }
        let name = name.to_owned();
        self.run(move |context| context.set_vdev_property(guid, &name, value.as_ref()))?;
        self.take_up_rates()?;
        self.take_up_autosit()
    }

    /// Lets each leaf be judged by the rates that are set for it.
    pub(super) fn take_up_rates(&self) -> Result<()> {
        let view = self.view();
        for leaf in self.tree().leaves() {
            let top = self.tree().top_of(leaf.vdev());
            leaf.state().set_error_rates(rates_of(&view, leaf.vdev(), top)?);
        }
        Ok(())
    }
}

impl SyncContext<'_> {
    fn set_vdev_property(&self, guid: Guid, name: &str, value: Option<&PropertyValue>) -> Result<()> {
        let vdev = self.pool.tree().iter().find(|vdev| vdev.guid() == guid).ok_or_else(no_such_device)?;
        let table = table_of(vdev);
        if table.is_none() {
            return Err(not_of_this_type());
        }
        match value {
            None => self.change.remove(table, name).map(drop),
            Some(PropertyValue::Number(number)) => self.change.set(table, name, &ZapValue::one(*number)),
            Some(PropertyValue::Text(text)) => self.change.set(table, name, &ZapValue::of_text(text)),
        }
    }
}

fn rates_of(view: &Pool, leaf: &Vdev, top: &Vdev) -> Result<ErrorRates> {
    let stored = |vdev| view.vdev_properties(vdev).map(HashMap::<String, PropertyValue>::from_iter);
    let (own, above) = (stored(leaf)?, stored(top)?);
    let number = |name: &str| match own.get(name).or_else(|| above.get(name)) {
        Some(PropertyValue::Number(number)) => Some(*number),
        _ => None,
    };
    let rate = |count: &str, period: &str| ErrorRate {
        count: number(count).unwrap_or(ErrorRate::DEFAULT.count),
        period_s: number(period).unwrap_or(ErrorRate::DEFAULT.period_s),
    };
    let slow = number("slow_io_n").zip(number("slow_io_t"));
    Ok(ErrorRates {
        io: rate("io_n", "io_t"),
        checksum: rate("checksum_n", "checksum_t"),
        slow_io: slow.map(|(count, period_s)| ErrorRate { count, period_s }),
        tells_slow_io: number("slow_io_events") != Some(0),
    })
}
