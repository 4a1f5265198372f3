//! The disks that a pool is to be made of.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use clap::ValueEnum;
use device::{Device, FileDevice, OpenMode};
use dsl::property::rules::parse_number;
use vdev::geometry::DEVICE_BYTES_MIN;

use crate::advise::sizes::MIB;

/// Most disks of a pool that are looked at.
const DISKS_MAX: usize = 255;
/// The largest disk, in bytes.
const BYTES_MAX: u64 = 1 << 50;

/// What is known of one disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskModel {
    /// Random requests a second.
    pub iops: f64,
    /// Sequential bytes a second.
    pub rate: f64,
    /// Part of such disks that fail in a year.
    pub failures_a_year: f64,
    /// Errors that cannot be corrected, for each byte that is read, as makers promise.
    pub errors_a_byte: f64,
}

/// Kinds of disks, by what a typical one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DiskKind {
    Hdd7200,
    Hdd10k,
    Hdd15k,
    Ssd,
    Nvme,
}

impl DiskKind {
    pub fn name(self) -> &'static str {
        match self {
            DiskKind::Hdd7200 => "hdd7200",
            DiskKind::Hdd10k => "hdd10k",
            DiskKind::Hdd15k => "hdd15k",
            DiskKind::Ssd => "ssd",
            DiskKind::Nvme => "nvme",
        }
    }

    /// A typical one.
    pub fn disk(self) -> DiskModel {
        let (iops, rate, failures_a_year, errors_a_bit) = match self {
            DiskKind::Hdd7200 => (80.0, 170.0, 0.015, 1e-15),
            DiskKind::Hdd10k => (140.0, 160.0, 0.015, 1e-16),
            DiskKind::Hdd15k => (190.0, 200.0, 0.015, 1e-16),
            DiskKind::Ssd => (40_000.0, 450.0, 0.01, 1e-17),
            DiskKind::Nvme => (300_000.0, 2500.0, 0.01, 1e-17),
        };
        DiskModel { iops, rate: rate * MIB, failures_a_year, errors_a_byte: errors_a_bit * 8.0 }
    }
}

/// The disks that were named.
#[derive(Debug)]
pub struct GivenDisks {
    /// Their sizes in bytes, the largest first, so that those of a vdev are alike.
    pub sizes: Vec<u64>,
    pub kind: DiskKind,
}

/// What words stand for. Errors: which word stands for no disk.
pub fn parse(words: &[String]) -> Result<GivenDisks, String> {
    let mut sizes = Vec::new();
    let mut turning = Vec::new();
    for word in words {
        let (count, size) = if word.contains('/') {
            let (size, turns) = of_path(word)?;
            turning.push(turns);
            (1, size)
        } else {
            of_size(word).ok_or_else(|| format!("'{word}' is no size such as 4TB, 12x4TB or 8x16T, and no path"))?
        };
        if !(DEVICE_BYTES_MIN..=BYTES_MAX).contains(&size) {
            return Err(format!("'{word}': disks have 64 MiB at least, and 1 PiB at most"));
        }
        if count == 0 || sizes.len() + count > DISKS_MAX {
            return Err(format!("'{word}': a pool of 1 to {DISKS_MAX} disks can be looked at"));
        }
        sizes.extend(std::iter::repeat_n(size, count));
    }
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let is_solid = !turning.is_empty() && turning.iter().all(|turns| *turns == Some(false));
    Ok(GivenDisks { sizes, kind: if is_solid { DiskKind::Ssd } else { DiskKind::Hdd7200 } })
}

/// Size of what a path names, and whether it is a disk that turns, if that is known.
fn of_path(word: &str) -> Result<(u64, Option<bool>), String> {
    let about = std::fs::metadata(word).map_err(|error| format!("'{word}': {error}"))?;
    if about.is_file() {
        return Ok((about.len(), None));
    }
    if !about.file_type().is_block_device() {
        return Err(format!("'{word}' is neither a disk nor a file"));
    }
    let opened = FileDevice::open(word, OpenMode::ReadOnlyCached).map_err(|error| error.what().to_owned())?;
    let number = about.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let at = format!("/sys/dev/block/{major}:{minor}");
    let of = |folder: &str| std::fs::read_to_string(Path::new(&at).join(folder).join("queue/rotational")).ok();
    // a partition has that of its disk, one folder above
    let turns = of("").or_else(|| of("..")).map(|text| text.trim() == "1");
    Ok((opened.size(), turns))
}

/// How many disks of which size.
fn of_size(word: &str) -> Option<(usize, u64)> {
    let (count, size) = match word.split_once(['x', 'X']) {
        Some((count, size)) => (count.parse().ok()?, size),
        None => (1, word),
    };
    // makers count by thousands: 4TB, but not 4TiB or 4T
    let upper = size.to_ascii_uppercase();
    let decimal =
        upper.strip_suffix('B').filter(|rest| !rest.ends_with('I') && rest.ends_with(|c: char| c.is_alphabetic()));
    let bytes = match decimal {
        Some(rest) => {
            let power = "KMGTP".find(rest.chars().last()?)? as i32 + 1;
            let number: f64 = rest[..rest.len() - 1].parse().ok()?;
            let bytes = number * 1000f64.powi(power);
            (number > 0.0 && bytes < u64::MAX as f64).then_some(bytes as u64)?
        }
        None => parse_number(upper.strip_suffix("IB").unwrap_or(&upper)).ok()?,
    };
    Some((count, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(of_size("12x4TB"), Some((12, 4_000_000_000_000)));
        assert_eq!(of_size("4T"), Some((1, 4 << 40)));
        assert_eq!(of_size("3X1.5TiB"), Some((3, 3 << 39)));
        assert_eq!(of_size("250gb"), Some((1, 250_000_000_000)));
        for wrong in ["", "x", "4", "TB", "-1TB", "x4TB", "4TBB", "1e400TB", "3x", "4Q"] {
            assert!(of_size(wrong).is_none_or(|(_, size)| size < DEVICE_BYTES_MIN), "{wrong}");
        }
    }

    #[test]
    fn disks_are_named_and_bounded() {
        let parse = |words: &[&str]| super::parse(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
        assert_eq!(parse(&["1T", "2x2T"]).unwrap().sizes, [2 << 40, 2 << 40, 1 << 40]);
        for wrong in [&["/dev/null"][..], &["/none/x"], &["/"], &["1M"], &["256x1T"], &["0x1T"], &["200x1T", "100x1T"]]
        {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains(wrong.last().unwrap()), "{error}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 30).unwrap();
        assert_eq!(parse(&[file.path().to_str().unwrap()]).unwrap().sizes, [1 << 30]);
    }
}
