//! Blocks of the files of a folder, drawn at random: each of as many bytes as a record, each with the same odds.
//!
//! ```text
//!   folder ─▶ names and sizes of all files ─▶ of all their blocks, so many at random ─▶ these are read, in random order
//! ```
//!
//! Only names and sizes are looked at of what is not drawn. Which blocks are drawn follows from the seed and the order in
//! which the folder tells its names.
//! Source of the reservoir: Vitter, "Random sampling with a reservoir", 1985, algorithm R.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::files::{FoundFiles, file_blocks, open_file, read_from, walk_files};

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
    /// Blocks that the files have; holes are none.
    pub blocks: u64,
    /// The files.
    pub found: FoundFiles,
}

impl FileSample {
    /// Draws up to `wanted` blocks of the files of a folder and all below it on the same file system; or of one file.
    /// Errors: the folder cannot be read.
    pub fn draw(folder: &Path, record_bytes: u64, wanted: usize, seed: u64) -> io::Result<FileSample> {
        FileSample::draw_and_show(folder, record_bytes, (wanted, seed), &mut |_| ())
    }

    /// The same, and shows each file on the way. Errors: the folder cannot be read.
    pub fn draw_and_show(
        folder: &Path,
        record_bytes: u64,
        (wanted, seed): (usize, u64),
        show: &mut dyn FnMut(&Metadata),
    ) -> io::Result<FileSample> {
        let mut sample = FileSample {
            places: Vec::new(),
            record_bytes,
            wanted,
            numbers: Numbers(seed),
            blocks: 0,
            found: FoundFiles::default(),
        };
        let mut found = FoundFiles::default();
        walk_files(folder, &mut found, &mut |found, path, about| {
            show(about);
            if let Err(error) = sample.add_file(path, about) {
                found.failed(path, &error);
            }
        })?;
        sample.found = found;
        sample.mix();
        Ok(sample)
    }

    fn add_file(&mut self, path: &Path, about: &Metadata) -> io::Result<()> {
        let (mut file, record_bytes) = (None, self.record_bytes);
        file_blocks(path, about, record_bytes, &mut |blocks, len| {
            for at in blocks {
                // once all have been seen that fit, each further one is drawn with the odds that keep all alike
                self.blocks += 1;
                let slot = match self.places.len() < self.wanted {
                    true => self.places.len() as u64,
                    false => self.numbers.below(self.blocks),
                };
                if slot >= self.wanted as u64 {
                    continue;
                }
                let file = file.get_or_insert_with(|| Rc::new(path.to_owned())).clone();
                let place = SampledPlace { file, offset: at * len, len: len as usize };
                match self.places.get_mut(slot as usize) {
                    Some(old) => *old = place,
                    None => self.places.push(place),
                }
            }
            Ok(())
        })
    }

    /// Puts the places in random order, so that the first ones are a sample, too.
    fn mix(&mut self) {
        for last in (1..self.places.len()).rev() {
            let other = self.numbers.below(last as u64 + 1) as usize;
            self.places.swap(last, other);
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
        match open_file(&place.file).and_then(|file| read_from(&file, place.offset, &mut bytes)) {
            Ok(_) => Some(bytes),
            Err(error) => {
                self.found.failed(&place.file, &error);
                None
            }
        }
    }
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
            assert_eq!((sample.found.files, sample.found.bytes, sample.blocks, sample.len()), (4, 44_996, 12, 3));
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
        assert_eq!((file.found.files, file.blocks), (1, 1));
    }

    #[test]
    fn what_has_gone_is_told() {
        let dir = folder();
        let mut sample = FileSample::draw(dir.path(), 4096, 100, 1).unwrap();
        std::fs::remove_file(dir.path().join("small")).unwrap();
        let read = (0..sample.len()).filter_map(|at| sample.read(at)).count();
        assert_eq!((read, sample.found.failures), (11, 1));
        assert!(sample.found.complaints[0].contains("small"), "{:?}", sample.found.complaints);
        assert!(FileSample::draw(&dir.path().join("no"), 4096, 1, 1).is_err());
    }
}
