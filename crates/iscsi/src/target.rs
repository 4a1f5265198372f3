//! What the server knows of the disks that it serves.

use std::ops::Range;
use std::sync::Arc;

use base::{Data, Error, Kind, Piece, Result};

/// A disk that initiators may use: the one logical unit of its target.
pub trait Lun: Send + Sync {
    /// What tells it from others, for ever.
    fn guid(&self) -> u64;

    /// The name of its target.
    fn target_name(&self) -> String;

    /// The name of its volume, for people.
    fn volume_name(&self) -> String;

    /// Bytes of it, and of its blocks. Errors: those of opening it; `NotFound` when it is gone.
    fn sizes(&self) -> Result<(u64, u64)>;

    /// Whether it may not be changed now. Errors: as of [`Lun::sizes`].
    fn is_read_only(&self) -> Result<bool>;

    /// Bytes from an offset on. Errors: those of reading.
    fn read(&self, offset: u64, len: usize) -> Result<Vec<Piece>>;

    /// Writes bytes from an offset on; with `lasts` they are on disk when it returns. Errors: `NoSpace`, `Quota`,
    /// `ReadOnly`, `Suspended`, those of writing.
    fn write(&self, offset: u64, data: Data<'_>, lasts: bool) -> Result<()>;

    /// Has so many bytes from an offset on read as zeros, without writing more than has to be. Errors: as of
    /// [`Lun::write`].
    fn zero(&self, offset: u64, len: u64) -> Result<()>;

    /// Brings all that was changed to disk. Errors: `Suspended`.
    fn flush(&self) -> Result<()>;

    /// Has so many bytes from an offset on read soon. Errors: those of reading.
    fn prefetch(&self, offset: u64, len: u64) -> Result<()>;

    /// The first of these bytes that is data; `None` if all are in a hole. Errors: those of reading.
    fn next_data(&self, bytes: Range<u64>) -> Result<Option<u64>>;

    /// The first of these bytes that is in a hole; where they end, if there is none. Errors: those of reading.
    fn next_hole(&self, bytes: Range<u64>) -> Result<u64>;

    /// The reservations that were kept, as a text. Errors: those of reading.
    fn reservations(&self) -> Result<Option<String>>;

    /// Keeps reservations, whatever happens to this process. Errors: those of writing.
    fn keep_reservations(&self, text: &str) -> Result<()>;
}

/// In the place of an initiator's name: all of them.
pub const ANY_INITIATOR: &str = "any";

/// The disks that there are.
pub trait Targets: Send + Sync {
    /// All that initiators may use. Errors: those of reading the pool.
    fn all(&self) -> Result<Vec<Arc<dyn Lun>>>;

    /// That of a target's name; `None` if there is none, or nobody may use it. Errors: those of reading the pool.
    fn find(&self, target_name: &str) -> Result<Option<Arc<dyn Lun>>>;

    /// Which initiators may use a disk. Errors: those of reading the pool, and its file of secrets.
    fn access(&self, lun: &dyn Lun) -> Result<TargetAccess>;

    /// Waits until changes that failed as `Suspended` can be made. Errors: `Suspended` if nobody is to wait.
    fn wait_resumed(&self) -> Result<()>;
}

/// Which initiators may use a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetAccess {
    /// Names of initiators; `any` stands for all. None: nobody.
    pub initiators: Vec<String>,
    /// What they have to know, if anything.
    pub chap: Option<ChapSecrets>,
}

impl TargetAccess {
    /// Whether an initiator of whatever name may, and need not prove anything.
    pub fn is_for_all(&self) -> bool {
        self.chap.is_none() && self.initiators.iter().any(|name| name == ANY_INITIATOR)
    }

    /// The secrets that an initiator of that name may prove. Those of other initiators prove nothing of this one, and one
    /// without an initiator counts only where no two initiators could be meant.
    pub fn secrets_of<'a>(&'a self, initiator: &'a str) -> impl Iterator<Item = &'a Secret> {
        let all = self.chap.as_ref().filter(|_| self.names(initiator)).map_or(&[][..], |chap| &chap.initiators);
        let is_alone = all.len() == 1 && self.initiators.len() == 1;
        all.iter().filter(move |secret| match &secret.initiator {
            Some(owner) => owner.eq_ignore_ascii_case(initiator),
            None => is_alone,
        })
    }

    /// Whether an initiator of that name may use the disk, having proven this.
    pub fn admits(&self, initiator: &str, proven: Option<&Secret>) -> bool {
        self.names(initiator)
            && (self.chap.is_none() || self.secrets_of(initiator).any(|secret| proven == Some(secret)))
    }

    /// Whether an initiator may, by its name.
    pub fn names(&self, initiator: &str) -> bool {
        self.initiators.iter().any(|name| name == ANY_INITIATOR || name.eq_ignore_ascii_case(initiator))
    }
}

/// The name and secret of one side.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// The name.
    pub name: String,
    /// The secret: 12 to 255 bytes.
    pub secret: String,
    /// The name of the initiator that the secret belongs to; none if a file says no more than a user's name.
    pub initiator: Option<String>,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the secret of {}", self.name)
    }
}

/// What initiators have to know, and what they may ask of the target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChapSecrets {
    /// Those of initiators.
    pub initiators: Vec<Secret>,
    /// That of the target.
    pub target: Option<Secret>,
}

impl ChapSecrets {
    /// Those of a file: lines with `initiator IQN SECRET`, `initiator IQN USER SECRET` for an initiator that proves the
    /// secret under another name than its own, or `target NAME SECRET`; what begins with `#` is a comment. Errors: `Invalid`, with the line.
    pub fn parse(text: &str) -> Result<ChapSecrets> {
        let mut secrets = ChapSecrets::default();
        for (at, line) in text.lines().enumerate() {
            let wrong = |why: &str| Error::new(Kind::Invalid, format!("line {}: {why}", at + 1));
            let words: Vec<&str> = line.split_whitespace().collect();
            let (side, initiator, name, secret) = match words[..] {
                [] => continue,
                [word, ..] if word.starts_with('#') => continue,
                [side @ "initiator", name, secret] => (side, Some(name).filter(|name| is_node(name)), name, secret),
                [side @ "initiator", initiator, name, secret] if is_node(initiator) => {
                    (side, Some(initiator), name, secret)
                }
                [side, name, secret] => (side, None, name, secret),
                _ => {
                    return Err(wrong(
                        "not 'initiator IQN SECRET', 'initiator IQN USER SECRET' or 'target NAME SECRET'",
                    ));
                }
            };
            if !(12..=255).contains(&secret.len()) {
                return Err(wrong("a secret has 12 to 255 bytes"));
            }
            let initiator = initiator.map(str::to_owned);
            let one = Secret { name: name.to_owned(), secret: secret.to_owned(), initiator };
            match side {
                "initiator" => secrets.initiators.push(one),
                "target" if secrets.target.is_none() => secrets.target = Some(one),
                _ => return Err(wrong("not 'initiator IQN SECRET' or the one 'target NAME SECRET'")),
            }
        }
        let is_known = |target: &Secret| secrets.initiators.iter().any(|one| one.secret == target.secret);
        if secrets.target.as_ref().is_some_and(is_known) {
            return Err(Error::new(Kind::Invalid, "the secret of the target is that of an initiator"));
        }
        Ok(secrets)
    }
}

/// Whether it has the form of an iSCSI node's name (RFC 7143, 4.2.7).
fn is_node(name: &str) -> bool {
    ["iqn.", "eui.", "naa."].iter().any(|kind| name.to_ascii_lowercase().starts_with(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_lines() {
        let secrets = ChapSecrets::parse("# ours\n\ninitiator a aaaaaaaaaaaa\ntarget t tttttttttttt\n").unwrap();
        assert_eq!((secrets.initiators[0].name.as_str(), secrets.target.unwrap().name.as_str()), ("a", "t"));
        for wrong in [
            "initiator a short",
            "initiator a",
            "host a aaaaaaaaaaaa",
            "target t tttttttttttt\ntarget u tttttttttttu",
            "initiator a aaaaaaaaaaaa\ntarget t aaaaaaaaaaaa",
        ] {
            assert!(ChapSecrets::parse(wrong).is_err(), "{wrong}");
        }
        assert!(!format!("{:?}", ChapSecrets::parse("target t tttttttttttt").unwrap()).contains("ttt"));
    }

    #[test]
    fn a_secret_belongs_to_an_initiator() {
        let access = |names: &[&str], file: &str| TargetAccess {
            initiators: names.iter().map(|name| (*name).into()).collect(),
            chap: Some(ChapSecrets::parse(file).unwrap()),
        };
        let of = |access: &TargetAccess, initiator: &str| -> Vec<String> {
            access.secrets_of(initiator).map(|secret| secret.name.clone()).collect()
        };
        let two = "initiator iqn.a aaaaaaaaaaaa\ninitiator iqn.b me bbbbbbbbbbbb\ninitiator you cccccccccccc";
        for names in [&["iqn.a", "iqn.b"][..], &["any"]] {
            let both = access(names, two);
            assert_eq!((of(&both, "iqn.A"), of(&both, "iqn.b")), (vec!["iqn.a".into()], vec!["me".into()]));
            assert!(of(&both, "iqn.c").is_empty());
            let proven = both.secrets_of("iqn.a").next();
            assert!(both.admits("iqn.a", proven) && !both.admits("iqn.b", proven) && !both.admits("iqn.a", None));
        }
        assert!(of(&access(&["iqn.b"], two), "iqn.a").is_empty(), "it is not in the list");
        // a user's name alone, where there is but one
        let one = "initiator me aaaaaaaaaaaa";
        assert_eq!(of(&access(&["iqn.a"], one), "iqn.a"), ["me"]);
        assert_eq!(of(&access(&["any"], one), "iqn.x"), ["me"]);
        assert!(of(&access(&["iqn.a", "iqn.b"], one), "iqn.a").is_empty());
        assert!(access(&["any"], one).secrets_of("iqn.a").next().is_some() && !access(&["any"], one).is_for_all());
    }

    #[test]
    fn nobody_may_unless_named() {
        assert!(!TargetAccess::default().names("iqn.a"));
        let of =
            |names: &[&str]| TargetAccess { initiators: names.iter().map(|name| (*name).into()).collect(), chap: None };
        assert!(of(&["iqn.a", "iqn.b"]).names("iqn.B") && !of(&["iqn.a"]).names("iqn.ab") && of(&["any"]).names("x"));
    }
}
