//! Names that are looked for.

use base::{Error, Kind, Result};
use format::zap::TextPrep;

/// Which names a look-up takes as equal to the one asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Match {
    /// The same bytes.
    #[default]
    Exact,
    /// The same in the table's Unicode form, ignoring case if the table does. Same bytes in tables that
    /// do not normalize.
    Normalized,
    /// The same in the table's Unicode form; case counts.
    NormalizedCase,
}

/// A name that is looked for, in the forms that are hashed and compared.
pub(super) struct WantedName<'a> {
    pub(super) name: &'a [u8],
    pub(super) hashed: Vec<u8>,
    /// How names of the table are to be brought into form before they are compared with `compared`.
    prep: TextPrep,
    compared: Vec<u8>,
}

impl<'a> WantedName<'a> {
    pub(super) fn new(name: &'a [u8], how: Match, table: TextPrep) -> WantedName<'a> {
        let prep = match how {
            Match::Exact => TextPrep::default(),
            Match::Normalized => table,
            Match::NormalizedCase => TextPrep { upper: false, ..table },
        };
        WantedName { name, hashed: table.apply(name), prep, compared: prep.apply(name) }
    }

    /// The name if it is compared as it is.
    pub(super) fn exact(&self) -> Option<&'a [u8]> {
        self.prep.is_exact().then_some(self.name)
    }

    pub(super) fn is(&self, name: &[u8]) -> bool {
        match self.exact() {
            Some(wanted) => wanted == name,
            None => self.prep.apply(name) == self.compared,
        }
    }
}

/// Refuses a name that could not be found again.
pub(super) fn refuse_doubtful(prep: TextPrep, name: &[u8]) -> Result<()> {
    match prep.form.is_some() && prep.is_doubtful(name) {
        true => Err(Error::new(Kind::Unsupported, "a name that OpenZFS may bring into another Unicode form")),
        false => Ok(()),
    }
}
