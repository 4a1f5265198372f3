//! Names that file systems and volumes can have.
//!
//! ```text
//!   tank/home/user-1      components of letters, digits and "-_.: ", with slashes between; 255 bytes in all,
//!                         50 levels; no component is "." or ".."
//! ```

use base::{Error, Kind, Result};

/// Most bytes of a full name.
pub(crate) const LEN_MAX: usize = 255;
/// Most levels below the pool: zfs_max_dataset_nesting.
pub const NESTING_MAX: usize = 50;

/// How far below the pool a file system or volume of that name is.
pub(crate) fn level(name: &str) -> usize {
    name.matches('/').count()
}

/// Whether a new file system or volume may be called so. Errors: `TooLong`, or `Invalid` with what `zfs` says.
pub fn check_name(name: &str) -> Result<()> {
    let invalid = |what: &'static str| Err(Error::new(Kind::Invalid, what));
    if name.contains('@') {
        return invalid("snapshot delimiter '@' is not expected here");
    }
    if name.contains('#') {
        return invalid("bookmark delimiter '#' is not expected here");
    }
    refuse_internal(name)?;
    if name.len() > LEN_MAX {
        return Err(Error::new(Kind::TooLong, "name is too long"));
    }
    if name.starts_with('/') {
        return invalid("leading slash in name");
    }
    if name.is_empty() {
        return invalid("empty component or misplaced '@' or '#' delimiter in name");
    }
    let mut components = name.split('/').peekable();
    while let Some(component) = components.next() {
        if component.is_empty() && components.peek().is_none() {
            return invalid("trailing slash in name");
        }
        check_component(component)?;
    }
    if level(name) >= NESTING_MAX {
        return Err(Error::new(Kind::TooLong, "maximum name nesting depth exceeded"));
    }
    Ok(())
}

/// Refuses what ZFS keeps for itself below a dataset, such as a receive that was interrupted.
pub(crate) fn refuse_internal(name: &str) -> Result<()> {
    match name.contains('%') {
        true => Err(Error::new(Kind::Invalid, "invalid character % in name")),
        false => Ok(()),
    }
}

/// Whether a part of a name between slashes can be. Errors: as of [`check_name`].
pub(crate) fn check_component(component: &str) -> Result<()> {
    if let Some(bad) = component.chars().find(|c| !c.is_ascii_alphanumeric() && !"-_.: ".contains(*c)) {
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
            check_name(good).unwrap();
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
            assert_eq!(check_name(bad).unwrap_err().what(), why, "{bad}");
        }
        check_name(&nested[2..]).unwrap();
    }
}
