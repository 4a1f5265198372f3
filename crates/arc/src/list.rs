//! Lists whose items stay at one index while they move from list to list: a slab with links.
//!
//! Invariants: an index that was given out by [`Lists::push`] is in one list until [`Lists::remove`]; going
//! from the oldest item of a list to younger ones, turns rise, and as many are met as `len` says.

/// No item.
const NONE: u32 = u32::MAX;

/// `N` lists, each from its oldest item to its youngest.
pub(crate) struct Lists<T, const N: usize> {
    nodes: Vec<ListNode<T>>,
    free: Vec<u32>,
    ends: [Ends; N],
    turns: u64,
}

struct ListNode<T> {
    item: Option<T>,
    list: u8,
    older: u32,
    newer: u32,
    turn: u64,
}

#[derive(Clone, Copy)]
struct Ends {
    oldest: u32,
    newest: u32,
    len: usize,
}

impl<T, const N: usize> Default for Lists<T, N> {
    fn default() -> Lists<T, N> {
        let ends = [Ends { oldest: NONE, newest: NONE, len: 0 }; N];
        Lists { nodes: Vec::new(), free: Vec::new(), ends, turns: 0 }
    }
}

impl<T, const N: usize> Lists<T, N> {
    /// Adds an item as the youngest of a list; its index.
    pub(crate) fn push(&mut self, list: usize, item: T) -> u32 {
        let node = ListNode { item: Some(item), list: 0, older: NONE, newer: NONE, turn: 0 };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        self.link(at, list);
        at
    }

    /// Makes an item the youngest of a list.
    pub(crate) fn renew(&mut self, at: u32, list: usize) {
        self.unlink(at);
        self.link(at, list);
    }

    /// Takes an item off.
    pub(crate) fn remove(&mut self, at: u32) -> Option<T> {
        self.unlink(at);
        self.free.push(at);
        self.nodes[at as usize].item.take()
    }

    /// The item at an index.
    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        self.nodes[at as usize].item.as_ref()
    }

    /// The item at an index, to be changed.
    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.nodes[at as usize].item.as_mut()
    }

    /// The oldest item of a list, and a number that is lower the longer it has been in its list.
    pub(crate) fn oldest(&self, list: usize) -> Option<(u32, u64)> {
        let at = self.ends[list].oldest;
        (at != NONE).then(|| (at, self.nodes[at as usize].turn))
    }

    /// The item that came into the same list next after this one.
    pub(crate) fn newer(&self, at: u32) -> Option<u32> {
        let newer = self.nodes[at as usize].newer;
        (newer != NONE).then_some(newer)
    }

    /// Bytes of memory that the lists take, items included.
    pub(crate) fn overhead(&self) -> u64 {
        (self.nodes.capacity() * size_of::<ListNode<T>>() + self.free.capacity() * size_of::<u32>()) as u64
    }

    fn link(&mut self, at: u32, list: usize) {
        let ends = &mut self.ends[list];
        let newest = std::mem::replace(&mut ends.newest, at);
        ends.len += 1;
        if newest == NONE {
            ends.oldest = at;
        } else {
            self.nodes[newest as usize].newer = at;
        }
        let node = &mut self.nodes[at as usize];
        (node.list, node.older, node.newer, node.turn) = (list as u8, newest, NONE, self.turns);
        self.turns += 1;
    }

    fn unlink(&mut self, at: u32) {
        let ListNode { list, older, newer, .. } = self.nodes[at as usize];
        let ends = &mut self.ends[list as usize];
        ends.len -= 1;
        if ends.oldest == at {
            ends.oldest = newer;
        }
        if ends.newest == at {
            ends.newest = older;
        }
        if older != NONE {
            self.nodes[older as usize].newer = newer;
        }
        if newer != NONE {
            self.nodes[newer as usize].older = older;
        }
    }
}

#[cfg(test)]
impl<T, const N: usize> Lists<T, N> {
    /// Items of a list.
    pub(crate) fn len(&self, list: usize) -> usize {
        self.ends[list].len
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn as_plain_lists(ops in prop::collection::vec((0u8..4, 0usize..3, 0usize..50), 0..300)) {
            let mut lists = Lists::<usize, 3>::default();
            let mut model: [Vec<(u32, usize)>; 3] = Default::default();
            for (number, (op, list, which)) in ops.into_iter().enumerate() {
                let all: Vec<(usize, usize)> =
                    (0..3).flat_map(|list| (0..model[list].len()).map(move |i| (list, i))).collect();
                match (op, all.get(which)) {
                    (0 | 1, _) => {
                        let at = lists.push(list, number);
                        model[list].push((at, number));
                    }
                    (2, Some(&(from, i))) => {
                        let (at, item) = model[from].remove(i);
                        model[list].push((at, item));
                        lists.renew(at, list);
                    }
                    (_, Some(&(from, i))) => {
                        let (at, item) = model[from].remove(i);
                        prop_assert_eq!(lists.remove(at), Some(item));
                    }
                    (_, None) => {}
                }
                for (list, model) in model.iter().enumerate() {
                    let mut at = lists.oldest(list).map(|(at, _)| at);
                    for (expected, item) in model {
                        prop_assert_eq!(at, Some(*expected));
                        prop_assert_eq!(lists.get(*expected), Some(item));
                        at = lists.newer(*expected);
                    }
                    prop_assert_eq!(at, None);
                    prop_assert_eq!(lists.len(list), model.len());
                }
            }
        }
    }
}
