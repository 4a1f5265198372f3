//! The use of space: the numbers in the records of directories.
//!
//! ```text
//!                 used = head + snapshots + children + child reservations + refreservation
//!   tank        ──────────────────────────▲─────────────▲────────────────────────────────
//!   tank/home    used ────────────────────┘             │
//!                the rest of its reservation ───────────┘   (reservation - used, if that is more than 0)
//! ```
//!
//! So a parent is charged the greater of what a child uses and what is reserved for it, and a change that stays
//! within a reservation changes nothing above: the child's share only moves from one column to the other.
//! A refreservation does the same inside of a directory, by the head's unique bytes.
//!
//! Compressed and uncompressed bytes are summed up to the root without regard to reservations.

use base::{Error, Result};
use dmu::bpobj::Totals;
use format::dsl::DirPhys;
use format::ids::DirId;

use super::Change;

/// A directory's columns of used space, by their place in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsedColumn {
    Head = 0,
    Snapshots = 1,
    Children = 2,
    ChildReservations = 3,
    Refreservation = 4,
}

/// A change of the three sizes. They come from numbers on disk, which may be anything: all sums of them wrap.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delta {
    pub used: i64,
    pub compressed: i64,
    pub uncompressed: i64,
}

impl Delta {
    pub(super) fn used(used: i64) -> Delta {
        Delta { used, ..Delta::default() }
    }

    /// `after` less `before`.
    pub(super) fn between(before: Totals, after: Totals) -> Delta {
        let d = after.minus(before);
        Delta { used: d.used as i64, compressed: d.compressed as i64, uncompressed: d.uncompressed as i64 }
    }

    pub(super) fn negative(self) -> Delta {
        let of = i64::wrapping_neg;
        Delta { used: of(self.used), compressed: of(self.compressed), uncompressed: of(self.uncompressed) }
    }
}

/// By how much what is charged changes when `used` bytes, of at least `reserved`, become `delta` more.
pub(super) fn charged(used: u64, reserved: u64, delta: i64) -> i64 {
    used.wrapping_add_signed(delta).max(reserved).wrapping_sub(used.max(reserved)) as i64
}

/// Charges a directory's column, and all directories above it.
pub(super) fn charge(change: &Change<'_>, dir: DirId, column: UsedColumn, delta: Delta) -> Result<()> {
    charge_and_move(change, dir, delta, delta.used, UsedColumn::Refreservation, column)
}

/// Charges a directory `delta`, of which its column `to` gets `share`, and its column `from` what is left
/// (less than nothing, if `share` is more); and all directories above it.
pub(super) fn charge_and_move(
    change: &Change<'_>,
    dir: DirId,
    delta: Delta,
    share: i64,
    from: UsedColumn,
    to: UsedColumn,
) -> Result<()> {
    let (mut dir, mut delta, mut share, mut from, mut to) = (dir, delta, share, from, to);
    for _ in 0..crate::dir::DEPTH_MAX + 2 {
        let mut above = (DirId::NONE, 0);
        change.update_dir(dir, |phys| {
            above = (phys.parent, charged(phys.used_bytes, phys.reserved, delta.used));
            phys.used_bytes = phys.used_bytes.wrapping_add_signed(delta.used);
            phys.compressed_bytes = phys.compressed_bytes.wrapping_add_signed(delta.compressed);
            phys.uncompressed_bytes = phys.uncompressed_bytes.wrapping_add_signed(delta.uncompressed);
            move_columns(phys, delta.used.wrapping_sub(share), share, from, to);
        })?;
        if above.0.is_none() {
            return Ok(());
        }
        (dir, share, from, to) = (above.0, delta.used, UsedColumn::ChildReservations, UsedColumn::Children);
        delta.used = above.1;
    }
    Err(Error::corrupt("dataset tree is no tree"))
}

/// Moves bytes from one column of a directory to another.
pub(super) fn move_space(change: &Change<'_>, dir: DirId, bytes: i64, from: UsedColumn, to: UsedColumn) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    change.update_dir(dir, |phys| move_columns(phys, bytes.wrapping_neg(), bytes, from, to))
}

/// Changes what is reserved for a directory.
pub(super) fn reserve(change: &Change<'_>, dir: DirId, bytes: u64) -> Result<()> {
    let (mut parent, mut delta) = (DirId::NONE, 0);
    change.update_dir(dir, |phys| {
        delta = phys.used_bytes.max(bytes).wrapping_sub(phys.used_bytes.max(phys.reserved)) as i64;
        parent = phys.parent;
        phys.reserved = bytes;
    })?;
    match parent {
        DirId::NONE => Ok(()),
        _ if delta == 0 => Ok(()),
        parent => charge(change, parent, UsedColumn::ChildReservations, Delta::used(delta)),
    }
}

/// Charges the pool's own objects, which are in no dataset, by how much they changed in a group.
pub fn charge_mos(change: &Change<'_>, born: Totals, killed: Totals) -> Result<()> {
    let dir = change.own_dir("$MOS")?;
    charge(change, dir, UsedColumn::Head, Delta::between(killed, born))
}

fn move_columns(phys: &mut DirPhys, from_bytes: i64, to_bytes: i64, from: UsedColumn, to: UsedColumn) {
    if phys.flags & DirPhys::FLAG_USED_BREAKDOWN != 0 {
        for (column, bytes) in [(from, from_bytes), (to, to_bytes)] {
            let place = &mut phys.used_breakdown[column as usize];
            *place = place.wrapping_add_signed(bytes);
        }
    }
}
