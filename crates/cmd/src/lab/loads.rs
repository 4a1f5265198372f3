//! What is done on file systems and devices: files written, rewritten and read one after the other, random reads, small files.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use base::{AlignedBuf, Env};

use super::bed::{CellStop, LabBed};
use super::plan::CellRun;
use crate::advise::sizes::MIB;
use crate::bench::measure::measure;
use crate::bench::placed::{PIECE, PlacedBytes};
use crate::bench::random::RandomOrder;
use crate::tools;

/// Bytes of a request of sequential loads.
const REQUEST_BYTES: usize = 1 << 20;

/// Of the order of random reads of a cold file.
const SEEK_SEED: u64 = 46;

/// Bytes that a good compression makes smaller by a given ratio, and of which no two blocks are the same.
pub struct RatioData {
    bytes: PlacedBytes,
    next: u64,
}

impl RatioData {
    /// A ratio of 1.0 does not compress.
    pub fn new(ratio: f64, seed: u64) -> RatioData {
        RatioData { bytes: PlacedBytes::new(seed, ratio), next: 0 }
    }

    /// The next so many bytes.
    pub fn next(&mut self, len: usize) -> AlignedBuf {
        let mut bytes = AlignedBuf::zeroed(len);
        self.bytes.fill(0, self.next, &mut bytes);
        self.next += len as u64;
        bytes
    }
}

/// The file of sequential loads.
fn big_file(bed: &LabBed<'_>) -> PathBuf {
    bed.path().join("big")
}

/// Writes a file of new bytes and flushes it: MiB a second, and the processor seconds of the pool's process.
pub fn write_file(bed: &LabBed<'_>, bytes: usize, ratio: f64) -> Result<CellRun, CellStop> {
    let path = big_file(bed);
    // what was there is not freed while it is measured
    if path.exists() {
        std::fs::remove_file(&path)?;
        bed.sync()?;
    }
    timed(bed, bytes, || fill_file(bed, &path, bytes, ratio))
}

fn fill_file(bed: &LabBed<'_>, path: &Path, bytes: usize, ratio: f64) -> Result<(), CellStop> {
    let mut data = RatioData::new(ratio, Env::real().random());
    let mut file = File::create(path)?;
    for _ in 0..bytes / REQUEST_BYTES {
        bed.goes_on()?;
        file.write_all(&data.next(REQUEST_BYTES))?;
    }
    Ok(file.sync_all()?)
}

/// The file is there, and nothing of it is cached: the cell that writes it may have been finished by a lab that was killed.
fn cold_file(bed: &LabBed<'_>, bytes: usize, ratio: f64) -> Result<PathBuf, CellStop> {
    let path = big_file(bed);
    if !std::fs::metadata(&path).is_ok_and(|found| found.len() == bytes as u64) {
        fill_file(bed, &path, bytes, ratio)?;
    }
    bed.cool()?;
    Ok(path)
}

/// Reads each request of the file, changes it, and writes it back, as bonnie++'s rewriting does.
pub fn rewrite_file(bed: &LabBed<'_>, bytes: usize, ratio: f64) -> Result<CellRun, CellStop> {
    let file = File::options().read(true).write(true).open(cold_file(bed, bytes, ratio)?)?;
    timed(bed, bytes, || {
        let mut buf = vec![0; REQUEST_BYTES];
        for at in (0..bytes as u64).step_by(REQUEST_BYTES) {
            bed.goes_on()?;
            file.read_exact_at(&mut buf, at)?;
            buf.iter_mut().step_by(PIECE as usize).for_each(|byte| *byte = byte.wrapping_add(1));
            file.write_all_at(&buf, at)?;
        }
        Ok(file.sync_all()?)
    })
}

/// Reads the file after everything was forgotten.
pub fn read_file(bed: &LabBed<'_>, bytes: usize, ratio: f64) -> Result<CellRun, CellStop> {
    let path = cold_file(bed, bytes, ratio)?;
    timed(bed, bytes, || {
        let mut file = File::open(&path)?;
        let mut buf = vec![0; REQUEST_BYTES];
        for _ in 0..bytes / REQUEST_BYTES {
            bed.goes_on()?;
            file.read_exact(&mut buf)?;
        }
        Ok(())
    })
}

/// Random reads of the file for some seconds after everything was forgotten, as [`seek_file`] does.
pub fn seek_cold_file(bed: &LabBed<'_>, bytes: usize, ratio: f64, seconds: f64) -> Result<CellRun, CellStop> {
    cold_file(bed, bytes, ratio)?;
    seek_file(bed, bytes, seconds, SEEK_SEED).map(CellRun::of)
}

/// Random reads of 8 KiB of the file for some seconds, by three threads: reads a second. The same seed gives the same order,
/// so that runs and labs agree.
pub fn seek_file(bed: &LabBed<'_>, bytes: usize, seconds: f64, seed: u64) -> Result<f64, CellStop> {
    const SIZE: usize = 8 << 10;
    let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(big_file(bed))?;
    let order = RandomOrder::new((bytes / SIZE) as u64, seed);
    let hands = (0..3).map(|_| AlignedBuf::zeroed(SIZE)).collect();
    let measured = measure(SIZE as u64, hands, bed.pace(seconds), |buf, _| {
        Ok(file.read_exact_at(buf, order.take() * SIZE as u64)?)
    });
    let measured = measured.map_err(|e| e.to_string())?.ok_or(CellStop::Interrupted)?;
    Ok(measured.rate())
}

/// Makes, then finds, then removes so many small files: of each, how many a second; the value is that of making.
pub fn small_files(bed: &LabBed<'_>, count: usize) -> Result<CellRun, CellStop> {
    let folder = bed.path().join("small");
    std::fs::create_dir(&folder)?;
    let paths: Vec<PathBuf> =
        (0..count).map(|n| folder.join(format!("{:08x}", n * 2_654_435_761 % (1 << 32)))).collect();
    let rate = |work: &dyn Fn(&Path) -> std::io::Result<()>| -> Result<f64, CellStop> {
        let began = Instant::now();
        for path in &paths {
            bed.goes_on()?;
            work(path)?;
        }
        Ok(count as f64 / began.elapsed().as_secs_f64())
    };
    let made = rate(&|path| File::create_new(path).map(drop))?;
    let found = rate(&|path| std::fs::metadata(path).map(drop))?;
    let removed = rate(&|path| std::fs::remove_file(path))?;
    std::fs::remove_dir(&folder)?;
    Ok(CellRun::of(made).with("stat", found).with("delete", removed))
}

/// Copies a tree of files, one after the other, and has it all on the devices: MiB a second, seconds, files and bytes.
pub fn copy_tree(bed: &LabBed<'_>, from: &Path) -> Result<CellRun, CellStop> {
    let to = bed.path().join("copy");
    if to.exists() {
        std::fs::remove_dir_all(&to)?;
        bed.sync()?;
    }
    let (began, cpu) = (Instant::now(), bed.cpu_seconds());
    let (mut files, mut bytes) = (0u64, 0u64);
    let mut folders = vec![(from.to_owned(), to)];
    while let Some((from, to)) = folders.pop() {
        std::fs::create_dir(&to)?;
        for entry in std::fs::read_dir(&from)? {
            bed.goes_on()?;
            let entry = entry?;
            let kind = entry.file_type()?;
            let to = to.join(entry.file_name());
            if kind.is_dir() {
                folders.push((entry.path(), to));
            } else if kind.is_file() {
                bytes += copy_file(&entry.path(), &to, bed)?;
                files += 1;
            }
        }
    }
    bed.sync()?;
    let seconds = began.elapsed().as_secs_f64();
    let run = CellRun::of(bytes as f64 / MIB / seconds).with("seconds", seconds).with("files", files as f64);
    Ok(run.with("bytes", bytes as f64).with_cpu(bed.cpu_seconds().since(cpu)))
}

fn copy_file(from: &Path, to: &Path, bed: &LabBed<'_>) -> Result<u64, CellStop> {
    let (mut from, mut to) = (File::open(from)?, File::create(to)?);
    let mut buf = vec![0; REQUEST_BYTES];
    let mut bytes = 0;
    loop {
        bed.goes_on()?;
        match from.read(&mut buf)? {
            0 => return Ok(bytes),
            len => {
                to.write_all(&buf[..len])?;
                bytes += len as u64;
            }
        }
    }
}

/// Runs a program of others until it ends, and tells what it printed. Errors: it is not installed, or it failed.
pub fn tool(bed: &LabBed<'_>, name: &str, package: &str, words: &[&str]) -> Result<String, CellStop> {
    let answer = tools::ask_while(name, words, || bed.goes_on().is_ok()).map_err(|e| match e.kind() {
        ErrorKind::NotFound => CellStop::Failed(format!("{name} is not installed (package {package})")),
        ErrorKind::TimedOut => CellStop::Interrupted,
        _ => CellStop::Failed(format!("{name}: {e}")),
    })?;
    match answer.code {
        Some(0) => Ok(answer.text),
        Some(code) => Err(CellStop::Failed(format!("{name} failed: exit code {code}"))),
        None => Err(CellStop::Failed(format!("{name} was ended by a signal"))),
    }
}

/// How fast so many bytes went by, in MiB a second, and the seconds of processor time.
fn timed(bed: &LabBed<'_>, bytes: usize, work: impl FnOnce() -> Result<(), CellStop>) -> Result<CellRun, CellStop> {
    let (began, cpu) = (Instant::now(), bed.cpu_seconds());
    work()?;
    let seconds = began.elapsed().as_secs_f64();
    Ok(CellRun::of(bytes as f64 / MIB / seconds).with_cpu(bed.cpu_seconds().since(cpu)).with("seconds", seconds))
}
