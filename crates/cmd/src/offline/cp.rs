//! `cenote cp`: files out of a pool into a local folder, as they were.
//!
//! What is kept: contents with their holes, links, modes, times, extended attributes (POSIX ACLs are
//! among them), hard links; as root also owners. What cannot be kept is counted and told at the end. A
//! block that cannot be read becomes a hole, and is reported with its place.
//!
//! The pool may be a stranger's. So nothing that is there already is written to, but what the user named
//! himself; and what could harm the machine from within the copy, devices and set-id bits, is left out
//! unless it is asked for.

mod sink;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, Kind, Result, Shown};
use format::ids::ObjectId;
use zpl::{FileKind, Stat, Zpl};

use self::sink::{FileMetadata, LeftOut, Sink, TargetFolder};
use super::target::{Content, FileArgs, OpenTarget, Opener, Target};
use super::tree::{DEPTH_MAX, Walker};
use crate::output::complain;
use crate::progress::ProgressDisplay;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;
/// Bits of the mode by which a file runs with the rights of another user.
const SET_ID: u32 = 0o6000;
/// The extended attribute that gives rights of root.
const CAPABILITIES: &[u8] = b"security.capability";

/// Copy files out of pools that are not imported
///
/// Contents with their holes, links, modes, times and extended attributes are kept; as root also owners.
/// Device nodes, set-id bits and file capabilities only if asked for. A volume becomes a file: POOL/VOLUME:
/// What cannot be read is reported and left out, and the exit code is 1; a damaged file is copied as far as
/// it can be read, with holes where it cannot. TO may be there already; what is in a folder is always new,
/// and files, links and folders that are in its way stay as they are, and are reported.
#[derive(clap::Parser)]
#[command(name = "cenote cp", no_binary_name = true)]
pub struct CpArgs {
    #[command(flatten)]
    files: FileArgs,
    /// Copy folders with everything in them
    #[arg(short)]
    recursive: bool,
    #[command(flatten)]
    trust: Trust,
    /// What to copy
    #[arg(required = true, value_name = "POOL[/DS][@SNAP]:/PATH")]
    targets: Vec<OsString>,
    /// Where to: into this folder, or, if there is none of that name, under this name
    #[arg(required = true, value_name = "TO")]
    to: PathBuf,
}

/// What is copied only if the user says so, as it makes root of others, or leads out of the copy.
#[derive(clap::Args, Clone, Copy, Default)]
struct Trust {
    /// Make device nodes, too (only root can)
    #[arg(long)]
    dev: bool,
    /// Keep set-user-id and set-group-id bits of files, and their capabilities
    #[arg(long)]
    suid: bool,
}

pub fn run(args: CpArgs) -> bool {
    let mut copier = Copier {
        recursive: args.recursive,
        trust: args.trust,
        progress: ProgressDisplay::new(None),
        left_out: LeftOut::default(),
        links: HashMap::new(),
        source: String::new(),
        well: true,
    };
    let mut opener = Opener::of_files(&args.files);
    let into = args.to.is_dir();
    if !into && args.targets.len() > 1 {
        complain("cp", format_args!("{}: not a folder, but there are several things to copy", args.to.display()));
        return false;
    }
    for text in &args.targets {
        copier.source = text.to_string_lossy().into_owned();
        if let Err(e) = copier.target(&mut opener, text, &args.to, into) {
            copier.complain(b"", &e);
        }
    }
    drop(copier.progress);
    if let Some(text) = copier.left_out.to_text() {
        complain("cp", text);
    }
    copier.well && !copier.left_out.has_files()
}

struct Copier {
    recursive: bool,
    trust: Trust,
    progress: ProgressDisplay,
    left_out: LeftOut,
    /// Of files with several names: where the first is, below what is being copied.
    links: HashMap<ObjectId, Vec<u8>>,
    /// The target being copied, as it was given.
    source: String,
    well: bool,
}

impl Copier {
    fn target(&mut self, opener: &mut Opener, text: &OsStr, to: &Path, into: bool) -> Result<()> {
        let target = Target::parse(text)?;
        let place = opener.open(&target)?;
        let name = if into { target.last_name() } else { file_name(to)? };
        let parent = TargetFolder::open(if into { to } else { parent_of(to) })?;
        self.links.clear();
        match place {
            OpenTarget::Volume(volume) => {
                let mut sink = parent.open_file(&name)?;
                self.copy_content(&Content::Volume(volume), &mut sink, b"");
                Ok(())
            }
            OpenTarget::File(zpl, ino) => {
                let stat = zpl.stat(ino)?;
                if stat.kind == FileKind::Directory && !self.recursive {
                    return Err(Error::new(Kind::IsDirectory, "is a folder; -r copies it with everything in it"));
                }
                let walker = Walker::new(&zpl);
                TreeCopy { copier: self, walker, zpl: zpl.clone(), parent: &parent, name: &name }.top(&stat);
                Ok(())
            }
        }
    }

    /// Copies bytes, leaving holes, and reports the blocks that cannot be read.
    fn copy_content(&mut self, content: &Content, sink: &mut Sink, path: &[u8]) {
        let mut lost: Option<(u64, u64, Error)> = None;
        let result = self.copy_runs(content, sink, &mut |at, len, e| match &mut lost {
            None => lost = Some((at, len, e)),
            Some((_, sum, _)) => *sum += len,
        });
        if let Err(e) = result.and_then(|()| sink.set_size(content.size())) {
            self.complain(path, &e);
        }
        if let Some((at, len, e)) = lost {
            let what = format!("{len} of {} bytes are lost, the first at byte {at}", content.size());
            self.complain(path, &Error::new(e.kind(), what).with_source(e));
        }
    }

    fn copy_runs(&mut self, content: &Content, sink: &mut Sink, lost: &mut dyn FnMut(u64, u64, Error)) -> Result<()> {
        let mut buf = vec![0; CHUNK];
        let mut at = 0;
        loop {
            // where the data are cannot be told: then all of it may be
            let (start, end) = match content.next_data(at) {
                Ok(Some(run)) => run,
                Ok(None) => return Ok(()),
                Err(_) => (at, content.size()),
            };
            sink.skip_to(start)?;
            at = start;
            while at < end {
                let len = CHUNK.min((end - at) as usize);
                match content.read(at, &mut buf[..len]) {
                    Ok(n) => sink.write(at, &buf[..n.max(1).min(len)])?,
                    Err(_) => self.copy_blocks(content, sink, at, &mut buf[..len], lost)?,
                }
                at += len as u64;
                self.progress.add(len as u64);
            }
        }
    }

    /// Copies a range block by block, past those that cannot be read.
    fn copy_blocks(
        &mut self,
        content: &Content,
        sink: &mut Sink,
        start: u64,
        buf: &mut [u8],
        lost: &mut dyn FnMut(u64, u64, Error),
    ) -> Result<()> {
        let block = content.block_size();
        let end = start + buf.len() as u64;
        let mut at = start;
        while at < end {
            let next = (at / block + 1).saturating_mul(block).min(end);
            let part = &mut buf[..(next - at) as usize];
            match content.read(at, part) {
                Ok(_) => sink.write(at, part)?,
                Err(e) => {
                    lost(at, next - at, e);
                    sink.skip_to(next)?;
                }
            }
            at = next;
        }
        Ok(())
    }

    fn complain(&mut self, path: &[u8], error: &Error) {
        self.well = false;
        let source = &self.source;
        let below = if path.is_empty() { String::new() } else { format!(" {}:", Shown(path)) };
        self.progress.aside(|| complain("cp", format_args!("{source}:{below} {error}")));
    }
}

/// One file system being copied.
struct TreeCopy<'a, 'z> {
    copier: &'a mut Copier,
    walker: Walker<'z>,
    zpl: Arc<Zpl>,
    /// Where it is copied to, and under what name.
    parent: &'a TargetFolder,
    name: &'a [u8],
}

impl TreeCopy<'_, '_> {
    /// Copies what the user asked for, to the place that he named: he may have something there already.
    fn top(&mut self, stat: &Stat) {
        let (path, parent, name) = (&mut Vec::new(), self.parent, self.name);
        let done = match stat.kind {
            FileKind::Directory => parent.enter(name).map(|folder| self.folder(stat, &folder, path, 0)),
            FileKind::File => parent.open_file(name).and_then(|sink| self.contents(stat, sink, path)),
            _ => self.any(stat, parent, name, path, 0),
        };
        if let Err(e) = done {
            self.copier.complain(path, &e);
        }
    }

    /// Copies a file of any kind to `name` in `folder`, where nothing may be of that name; `path` is where it
    /// was, for messages, and `depth` that of the folder.
    fn any(&mut self, stat: &Stat, folder: &TargetFolder, name: &[u8], path: &mut Vec<u8>, depth: usize) -> Result<()> {
        let has_names = stat.nlink > 1 && stat.kind != FileKind::Directory;
        if has_names
            && let Some(first) = self.copier.links.get(&stat.ino)
            && folder.link((self.parent, first), name).is_ok()
        {
            return Ok(());
        }
        match stat.kind {
            FileKind::Directory if depth >= DEPTH_MAX => {
                return Err(Error::corrupt(format!("folders nest deeper than {DEPTH_MAX}")));
            }
            FileKind::Directory => self.folder(stat, &folder.create_folder(name)?, path, depth + 1),
            FileKind::File => self.contents(stat, folder.create_file(name)?, path)?,
            FileKind::Symlink => {
                folder.create_link(name, &self.zpl.readlink(stat.ino)?)?;
                let attributes = self.attributes(stat, path);
                folder.set_attributes(name, &attributes, &mut self.copier.left_out)?;
            }
            _ => {
                if folder.create_special(name, stat, self.copier.trust.dev, &mut self.copier.left_out)? {
                    let attributes = self.attributes(stat, path);
                    folder.set_attributes(name, &attributes, &mut self.copier.left_out)?;
                }
            }
        }
        if has_names {
            self.copier.links.insert(stat.ino, [self.name, b"/", path].concat());
        }
        Ok(())
    }

    fn contents(&mut self, stat: &Stat, mut sink: Sink, path: &[u8]) -> Result<()> {
        let content = Content::File(self.zpl.open_file(stat.ino)?);
        self.copier.progress.now(|| Shown(path).to_string());
        self.copier.copy_content(&content, &mut sink, path);
        let attributes = self.attributes(stat, path);
        sink.set_attributes(&attributes, &mut self.copier.left_out)
    }

    fn folder(&mut self, stat: &Stat, folder: &TargetFolder, path: &mut Vec<u8>, depth: usize) {
        let (entries, error) = self.walker.list(stat.ino);
        if let Some(e) = error {
            self.copier.complain(path, &e);
        }
        for entry in entries {
            let parent_len = path.len();
            path.extend_from_slice(if path.is_empty() { b"" } else { b"/" });
            path.extend_from_slice(&entry.name);
            let copied = self.zpl.stat(entry.ino).and_then(|stat| self.any(&stat, folder, &entry.name, path, depth));
            if let Err(e) = copied {
                self.copier.complain(path, &e);
            }
            path.truncate(parent_len);
        }
        // last, as what was made in it changed its time
        let attributes = self.attributes(stat, path);
        if let Err(e) = folder.set_own_attributes(&attributes, &mut self.copier.left_out) {
            self.copier.complain(path, &e);
        }
    }

    /// What the copy shall have; extended attributes that cannot be read are reported and left out.
    fn attributes(&mut self, stat: &Stat, path: &[u8]) -> FileMetadata {
        let mut xattrs = Vec::new();
        match self.zpl.xattr_names(stat.ino) {
            Ok(names) => {
                for name in names {
                    if name == CAPABILITIES && !self.copier.trust.suid {
                        self.copier.left_out.count("file capabilities (--suid)");
                        continue;
                    }
                    match self.zpl.xattr(stat.ino, &name) {
                        Ok(value) => xattrs.push((name, value)),
                        Err(e) => self.copier.complain(path, &e),
                    }
                }
            }
            Err(e) => self.copier.complain(path, &e),
        }
        let mut mode = stat.mode;
        if mode & SET_ID != 0 && stat.kind == FileKind::File && !self.copier.trust.suid {
            self.copier.left_out.count("set-id bits (--suid)");
            mode &= !SET_ID;
        }
        FileMetadata { mode, uid: stat.uid, gid: stat.gid, atime: stat.atime, mtime: stat.mtime, xattrs }
    }
}

/// The last name of a local path.
fn file_name(to: &Path) -> Result<Vec<u8>> {
    let name = to.file_name().map(|name| name.as_bytes().to_vec());
    name.ok_or_else(|| Error::new(Kind::Invalid, format!("{} cannot be made", to.display())))
}

fn parent_of(to: &Path) -> &Path {
    match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
