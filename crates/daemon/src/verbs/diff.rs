//! `zfs diff` on the pool process's side.
//!
//! ```text
//!   names ─▶ two snapshots (what is there now gets one for as long as it takes) ─▶ zpl: rows ─▶ the descriptor
//! ```

use std::fs::File;
use std::io::{BufWriter, Write};

use base::{Error, Kind, Result};
use dmu::Mode;
use dsl::Dataset;
use format::ids::ObjectId;
use pool::Pool;
use protocol::datasets::{Failure, Response, Types};
use protocol::diff::DiffOrder;
use zpl::{DiffKind, DiffRow, FileKind, Zpl};

use super::around::{failure, words};
use super::host::Host;
use super::now::SnapshotOfNow;
use super::query::open;

const TYPE: &str = "operation not applicable to datasets of this type";
const NAME: &str = "invalid name";

/// The two states that are compared.
struct Sides {
    /// The file system whose paths are told.
    fs: String,
    /// The snapshot with the earlier state.
    from: String,
    /// That with the later one; `None` for what is there now.
    to: Option<String>,
    /// The earlier one is of a file system that this one is a clone of.
    is_clone: bool,
}

/// Writes what differs to `out`.
pub(super) fn diff(host: &dyn Host, order: &DiffOrder, out: File) -> Result<Response> {
    let mut notes = Vec::new();
    let done = sides(host, order).and_then(|sides| compare(host, order, &sides, out, &mut notes));
    Ok(Response::Done { failures: done.err().into_iter().collect(), notes })
}

/// What the two names of the command line mean.
fn sides(host: &dyn Host, order: &DiffOrder) -> Result<Sides, Failure> {
    let from = order.from.as_str();
    let Some(to) = order.to.as_deref() else {
        let malformed = |why: &str| failure(from, format!("Badly formed snapshot name {from}: {why}"));
        let (fs, own) = from.split_once('@').ok_or_else(|| malformed("missing '@' delimiter in snapshot name"))?;
        if own.is_empty() {
            return Err(malformed(NAME));
        }
        open(host, fs, Types::FILE_SYSTEMS)?;
        return Ok(Sides { fs: fs.to_owned(), from: from.to_owned(), to: None, is_clone: false });
    };
    let unclear = || failure(from, format!("Unable to determine which snapshots to compare: {NAME}"));
    let (from_fs, from_own) = from.split_once('@').ok_or_else(unclear)?;
    let (to_fs, to_own) = to.split_once('@').map_or((to, None), |(fs, own)| (fs, Some(own)));
    if from_own.is_empty() || to_own == Some("") || from_fs.is_empty() && to_fs.is_empty() {
        return Err(unclear());
    }
    let fs = if to_fs.is_empty() { from_fs } else { to_fs };
    let from_fs = if from_fs.is_empty() { fs } else { from_fs };
    open(host, fs, Types::FILE_SYSTEMS)?;
    let is_clone = from_fs != fs;
    if is_clone && !descends_from(&host.pool(), fs, from_fs) {
        return Err(failure(from, format!("Not an earlier snapshot from the same fs: {NAME}")));
    }
    Ok(Sides {
        fs: fs.to_owned(),
        from: format!("{from_fs}@{from_own}"),
        to: to_own.map(|own| format!("{fs}@{own}")),
        is_clone,
    })
}

/// Whether a file system is a clone of a snapshot of another one, or of a clone of it.
fn descends_from(pool: &Pool, fs: &str, ancestor: &str) -> bool {
    let dsl = pool.dsl();
    let (Ok(mut at), Ok(ancestor)) = (dsl.find_dir(fs), dsl.find_dir(ancestor)) else { return false };
    let mut seen = std::collections::HashSet::new();
    while at.id != ancestor.id && at.phys.origin.is_some() && seen.insert(at.id) {
        let origin = dsl.name_of(at.phys.origin).and_then(|name| dsl.dataset(at.phys.origin, &name));
        let Ok(next) = origin.and_then(|origin| dsl.dir(origin.phys.dir, origin.file_system())) else { return false };
        at = next;
    }
    at.id == ancestor.id
}

fn compare(
    host: &dyn Host,
    order: &DiffOrder,
    sides: &Sides,
    out: File,
    notes: &mut Vec<String>,
) -> Result<(), Failure> {
    let mountpoint = |fs: &str| {
        let mounted = host.mounts().into_iter().find(|mounted| mounted.dataset == fs);
        mounted.ok_or_else(|| failure(fs, format!("Cannot diff an unmounted snapshot: {TYPE}")))
    };
    let point = mountpoint(&sides.fs)?.path;
    if sides.is_clone {
        mountpoint(sides.from.split('@').next().unwrap_or_default())?;
    }
    let now = match &sides.to {
        Some(_) => None,
        None => {
            let cannot = |error: &Error| {
                let line = format!("Cannot create just-in-time snapshot of '{}': {}", sides.fs, words(error));
                failure(&sides.fs, line)
            };
            Some(SnapshotOfNow::take(host, &sides.fs, "diff").map_err(|error| cannot(&error))?)
        }
    };
    let to = sides.to.as_deref().or(now.as_ref().map(|now| now.name.as_str())).unwrap_or_default();
    let cannot = |why: &str| failure(&sides.from, format!("Unable to obtain diffs: {why}"));
    let pool = host.pool();
    let find = |name: &str| pool.dsl().find(name).map_err(|error| cannot(&reason(&error)));
    let (from, to) = (find(&sides.from)?, find(to)?);
    let _kept = host.keep_snapshots(&[from.id, to.id], &[]).map_err(|error| cannot(&reason(&error)))?;
    if !pool.dsl().is_before(&from, &to).map_err(|error| cannot(&reason(&error)))? {
        return Err(cannot("\n   Not an earlier snapshot from the same fs"));
    }
    let point = point.trim_end_matches('/').as_bytes();
    let mut rows = DiffText { order, point, out: BufWriter::new(out), is_read: true };
    let told = tell(&pool, (&from, &to), &mut rows, notes).and_then(|()| rows.end());
    match told {
        Err(error) if rows.is_read => Err(cannot(&reason(&error))),
        _ => Ok(()),
    }
}

fn tell(pool: &Pool, (from, to): (&Dataset, &Dataset), rows: &mut DiffText<'_>, notes: &mut Vec<String>) -> Result<()> {
    let open = |dataset: &Dataset| Zpl::open(pool.dsl().objset(dataset, Mode::Plain)?);
    let (before, now) = (open(from)?, open(to)?);
    let mut unknown = |object: ObjectId, error: &Error| {
        tracing::warn!(%object, "what differs is not told of it: {error}");
        let name = &to.name;
        notes.push(format!("Unable to determine path or stats for object {object} in {name}: {}\n", reason(error)));
    };
    now.diff((&before, from.phys.creation_txg), &mut |row| rows.write(&row), &mut unknown)
}

/// An error in the words of the system, where it has some.
fn reason(error: &Error) -> String {
    match error.kind() {
        Kind::NotFound => "No such file or directory".to_owned(),
        Kind::Io | Kind::Checksum | Kind::Corrupt => "Input/output error".to_owned(),
        _ => error.what().to_owned(),
    }
}

/// The text of rows.
struct DiffText<'a> {
    order: &'a DiffOrder,
    /// Where the file system is mounted.
    point: &'a [u8],
    out: BufWriter<File>,
    /// Whether there is a reader at the other end of the descriptor.
    is_read: bool,
}

impl DiffText<'_> {
    fn write(&mut self, row: &DiffRow) -> Result<()> {
        let mut line = Vec::new();
        if self.order.timestamps {
            line.extend(format!("{:>10}.{:09}\t", row.ctime.0, row.ctime.1).bytes());
        }
        line.push(match row.what {
            DiffKind::Removed => b'-',
            DiffKind::Created => b'+',
            DiffKind::Modified | DiffKind::Links(_) => b'M',
            DiffKind::Renamed(_) => b'R',
        });
        line.push(b'\t');
        if self.order.classify {
            line.extend([letter(row.kind), b'\t']);
        }
        self.add_path(&mut line, &row.path);
        match &row.what {
            DiffKind::Renamed(to) => {
                line.extend(if self.order.scripted { &b"\t"[..] } else { b" -> " });
                self.add_path(&mut line, to);
            }
            DiffKind::Links(more) => line.extend(format!("\t({more:+})").bytes()),
            _ => {}
        }
        line.push(b'\n');
        let written = self.out.write_all(&line);
        self.written(written)
    }

    fn end(&mut self) -> Result<()> {
        let written = self.out.flush();
        self.written(written)
    }

    fn written(&mut self, written: std::io::Result<()>) -> Result<()> {
        self.is_read &= !matches!(&written, Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe);
        Ok(written?)
    }

    fn add_path(&self, line: &mut Vec<u8>, path: &[u8]) {
        for &byte in self.point.iter().chain(path) {
            match byte {
                b'!'..=b'~' if byte != b'\\' => line.push(byte),
                _ if self.order.raw_names => line.push(byte),
                _ => line.extend(format!("\\{byte:04o}").bytes()),
            }
        }
    }
}

/// As `ls -F` has it, or nearly so.
fn letter(kind: FileKind) -> u8 {
    match kind {
        FileKind::Fifo => b'|',
        FileKind::CharDevice => b'C',
        FileKind::Directory => b'/',
        FileKind::BlockDevice => b'B',
        FileKind::File => b'F',
        FileKind::Symlink => b'@',
        FileKind::Socket => b'=',
    }
}
