//! Pieces of the files of a folder, drawn at random by their bytes.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::measure::{CHUNK_BYTES, RecordPlan};
use crate::advise::files::{FoundFiles, file_blocks, open_file, read_from, walk_files};
use crate::advise::priority::PrioritySample;
use crate::advise::sizes::SizeClasses;

/// A piece that was drawn.
struct FileChunk {
    file: Rc<PathBuf>,
    offset: u64,
    len: usize,
    is_whole: bool,
}

/// What is in a folder.
pub struct FileChunks {
    sample: PrioritySample<FileChunk>,
    /// Bytes of files, holes left out.
    pub bytes: u64,
    pub sizes: SizeClasses,
}

impl FileChunks {
    /// Draws pieces of all files of a folder. Errors: the folder cannot be read.
    pub fn of(folder: &Path, plan: &RecordPlan, found: &mut FoundFiles) -> io::Result<FileChunks> {
        let sample = PrioritySample::new(plan.pieces, plan.seed);
        let mut chunks = FileChunks { sample, bytes: 0, sizes: SizeClasses::default() };
        walk_files(folder, found, &mut |found, path, about| {
            if let Err(error) = chunks.add(path, about) {
                found.failed(path, &error);
            }
        })?;
        Ok(chunks)
    }

    fn add(&mut self, path: &Path, about: &Metadata) -> io::Result<()> {
        let size = about.len();
        self.sizes.add(size);
        let mut file = None;
        file_blocks(path, about, CHUNK_BYTES, &mut |run, block| {
            for at in run {
                let offset = at * block;
                let len = size.saturating_sub(offset).min(block);
                self.bytes = self.bytes.saturating_add(len);
                self.sample.add(len as f64, || {
                    let file = file.get_or_insert_with(|| Rc::new(path.to_owned())).clone();
                    FileChunk { file, offset, len: len as usize, is_whole: size < CHUNK_BYTES }
                });
            }
            Ok(())
        })
    }

    /// Reads what was drawn, and shows it with its weight and whether it is a whole file.
    pub fn read(self, found: &mut FoundFiles, show: &mut dyn FnMut(f64, &[u8], bool)) {
        let mut buffer = vec![0; CHUNK_BYTES as usize];
        for (weight, chunk) in self.sample.into_things() {
            let piece = &mut buffer[..chunk.len];
            match open_file(&chunk.file).and_then(|file| read_from(&file, chunk.offset, piece)) {
                Ok(len) => show(weight, &piece[..len], chunk.is_whole),
                Err(error) => found.failed(&chunk.file, &error),
            }
        }
    }
}
