//! A folder with what `cenote lab` and `cenote advise cache --json` have left, of which the newest is shown.
//!
//! ```text
//!   FOLDER/report.html, FOLDER/*/report.html   the report of a lab: served as it is, in a sandbox without script
//!   FOLDER/*.json, FOLDER/*/*.json             an answer of the advisor: its numbers are read, and nothing else is sent on
//! ```
//!
//! Nothing that a browser says becomes the name of a file. Links are not followed, and what is no plain file, or too large, is
//! passed over.

use std::cmp::Reverse;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

/// Bytes of a report and of an answer.
const REPORT_BYTES_MAX: u64 = 4 << 20;
const ADVICE_BYTES_MAX: u64 = 1 << 20;
/// Entries of one folder that are looked at, and folders below the first.
const ENTRIES_MAX: usize = 1000;
const FOLDERS_MAX: usize = 100;
/// Files that are read to find an answer.
const TRIES_MAX: usize = 20;
/// Sizes of one curve, sentences of a verdict, and bytes of each.
const POINTS_MAX: usize = 64;
const SENTENCES_MAX: usize = 20;
const SENTENCE_BYTES_MAX: usize = 1000;
const REPORT: &str = "report.html";

/// The folder, if there is one.
#[derive(Clone, Debug, Default)]
pub struct ReportFolder(pub Option<PathBuf>);

/// What is in it, as it is sent.
#[derive(Debug, Default, Serialize)]
pub struct ReportsSeen {
    /// When the newest report was written, in seconds since 1970, and its bytes.
    report: Option<[u64; 2]>,
    /// When the newest answer was.
    advice_at_s: Option<u64>,
    advice: Option<CacheCurves>,
}

/// The curves of an answer of the advisor: hits of a cache in RAM, and with a device beside it, by its size.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct CacheCurves {
    /// Bytes of the cache in RAM that there was.
    ram: u64,
    /// Reads that were simulated, and the seconds in which they came.
    reads: u64,
    seconds: f64,
    rams: Vec<CurvePoint>,
    devices: Vec<CurvePoint>,
    verdict: CacheSentences,
}

/// The verdict of an answer.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct CacheSentences {
    text: Vec<String>,
}

/// One size.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct CurvePoint {
    bytes: u64,
    /// The part of reads that is served, and between what it is.
    hits: f64,
    hits_low: f64,
    hits_high: f64,
    disk_reads_per_s: f64,
    #[serde(default)]
    written_bytes_per_day: u64,
}

/// A file that may be meant.
struct FoundFile {
    path: PathBuf,
    at: SystemTime,
}

impl ReportFolder {
    /// What is there.
    pub fn look(&self) -> ReportsSeen {
        let Some(folder) = &self.0 else { return ReportsSeen::default() };
        let found = files_in(folder);
        let mut seen = ReportsSeen::default();
        for FoundFile { path, .. } in found.iter().filter(|file| file.is_report()) {
            if let Ok((_, at_s, bytes)) = open(path, REPORT_BYTES_MAX) {
                seen.report = Some([at_s, bytes]);
                break;
            }
        }
        let answers = found.iter().filter(|file| file.path.extension().is_some_and(|ends| ends == "json"));
        for FoundFile { path, .. } in answers.take(TRIES_MAX) {
            if let Ok((text, at_s)) = read(path, ADVICE_BYTES_MAX)
                && let Some(advice) = CacheCurves::parse(&text)
            {
                (seen.advice, seen.advice_at_s) = (Some(advice), Some(at_s));
                break;
            }
        }
        seen
    }

    /// The newest report; `None` if there is none.
    pub fn report(&self) -> Option<Vec<u8>> {
        let found = files_in(self.0.as_ref()?);
        found.iter().filter(|file| file.is_report()).find_map(|file| Some(read(&file.path, REPORT_BYTES_MAX).ok()?.0))
    }
}

impl FoundFile {
    fn is_report(&self) -> bool {
        self.path.file_name().is_some_and(|name| name == REPORT)
    }
}

impl CacheCurves {
    /// The curves in an answer; `None` if it is none, or its numbers make no sense.
    fn parse(text: &[u8]) -> Option<CacheCurves> {
        let mut curves: CacheCurves = serde_json::from_slice(text).ok()?;
        for points in [&mut curves.rams, &mut curves.devices] {
            let is_sound = |point: &CurvePoint| {
                let parts = [point.hits_low, point.hits, point.hits_high];
                point.bytes > 0 && parts.iter().all(|part| (0.0..=1.0).contains(part)) && parts.is_sorted()
            };
            if points.len() > POINTS_MAX || !points.iter().all(is_sound) {
                return None;
            }
            points.sort_by_key(|point| point.bytes);
        }
        let text = &mut curves.verdict.text;
        text.truncate(SENTENCES_MAX);
        text.iter_mut().for_each(|sentence| cut(sentence, SENTENCE_BYTES_MAX));
        (!curves.rams.is_empty() && curves.seconds.is_finite()).then_some(curves)
    }
}

/// Cuts a text off between two of its characters.
fn cut(text: &mut String, bytes_max: usize) {
    let most = bytes_max.min(text.len());
    text.truncate((0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0));
}

/// The files of a folder, and of the folders in it, the newest first. What cannot be read is none.
fn files_in(folder: &Path) -> Vec<FoundFile> {
    let (mut found, mut below) = (Vec::new(), Vec::new());
    look_in(folder, &mut found, Some(&mut below));
    below.truncate(FOLDERS_MAX);
    below.iter().for_each(|folder| look_in(folder, &mut found, None));
    found.sort_by_key(|file| Reverse(file.at));
    found
}

fn look_in(folder: &Path, found: &mut Vec<FoundFile>, mut below: Option<&mut Vec<PathBuf>>) {
    for entry in fs::read_dir(folder).into_iter().flatten().take(ENTRIES_MAX).flatten() {
        // of the entry itself, not of what a link leads to
        let Ok(about) = entry.metadata() else { continue };
        match &mut below {
            Some(below) if about.is_dir() => below.push(entry.path()),
            _ if about.is_file() => {
                found.push(FoundFile { path: entry.path(), at: about.modified().unwrap_or(UNIX_EPOCH) });
            }
            _ => {}
        }
    }
}

/// Opens a plain file of at most so many bytes: when it was written, and its bytes. Errors: it is another thing.
fn open(path: &Path, bytes_max: u64) -> io::Result<(File, u64, u64)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let about = file.metadata()?;
    if !about.is_file() || about.len() > bytes_max {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let at_s = about.modified()?.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Ok((file, at_s, about.len()))
}

fn read(path: &Path, bytes_max: u64) -> io::Result<(Vec<u8>, u64)> {
    let (file, at_s, bytes) = open(path, bytes_max)?;
    let mut text = Vec::with_capacity(bytes as usize);
    // it may grow while it is read
    file.take(bytes_max).read_to_end(&mut text)?;
    Ok((text, at_s))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    fn answer(hits: f64) -> Value {
        let point = |bytes: u64, hits: f64| json!({ "bytes": bytes, "hits": hits, "hits_low": 0.0, "hits_high": 1.0, "disk_reads_per_s": 5.0 });
        json!({
            "reads": 7, "seconds": 1.5, "ram": 1024, "more": "is passed over",
            "rams": [point(2048, hits), point(1024, 0.25)], "devices": [],
            "verdict": { "device": "x", "ram": "y", "text": ["<b>Do not buy.</b>", "ä".repeat(2000)] },
        })
    }

    fn put(path: &Path, text: &str, at_s: u64) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(at_s)).unwrap();
    }

    #[test]
    fn the_newest_of_each_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let folder = ReportFolder(Some(dir.path().to_owned()));
        assert!(folder.report().is_none() && folder.look().report.is_none() && folder.look().advice.is_none());
        put(&dir.path().join(REPORT), "old", 100);
        put(&dir.path().join("lab 2/report.html"), "newer", 200);
        put(&dir.path().join("lab 2/deeper/report.html"), "too deep", 900);
        put(&dir.path().join("a.json"), &answer(0.5).to_string(), 100);
        put(&dir.path().join("lab 2/b.json"), &answer(0.75).to_string(), 150);
        put(&dir.path().join("lab 2/report.json"), "{}", 300);
        let seen = folder.look();
        assert_eq!(
            (folder.report().unwrap(), seen.report, seen.advice_at_s),
            (b"newer".to_vec(), Some([200, 5]), Some(150))
        );
        let curves = seen.advice.unwrap();
        let points: Vec<(u64, f64)> = curves.rams.iter().map(|point| (point.bytes, point.hits)).collect();
        assert_eq!((points, curves.ram), (vec![(1024, 0.25), (2048, 0.75)], 1024));
        assert_eq!(
            (&*curves.verdict.text[0], curves.verdict.text[1].len()),
            ("<b>Do not buy.</b>", SENTENCE_BYTES_MAX)
        );
        assert!(ReportFolder(None).report().is_none());
    }

    #[test]
    fn links_pipes_and_what_is_too_large_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let folder = ReportFolder(Some(dir.path().join("folder")));
        put(&dir.path().join("folder/sub/report.html"), "right", 100);
        put(&dir.path().join("secret"), "secret", 500);
        std::os::unix::fs::symlink(dir.path().join("secret"), dir.path().join("folder/report.html")).unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("folder/link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("folder/a.json"), Mode::RWXU).unwrap();
        let large = dir.path().join("folder/large/report.html");
        put(&large, "", 600);
        File::options().write(true).open(&large).unwrap().set_len(REPORT_BYTES_MAX + 1).unwrap();
        assert_eq!((folder.report().unwrap(), folder.look().report), (b"right".to_vec(), Some([100, 5])));
        assert!(open(&dir.path().join("folder/report.html"), 100).is_err());
        assert!(open(&dir.path().join("folder/a.json"), 100).is_err());
    }

    #[test]
    fn numbers_that_make_no_sense_are_no_answer() {
        assert!(CacheCurves::parse(answer(0.5).to_string().as_bytes()).is_some());
        assert!(CacheCurves::parse(answer(1.5).to_string().as_bytes()).is_none());
        assert!(
            [&b""[..], b"[]", b"{}", b"{\"rams\": 1}", b"\xff"].iter().all(|text| CacheCurves::parse(text).is_none())
        );
        let mut many = answer(0.5);
        let point = many["rams"][0].clone();
        many["rams"] = vec![point; POINTS_MAX + 1].into();
        assert!(CacheCurves::parse(many.to_string().as_bytes()).is_none());
        let mut none = answer(0.5);
        none["rams"] = json!([]);
        assert!(CacheCurves::parse(none.to_string().as_bytes()).is_none());
    }
}
