//! Weeks of a pool in a file of fixed size: the means of each minute.
//!
//! ```text
//!   0       "cenote rows 1\n", guid in hexadecimal, number of minutes, names of the series, each with a newline; zeros
//!   4096    a slot for each minute: its number since 1970 (u64), a value of each series (f32), CRC-32C; little-endian
//! ```
//!
//! Minute m has slot m mod the number of slots, so a new minute takes the place of the oldest. A slot that was half written
//! has a wrong sum, and is no minute. A file of other series than those of now is written anew, with what both have.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use format::ids::Guid;

use super::history::TimedRow;
use super::series::{OpenMean, SERIES, rounded};

/// Minutes that a file has: four weeks.
const MINUTES: u64 = 4 * 7 * 24 * 60;
/// Seconds that a file goes back.
pub const KEPT_S: u64 = MINUTES * 60;
const MINUTE_S: u64 = 60;
const HEAD_BYTES: usize = 4096;
const MAGIC: &str = "cenote rows 1";
/// Series that a file may have.
const SERIES_MAX: usize = 256;

/// Means of minutes, as they come.
pub struct MinuteWriter {
    file: File,
    open: OpenMean,
}

/// What a file has: names of its series, and its slots.
struct KeptFile {
    names: Vec<String>,
    minutes: Vec<(u64, Vec<f32>)>,
}

/// The file of a pool in a folder. `stem` is its name as sockets have it.
pub fn file_of(folder: &Path, stem: &str, guid: Guid) -> PathBuf {
    folder.join(format!("{stem}-{:016x}.rows", guid.get()))
}

impl MinuteWriter {
    /// Goes on with a file, or makes it. Errors: those of the file system.
    pub fn open(path: &Path) -> io::Result<MinuteWriter> {
        let names: Vec<&str> = SERIES.iter().map(|(name, _)| *name).collect();
        let known = match KeptFile::read(path) {
            Ok(known) => Some(known),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            // it is no such file: it stays as it is
            Err(e) => return Err(e),
        };
        if known.as_ref().is_none_or(|known| known.names != names) {
            let beside = path.with_extension("new");
            let file = OpenOptions::new().write(true).create(true).truncate(true).open(&beside)?;
            file.write_all_at(&head(&names), 0)?;
            file.set_len(HEAD_BYTES as u64 + MINUTES * slot_bytes(names.len()) as u64)?;
            let known = known.unwrap_or(KeptFile { names: Vec::new(), minutes: Vec::new() });
            let place = |name: &&str| known.names.iter().position(|known| known == name);
            let places: Vec<Option<usize>> = names.iter().map(place).collect();
            for (minute, values) in &known.minutes {
                let values: Vec<f32> = places.iter().map(|place| place.map_or(0.0, |at| values[at])).collect();
                write_minute(&file, *minute, &values)?;
            }
            file.sync_all()?;
            fs::rename(&beside, path)?;
        }
        Ok(MinuteWriter { file: OpenOptions::new().write(true).open(path)?, open: OpenMean::default() })
    }

    /// Adds the row of a second; a minute that has ended is written. Errors: those of writing; the minute is lost then.
    pub fn add(&mut self, at_s: u64, row: &[f32]) -> io::Result<()> {
        let ended = self.open.add(at_s / MINUTE_S, row);
        ended.map_or(Ok(()), |(minute, means)| write_minute(&self.file, minute, &means))
    }
}

/// Rows of a file between two times, in seconds since 1970: means of so many equal parts of it at most. Errors: those of
/// reading, and `InvalidData` if it is no such file.
pub fn past(path: &Path, [from_s, until_s]: [u64; 2], points: u64) -> io::Result<Vec<TimedRow>> {
    let KeptFile { names, mut minutes } = KeptFile::read(path)?;
    let places: Vec<Option<usize>> =
        SERIES.iter().map(|(name, _)| names.iter().position(|known| known == name)).collect();
    minutes.retain(|(minute, _)| (from_s..until_s).contains(&minute.saturating_mul(MINUTE_S)));
    minutes.sort_by_key(|(minute, _)| *minute);
    let step_s = (until_s.saturating_sub(from_s).div_ceil(points.max(1))).max(MINUTE_S);
    let part = |(minute, _): &(u64, Vec<f32>)| (minute * MINUTE_S - from_s) / step_s;
    let means = minutes.chunk_by(|a, b| part(a) == part(b)).map(|chunk| {
        let mean = |place: &Option<usize>| {
            let sum: f64 = place.map_or(0.0, |at| chunk.iter().map(|(_, values)| f64::from(values[at])).sum());
            rounded(sum / chunk.len() as f64)
        };
        TimedRow(from_s + part(&chunk[0]) * step_s, places.iter().map(mean).collect())
    });
    Ok(means.collect())
}

impl KeptFile {
    fn read(path: &Path) -> io::Result<KeptFile> {
        let nonsense = || io::Error::new(io::ErrorKind::InvalidData, "not a file of kept rows");
        let file = File::open(path)?;
        let mut head = vec![0; HEAD_BYTES];
        file.read_exact_at(&mut head, 0).map_err(|_| nonsense())?;
        let text = head.split(|byte| *byte == 0).next().and_then(|text| std::str::from_utf8(text).ok());
        let mut lines = text.ok_or_else(nonsense)?.lines();
        let is_ours = lines.next() == Some(MAGIC) && lines.next() == Some(&MINUTES.to_string());
        let names: Vec<String> = lines.map(str::to_owned).collect();
        if !is_ours || names.len() > SERIES_MAX {
            return Err(nonsense());
        }
        let mut slots = vec![0; MINUTES as usize * slot_bytes(names.len())];
        file.read_exact_at(&mut slots, HEAD_BYTES as u64).map_err(|_| nonsense())?;
        let minutes = slots.chunks_exact(slot_bytes(names.len())).enumerate().filter_map(|(at, slot)| {
            let (minute, values) = minute_of(slot)?;
            (minute % MINUTES == at as u64).then_some((minute, values))
        });
        Ok(KeptFile { minutes: minutes.collect(), names })
    }
}

fn head(names: &[&str]) -> Vec<u8> {
    let lines = format!("{MAGIC}\n{MINUTES}\n{}\n", names.join("\n"));
    let mut head = lines.into_bytes();
    head.resize(HEAD_BYTES, 0);
    head
}

const fn slot_bytes(series: usize) -> usize {
    8 + 4 * series + 4
}

fn write_minute(file: &File, minute: u64, values: &[f32]) -> io::Result<()> {
    let mut slot = minute.to_le_bytes().to_vec();
    values.iter().for_each(|value| slot.extend(value.to_le_bytes()));
    slot.extend(crc32c::crc32c(&slot).to_le_bytes());
    file.write_all_at(&slot, HEAD_BYTES as u64 + minute % MINUTES * slot.len() as u64)
}

/// `None` of a slot that was never written, or half.
fn minute_of(slot: &[u8]) -> Option<(u64, Vec<f32>)> {
    let (body, sum) = slot.split_last_chunk::<4>()?;
    let (minute, values) = body.split_first_chunk::<8>()?;
    let values = values.chunks_exact(4).map(|value| f32::from_le_bytes([value[0], value[1], value[2], value[3]]));
    let is_whole = crc32c::crc32c(body) == u32::from_le_bytes(*sum);
    // all zeros have the sum of no other minute
    is_whole.then(|| (u64::from_le_bytes(*minute), values.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: f32) -> Vec<f32> {
        vec![value; SERIES.len()]
    }

    fn values(rows: &[TimedRow]) -> Vec<(u64, f32)> {
        rows.iter().map(|TimedRow(at_s, row)| (*at_s, row[0])).collect()
    }

    #[test]
    fn minutes_are_kept_and_the_oldest_make_room() {
        let dir = tempfile::tempdir().unwrap();
        let path = file_of(dir.path(), "tank", Guid::new(7));
        let begin = 1_000_000 * MINUTE_S;
        let mut writer = MinuteWriter::open(&path).unwrap();
        (0..181).for_each(|second| writer.add(begin + second, &row((second / 60) as f32)).unwrap());
        let length = fs::metadata(&path).unwrap().len();
        assert_eq!(
            values(&past(&path, [begin, begin + 600], 10).unwrap()),
            [(begin, 0.0), (begin + 60, 1.0), (begin + 120, 2.0)]
        );
        assert_eq!(values(&past(&path, [begin, begin + 240], 2).unwrap()), [(begin, 0.5), (begin + 120, 2.0)]);
        assert_eq!(past(&path, [0, begin], 10).unwrap(), []);
        drop(writer);
        // goes on four weeks later, in the same places
        let later = begin + KEPT_S;
        let mut writer = MinuteWriter::open(&path).unwrap();
        (0..121).for_each(|second| writer.add(later + second, &row(9.0)).unwrap());
        assert_eq!(values(&past(&path, [0, later + 600], u64::MAX).unwrap()).len(), 3);
        assert_eq!(fs::metadata(&path).unwrap().len(), length);
        assert!(length < 8 << 20, "{length}");
    }

    #[test]
    fn half_a_slot_and_other_files_do_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.rows");
        let mut writer = MinuteWriter::open(&path).unwrap();
        (0..121).for_each(|second| writer.add(second, &row(1.0)).unwrap());
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[0xff; 5], HEAD_BYTES as u64 + 12).unwrap();
        assert_eq!(values(&past(&path, [0, 600], 10).unwrap()), [(60, 1.0)]);
        // of other series: what both have stays
        let names: Vec<&str> = SERIES.iter().map(|(name, _)| *name).skip(1).collect();
        let other = dir.path().join("y.rows");
        let old = File::create(&other).unwrap();
        old.write_all_at(&head(&names), 0).unwrap();
        old.set_len(HEAD_BYTES as u64 + MINUTES * slot_bytes(names.len()) as u64).unwrap();
        write_minute(&old, 5, &vec![3.0; names.len()]).unwrap();
        drop(MinuteWriter::open(&other).unwrap());
        let rows = past(&other, [0, 600], 10).unwrap();
        assert_eq!((rows.len(), rows[0].1[0], rows[0].1[1]), (1, 0.0, 3.0));
        for nonsense in [&b""[..], b"cenote rows 1\n40320\n", &[0xff; 8192]] {
            fs::write(&path, nonsense).unwrap();
            assert_eq!(past(&path, [0, 600], 10).unwrap_err().kind(), io::ErrorKind::InvalidData);
            assert_eq!(MinuteWriter::open(&path).err().map(|e| e.kind()), Some(io::ErrorKind::InvalidData));
        }
    }
}
