//! Which attributes a file system has, and the layouts of its buffers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use base::{Error, Result};

use super::layout::{Layout, unregistered};
use super::table::{Attr, Definition, FIXED_COUNT, Swap, ZPL_ATTRS};

/// Layouts 0 and 1 are not in the table.
pub(super) const FIRST_LAYOUT: u16 = 2;
/// Layouts have numbers of 10 bits.
pub(super) const LAYOUTS_END: u16 = 1 << 10;

#[derive(Clone, Copy, Debug)]
pub(super) struct Registered {
    /// Bytes; 0 if each buffer says how many.
    pub(super) len: u16,
    pub(super) swap: Swap,
}

/// The attributes and layouts of one file system.
#[derive(Clone, Debug)]
pub struct Registry {
    /// By number; numbers are given from 0 upwards.
    attrs: Vec<Option<Registered>>,
    names: HashMap<u16, String>,
    /// Number of each [`Attr`], if the file system has it.
    known: [Option<u16>; ZPL_ATTRS.len()],
    /// Numbers that are in the registry table.
    tabled: HashSet<u16>,
    layouts: BTreeMap<u16, Arc<Layout>>,
}

impl Registry {
    /// From the entries of the registry table (name, number) and of the layout table (layout number,
    /// attribute numbers). A file system older than the registry has neither.
    ///
    /// ```text
    ///  64       40      24         16             0
    /// +--------+-------+----------+--------------+
    /// | unused | length| swapping | attribute no |  a registry value
    /// +--------+-------+----------+--------------+
    /// ```
    pub fn new(
        registry: impl IntoIterator<Item = (String, u64)>,
        layouts: impl IntoIterator<Item = (u16, Vec<u16>)>,
    ) -> Result<Registry> {
        let fixed = &ZPL_ATTRS[..FIXED_COUNT];
        let mut this = Registry {
            attrs: fixed.iter().map(|&Definition { len, swap, .. }| Some(Registered { len, swap })).collect(),
            names: fixed.iter().zip(0..).map(|(attr, number)| (number, attr.name.to_owned())).collect(),
            known: std::array::from_fn(|attr| (attr < FIXED_COUNT).then_some(attr as u16)),
            tabled: HashSet::new(),
            layouts: BTreeMap::new(),
        };
        for (name, value) in registry {
            let (number, len) = (value as u16, (value >> 24) as u16);
            let Some(swap) = Swap::from_number((value >> 16) as u8) else {
                return Err(Error::corrupt(format!("SA registry: '{name}' has the value {value:#x}")));
            };
            let index = usize::from(number);
            this.attrs.resize(this.attrs.len().max(index + 1), None);
            this.attrs[index] = Some(Registered { len, swap });
            if let Some(attr) = ZPL_ATTRS.iter().position(|attr| attr.name == name) {
                this.known[attr].get_or_insert(number);
            }
            this.tabled.insert(number);
            this.names.insert(number, name);
        }
        // what no buffer can name is never needed
        layouts
            .into_iter()
            .filter(|(number, _)| *number < LAYOUTS_END)
            .for_each(|(number, attrs)| this.add_layout(number, attrs));
        Ok(this)
    }

    /// The name of an attribute number.
    pub fn name(&self, number: u16) -> Option<&str> {
        self.names.get(&number).map(String::as_str)
    }

    /// The number of an attribute; `None` if the file system has it nowhere.
    pub fn number(&self, attr: Attr) -> Option<u16> {
        self.known[attr as usize]
    }

    /// What is known of an attribute number.
    #[inline]
    pub(super) fn find(&self, number: u16) -> Option<Registered> {
        self.attrs.get(usize::from(number)).copied().flatten()
    }

    /// The same, of a number that has to be known.
    pub(super) fn registered(&self, number: u16) -> Result<Registered> {
        self.find(number).ok_or_else(|| unregistered(number))
    }

    /// A layout; `None` is that of buffers without attributes. Errors: `Corrupt` if there is no such layout, or an
    /// attribute of it is not registered.
    pub(super) fn layout(&self, number: u16) -> Result<Option<Arc<Layout>>> {
        match (self.layouts.get(&number), number) {
            (Some(layout), _) => layout.check().map(|()| Some(layout.clone())),
            (None, 0 | 1) => Ok(None),
            _ => Err(Error::corrupt(format!("SA layout {number} is not in the layout table"))),
        }
    }

    /// Registers every attribute of [`ZPL_ATTRS`] that is not yet, and returns what is to be added to the
    /// registry table: name and value.
    pub fn register_all(&mut self) -> Vec<(&'static str, u64)> {
        let mut new = Vec::new();
        for (attr, definition) in ZPL_ATTRS.iter().enumerate() {
            // where a file system has given the last number, no other follows
            let free = u16::try_from(self.attrs.len()).ok();
            let Some(number) = self.known[attr].or(free) else { continue };
            if self.tabled.insert(number) {
                self.attrs.resize(self.attrs.len().max(usize::from(number) + 1), None);
                self.attrs[usize::from(number)] = Some(Registered { len: definition.len, swap: definition.swap });
                self.known[attr] = Some(number);
                self.names.insert(number, definition.name.to_owned());
                new.push((definition.name, definition.registration(number)));
            }
        }
        for layout in self.layouts.values_mut() {
            *layout = Layout::new(layout.numbers().to_vec(), |number| len_of(&self.attrs, number)).into();
        }
        new
    }

    /// The layout of these attribute numbers.
    pub fn find_layout(&self, numbers: &[u16]) -> Option<u16> {
        let same = self.layouts.iter().filter(|(_, layout)| layout.numbers() == numbers).map(|(number, _)| *number);
        // An empty list needs no layout of its own.
        same.min().or(numbers.is_empty().then_some(0))
    }

    /// The number that the next new layout gets.
    pub fn next_layout(&self) -> u16 {
        self.layouts.keys().map(|number| number.saturating_add(1)).max().unwrap_or(0).max(FIRST_LAYOUT)
    }

    /// Takes in a layout that [`super::build()`] asked for, or another handle of the file system.
    pub fn add_layout(&mut self, number: u16, attrs: Vec<u16>) {
        self.layouts.insert(number, Layout::new(attrs, |number| len_of(&self.attrs, number)).into());
    }
}

/// How many bytes an attribute has, if it is registered.
fn len_of(attrs: &[Option<Registered>], number: u16) -> Option<u16> {
    attrs.get(usize::from(number)).copied().flatten().map(|known| known.len)
}
