//! Events of pools whose processes have ended: `zpool events` tells of an export, too. They are in the run folder, a file
//! a pool's name, a line of hexadecimal digits an event.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::SystemTime;

use base::Result;

use crate::kstat::replace;
use crate::rundir::{RunDir, RunDirClaim};

/// Ends a file name with events.
const EXTENSION: &str = "events";
/// Pools of which events are kept.
const POOLS_MAX: usize = 64;
/// Bytes that are read of a pool's.
const BYTES_MAX: u64 = 64 << 20;

impl RunDirClaim {
    /// Keeps the events of a pool whose process ends, behind those that are kept of its name: `most` in all.
    pub fn keep_events(&self, new: &[String], most: usize) -> Result<()> {
        let path = self.place_of(EXTENSION);
        let mut lines = read_lines(&path);
        lines.extend_from_slice(new);
        let skipped = lines.len().saturating_sub(most);
        replace(&path, &lines[skipped..].iter().flat_map(|line| [line, "\n"]).collect::<String>())?;
        let mut files = self.dir().events_files();
        files.sort_by_key(|path| path.metadata().and_then(|there| there.modified()).unwrap_or(SystemTime::UNIX_EPOCH));
        let too_many = files.len().saturating_sub(POOLS_MAX);
        files[..too_many].iter().for_each(|path| drop(std::fs::remove_file(path)));
        Ok(())
    }
}

impl RunDir {
    /// All that are kept, those of a pool in their order.
    pub fn ended_events(&self) -> Vec<String> {
        self.events_files().iter().flat_map(read_lines).collect()
    }

    /// Keeps them no more. How many there were.
    pub fn forget_ended_events(&self) -> usize {
        let forget = |path: PathBuf| {
            let count = read_lines(&path).len();
            std::fs::remove_file(path).map_or(0, |()| count)
        };
        self.events_files().into_iter().map(forget).sum()
    }

    fn events_files(&self) -> Vec<PathBuf> {
        let entries = self.path().read_dir().into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == EXTENSION)).collect()
    }
}

fn read_lines(path: &PathBuf) -> Vec<String> {
    let mut text = String::new();
    let opened = File::options().read(true).custom_flags(libc::O_NOFOLLOW).open(path);
    let read = opened.and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text));
    // nobody wants them more than a pool
    if read.is_err() { Vec::new() } else { text.lines().map(str::to_owned).collect() }
}
