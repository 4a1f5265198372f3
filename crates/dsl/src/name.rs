//! Names that datasets can have.
//!
//! ```text
//!   tank/home/user-1      components of letters, digits and "-_.: ", with slashes between; 255 bytes in all,
//!                         50 levels; no component is "." or ".."
//!   tank/home@monday      a snapshot, tank/home#monday a bookmark: one component more
//! ```

use base::{Error, Kind, Result};

/// Most bytes of a full name.
pub(crate) const LEN_MAX: usize = 255;
/// Most levels below the pool, of what is new.
const NESTING_MAX: usize = 50;

/// How far below the pool a file system or volume of that name is.
pub(crate) fn level(name: &str) -> usize {
    name.matches('/').count()
}

/// What a name may be that of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameKinds {
    /// A file system or volume.
    pub heads: bool,
    /// A snapshot.
    pub snapshots: bool,
    /// A bookmark.
    pub bookmarks: bool,
}

impl NameKinds {
    const NONE: NameKinds = NameKinds { heads: false, snapshots: false, bookmarks: false };
    /// File systems and volumes.
    pub const HEADS: NameKinds = NameKinds { heads: true, ..NameKinds::NONE };
    /// Snapshots.
    pub const SNAPSHOTS: NameKinds = NameKinds { snapshots: true, ..NameKinds::NONE };
    /// Bookmarks.
    pub const BOOKMARKS: NameKinds = NameKinds { bookmarks: true, ..NameKinds::NONE };
}

/// Whether a dataset of one of some kinds can be called so. Errors: `TooLong`, or `Invalid` with what `zfs` says.
pub fn check_name(name: &str, kinds: NameKinds) -> Result<()> {
    check(name, kinds, false)
}

/// Whether a new dataset of one of some kinds may be called so. Errors: as of [`check_name`].
pub fn check_new_name(name: &str, kinds: NameKinds) -> Result<()> {
    check_moved_name(name, kinds)?;
    let head = name.split(['@', '#']).next().unwrap_or(name);
    match level(head) >= NESTING_MAX {
        true => Err(Error::new(Kind::TooLong, "maximum name nesting depth exceeded")),
        false => Ok(()),
    }
}

/// Whether a dataset of one of some kinds may come to be called so; how deep it may be depends on how deep it was, and
/// the pool's process knows that. Errors: as of [`check_name`].
pub fn check_moved_name(name: &str, kinds: NameKinds) -> Result<()> {
    check(name, kinds, true)
}

fn check(name: &str, kinds: NameKinds, is_new: bool) -> Result<()> {
    let invalid = |what: &'static str| Err(Error::new(Kind::Invalid, what));
    if !kinds.snapshots && name.contains('@') {
        return invalid("snapshot delimiter '@' is not expected here");
    }
    if kinds == NameKinds::SNAPSHOTS && !name.contains('@') {
        return invalid("missing '@' delimiter in snapshot name");
    }
    if !kinds.bookmarks && name.contains('#') {
        return invalid("bookmark delimiter '#' is not expected here");
    }
    if kinds == NameKinds::BOOKMARKS && !name.contains('#') {
        return invalid("missing '#' delimiter in bookmark name");
    }
    if is_new {
        refuse_internal(name)?;
    }
    if name.len() > LEN_MAX {
        return Err(Error::new(Kind::TooLong, "name is too long"));
    }
    if name.starts_with('/') {
        return invalid("leading slash in name");
    }
    let (head, point) = match name.split_once(['@', '#']) {
        Some((head, point)) => (head, Some(point)),
        None => (name, None),
    };
    if point.is_none() && name.ends_with('/') {
        return invalid("trailing slash in name");
    }
    head.split('/').try_for_each(|component| check_with(component, "%"))?;
    if let Some(point) = point {
        check_with(point, if is_new { "@#" } else { "%@#/" })?;
        if point.contains(['@', '#']) {
            return invalid("multiple '@' and/or '#' delimiters in name");
        }
    }
    Ok(())
}

/// The two parts of the full name of a snapshot. Errors: as of [`check_new_name`].
pub(crate) fn split_snapshot(name: &str) -> Result<(&str, &str)> {
    check_new_name(name, NameKinds::SNAPSHOTS)?;
    Ok(name.split_once('@').unwrap_or((name, "")))
}

/// The two parts of the full name of a bookmark. Errors: as of [`check_new_name`].
pub(crate) fn split_bookmark(name: &str) -> Result<(&str, &str)> {
    check_new_name(name, NameKinds::BOOKMARKS)?;
    Ok(name.split_once('#').unwrap_or((name, "")))
}

/// Refuses what ZFS keeps for itself below a dataset, such as a receive that was interrupted.
pub(crate) fn refuse_internal(name: &str) -> Result<()> {
    match name.contains('%') {
        true => Err(Error::new(Kind::Invalid, "invalid character % in name")),
        false => Ok(()),
    }
}

/// Whether a part of a name between delimiters can be. Errors: as of [`check_name`].
pub(crate) fn check_component(component: &str) -> Result<()> {
    check_with(component, "")
}

fn check_with(component: &str, allowed: &str) -> Result<()> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-_.: ".contains(c) || allowed.contains(c);
    if let Some(bad) = component.chars().find(|c| !is_good(*c)) {
        return Err(Error::new(Kind::Invalid, format!("invalid character '{bad}' in name")));
    }
    let what = match component {
        "." => "self reference, '.' is found in name",
        ".." => "parent reference, '..' is found in name",
        "" => "empty component or misplaced '@' or '#' delimiter in name",
        _ => return Ok(()),
    };
    Err(Error::new(Kind::Invalid, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_what_is_wrong_with_them() {
        for good in ["tank/a", "tank/a b", "tank/A-1_.:x", "tank/...", &format!("tank/{}", "n".repeat(250))] {
            check_new_name(good, NameKinds::HEADS).unwrap();
        }
        let nested = format!("t{}", "/a".repeat(50));
        for (bad, why) in [
            ("tank/a@b", "snapshot delimiter '@' is not expected here"),
            ("tank/a#b", "bookmark delimiter '#' is not expected here"),
            ("tank/a%b", "invalid character % in name"),
            ("tank/a\u{e4}", "invalid character '\u{e4}' in name"),
            ("tank/a$b", "invalid character '$' in name"),
            ("/tank", "leading slash in name"),
            ("tank/", "trailing slash in name"),
            ("tank//a", "empty component or misplaced '@' or '#' delimiter in name"),
            ("tank/.", "self reference, '.' is found in name"),
            ("tank/../a", "parent reference, '..' is found in name"),
            (&format!("tank/{}", "n".repeat(251)), "name is too long"),
            (&nested, "maximum name nesting depth exceeded"),
        ] {
            assert_eq!(check_new_name(bad, NameKinds::HEADS).unwrap_err().what(), why, "{bad}");
        }
        check_new_name(&nested[2..], NameKinds::HEADS).unwrap();
    }

    #[test]
    fn names_by_kind() {
        let (any, heads) = (NameKinds { snapshots: true, ..NameKinds::HEADS }, NameKinds::HEADS);
        let (snapshots, bookmarks) = (NameKinds::SNAPSHOTS, NameKinds::BOOKMARKS);
        let nested = format!("t{}@s", "/a".repeat(50));
        for (name, kinds) in [
            ("tank/a b.c-d_e:f", any),
            ("tank@s", any),
            ("tank#b", bookmarks),
            ("tank/%recv", heads),
            ("tank@a/b", snapshots),
            (&nested, snapshots),
        ] {
            check_name(name, kinds).unwrap();
        }
        for (name, kinds, why) in [
            ("tank@s", heads, "snapshot delimiter '@' is not expected here"),
            ("tank#s", any, "bookmark delimiter '#' is not expected here"),
            ("tank", snapshots, "missing '@' delimiter in snapshot name"),
            ("tank", bookmarks, "missing '#' delimiter in bookmark name"),
            ("/tank", any, "leading slash in name"),
            ("tank/", any, "trailing slash in name"),
            ("tank//a", any, "empty component or misplaced '@' or '#' delimiter in name"),
            ("tank@", any, "empty component or misplaced '@' or '#' delimiter in name"),
            ("tank@a@b", any, "multiple '@' and/or '#' delimiters in name"),
            ("tank/a*", any, "invalid character '*' in name"),
            ("tank/..", any, "parent reference, '..' is found in name"),
            (&"a".repeat(256), any, "name is too long"),
        ] {
            assert_eq!(check_name(name, kinds).unwrap_err().what(), why, "{name}");
            assert_eq!(check_new_name(name, kinds).unwrap_err().what(), why, "new {name}");
        }
        for (name, why) in [
            ("tank@a/b", "invalid character '/' in name"),
            ("tank@a%b", "invalid character % in name"),
            (&nested, "maximum name nesting depth exceeded"),
        ] {
            assert_eq!(check_new_name(name, snapshots).unwrap_err().what(), why, "{name}");
        }
    }
}
