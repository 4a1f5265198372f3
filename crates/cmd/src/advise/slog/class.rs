//! What kind of device it is, by what was measured and what it says of itself.
//!
//! ```text
//!   random reads take milliseconds ─▶ a disk: a synchronous write lasts one revolution
//!   else flash: flushes are slow   ─▶ an honest volatile cache;   faster than SATA ─▶ NVMe;   falls ─▶ a cliff
//!               flushes are fast   ─▶ protected, if it says so; a liar, if it says that its cache is volatile
//! ```

use device::emulated::DeviceSays;

use super::course::SlogMeasures;

/// A small synchronous write that is faster on flash was not programmed: pages of flash memory take longer, and so do the
/// tables that lead to them.
pub(super) const FAST_SYNC_S: f64 = 0.6e-3;
/// Bytes a second that no SATA link carries.
const BEYOND_SATA: f64 = 620e6;
/// Revolutions a minute that disks have.
const SPEEDS: [u32; 4] = [5400, 7200, 10_000, 15_000];
/// A disk whose synchronous writes take less than this part of the fastest revolution does not flush.
const REVOLUTION_PART: f64 = 0.5;

/// What becomes of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushFinding {
    /// It takes the time that an honest one needs.
    Honest,
    /// It is fast, and the device says that it may be: what is in its cache survives a power cut.
    Protected,
    /// It is fast, and the device says that its cache is volatile, and not protected.
    Lies,
    /// It is fast, and the device does not say why.
    Untold,
}

/// What a device is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    /// A disk of so many revolutions a minute; of one that does not flush they are not known.
    Disk(Option<u32>),
    /// Flash memory, or the like, behind a link of SATA, or a faster one.
    Flash { is_beyond_sata: bool },
}

/// What was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceClass {
    pub(super) medium: Medium,
    pub(super) flush: FlushFinding,
    pub(super) has_cliff: bool,
}

/// Tells what kind of device it is.
pub(super) fn classify(measures: &SlogMeasures, says: &DeviceSays) -> DeviceClass {
    let sync_s = measures.small_sync_s();
    if measures.turns() {
        let fastest_s = 60.0 / f64::from(SPEEDS[SPEEDS.len() - 1]);
        let is_fast = sync_s < fastest_s * REVOLUTION_PART;
        let flush = if is_fast { fast_flush(says) } else { FlushFinding::Honest };
        let speed = (!is_fast).then(|| nearest_speed(sync_s));
        return DeviceClass { medium: Medium::Disk(speed), flush, has_cliff: false };
    }
    let fill = measures.fill.as_ref();
    DeviceClass {
        medium: Medium::Flash { is_beyond_sata: fill.is_some_and(|fill| fill.peak > BEYOND_SATA) },
        flush: if sync_s < FAST_SYNC_S { fast_flush(says) } else { FlushFinding::Honest },
        has_cliff: fill.is_some_and(|fill| fill.cliff_at.is_some()),
    }
}

/// What a flush is that takes less time than a volatile cache needs.
fn fast_flush(says: &DeviceSays) -> FlushFinding {
    match (says.has_volatile_cache, says.is_protected) {
        (_, Some(true)) | (Some(false), _) => FlushFinding::Protected,
        (Some(true), Some(false)) => FlushFinding::Lies,
        _ => FlushFinding::Untold,
    }
}

/// The speed at which a revolution takes about that long.
fn nearest_speed(revolution_s: f64) -> u32 {
    let distance = |speed: u32| (60.0 / f64::from(speed) / revolution_s).ln().abs();
    SPEEDS.into_iter().min_by(|a, b| distance(*a).total_cmp(&distance(*b))).unwrap_or(SPEEDS[0])
}

impl DeviceClass {
    /// A short name; of the kinds that `cenote emulate` knows, theirs.
    pub(super) fn name(self) -> String {
        let flush = match self.flush {
            FlushFinding::Honest => "",
            FlushFinding::Protected => "-plp",
            FlushFinding::Lies => "-liar",
            FlushFinding::Untold => "-untold",
        };
        match self.medium {
            Medium::Disk(Some(speed)) if speed.is_multiple_of(1000) => format!("hdd{}k{flush}", speed / 1000),
            Medium::Disk(Some(speed)) => format!("hdd{speed}{flush}"),
            Medium::Disk(None) => format!("hdd{flush}"),
            Medium::Flash { is_beyond_sata: true } => format!("nvme{flush}"),
            Medium::Flash { is_beyond_sata: false } => {
                format!("ssd{flush}{}", if self.has_cliff { "-cliff" } else { "" })
            }
        }
    }

    /// The same in words.
    pub(super) fn words(self) -> String {
        let medium = match self.medium {
            Medium::Disk(Some(speed)) => format!("a disk of {speed} revolutions a minute"),
            Medium::Disk(None) => "a disk".to_owned(),
            Medium::Flash { is_beyond_sata: true } => "an SSD with a link faster than SATA".to_owned(),
            Medium::Flash { is_beyond_sata: false } => "an SSD no faster than SATA".to_owned(),
        };
        let flush = match self.flush {
            FlushFinding::Honest => "whose flush takes as long as a volatile cache needs",
            FlushFinding::Protected => "whose cache survives a power cut, as it says, and its flush times fit that",
            FlushFinding::Lies => "that says that its cache is volatile, and flushes faster than that is possible",
            FlushFinding::Untold => {
                "that flushes faster than a volatile cache can, and does not say that its cache is protected"
            }
        };
        let cliff = if self.has_cliff { ", and becomes slow when it is written to for long" } else { "" };
        format!("{medium} {flush}{cliff}")
    }
}
