//! The blocks that lead to data, in the order of a hash: those that come first, as many as there is room for.

/// Blocks of the list at most: about 200 bytes each.
pub(super) const LEAVES_MAX: usize = 1 << 17;

/// See the top of the file. Each has a group, whose hash is its place, and bytes below it.
pub(super) struct LeafList<L> {
    leaves: Vec<(u64, u64, L)>,
    /// The part of all places that is in the list.
    part: f64,
    max: usize,
}

/// Where a group stands: from 0 to 1.
fn place_of(group: u64) -> f64 {
    // the high bits: 2^53 numbers, as a float has them all
    (group >> 11) as f64 / (1u64 << 53) as f64
}

impl<L> LeafList<L> {
    /// Has so many at most.
    pub(super) fn new(max: usize) -> LeafList<L> {
        LeafList { leaves: Vec::with_capacity(max + 1), part: 1.0, max }
    }

    /// The part of all places that is in the list.
    pub(super) fn part(&self) -> f64 {
        self.part
    }

    /// Lists one more. Where there are too many, the later half of places leaves.
    pub(super) fn add(&mut self, group: u64, bytes: u64, leaf: L) {
        if place_of(group) >= self.part {
            return;
        }
        self.leaves.push((group, bytes, leaf));
        while self.leaves.len() > self.max {
            self.part /= 2.0;
            let part = self.part;
            self.leaves.retain(|(group, ..)| place_of(*group) < part);
        }
    }

    /// Takes those out that stand below a place.
    pub(super) fn take_below(&mut self, place: f64) -> Vec<(u64, u64, L)> {
        self.leaves.extract_if(.., |(group, ..)| place_of(*group) < place).collect()
    }

    /// Bytes of memory that it takes.
    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.leaves.capacity() * size_of::<(u64, u64, L)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_with_the_least_places_stay() {
        let mut list = LeafList::new(100);
        let groups: Vec<u64> = (0..1000).map(base::split_mix).collect();
        groups.iter().for_each(|group| list.add(*group, 1, ()));
        assert!(list.part() <= 0.125 && list.leaves.len() <= 100, "{} of {}", list.leaves.len(), list.part());
        let below = |place: f64| groups.iter().filter(|group| place_of(**group) < place).count();
        assert_eq!(list.take_below(0.03).len(), below(0.03));
        assert_eq!(list.take_below(1.0).len(), below(list.part()) - below(0.03));
        assert!(list.take_below(1.0).is_empty());
    }
}
