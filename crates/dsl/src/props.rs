//! Properties as they are stored: by whom a value was set, and what is inherited.
//!
//! A directory's ZAP of properties has an entry for each one set. Received values carry a suffix, and
//! an explicit "inherit" over a received value carries another:
//!
//! ```text
//!   compression          set here by hand
//!   compression$recvd    came with a receive; counts if there is no entry of the first form
//!   compression$inherit  `zfs inherit`: the received value does not count
//! ```
//!
//! What a property means, its default and its text are the concern of the commands above.

use base::{Result, ResultExt};
use dmu::zap::Zap;

use crate::{Dataset, Dir, Dsl};

const RECEIVED: &str = "$recvd";
const INHERIT: &str = "$inherit";

/// A stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropertyValue {
    /// Numbers, switches, and choices from a list.
    Number(u64),
    /// Texts, and all user properties.
    Text(String),
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropertySource {
    /// Set on the dataset itself.
    Local,
    /// Received with the dataset.
    Received,
    /// Set on, or received by, the ancestor of that name.
    Inherited(String),
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// The value.
    pub value: PropertyValue,
    /// Who set it.
    pub source: PropertySource,
}

impl Dsl {
    /// All properties that are stored for `dir`, by name, suffixes included.
    pub fn stored_props(&self, dir: &Dir) -> Result<Vec<(String, PropertyValue)>> {
        self.props_in(dir.phys.props_zap).in_dataset(&dir.name)
    }

    /// All properties that are stored for a snapshot itself.
    pub fn snapshot_props(&self, snapshot: &Dataset) -> Result<Vec<(String, PropertyValue)>> {
        self.props_in(snapshot.phys.props_zap).in_dataset(&snapshot.name)
    }

    /// The stored properties of `dir` and of every directory above it, nearest first.
    pub fn props_chain(&self, dir: &Dir) -> Result<Vec<(Dir, Vec<(String, PropertyValue)>)>> {
        let mut chain = Vec::new();
        let mut name = dir.name.as_str();
        loop {
            let at = self.find_dir(name)?;
            let props = self.stored_props(&at)?;
            chain.push((at, props));
            match name.rsplit_once('/') {
                Some((above, _)) => name = above,
                None => return Ok(chain),
            }
        }
    }

    fn props_in(&self, zap: u64) -> Result<Vec<(String, PropertyValue)>> {
        if zap == 0 {
            return Ok(Vec::new());
        }
        let mut props = Vec::new();
        for entry in Zap::open(self.mos().object(zap)?)?.entries()? {
            let value = match entry.value.first_u64() {
                Some(number) if entry.value.width() == 8 => PropertyValue::Number(number),
                _ => {
                    let bytes = entry.value.bytes();
                    let text = bytes.split(|&b| b == 0).next().unwrap_or(bytes);
                    PropertyValue::Text(String::from_utf8_lossy(text).into_owned())
                }
            };
            props.push((entry.name.to_string(), value));
        }
        Ok(props)
    }
}

impl Property {
    /// The value of `name` that counts at the first directory of `chain` (see [`Dsl::props_chain`]).
    ///
    /// Without `inheritable`, only that directory's own value counts.
    pub fn effective(chain: &[(Dir, Vec<(String, PropertyValue)>)], name: &str, inheritable: bool) -> Option<Property> {
        for (depth, (dir, props)) in chain.iter().enumerate() {
            let get = |suffix: &str| {
                props.iter().find(|(n, _)| n.strip_suffix(suffix) == Some(name)).map(|(_, value)| value.clone())
            };
            let found = get("").map(|value| (value, PropertySource::Local)).or_else(|| {
                let received = get(RECEIVED).filter(|_| get(INHERIT).is_none());
                received.map(|value| (value, PropertySource::Received))
            });
            match found {
                Some((value, source)) if depth == 0 => return Some(Property { value, source }),
                Some((value, _)) => {
                    return Some(Property { value, source: PropertySource::Inherited(dir.name.clone()) });
                }
                None if !inheritable => return None,
                None => {}
            }
        }
        None
    }

    /// The received value of `name` at `dir`, whether it counts or not.
    pub fn received(props: &[(String, PropertyValue)], name: &str) -> Option<PropertyValue> {
        props.iter().find(|(n, _)| n.strip_suffix(RECEIVED) == Some(name)).map(|(_, value)| value.clone())
    }
}
