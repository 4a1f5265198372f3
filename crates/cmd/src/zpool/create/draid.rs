//! The words for a dRAID vdev: `draid[PARITY][:DATAd][:CHILDRENc][:SPARESs]`, such as `draid2:4d:11c:1s`.
//!
//! What is left out is: a parity of 1, no spares, and as many data columns in a group as there are children for,
//! at most [`DATA_DEFAULT_MAX`].

use vdev::draid::{DRAID_CHILDREN_MAX, DraidShape, SPARES_MAX};

/// Data columns of a group, if nobody asks for more or less.
const DATA_DEFAULT_MAX: u64 = 8;

/// The parity that a word asks for, if it is for a dRAID vdev. `draid2-0-0`, which is a spare inside one, is not.
pub fn parity(word: &str) -> Option<u64> {
    let rest = word.strip_prefix("draid")?;
    let (parity, rest) = match rest.as_bytes().first() {
        Some(digit @ b'1'..=b'3') => (u64::from(digit - b'0'), &rest[1..]),
        _ => (1, rest),
    };
    (rest.is_empty() || rest.starts_with(':')).then_some(parity)
}

/// The shape that a word asks for, over so many devices. Errors: what is wrong, for the user.
pub fn shape(word: &str, nparity: u64, devices: usize) -> Result<DraidShape, String> {
    let children = devices as u64;
    let (mut ndata, mut nspares) = (None, 0);
    for part in word.split(':').skip(1) {
        let syntax = || format!("invalid dRAID syntax; expected [:<number><c|d|s>] not '{word}'");
        let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
        let value: u64 = digits.parse().map_err(|_| syntax())?;
        match part[digits.len()..].to_ascii_lowercase().as_str() {
            "c" if value != children => {
                return Err(format!("invalid number of dRAID children; {value} required but {children} provided"));
            }
            "c" => {}
            "d" => ndata = Some(value),
            "s" => nspares = value,
            _ => return Err(syntax()),
        }
    }
    // those of which groups are made
    let disks = children.saturating_sub(nspares).saturating_sub(nparity);
    if ndata.is_none() && disks == 0 {
        return Err(format!(
            "request number of distributed spares {nspares} and parity level {nparity}\n\
             leaves no disks available for data"
        ));
    }
    let ndata = ndata.unwrap_or(disks.min(DATA_DEFAULT_MAX));
    if ndata == 0 || ndata > disks {
        return Err(format!(
            "requested number of dRAID data disks per group {ndata} is too high,\n\
             at most {disks} disks are available for data"
        ));
    }
    if nspares > SPARES_MAX {
        return Err(format!("invalid number of dRAID spares {nspares}; additional disks would be required"));
    }
    if children > DRAID_CHILDREN_MAX as u64 {
        return Err(format!(
            "{children} disks were provided, but dRAID only supports up to {DRAID_CHILDREN_MAX} disks"
        ));
    }
    Ok(DraidShape::new(children, ndata, nparity, nspares))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(word: &str, devices: usize) -> Result<(u64, u64, u64, u64), String> {
        let shape = shape(word, parity(word).unwrap(), devices)?;
        Ok((shape.nparity, shape.ndata, shape.nspares, shape.ngroups))
    }

    #[test]
    fn shapes() {
        // groups come out even: 5 columns on 10 disks, 3 on 4, 10 on 11, 10 on 18
        assert_eq!(of("draid", 3), Ok((1, 2, 0, 1)));
        assert_eq!(of("draid2:3d:10c", 10), Ok((2, 3, 0, 2)));
        assert_eq!(of("draid1:2d:1s", 5), Ok((1, 2, 1, 4)));
        assert_eq!(of("draid3:7D:12C:1S", 12), Ok((3, 7, 1, 11)));
        assert_eq!(of("draid2:2s", 20), Ok((2, 8, 2, 9)));
    }

    #[test]
    fn what_cannot_be() {
        let syntax = |word: &str| Err(format!("invalid dRAID syntax; expected [:<number><c|d|s>] not '{word}'"));
        for word in
            ["draid:", "draid:x", "draid:4", "draid:4dd", "draid:4d:", "draid:-4d", "draid:99999999999999999999d"]
        {
            assert_eq!(of(word, 9), syntax(word));
        }
        let failed = |why: &str| Err(why.to_owned());
        assert_eq!(of("draid:5c", 6), failed("invalid number of dRAID children; 5 required but 6 provided"));
        let none = "request number of distributed spares 2 and parity level 2\nleaves no disks available for data";
        assert_eq!(of("draid2:2s", 4), failed(none));
        let high =
            "requested number of dRAID data disks per group 4 is too high,\nat most 3 disks are available for data";
        assert_eq!(of("draid2:4d:1s", 6), failed(high));
        assert_eq!(of("draid2:4d:7s", 6), failed(&high.replace(" 3 ", " 0 ")));
        let zero =
            "requested number of dRAID data disks per group 0 is too high,\nat most 5 disks are available for data";
        assert_eq!(of("draid:0d", 6), failed(zero));
        let many = "invalid number of dRAID spares 101; additional disks would be required";
        assert_eq!(of("draid:1d:101s", 200), failed(many));
        assert_eq!(
            (parity("draid1-0-0"), parity("draid4"), parity("drai"), parity("draid3:2d")),
            (None, None, None, Some(3))
        );
    }
}
