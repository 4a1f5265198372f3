//! A property that a request asks for.

use serde::{Deserialize, Serialize};

use crate::lists::ListItem;

/// A property that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WantedProperty {
    /// One of the table, by its name there.
    Native(String),
    /// One that a user made up; its name has a colon.
    User(String),
    /// What a user, group or project uses or may use, such as `userused@alice`.
    Account {
        /// The name before `@`.
        property: String,
        /// The number of the user, group or project.
        id: u64,
        /// Domain of the number, for those from Windows.
        domain: String,
    },
    /// `written@SNAPSHOT` or `written#BOOKMARK`; what is behind `written`.
    Written(String),
    /// One whose value nobody has, as `userused@` of a user that does not exist.
    Nothing,
    /// Whether the property of that name, which a user made up, offers the volume to programs. The value is 1 if it does,
    /// or a text, why nobody can use it all the same.
    Offered(String),
}

impl ListItem for WantedProperty {
    fn text_bytes(&self) -> usize {
        match self {
            WantedProperty::Native(text)
            | WantedProperty::User(text)
            | WantedProperty::Written(text)
            | WantedProperty::Offered(text) => text.len(),
            WantedProperty::Account { property, domain, .. } => property.len().max(domain.len()),
            WantedProperty::Nothing => 0,
        }
    }
}
