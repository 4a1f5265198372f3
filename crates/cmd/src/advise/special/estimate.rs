//! What the metadata of files on another file system would be, if they were in a pool.
//!
//! | what | bytes |
//! |---|---|
//! | a dnode for each file and folder | 512, which compress to [`DNODE_PACKED`] of that |
//! | pointers to the records of a file that has several, 1,024 in a block | 128 each, [`POINTER_PACKED`] of that, whole sectors |
//! | entries of a folder | [`ENTRY_BYTES`] each, whole sectors |
//!
//! Each with two copies. What the pool has for itself is left out.

use std::io;
use std::path::Path;

use codec::compress::Compress;

use super::{MetadataKind, SpecialAnswer};
use crate::advise::files::FoundFiles;
use crate::advise::sample::FileSample;

/// What dnodes compress to, as a part of their bytes: measured, docs/ADVICE.md.
const DNODE_PACKED: f64 = 0.27;
/// What blocks of pointers compress to.
const POINTER_PACKED: f64 = 0.4;
/// Bytes of an entry of a folder with its share of free room.
const ENTRY_BYTES: f64 = 100.0;
const DNODE_BYTES: f64 = 512.0;
const POINTER_BYTES: f64 = 128.0;
/// Pointers, and dnodes, in a block.
const POINTERS: u64 = 1024;
const DNODES: f64 = 32.0;
/// Copies of metadata.
const COPIES: f64 = 2.0;
/// Blocks that are drawn.
const BLOCKS: usize = 2000;

impl SpecialAnswer {
    /// Estimates it from the files of a folder. Errors: the folder cannot be read.
    pub fn of_folder(folder: &Path, record_bytes: u64, ashift: u32) -> io::Result<(SpecialAnswer, FoundFiles)> {
        let sector = (1u64 << ashift) as f64;
        let mut answer = SpecialAnswer::new(ashift);
        answer.is_estimate = true;
        let whole = |bytes: f64| (bytes / sector).ceil() * sector;
        let mut sample = FileSample::draw_and_show(folder, record_bytes, (BLOCKS, 1), &mut |about| {
            let records = about.len().div_ceil(record_bytes);
            if records > 1 {
                let blocks = records.div_ceil(POINTERS) as f64;
                let bytes = blocks * whole(records as f64 / blocks * POINTER_BYTES * POINTER_PACKED);
                answer.add_metadata(MetadataKind::Indirect, blocks, bytes, COPIES);
            }
        })?;
        let (folders, objects) = (sample.found.folders as f64, (sample.found.files + sample.found.folders) as f64);
        let dnodes = whole(objects * DNODE_BYTES * DNODE_PACKED);
        answer.add_metadata(MetadataKind::Dnodes, (objects / DNODES).ceil(), dnodes, COPIES);
        let entries = whole(objects / folders.max(1.0) * ENTRY_BYTES);
        answer.add_metadata(MetadataKind::Directories, folders, folders * entries, COPIES);
        let (mut read, mut packed) = (0, Vec::new());
        for at in 0..sample.len() {
            let Some(block) = sample.read(at) else { continue };
            read += 1;
            let bytes = zio::stored_bytes(&block, Compress::Lz4, 0, 1 << ashift) as u64;
            if bytes > 0 {
                packed.push(bytes);
            }
        }
        let scale = sample.blocks as f64 / f64::from(read.max(1));
        packed.into_iter().for_each(|bytes| answer.add_data(scale, bytes, scale * bytes as f64));
        answer.failures = sample.found.failures;
        Ok((answer, sample.found))
    }
}
