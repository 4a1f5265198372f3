//! What pools may be called.

/// Whether a pool may be called so, or why not.
pub fn check(name: &str) -> Result<(), String> {
    // room for the names of hidden datasets below it
    const LEN_MAX: usize = 256 - 2 - 2 * "$ORIGIN".len();
    let is_valid = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | ' ');
    if name.len() >= LEN_MAX {
        return Err("name is too long".to_owned());
    }
    if let Some(c) = name.chars().find(|c| !is_valid(c)) {
        return Err(format!("invalid character '{c}' in pool name"));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err("name must begin with a letter".to_owned());
    }
    if ["mirror", "raidz", "draid"].contains(&name) {
        return Err("name is reserved".to_owned());
    }
    Ok(())
}

/// Whether a pool may be called so from now on: more names are reserved than among older pools.
pub fn check_new(name: &str) -> Result<(), String> {
    check(name)?;
    match ["mirror", "raidz", "draid", "spare"].iter().any(|kind| name.starts_with(kind)) || name == "log" {
        true => Err("name is reserved".to_owned()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["tank", "a.b-c_d:e f", "mirrors", "T9"] {
            assert_eq!(check(good), Ok(()));
        }
        assert_eq!(check("tank/fs"), Err("invalid character '/' in pool name".into()));
        assert_eq!(check("1tank"), Err("name must begin with a letter".into()));
        assert_eq!(check("raidz"), Err("name is reserved".into()));
        assert_eq!(check(&"x".repeat(300)), Err("name is too long".into()));
        assert_eq!(check_new("mirrors"), Err("name is reserved".into()));
    }
}
