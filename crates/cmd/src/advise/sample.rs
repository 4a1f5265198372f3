//! Blocks of the files of a folder, drawn at random: each of as many bytes as a record, each with the same odds.
//!
//! ```text
//!   folder ─▶ names and sizes of all files ─▶ of all their blocks, so many at random ─▶ these are read, in random order
//! ```
//!
//! Only names and sizes are looked at of what is not drawn. Which blocks are drawn follows from the seed and the order in
//! which the folder tells its names.
//! Source of the reservoir: Vitter, "Random sampling with a reservoir", 1985, algorithm R.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The smallest block of a file, in bytes.
const BLOCK_BYTES_MIN: u64 = 512;
/// Complaints that are kept.
const COMPLAINTS_MAX: usize = 10;

/// Numbers that follow from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, count: u64) -> u64 {
        // the high bits of the product: no number is more likely than others by more than 2^-64 of it
        let number = base::next_mixed(&mut self.0);
        ((u128::from(number) * u128::from(count)) >> 64) as u64
    }
}

/// A block that was drawn.
#[derive(Clone, Debug)]
struct SampledPlace {
    file: Rc<PathBuf>,
    offset: u64,
    len: usize,
}

/// What is in a folder, and the blocks that were drawn of it.
pub struct FileSample {
    places: Vec<SampledPlace>,
    record_bytes: u64,
    wanted: usize,
    numbers: Numbers,
    /// Regular files.
    pub files: u64,
    /// Bytes that they have.
    pub bytes: u64,
    /// Blocks that they have.
    pub blocks: u64,
    /// Files and folders that could not be read.
    pub failures: u64,
    /// Some of these, with why.
    pub complaints: Vec<String>,
}

impl FileSample {
    /// Draws up to `wanted` blocks of the files of a folder and all below it on the same file system; or of one file.
    /// Errors: the folder cannot be read.
    pub fn draw(folder: &Path, record_bytes: u64, wanted: usize, seed: u64) -> io::Result<FileSample> {
        let numbers = Numbers(seed);
        let (files, bytes, blocks, failures) = (0, 0, 0, 0);
        let mut sample = FileSample {
            places: Vec::new(),
            record_bytes,
            wanted,
            numbers,
            files,
            bytes,
            blocks,
            failures,
            complaints: Vec::new(),
        };
        let about = std::fs::metadata(folder)?;
        if about.is_file() {
            sample.add_file(folder, &about);
        } else {
            std::fs::read_dir(folder)?;
            sample.walk(folder, about.dev());
        }
        sample.mix();
        Ok(sample)
    }

    fn walk(&mut self, folder: &Path, device: u64) {
        let mut waiting = vec![folder.to_owned()];
        while let Some(folder) = waiting.pop() {
            let entries = match std::fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) => {
                    self.failed(&folder, &error);
                    continue;
                }
            };
            for entry in entries {
                // links are not followed, as what they name may be elsewhere, or be here already
                let looked = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)));
                match looked {
                    Ok((path, about)) if about.is_dir() && about.dev() == device => waiting.push(path),
                    Ok((path, about)) if about.is_file() => self.add_file(&path, &about),
                    Ok(_) => {}
                    Err(error) => self.failed(&folder, &error),
                }
            }
        }
    }

    fn add_file(&mut self, path: &Path, about: &Metadata) {
        let size = about.len();
        self.files += 1;
        self.bytes = self.bytes.saturating_add(size);
        if size == 0 {
            return;
        }
        let block = self.record_bytes.min(size.next_multiple_of(BLOCK_BYTES_MIN));
        let blocks = size.div_ceil(block);
        let mut file = None;
        for at in 0..blocks {
            // once all have been seen that fit, each further one is drawn with the odds that keep all alike
            let seen = self.blocks + at + 1;
            let slot = match self.places.len() < self.wanted {
                true => self.places.len() as u64,
                false => self.numbers.below(seen),
            };
            if slot >= self.wanted as u64 {
                continue;
            }
            let file = file.get_or_insert_with(|| Rc::new(path.to_owned())).clone();
            let place = SampledPlace { file, offset: at * block, len: block as usize };
            match self.places.get_mut(slot as usize) {
                Some(old) => *old = place,
                None => self.places.push(place),
            }
        }
        self.blocks += blocks;
    }

    /// Puts the places in random order, so that the first ones are a sample, too.
    fn mix(&mut self) {
        for last in (1..self.places.len()).rev() {
            let other = self.numbers.below(last as u64 + 1) as usize;
            self.places.swap(last, other);
        }
    }

    fn failed(&mut self, path: &Path, error: &io::Error) {
        self.failures += 1;
        if self.complaints.len() < COMPLAINTS_MAX {
            self.complaints.push(format!("{}: {error}", path.display()));
        }
    }

    /// How many blocks were drawn.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Reads one of them; zeros are behind the end of a file. `None`, and a complaint, if it cannot be read.
    pub fn read(&mut self, at: usize) -> Option<Vec<u8>> {
        let place = self.places.get(at)?.clone();
        let mut bytes = vec![0; place.len];
        match read_at(&place, &mut bytes) {
            Ok(()) => Some(bytes),
            Err(error) => {
                self.failed(&place.file, &error);
                None
            }
        }
    }
}

fn read_at(place: &SampledPlace, bytes: &mut [u8]) -> io::Result<()> {
    // it may have become a link or a named pipe meanwhile
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOATIME;
    let open = |flags| File::options().read(true).custom_flags(flags).open(&*place.file);
    // only its owner may leave the time of access as it is
    let file = open(flags).or_else(|_| open(flags & !libc::O_NOATIME))?;
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], place.offset + done as u64) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        // 10 blocks, 1 block, 1 block of 1,024 bytes, none
        for (name, len) in [("a/b/large", 40_000u64), ("a/one", 4096), ("small", 900), ("none", 0)] {
            std::fs::write(dir.path().join(name), vec![1; len as usize]).unwrap();
        }
        std::os::unix::fs::symlink("/etc", dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("a/loop")).unwrap();
        dir
    }

    #[test]
    fn all_blocks_have_the_same_odds() {
        let dir = folder();
        let mut counts = std::collections::HashMap::new();
        for seed in 0..3000 {
            let sample = FileSample::draw(dir.path(), 4096, 3, seed).unwrap();
            assert_eq!((sample.files, sample.bytes, sample.blocks, sample.len()), (4, 44_996, 12, 3));
            for place in &sample.places {
                *counts.entry((place.file.file_name().unwrap().to_owned(), place.offset)).or_insert(0u64) += 1;
            }
        }
        // 3 of 12, 3,000 times: 750 each, and a standard deviation of 24
        assert_eq!(counts.len(), 12);
        assert!(counts.values().all(|count| (630..870).contains(count)), "{counts:?}");
    }

    #[test]
    fn blocks_are_read_whole() {
        let dir = folder();
        let mut sample = FileSample::draw(dir.path(), 4096, 100, 1).unwrap();
        let (mut sizes, mut ones) = (Vec::new(), 0);
        for at in 0..sample.len() {
            let bytes = sample.read(at).unwrap();
            ones += bytes.iter().filter(|byte| **byte == 1).count();
            sizes.push(bytes.len());
        }
        sizes.sort_unstable();
        assert_eq!((sizes[0], sizes[1], sizes.len(), ones), (1024, 4096, 12, 44_996));
        let file = FileSample::draw(&dir.path().join("a/one"), 1 << 20, 9, 1).unwrap();
        assert_eq!((file.files, file.blocks), (1, 1));
    }

    #[test]
    fn what_has_gone_is_told() {
        let dir = folder();
        let mut sample = FileSample::draw(dir.path(), 4096, 100, 1).unwrap();
        std::fs::remove_file(dir.path().join("small")).unwrap();
        let read = (0..sample.len()).filter_map(|at| sample.read(at)).count();
        assert_eq!((read, sample.failures), (11, 1));
        assert!(sample.complaints[0].contains("small"), "{:?}", sample.complaints);
        assert!(FileSample::draw(&dir.path().join("no"), 4096, 1, 1).is_err());
    }
}
