//! A copy of a dataset on the local file system, against the manifest of the dataset.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::manifest::{Manifest, report};

/// Seconds that every local file system can keep as a time.
const TIMES: std::ops::Range<i64> = -(1 << 31)..1 << 33;
/// Bytes of attributes that every local file system can keep with a file.
const XATTRS_SIZE_MAX: usize = 2000;

/// Where the files below `copy` are not what `expect` says, in words, or `None`.
///
/// Compared is what a copy keeps: kind, mode, size, time of modification, target, contents, attributes
/// (unless there are more than some local file systems take), which names are one file, and, as root,
/// owner and device numbers.
pub fn differences(expect: &Manifest, copy: &Path) -> Option<String> {
    let is_root = rustix::process::geteuid().is_root();
    let mut wrong = Vec::new();
    let mut known = BTreeSet::new();
    for (name, file) in expect.files() {
        let path = if name == b"." { copy.to_owned() } else { copy.join(OsStr::from_bytes(&name)) };
        known.insert(path.clone());
        if let Err(what) = check(&path, file, is_root) {
            wrong.push(format!("{}: {what}", name.escape_ascii()));
        }
    }
    let mut pending = vec![copy.to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if !known.contains(&path) {
                wrong.push(format!("{}: is there, and should not be", path.display()));
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pending.push(path);
            }
        }
    }
    wrong.extend(wrong_links(expect, copy));
    report(&wrong)
}

fn check(path: &Path, expect: &Map<String, Value>, is_root: bool) -> Result<(), String> {
    let number = |key: &str| expect.get(key).and_then(Value::as_i64).unwrap_or_default();
    let meta = fs::symlink_metadata(path).map_err(|e| e.to_string())?;
    let kind = kind_name(&meta);
    let expected_kind = expect.get("type").and_then(Value::as_str).unwrap_or_default();
    same("type", kind, expected_kind)?;
    if kind != "link" {
        same("mode", format!("{:04o}", meta.mode() & 0o7777).as_str(), expect["mode"].as_str().unwrap_or_default())?;
    }
    if is_root {
        same("uid", i64::from(meta.uid()), number("uid"))?;
        same("gid", i64::from(meta.gid()), number("gid"))?;
    }
    if let Some(Value::Array(mtime)) = expect.get("mtime") {
        let mtime: Vec<i64> = mtime.iter().filter_map(Value::as_i64).collect();
        if mtime.first().is_some_and(|seconds| TIMES.contains(seconds)) {
            same("mtime", vec![meta.mtime(), meta.mtime_nsec()], mtime)?;
        }
    }
    match kind {
        "file" => {
            same("size", meta.size() as i64, number("size"))?;
            contents(path, meta.size(), expect).map_err(|e| format!("contents: {e}"))?;
        }
        "link" => {
            let target = fs::read_link(path).map_err(|e| e.to_string())?.into_os_string().into_vec();
            same("target", target, crate::manifest::unescape(expect["target"].as_str().unwrap_or_default()))?;
        }
        "char" | "block" => {
            let found = [rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev())];
            same("rdev", &serde_json::json!(found), &expect["rdev"])?;
        }
        _ => {}
    }
    attributes(path, expect)
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expect: T) -> Result<(), String> {
    if found == expect { Ok(()) } else { Err(format!("{what} is {found:?}, not {expect:?}")) }
}

fn kind_name(meta: &Metadata) -> &'static str {
    let kind = meta.file_type();
    match () {
        () if kind.is_dir() => "dir",
        () if kind.is_symlink() => "link",
        () if kind.is_fifo() => "fifo",
        () if kind.is_socket() => "socket",
        () if kind.is_char_device() => "char",
        () if kind.is_block_device() => "block",
        () => "file",
    }
}

fn contents(path: &Path, size: u64, expect: &Map<String, Value>) -> Result<(), String> {
    let text = |e: io::Error| e.to_string();
    let file = match File::open(path) {
        // a mode that was copied may keep the copier out, but not root
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && !rustix::process::geteuid().is_root() => return Ok(()),
        opened => opened.map_err(text)?,
    };
    if let Some(sum) = expect.get("sha256").and_then(Value::as_str) {
        return same("sha256", sha256(&file, 0, size).map_err(text)?.as_str(), sum);
    }
    let Some(Value::Array(extents)) = expect.get("extents") else { return Err("neither sha256 nor extents".into()) };
    let mut at = 0;
    for extent in extents {
        let (start, len) = (extent[0].as_u64().unwrap_or_default(), extent[1].as_u64().unwrap_or_default());
        only_zeros(&file, at, start).map_err(text)?;
        same(
            "a part's sha256",
            sha256(&file, start, len).map_err(text)?.as_str(),
            extent[2].as_str().unwrap_or_default(),
        )?;
        at = start + len;
    }
    only_zeros(&file, at, size).map_err(text)
}

fn sha256(file: &File, start: u64, len: u64) -> io::Result<String> {
    let mut sum = Sha256::new();
    each_chunk(file, start, start + len, |chunk| {
        sum.update(chunk);
        Ok(())
    })?;
    Ok(sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn each_chunk(file: &File, mut at: u64, end: u64, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut buf = vec![0; 1 << 20];
    while at < end {
        let len = buf.len().min((end - at) as usize);
        file.read_exact_at(&mut buf[..len], at)?;
        each(&buf[..len])?;
        at += len as u64;
    }
    Ok(())
}

/// Fails if there is anything else between two offsets; holes are stepped over.
fn only_zeros(file: &File, mut at: u64, end: u64) -> io::Result<()> {
    while at < end {
        let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        let hole = rustix::fs::seek(file, SeekFrom::Hole(data))?;
        each_chunk(file, data, hole.min(end), |chunk| match chunk.iter().all(|&byte| byte == 0) {
            true => Ok(()),
            false => Err(io::Error::other(format!("data near {data}, where only zeros should be"))),
        })?;
        at = hole;
    }
    Ok(())
}

fn attributes(path: &Path, expect: &Map<String, Value>) -> Result<(), String> {
    let Some(Value::Object(expect)) = expect.get("xattrs") else { return Ok(()) };
    let size: usize =
        expect.iter().map(|(name, value)| name.len() + value.as_str().unwrap_or_default().len() / 2).sum();
    if size > XATTRS_SIZE_MAX {
        return Ok(());
    }
    for (name, value) in expect {
        let name = crate::manifest::unescape(name);
        let mut found = vec![0; 1 << 16];
        let len = rustix::fs::lgetxattr(path, name.as_slice(), &mut found[..])
            .map_err(|e| format!("attribute {}: {e}", name.escape_ascii()))?;
        let found: String = found[..len].iter().map(|byte| format!("{byte:02x}")).collect();
        same(&format!("attribute {}", name.escape_ascii()), found.as_str(), value.as_str().unwrap_or_default())?;
    }
    Ok(())
}

/// Names that were one file, and are not in the copy.
fn wrong_links(expect: &Manifest, copy: &Path) -> Vec<String> {
    let mut first = std::collections::BTreeMap::new();
    let mut wrong = Vec::new();
    for (name, file) in expect.files().filter(|(_, file)| file["type"] != "dir") {
        let Ok(meta) = fs::symlink_metadata(copy.join(OsStr::from_bytes(&name))) else { continue };
        let ino = *first.entry(file["ino"].as_u64()).or_insert(meta.ino());
        if ino != meta.ino() {
            wrong.push(format!("{}: is no longer a link to another name", name.escape_ascii()));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_copy_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        fs::write(dir.join("a"), "text").unwrap();
        fs::hard_link(dir.join("a"), dir.join("b")).unwrap();
        let meta = fs::metadata(dir.join("a")).unwrap();
        let sum = sha256(&File::open(dir.join("a")).unwrap(), 0, 4).unwrap();
        let line = |name: &str, ino: u64| {
            format!(
                "{{\"path\":\"{name}\",\"type\":\"file\",\"ino\":{ino},\"mode\":\"{:04o}\",\"uid\":{},\"gid\":{},\
                 \"size\":4,\"sha256\":\"{sum}\"}}\n",
                meta.mode() & 0o7777,
                meta.uid(),
                meta.gid()
            )
        };
        let right = line("a", 7) + &line("b", 7);
        let differ = |text: &str| differences(&Manifest::parse(text).unwrap(), dir).unwrap_or_default();
        assert_eq!(differ(&right), "");
        assert!(differ(&line("a", 7)).contains("b: is there"));
        assert!(differ(&right.replace("\"size\":4", "\"size\":5")).contains("size is 4, not 5"));
        assert!(differ(&right.replace(&sum, "00")).contains("sha256"));
        assert!(differ(&right.replace("\"mode\":\"0", "\"mode\":\"7")).contains("mode"));
        let third = right.clone() + &line("c", 7);
        assert!(differ(&third).contains("c: "), "{}", differ(&third));
        fs::write(dir.join("c"), "text").unwrap();
        assert!(differ(&third).contains("no longer a link"), "{}", differ(&third));
    }
}
