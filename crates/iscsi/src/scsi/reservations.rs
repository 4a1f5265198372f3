//! Persistent reservations: which ports of initiators are registered with a unit, and which of them has it.
//!
//! ```text
//!   1 GENERATION TYPE;          type 0: nobody has it
//!   KEY HOLDS PORT; ...         each port
//! ```
//!
//! That text is kept beside the unit if an initiator asks for it, and read when the unit is used for the first time.

use std::fmt::Write as _;

/// Ports that can be registered.
const REGISTRATIONS_MAX: usize = 24;
/// Longest name of a port.
const PORT_BYTES_MAX: usize = 256;

/// Types of reservations.
pub(crate) mod kind {
    pub(crate) const WRITE_EXCLUSIVE: u8 = 1;
    pub(crate) const EXCLUSIVE_ACCESS: u8 = 3;
    pub(crate) const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 5;
    pub(crate) const EXCLUSIVE_ACCESS_REGISTRANTS: u8 = 6;
    pub(crate) const WRITE_EXCLUSIVE_ALL: u8 = 7;
    pub(crate) const EXCLUSIVE_ACCESS_ALL: u8 = 8;
}

/// What a command does to the unit, for others that have reserved it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    Nothing,
    Reads,
    Writes,
}

/// A port that is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) port: String,
    pub(crate) key: u64,
    /// It has the reservation.
    pub(crate) holds: bool,
}

/// The reservations of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reservations {
    pub(crate) generation: u32,
    /// The type of the reservation; 0: there is none.
    pub(crate) kind: u8,
    pub(crate) registrations: Vec<Registration>,
    /// They are kept.
    pub(crate) is_kept: bool,
}

impl Reservations {
    pub(crate) const NONE: Reservations =
        Reservations { generation: 0, kind: 0, registrations: Vec::new(), is_kept: false };

    /// The registration of a port.
    pub(crate) fn of(&self, port: &str) -> Option<&Registration> {
        self.registrations.iter().find(|one| one.port == port)
    }

    /// Whether every registered port has the reservation.
    pub(crate) fn is_of_all(&self) -> bool {
        matches!(self.kind, kind::WRITE_EXCLUSIVE_ALL | kind::EXCLUSIVE_ACCESS_ALL)
    }

    /// Whether a port has the reservation.
    pub(crate) fn holds(&self, port: &str) -> bool {
        self.kind != 0 && self.of(port).is_some_and(|one| one.holds || self.is_of_all())
    }

    /// Whether a port may not do that.
    pub(crate) fn conflicts(&self, port: &str, touch: Touch) -> bool {
        if self.kind == 0 || touch == Touch::Nothing || self.holds(port) {
            return false;
        }
        match self.kind {
            kind::WRITE_EXCLUSIVE => touch == Touch::Writes,
            kind::EXCLUSIVE_ACCESS => true,
            kind::WRITE_EXCLUSIVE_REGISTRANTS | kind::WRITE_EXCLUSIVE_ALL => {
                touch == Touch::Writes && self.of(port).is_none()
            }
            _ => self.of(port).is_none(),
        }
    }

    /// Registers a port, or gives it another key; false if there are too many.
    pub(crate) fn register(&mut self, port: &str, key: u64) -> bool {
        if let Some(one) = self.registrations.iter_mut().find(|one| one.port == port) {
            one.key = key;
            return true;
        }
        if self.registrations.len() >= REGISTRATIONS_MAX || port.len() > PORT_BYTES_MAX {
            return false;
        }
        self.registrations.push(Registration { port: port.to_owned(), key, holds: false });
        true
    }

    /// Removes those that are meant; true if the reservation ends by that.
    pub(crate) fn remove(&mut self, is_meant: impl Fn(&Registration) -> bool) -> bool {
        let had_holder = self.registrations.iter().any(|one| self.holds(&one.port));
        self.registrations.retain(|one| !is_meant(one));
        let has_holder = self.registrations.iter().any(|one| self.holds(&one.port));
        if had_holder && !has_holder {
            self.kind = 0;
        }
        had_holder && !has_holder
    }

    /// Gives a port the reservation.
    pub(crate) fn reserve(&mut self, port: &str, kind: u8) {
        self.kind = kind;
        for one in &mut self.registrations {
            one.holds = one.port == port;
        }
    }

    /// Nobody has it any more.
    pub(crate) fn release(&mut self) {
        self.kind = 0;
        self.registrations.iter_mut().for_each(|one| one.holds = false);
    }

    /// As it is kept.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("1 {} {};", self.generation, self.kind);
        for one in &self.registrations {
            // writing to a string does not fail
            let _ = write!(text, "{:016x} {} {};", one.key, u8::from(one.holds), one.port);
        }
        text
    }

    /// What was kept; `None` if it makes no sense.
    pub(crate) fn parse(text: &str) -> Option<Reservations> {
        let mut lines = text.strip_suffix(';')?.split(';');
        let head: Vec<&str> = lines.next()?.split(' ').collect();
        let ["1", generation, kind] = head[..] else { return None };
        let mut found = Reservations { generation: generation.parse().ok()?, is_kept: true, ..Reservations::NONE };
        for line in lines {
            let mut words = line.splitn(3, ' ');
            let (key, holds, port) = (words.next()?, words.next()?, words.next()?);
            if found.of(port).is_some() || !found.register(port, u64::from_str_radix(key, 16).ok()?) {
                return None;
            }
            found.registrations.last_mut()?.holds = holds == "1";
        }
        let kind: u8 = kind.parse().ok().filter(|kind| matches!(kind, 0 | 1 | 3 | 5..=8))?;
        found.kind = kind;
        let holders = found.registrations.iter().filter(|one| one.holds).count();
        let is_whole = match kind {
            0 => holders == 0,
            _ if found.is_of_all() => holders <= 1 && !found.registrations.is_empty(),
            _ => holders == 1,
        };
        is_whole.then_some(found)
    }
}

/// Parses any bytes as reservations that were kept.
pub(crate) fn fuzz_reservations(bytes: &[u8]) {
    if let Some(found) = std::str::from_utf8(bytes).ok().and_then(Reservations::parse) {
        assert_eq!(Reservations::parse(&found.text()).as_ref(), Some(&found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Reservations {
        let mut both = Reservations::default();
        assert!(both.register("a,i,0x1", 1) && both.register("b,i,0x2", 2));
        both
    }

    #[test]
    fn conflicts_are_those_of_the_standard() {
        let mut both = two();
        let conflicts = |of: &Reservations, port: &str| {
            [Touch::Nothing, Touch::Reads, Touch::Writes].map(|touch| of.conflicts(port, touch))
        };
        assert_eq!(conflicts(&both, "c"), [false; 3]);
        for (kind, registered, stranger) in [
            (1, [false, false, true], [false, false, true]),
            (3, [false, true, true], [false, true, true]),
            (5, [false; 3], [false, false, true]),
            (6, [false; 3], [false, true, true]),
            (7, [false; 3], [false, false, true]),
            (8, [false; 3], [false, true, true]),
        ] {
            both.reserve("a,i,0x1", kind);
            assert_eq!(conflicts(&both, "a,i,0x1"), [false; 3]);
            assert_eq!((conflicts(&both, "b,i,0x2"), conflicts(&both, "c")), (registered, stranger), "{kind}");
        }
    }

    #[test]
    fn a_reservation_ends_with_its_holder() {
        let mut both = two();
        both.reserve("a,i,0x1", 5);
        assert!(!both.remove(|one| one.key == 2));
        assert!(both.remove(|one| one.key == 1) && both.kind == 0);
        let mut all = two();
        all.reserve("a,i,0x1", 7);
        assert!(!all.remove(|one| one.key == 1), "the other one has it, too");
        assert!(all.holds("b,i,0x2") && all.remove(|_| true));
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let mut both = two();
        both.reserve("b,i,0x2", 3);
        both.is_kept = true;
        assert_eq!(Reservations::parse(&both.text()).unwrap(), both);
        for wrong in ["", "2 0 0;", "1 0 3;", "1 0 2;", "1 0 0;1 0 a;1 0 a;", "1 0 3;1 1 a;1 1 b;", "1 x 0;"] {
            assert_eq!(Reservations::parse(wrong), None, "{wrong}");
        }
        let many = "1 0 0;".to_owned() + &(0..40).map(|n| format!("1 0 {n};")).collect::<String>();
        assert_eq!(Reservations::parse(&many), None);
    }
}
