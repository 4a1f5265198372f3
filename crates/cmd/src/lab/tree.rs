//! The tree of files that is copied, if the user gives none: text, tables, images that do not compress, and copies of some.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use base::next_mixed;

use super::bed::{CellStop, LabBed};
use super::loads::RatioData;

/// Files of a folder.
const FOLDER_FILES: usize = 16;
/// Words of which text is made.
const WORDS: [&str; 16] = [
    "pool", "disk", "mirror", "block", "cache", "snapshot", "checksum", "group", "of", "the", "a", "is", "and", "log",
    "with", "data",
];

/// Makes a tree of about so many bytes, the same each time. Errors: it cannot be written.
pub fn make(bed: &LabBed<'_>, folder: &Path, bytes: usize) -> Result<(), CellStop> {
    if folder.exists() {
        return Ok(());
    }
    let mut seed = 46;
    let (mut left, mut n) = (bytes, 0);
    let mut last = Vec::new();
    while left > 0 {
        bed.goes_on()?;
        let folder = folder.join(format!("{:03}", n / FOLDER_FILES));
        std::fs::create_dir_all(&folder)?;
        let len = left.min(64 << 10 << (next_mixed(&mut seed) % 6));
        // every fifth is a copy of the one before
        if n % 5 != 4 || last.is_empty() {
            last = content(n % 5, len, &mut seed);
        }
        File::create(folder.join(format!("{n:05}")))?.write_all(&last)?;
        left -= last.len().min(left);
        n += 1;
    }
    Ok(())
}

fn content(kind: usize, len: usize, seed: &mut u64) -> Vec<u8> {
    match kind {
        0 => {
            let mut text = Vec::with_capacity(len + 16);
            while text.len() < len {
                let draw = next_mixed(seed);
                text.extend_from_slice(WORDS[(draw % 16) as usize].as_bytes());
                text.push(if draw.is_multiple_of(97) { b'\n' } else { b' ' });
            }
            text.truncate(len);
            text
        }
        // numbers that grow, as measurements do
        1 => (0..len as u64 / 4).flat_map(|n| ((n * 3 + next_mixed(seed) % 64) as u32).to_le_bytes()).collect(),
        2 => RatioData::new(2.0, next_mixed(seed)).next(len).to_vec(),
        _ => RatioData::new(1.0, next_mixed(seed)).next(len).to_vec(),
    }
}
