//! Numbers for people: three significant digits and a unit, in at most five characters.
//!
//! `1536` is `1.50K`, `10239` is `10.0K`, exact multiples have no point: `2G`. The rule is that of
//! zfs_nicenum(), since columns are made for it.

/// A number in units of 1024, without a unit below 1K.
pub fn nicenum(number: u64) -> String {
    format(number, ["", "K", "M", "G", "T", "P", "E"])
}

/// A number of bytes: as [`nicenum`], with `B` below 1K.
pub fn nicebytes(bytes: u64) -> String {
    format(bytes, ["B", "K", "M", "G", "T", "P", "E"])
}

/// A time from nanoseconds up, without fractions: `999us`, `2s`.
pub fn nicetime(ns: u64) -> String {
    const UNITS: [&str; 3] = ["ns", "us", "ms"];
    let (mut value, mut index) = (ns, 0);
    while value >= 1000 && index < UNITS.len() {
        value /= 1000;
        index += 1;
    }
    format!("{value}{}", UNITS.get(index).unwrap_or(&"s"))
}

fn format(number: u64, units: [&str; 7]) -> String {
    let index = (number.max(1).ilog2() / 10) as usize;
    let unit_size = 1u64 << (10 * index);
    let unit = units[index];
    if number.is_multiple_of(unit_size) {
        return format!("{}{unit}", number / unit_size);
    }
    let value = number as f64 / unit_size as f64;
    let tries = [2, 1, 0].map(|digits| format!("{value:.digits$}{unit}"));
    tries.iter().find(|text| text.len() <= 5).unwrap_or(&tries[2]).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_characters() {
        for (number, text) in [
            (0, "0"),
            (1, "1"),
            (1023, "1023"),
            (1024, "1K"),
            (1025, "1.00K"),
            (1536, "1.50K"),
            (10239, "10.0K"),
            (10240, "10K"),
            (102_400 + 1, "100K"),
            (1_047_552, "1023K"),
            (1_048_575, "1024K"),
            (1_618_944, "1.54M"),
            (50_331_648, "48M"),
            (u64::MAX, "16.0E"),
        ] {
            assert_eq!(nicenum(number), text);
        }
        for (ns, text) in [(0, "0ns"), (999, "999ns"), (999_999, "999us"), (1 << 20, "1ms"), (137_438_953_471, "137s")]
        {
            assert_eq!(nicetime(ns), text);
        }
        assert_eq!((nicebytes(0), nicebytes(512), nicebytes(4096)), ("0B".into(), "512B".into(), "4K".into()));
    }
}
