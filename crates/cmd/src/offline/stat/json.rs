//! A file as one JSON object on a line, always with the same keys in the same order.
//!
//! The form is the one of the manifests that the test pools come with, so that the two can be compared
//! as they are.

use std::fmt;

use base::{Error, Result};
use format::ids::ObjectId;
use protocol::words::hex;
use sha2::{Digest, Sha256};
use zpl::{FileKind, Stat, Zpl};

use crate::offline::target::Content;
use crate::output::Quoted;

/// Files above that size have a checksum for each run of data.
const WHOLE_SIZE_MAX: u64 = 64 << 20;
/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// What the line tells.
pub struct StatLine {
    path: Vec<u8>,
    stat: Stat,
    content: Option<ContentSums>,
    target: Option<Vec<u8>>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

enum ContentSums {
    Whole(String),
    /// First byte, length, checksum.
    Extents(Vec<(u64, u64, String)>),
}

impl StatLine {
    /// Describes a file, as far as it can be read; and what could not be.
    pub fn of(zpl: &Zpl, path: &[u8], stat: &Stat, sha256: bool) -> (StatLine, Vec<Error>) {
        let mut errors = Vec::new();
        let mut line =
            StatLine { path: path.to_vec(), stat: stat.clone(), content: None, target: None, xattrs: Vec::new() };
        let mut note = |result: Result<()>| errors.extend(result.err());
        if stat.kind == FileKind::File && sha256 {
            note(sums(zpl, stat.ino).map(|sums| line.content = Some(sums)));
        }
        if stat.kind == FileKind::Symlink {
            note(zpl.readlink(stat.ino).map(|target| line.target = Some(target)));
        }
        note(xattrs(zpl, stat.ino, &mut line.xattrs));
        (line, errors)
    }

    /// The word for a kind of file.
    pub fn kind_name(kind: FileKind) -> &'static str {
        match kind {
            FileKind::Fifo => "fifo",
            FileKind::CharDevice => "char",
            FileKind::Directory => "dir",
            FileKind::BlockDevice => "block",
            FileKind::File => "file",
            FileKind::Symlink => "link",
            FileKind::Socket => "socket",
        }
    }
}

impl fmt::Display for StatLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stat { ino, nlink, mode, uid, gid, size, kind, rdev, .. } = &self.stat;
        write!(f, "{{\"path\":\"{}\",\"type\":\"{}\",\"ino\":{ino},", Quoted(&self.path), StatLine::kind_name(*kind))?;
        write!(f, "\"nlink\":{nlink},\"mode\":\"{mode:04o}\",\"uid\":{uid},\"gid\":{gid},\"size\":{size}")?;
        let Stat { atime, mtime, ctime, btime, .. } = &self.stat;
        for (name, (s, ns)) in [("atime", atime), ("mtime", mtime), ("ctime", ctime), ("btime", btime)] {
            write!(f, ",\"{name}\":[{s},{ns}]")?;
        }
        match &self.content {
            Some(ContentSums::Whole(sum)) => write!(f, ",\"sha256\":\"{sum}\"")?,
            Some(ContentSums::Extents(extents)) => {
                let extents: Vec<String> =
                    extents.iter().map(|(start, len, sum)| format!("[{start},{len},\"{sum}\"]")).collect();
                write!(f, ",\"extents\":[{}]", extents.join(","))?;
            }
            None => {}
        }
        if let Some(target) = &self.target {
            write!(f, ",\"target\":\"{}\"", Quoted(target))?;
        }
        if matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) {
            write!(f, ",\"rdev\":[{},{}]", libc::major(*rdev), libc::minor(*rdev))?;
        }
        if !self.xattrs.is_empty() {
            let pairs: Vec<String> =
                self.xattrs.iter().map(|(name, value)| format!("\"{}\":\"{}\"", Quoted(name), hex(value))).collect();
            write!(f, ",\"xattrs\":{{{}}}", pairs.join(","))?;
        }
        f.write_str("}")
    }
}

/// The extended attributes, by the bytes of their names.
fn xattrs(zpl: &Zpl, ino: ObjectId, out: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Result<()> {
    let mut names = zpl.xattr_names(ino)?;
    names.sort();
    // one that is in both places counts once
    names.dedup();
    for name in names {
        let value = zpl.xattr(ino, &name)?;
        out.push((name, value));
    }
    Ok(())
}

fn sums(zpl: &Zpl, ino: ObjectId) -> Result<ContentSums> {
    let content = Content::File(zpl.open_file(ino)?);
    if content.size() <= WHOLE_SIZE_MAX {
        return sha256(&content, 0, content.size()).map(ContentSums::Whole);
    }
    let mut extents = Vec::new();
    let mut at = 0;
    while let Some((start, end)) = content.next_data(at)? {
        extents.push((start, end - start, sha256(&content, start, end)?));
        at = end;
    }
    Ok(ContentSums::Extents(extents))
}

/// The checksum of the bytes from `start` to before `end`, in hex.
pub fn sha256(content: &Content, start: u64, end: u64) -> Result<String> {
    let mut sum = Sha256::new();
    let mut buf = vec![0; CHUNK];
    let mut at = start;
    while at < end {
        let len = CHUNK.min((end - at) as usize);
        let n = content.read(at, &mut buf[..len])?;
        if n == 0 {
            break;
        }
        sum.update(&buf[..n]);
        at += n as u64;
    }
    Ok(hex(&sum.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(kind: FileKind) -> Stat {
        Stat {
            ino: ObjectId::new(7),
            generation: 1,
            kind,
            mode: 0o640,
            nlink: 1,
            uid: 10,
            gid: 20,
            projid: 0,
            size: 3,
            blocks: 1,
            block_size: 512,
            rdev: libc::makedev(8, 1),
            atime: (1, 2),
            mtime: (3, 4),
            ctime: (5, 6),
            btime: (-7, 8),
            parent: ObjectId::new(3),
            flags: 0,
        }
    }

    #[test]
    fn keys_and_their_order() {
        let line =
            |kind| StatLine { path: b"a\n".to_vec(), stat: stat(kind), content: None, target: None, xattrs: vec![] };
        let common = r#""ino":7,"nlink":1,"mode":"0640","uid":10,"gid":20,"size":3,"atime":[1,2],"mtime":[3,4],"ctime":[5,6],"btime":[-7,8]"#;
        let check = |line: StatLine, kind: &str, rest: &str| {
            assert_eq!(line.to_string(), format!(r#"{{"path":"a%0A","type":"{kind}",{common}{rest}}}"#));
        };
        check(line(FileKind::Directory), "dir", "");
        check(line(FileKind::BlockDevice), "block", r#","rdev":[8,1]"#);
        let target = Some(b"x\"y".to_vec());
        check(StatLine { target, ..line(FileKind::Symlink) }, "link", r#","target":"x%22y""#);
        let content = Some(ContentSums::Extents(vec![(0, 5, "ab".into()), (9, 1, "cd".into())]));
        let xattrs = vec![(b"user.a".to_vec(), vec![1, 0xff]), (b"user.b".to_vec(), vec![])];
        let rest = r#","extents":[[0,5,"ab"],[9,1,"cd"]],"xattrs":{"user.a":"01ff","user.b":""}"#;
        check(StatLine { content, xattrs, ..line(FileKind::File) }, "file", rest);
    }
}
