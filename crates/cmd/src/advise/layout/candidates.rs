//! The layouts that make sense for so many disks.

use vdev::draid::{DraidLayout, DraidShape};
use vdev::geometry::ASHIFT_MIN;

/// Disks of a raidz at most: wider ones read slowly, and resilver for long.
const RAIDZ_WIDTH_MAX: usize = 16;
/// Disks that a layout may leave over as spares.
const SPARES_MAX: usize = 2;
/// From that many disks on a draid is worth its trouble.
const DRAID_DISKS_MIN: usize = 8;
/// Data columns of a draid's groups.
const DRAID_DATA: [u64; 3] = [4, 8, 16];
/// From that many disks on a draid has a second spare.
const DRAID_SECOND_SPARE: usize = 24;

/// How the disks of one top-level vdev hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Single,
    /// Of so many disks.
    Mirror(usize),
    Raidz {
        parity: usize,
        width: usize,
    },
    Draid(DraidShape),
}

/// Equal top-level vdevs, and disks that stand by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedLayout {
    pub shape: Shape,
    pub vdevs: usize,
    pub spares: usize,
}

impl PlannedLayout {
    /// Disks of a top-level vdev.
    pub fn width(&self) -> usize {
        match self.shape {
            Shape::Single => 1,
            Shape::Mirror(width) | Shape::Raidz { width, .. } => width,
            Shape::Draid(shape) => shape.children as usize,
        }
    }

    /// Disks that may fail at a time in any vdev.
    pub fn tolerance(&self) -> usize {
        match self.shape {
            Shape::Single => 0,
            Shape::Mirror(width) => width - 1,
            Shape::Raidz { parity, .. } => parity,
            Shape::Draid(shape) => shape.nparity as usize,
        }
    }

    /// Whether a failed disk is made up for at once: by a spare beside it, or inside.
    pub fn has_spare(&self) -> bool {
        self.spares > 0 || matches!(self.shape, Shape::Draid(shape) if shape.nspares > 0)
    }

    /// As people say it.
    pub fn words(&self) -> String {
        let vdev = match self.shape {
            Shape::Single if self.vdevs == 1 => return "1 disk".to_owned(),
            Shape::Single => return format!("{} disks, no redundancy", self.vdevs),
            Shape::Mirror(width) => format!("mirror of {width}"),
            Shape::Raidz { parity, width } => format!("raidz{parity} of {width}"),
            Shape::Draid(shape) => shape.to_string(),
        };
        let spares = match self.spares {
            0 => String::new(),
            1 => ", 1 spare".to_owned(),
            more => format!(", {more} spares"),
        };
        format!("{} x {vdev}{spares}", self.vdevs)
    }

    /// The vdevs as `zpool create` takes them.
    pub fn command(&self) -> String {
        let mut next = 0;
        let mut disks = |count: usize| {
            let names: Vec<String> = (next..next + count).map(|at| format!("DISK{}", at + 1)).collect();
            next += count;
            names.join(" ")
        };
        let mut words = Vec::new();
        for _ in 0..self.vdevs {
            let group = match self.shape {
                Shape::Single => String::new(),
                Shape::Mirror(_) => "mirror ".to_owned(),
                Shape::Raidz { parity, .. } => format!("raidz{parity} "),
                Shape::Draid(shape) => format!("{shape} "),
            };
            words.push(format!("{group}{}", disks(self.width())));
        }
        if self.spares > 0 {
            words.push(format!("spare {}", disks(self.spares)));
        }
        words.join(" ")
    }
}

/// All sensible layouts of so many disks.
pub fn candidates(disks: usize) -> Vec<PlannedLayout> {
    let mut found = vec![PlannedLayout { shape: Shape::Single, vdevs: disks, spares: 0 }];
    let mut add = |shape: Shape, width: usize| {
        let (vdevs, spares) = (disks / width, disks % width);
        if vdevs > 0 && spares <= SPARES_MAX {
            found.push(PlannedLayout { shape, vdevs, spares });
        }
    };
    (2..=3).for_each(|width| add(Shape::Mirror(width), width));
    for parity in 1..=3 {
        // fewer data disks than parity are a mirror that is slow
        for width in parity + parity.max(2)..=RAIDZ_WIDTH_MAX {
            add(Shape::Raidz { parity, width }, width);
        }
    }
    if disks >= DRAID_DISKS_MIN {
        let spares = if disks >= DRAID_SECOND_SPARE { 1..=2 } else { 1..=1 };
        for (parity, nspares) in (1..=3).flat_map(|parity| spares.clone().map(move |spares| (parity, spares))) {
            for ndata in DRAID_DATA.into_iter().filter(|ndata| ndata + parity + nspares <= disks as u64) {
                let shape = DraidShape::new(disks as u64, ndata, parity, nspares);
                if DraidLayout::new(ASHIFT_MIN, shape).is_ok() {
                    found.push(PlannedLayout { shape: Shape::Draid(shape), vdevs: 1, spares: 0 });
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_disks_are_used_once() {
        for disks in 1..=64 {
            let all = candidates(disks);
            for layout in &all {
                assert_eq!(layout.vdevs * layout.width() + layout.spares, disks, "{layout:?}");
                assert!(layout.tolerance() < layout.width(), "{layout:?}");
                let named = layout.command();
                assert_eq!(named.matches("DISK").count(), disks, "{named}");
            }
            let words: std::collections::HashSet<String> = all.iter().map(PlannedLayout::words).collect();
            assert_eq!(words.len(), all.len());
        }
    }

    #[test]
    fn layouts_in_words() {
        let words: Vec<String> = candidates(12).iter().map(PlannedLayout::words).collect();
        for expect in [
            "12 disks, no redundancy",
            "6 x mirror of 2",
            "2 x raidz2 of 6",
            "1 x raidz3 of 11, 1 spare",
            "1 x draid2:8d:12c:1s",
        ] {
            assert!(words.iter().any(|word| word == expect), "{expect} is not in {words:?}");
        }
        let layout = PlannedLayout { shape: Shape::Raidz { parity: 1, width: 3 }, vdevs: 1, spares: 1 };
        assert_eq!(layout.command(), "raidz1 DISK1 DISK2 DISK3 spare DISK4");
        assert_eq!(candidates(1).len(), 1);
    }
}
