//! Lists in requests: bounded, and without duplicates, from the moment at which they are read.
//!
//! Every local user may send some requests. A list that names one thing many times would have the process do the same
//! work many times, and answer it as often, so a list of names is read as the set of them, in the order of the first
//! ones. One that is longer than its bound makes no sense, as any other message that is malformed.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// Most names of datasets in a request.
pub const NAMES_MAX: usize = 1 << 16;
/// Most properties in a request: OpenZFS has about a hundred, and users make some up.
pub const PROPERTIES_MAX: usize = 1024;
/// Longest name in a list, in bytes. Names of datasets and of properties have at most 256.
pub const TEXT_BYTES_MAX: usize = 1024;

/// An item of a list in a request.
pub(crate) trait ListItem: Eq + Hash + Clone {
    /// Bytes of its longest text.
    fn text_bytes(&self) -> usize;
}

impl ListItem for String {
    fn text_bytes(&self) -> usize {
        self.len()
    }
}

struct DistinctVisitor<T> {
    count_max: usize,
    item: PhantomData<T>,
}

impl<'de, T: ListItem + Deserialize<'de>> Visitor<'de> for DistinctVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "a list of at most {} names of at most {TEXT_BYTES_MAX} bytes", self.count_max)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let (mut seen, mut distinct) = (HashSet::new(), Vec::new());
        while let Some(listed) = list.next_element::<T>()? {
            if listed.text_bytes() > TEXT_BYTES_MAX {
                return Err(A::Error::custom(format!("a name of {} bytes", listed.text_bytes())));
            }
            if !seen.insert(listed.clone()) {
                continue;
            }
            if distinct.len() == self.count_max {
                return Err(A::Error::custom(format!("a list of more than {} names", self.count_max)));
            }
            distinct.push(listed);
        }
        Ok(distinct)
    }
}

/// Reads names of datasets. Errors: of the reader; for too many, or one that is too long.
pub(crate) fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    from.deserialize_seq(DistinctVisitor { count_max: NAMES_MAX, item: PhantomData })
}

/// Reads properties. Errors: as of [`names`].
pub(crate) fn properties<'de, D: Deserializer<'de>, T: ListItem + Deserialize<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(DistinctVisitor { count_max: PROPERTIES_MAX, item: PhantomData })
}

/// The different ones of a list, and for each of the list, which of these it is.
pub fn distinct<T: Eq + Hash + Clone>(list: &[T]) -> (Vec<T>, Vec<usize>) {
    let mut at = std::collections::HashMap::new();
    let mut different = Vec::new();
    let places = list.iter().map(|listed| {
        *at.entry(listed).or_insert_with(|| {
            different.push(listed.clone());
            different.len() - 1
        })
    });
    let places = places.collect();
    (different, places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datasets::{DatasetRequest, Select, WantedProperty};

    fn parsed(request: &DatasetRequest) -> Result<DatasetRequest, String> {
        serde_json::from_str(&serde_json::to_string(request).unwrap()).map_err(|error| error.to_string())
    }

    fn select(roots: Vec<String>, properties: Vec<WantedProperty>) -> DatasetRequest {
        DatasetRequest::Datasets(Select { roots, properties, ..Select::default() })
    }

    #[test]
    fn lists_are_sets() {
        let written = WantedProperty::Native("written".to_owned());
        let asked = select(
            vec!["b".to_owned(), "a".to_owned(), "b".to_owned()],
            vec![written.clone(), WantedProperty::Nothing, written.clone()],
        );
        let once = select(vec!["b".to_owned(), "a".to_owned()], vec![written, WantedProperty::Nothing]);
        assert_eq!(parsed(&asked).unwrap(), once);
        let holds = |names: &[&str]| DatasetRequest::Holds {
            snapshots: names.iter().map(|&name| name.to_owned()).collect(),
            recursive: true,
        };
        assert_eq!(parsed(&holds(&["t@a", "t@a", "t@b", "t@a"])).unwrap(), holds(&["t@a", "t@b"]));
    }

    #[test]
    fn lists_are_bounded() {
        let many = |count: usize| (0..count).map(|at| at.to_string()).collect::<Vec<_>>();
        let wanted = |count| many(count).into_iter().map(WantedProperty::User).collect::<Vec<_>>();
        assert!(parsed(&select(many(NAMES_MAX), wanted(PROPERTIES_MAX))).is_ok());
        let fails = |request| assert!(parsed(&request).unwrap_err().contains("more than"));
        fails(select(many(NAMES_MAX + 1), Vec::new()));
        fails(select(Vec::new(), wanted(PROPERTIES_MAX + 1)));
        fails(DatasetRequest::Holds { snapshots: many(NAMES_MAX + 1), recursive: false });
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        assert!(parsed(&select(vec![long.clone()], Vec::new())).is_err());
        assert!(parsed(&select(Vec::new(), vec![WantedProperty::Written(long)])).is_err());
    }

    #[test]
    fn places_of_duplicates() {
        assert_eq!(distinct(&["b", "a", "b"]), (vec!["b", "a"], vec![0, 1, 0]));
        assert_eq!(distinct::<u8>(&[]), (vec![], vec![]));
    }
}
