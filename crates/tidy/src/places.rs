//! Where tests stand: those of a file in its `mod tests`, those from outside in `tests/NAME/main.rs` and the files beside.

use syn::{Attribute, Item};

use crate::exceptions::Exceptions;
use crate::source::SourceFile;

pub fn find(sources: &[SourceFile]) -> Exceptions {
    let mut found = Exceptions::new();
    for source in sources {
        let from_outside = source.path.strip_prefix(&format!("{}/tests/", source.krate));
        let is_elsewhere = from_outside.is_some_and(|rest| !rest.contains('/'));
        let count = usize::from(is_elsewhere) + source.file.items.iter().filter(|item| is_oddly_placed(item)).count();
        if count > 0 {
            found.insert(format!("place {}", source.path), count);
        }
    }
    found
}

/// A module that is not where its name says, or is one of tests and not called so.
fn is_oddly_placed(item: &Item) -> bool {
    let Item::Mod(module) = item else { return false };
    let has = |name: &str| module.attrs.iter().any(|attribute| attribute.path().is_ident(name));
    has("path") || module.attrs.iter().any(is_for_tests) && module.ident != "tests"
}

fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test")
}
