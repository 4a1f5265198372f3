//! Names of types that stand for several things, and comments about persons.

use std::collections::{BTreeMap, BTreeSet};

use syn::Item;

use crate::exceptions::Exceptions;
use crate::source::{SourceFile, is_of_tests};

pub fn find(sources: &[SourceFile]) -> Exceptions {
    let mut places: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let mut found = Exceptions::new();
    for source in sources.iter().filter(|source| source.place().is_some()) {
        for item in &source.file.items {
            if let Some(name) = type_name(item) {
                places.entry(name).or_default().insert(&source.path);
            }
        }
        let of_persons = source.text.lines().filter(|line| is_of_person(line)).count();
        if of_persons > 0 {
            *found.entry(format!("person {}", source.krate)).or_default() += of_persons;
        }
    }
    let reused = places.into_iter().filter(|(_, files)| files.len() > 1);
    found.extend(reused.map(|(name, files)| (format!("reused {name}"), files.len())));
    found
}

/// The name of the type that an item of the product defines.
fn type_name(item: &Item) -> Option<String> {
    let (ident, attributes) = match item {
        Item::Struct(item) => (&item.ident, &item.attrs),
        Item::Enum(item) => (&item.ident, &item.attrs),
        Item::Trait(item) => (&item.ident, &item.attrs),
        Item::Type(item) => (&item.ident, &item.attrs),
        _ => return None,
    };
    (!is_of_tests(attributes)).then(|| ident.to_string())
}

fn is_of_person(line: &str) -> bool {
    let Some((_, comment)) = line.split_once("//") else { return false };
    let words = comment.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.map(str::to_lowercase).any(|word| matches!(word.as_str(), "who" | "whoever"))
}
