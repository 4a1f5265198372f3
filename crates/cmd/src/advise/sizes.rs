//! Sizes, as they are given and as rates are shown, by the second and by the day.

use dsl::property::rules::parse_number;

/// Bytes of a mebibyte.
pub const MIB: f64 = (1 << 20) as f64;

/// Seconds of a day.
pub const DAY_S: f64 = 86_400.0;

/// The size of a block of a file or a volume. Errors: the words are no such size.
pub fn block_size(text: &str) -> Result<u64, String> {
    let parsed = parse_number(text).ok().filter(|size| size.is_power_of_two() && (512..=16 << 20).contains(size));
    parsed.ok_or_else(|| "not a power of two from 512 to 16M".to_owned())
}

/// Any number of bytes but 0. Errors: the words are no such number.
pub fn bytes(text: &str) -> Result<u64, String> {
    let parsed = parse_number(text).ok().filter(|bytes| (1..1 << 60).contains(bytes));
    parsed.ok_or_else(|| "not a number of bytes, as 16G".to_owned())
}
