//! Sizes, as they are given and as rates are shown, by the second and by the day; files by size.

use dsl::property::rules::parse_number;

/// Bytes of a mebibyte.
pub const MIB: f64 = (1 << 20) as f64;

/// Sizes that records may have, those beyond 1 MiB left out.
pub const RECORDS: [u64; 9] =
    [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
/// Seconds of a day.
pub const DAY_S: f64 = 86_400.0;

/// Files by size: how many are no longer than a record, and the bytes of them.
#[derive(Clone, Debug, Default)]
pub struct SizeClasses {
    /// Files, and the bytes of them.
    pub files: u64,
    pub bytes: f64,
    /// In the order of [`RECORDS`].
    pub within: [(u64, f64); RECORDS.len()],
}

impl SizeClasses {
    /// Counts a file.
    pub fn add(&mut self, size: u64) {
        self.files += 1;
        self.bytes += size as f64;
        for (record, (files, bytes)) in RECORDS.iter().zip(&mut self.within) {
            if size <= *record {
                *files += 1;
                *bytes += size as f64;
            }
        }
    }

    /// The part of the bytes that is in files no longer than a record of number `at`.
    pub fn part_within(&self, at: usize) -> f64 {
        self.within[at].1 / self.bytes.max(1.0)
    }
}

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
