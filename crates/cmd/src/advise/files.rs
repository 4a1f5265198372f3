//! The files of a folder, and their blocks as a file system of records would have them.
//!
//! Links are not followed, as what they name may be elsewhere, or be here already; a file with several names counts once;
//! other file systems are not entered. What vanishes or cannot be read is counted, and the walk goes on. Only the names of
//! folders that are still to be read, and numbers of files with several names, are in memory.

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::output;

/// The smallest block of a file, in bytes; also what `st_blocks` counts.
const BLOCK_BYTES_MIN: u64 = 512;
/// Complaints that are kept.
const COMPLAINTS_MAX: usize = 10;
/// Files with several names that are remembered; later ones may count twice.
const LINKED_MAX: usize = 1 << 20;

/// What is in a folder.
#[derive(Clone, Debug, Default)]
pub struct FoundFiles {
    /// Regular files.
    pub files: u64,
    /// Bytes that they have.
    pub bytes: u64,
    /// Folders.
    pub folders: u64,
    /// Files and folders that could not be read.
    pub failures: u64,
    /// Some of these, with why.
    pub complaints: Vec<String>,
}

impl FoundFiles {
    /// Says why some could not be read.
    pub fn complain(&self) {
        self.complaints.iter().for_each(|complaint| output::complain("advise", complaint));
    }

    /// Notes what could not be read.
    pub fn failed(&mut self, path: &Path, error: &io::Error) {
        self.failures += 1;
        if self.complaints.len() < COMPLAINTS_MAX {
            self.complaints.push(format!("{}: {error}", path.display()));
        }
    }
}

/// Is shown a file.
pub type FileVisit<'a> = dyn FnMut(&mut FoundFiles, &Path, &Metadata) + 'a;

/// Shows each file of a folder and of all below it on the same file system; or the one file. Errors: the folder cannot be
/// read.
pub fn walk_files(folder: &Path, found: &mut FoundFiles, visit: &mut FileVisit<'_>) -> io::Result<()> {
    let about = std::fs::metadata(folder)?;
    if !about.is_dir() {
        if !about.is_file() {
            return Err(io::Error::other("neither a folder nor a file"));
        }
        shown(folder, &about, found, visit);
        return Ok(());
    }
    std::fs::read_dir(folder)?;
    let (device, mut waiting, mut linked) = (about.dev(), vec![folder.to_owned()], HashSet::new());
    while let Some(folder) = waiting.pop() {
        found.folders += 1;
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) => {
                found.failed(&folder, &error);
                continue;
            }
        };
        for entry in entries {
            match entry.and_then(|entry| Ok((entry.path(), entry.metadata()?))) {
                Ok((path, about)) if about.is_dir() && about.dev() == device => waiting.push(path),
                Ok((path, about)) if about.is_file() && is_first(&about, &mut linked) => {
                    shown(&path, &about, found, visit);
                }
                Ok(_) => {}
                Err(error) => found.failed(&folder, &error),
            }
        }
    }
    Ok(())
}

fn shown(path: &Path, about: &Metadata, found: &mut FoundFiles, visit: &mut FileVisit<'_>) {
    found.files += 1;
    found.bytes = found.bytes.saturating_add(about.len());
    visit(found, path, about);
}

/// Whether this is the first name of a file that is met.
fn is_first(about: &Metadata, linked: &mut HashSet<u64>) -> bool {
    about.nlink() < 2 || linked.len() >= LINKED_MAX || linked.insert(about.ino())
}

/// Bytes of the blocks of a file: of one that is shorter than a record, as many as it has.
pub fn block_bytes(size: u64, record_bytes: u64) -> u64 {
    record_bytes.min(size.max(1).next_multiple_of(BLOCK_BYTES_MIN))
}

/// Shows runs of numbers of blocks that are not holes, with the bytes of a block. Errors: the file cannot be read; those
/// of `show`.
pub fn file_blocks(
    path: &Path,
    about: &Metadata,
    record_bytes: u64,
    show: &mut dyn FnMut(Range<u64>, u64) -> io::Result<()>,
) -> io::Result<()> {
    let size = about.len();
    if size == 0 {
        return Ok(());
    }
    let block = block_bytes(size, record_bytes);
    if about.blocks().saturating_mul(BLOCK_BYTES_MIN) >= size {
        return show(0..size.div_ceil(block), block);
    }
    let (file, mut from, mut next) = (open_file(path)?, 0, 0);
    while let Some(run) = next_run(&file, from, size)? {
        // a block that has data in two runs is shown once
        let blocks = (run.start / block).max(next)..run.end.div_ceil(block);
        (from, next) = (run.end, blocks.end.max(next));
        if !blocks.is_empty() {
            show(blocks, block)?;
        }
    }
    Ok(())
}

/// The next bytes of a file that are no hole, from `from` on and below `size`.
fn next_run(file: &File, from: u64, size: u64) -> io::Result<Option<Range<u64>>> {
    if from >= size {
        return Ok(None);
    }
    let start = match seek(file, SeekFrom::Data(from)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // a file system that knows nothing of holes
        Err(Errno::INVAL) => return Ok(Some(from..size)),
        Err(error) => return Err(error.into()),
    };
    let end = seek(file, SeekFrom::Hole(start)).unwrap_or(size).min(size);
    Ok((start < end).then_some(start..end))
}

/// Opens a file for reading, and leaves its time of access as it is where that is allowed. Errors: those of opening; it is
/// a link or a folder by now.
pub fn open_file(path: &Path) -> io::Result<File> {
    // it may have become a link or a named pipe meanwhile
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOATIME;
    let open = |flags| File::options().read(true).custom_flags(flags).open(path);
    // only its owner may leave the time of access as it is
    let file = open(flags).or_else(|_| open(flags & !libc::O_NOATIME))?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("no file any more")),
    }
}

/// Fills `bytes` from `offset` on, as far as the file goes, and tells how many those are. Errors: those of reading.
pub fn read_from(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// A folder of the temporary one with these files, of bytes that do not compress.
#[cfg(test)]
pub fn made_folder(files: &[(&str, &[u8])]) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    let path = dir.path().to_owned();
    (dir, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(path: &Path, record: u64) -> Vec<(Range<u64>, u64)> {
        let mut runs = Vec::new();
        let about = std::fs::metadata(path).unwrap();
        file_blocks(path, &about, record, &mut |blocks, len| {
            runs.push((blocks, len));
            Ok(())
        })
        .unwrap();
        runs
    }

    #[test]
    fn a_file_of_many_names_counts_once() {
        let (_dir, path) = made_folder(&[("a/one", &[1; 5000]), ("b\n\x1b[2J", &[2; 700]), ("none", &[])]);
        std::fs::hard_link(path.join("a/one"), path.join("a/two")).unwrap();
        std::fs::hard_link(path.join("a/one"), path.join("three")).unwrap();
        std::os::unix::fs::symlink(&path, path.join("a/loop")).unwrap();
        let mut found = FoundFiles::default();
        walk_files(&path, &mut found, &mut |_, _, _| {}).unwrap();
        assert_eq!((found.files, found.bytes, found.folders, found.failures), (3, 5700, 2, 0));
        assert!(walk_files(Path::new("/dev/null"), &mut found, &mut |_, _, _| {}).is_err());
        assert!(walk_files(&path.join("no"), &mut found, &mut |_, _, _| {}).is_err());
    }

    #[test]
    fn holes_are_no_blocks() {
        let (_dir, path) = made_folder(&[("short", &[1; 700]), ("long", &[1; 9000])]);
        assert_eq!(runs(&path.join("short"), 4096), [(0..1, 1024)]);
        assert_eq!(runs(&path.join("long"), 4096), [(0..3, 4096)]);
        // so large that nobody could go through it block by block
        let sparse = path.join("sparse");
        let file = File::create(&sparse).unwrap();
        file.set_len(1 << 42).unwrap();
        file.write_all_at(&[3; 10], 1 << 41).unwrap();
        file.write_all_at(&[3; 4096], 1 << 20).unwrap();
        assert_eq!(runs(&sparse, 128 << 10), [(8..9, 128 << 10), (1 << 24..(1 << 24) + 1, 128 << 10)]);
    }
}
