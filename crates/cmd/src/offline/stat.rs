//! `cenote stat`: all that is known of files, for people or, with `-j`, one JSON object a line.

mod json;

use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::ControlFlow;

use base::{Error, Result, Shown};
use protocol::words::{hex, time};
use zpl::{FileKind, Stat, Zpl};

use super::target::{Content, FileArgs, OpenTarget, Opener, Target};
use super::tree::{FileVisitor, WalkedFile, Walker};
use crate::output::{Quoted, complain, stdout, written};

pub use json::StatLine;

/// Show what is known of files in pools that are not imported
///
/// With -j each file is one JSON object on a line: path, type, ino, nlink, mode, uid, gid, size, atime,
/// mtime, ctime, btime (seconds and nanoseconds), sha256, target, rdev, xattrs (in hex). Bytes that are
/// not printable ASCII, and % " \, are written %XX.
///
/// Of a volume, which has no more, size and checksum are shown.
#[derive(clap::Parser)]
#[command(name = "cenote stat", no_binary_name = true)]
pub struct StatArgs {
    #[command(flatten)]
    files: FileArgs,
    /// Show everything below a folder, too
    #[arg(short)]
    recursive: bool,
    /// One JSON object a line
    #[arg(short)]
    json: bool,
    /// Show the checksum of contents: of a file above 64 MiB, of each run of data
    #[arg(long)]
    sha256: bool,
    /// Files to show
    #[arg(required = true, value_name = "POOL[/DS][@SNAP]:/PATH")]
    targets: Vec<OsString>,
}

pub fn run(args: StatArgs) -> bool {
    let mut opener = Opener::of_files(&args.files);
    let mut well = true;
    for text in &args.targets {
        match Target::parse(text).and_then(|target| Ok((opener.open(&target)?, target))) {
            Ok((place, target)) => well &= show(&args, &place, &target, &text.to_string_lossy()),
            Err(e) => {
                complain("stat", format_args!("{}: {e}", text.display()));
                well = false;
            }
        }
    }
    well
}

/// Shows what is at a place; tells whether all went well.
fn show(args: &StatArgs, place: &OpenTarget, target: &Target, text: &str) -> bool {
    let (zpl, ino) = match place {
        OpenTarget::File(zpl, ino) => (zpl, *ino),
        OpenTarget::Volume(_) => return volume(args, target, text, place),
    };
    let mut printer = StatPrinter { args, zpl, text, out: Box::new(stdout()), well: true };
    if args.recursive {
        let _ = Walker::new(zpl).walk(ino, &mut printer);
    } else {
        let name = target.last_name();
        let path: &[u8] = if target.need_path().is_ok_and(|p| p.iter().all(|&b| b == b'/')) { b"." } else { &name };
        let _ = printer.file(WalkedFile { path, stat: zpl.stat(ino) });
    }
    let flushed = printer.out.flush();
    printer.well & written("stat", flushed)
}

fn volume(args: &StatArgs, target: &Target, text: &str, place: &OpenTarget) -> bool {
    let OpenTarget::Volume(volume) = place else { unreachable!("called for volumes") };
    let content = Content::Volume(volume.clone());
    let sum = if args.sha256 { json::sha256(&content, 0, content.size()).map(Some) } else { Ok(None) };
    let (sum, well) = match sum {
        Ok(sum) => (sum, true),
        Err(e) => {
            complain("stat", format_args!("{text}: {e}"));
            (None, false)
        }
    };
    let size = content.size();
    if args.json {
        let sum = sum.map(|sum| format!(",\"sha256\":\"{sum}\"")).unwrap_or_default();
        let name = Quoted(target.dataset.as_bytes());
        println!("{{\"path\":\"{name}\",\"type\":\"volume\",\"size\":{size}{sum}}}");
    } else {
        println!("size {size}");
        if let Some(sum) = sum {
            println!("sha256 {sum}");
        }
    }
    well
}

struct StatPrinter<'a> {
    args: &'a StatArgs,
    zpl: &'a Zpl,
    /// The target as it was given.
    text: &'a str,
    out: Box<dyn Write>,
    well: bool,
}

impl FileVisitor for StatPrinter<'_> {
    fn file(&mut self, found: WalkedFile<'_>) -> ControlFlow<()> {
        let described = found.stat.and_then(|stat| match self.args.json {
            true => {
                let (line, errors) = StatLine::of(self.zpl, found.path, &stat, self.args.sha256);
                errors.into_iter().for_each(|e| self.failed(found.path, e));
                Ok(format!("{line}\n"))
            }
            false => human(self.zpl, found.path, &stat, self.args.sha256),
        });
        match described {
            Ok(text) => match self.out.write_all(text.as_bytes()) {
                Ok(()) => return ControlFlow::Continue(()),
                Err(e) => {
                    complain("stat", format_args!("writing output: {e}"));
                    self.well = false;
                    return ControlFlow::Break(());
                }
            },
            Err(e) => self.failed(found.path, e),
        }
        ControlFlow::Continue(())
    }

    fn failed(&mut self, path: &[u8], error: Error) {
        // what was found comes before what was not
        let _: io::Result<()> = self.out.flush();
        self.well = false;
        match path {
            b"." => complain("stat", format_args!("{}: {error}", self.text)),
            _ => complain("stat", format_args!("{}: {}: {error}", self.text, Shown(path))),
        }
    }
}

/// A file in the manner of stat(1).
fn human(zpl: &Zpl, path: &[u8], stat: &Stat, sha256: bool) -> Result<String> {
    use std::fmt::Write;
    let mut text = String::new();
    let mut line = |args: std::fmt::Arguments<'_>| writeln!(text, "{args}").expect("writing to a string does not fail");
    line(format_args!("    File: {}", Shown(path)));
    if stat.kind == FileKind::Symlink {
        line(format_args!("  Target: {}", Shown(&zpl.readlink(stat.ino)?)));
    }
    let kind = StatLine::kind_name(stat.kind);
    let device = match stat.kind {
        FileKind::CharDevice | FileKind::BlockDevice => {
            format!(" {}:{}", libc::major(stat.rdev), libc::minor(stat.rdev))
        }
        _ => String::new(),
    };
    line(format_args!(
        "    Size: {}  Blocks: {}  Block size: {}  {kind}{device}",
        stat.size, stat.blocks, stat.block_size
    ));
    line(format_args!(
        "  Object: {}  Generation: {}  Links: {}  Flags: {:#x}",
        stat.ino, stat.generation, stat.nlink, stat.flags
    ));
    line(format_args!("  Access: {:04o}  Uid: {}  Gid: {}  Project: {}", stat.mode, stat.uid, stat.gid, stat.projid));
    for (name, at) in [("Read", stat.atime), ("Modified", stat.mtime), ("Changed", stat.ctime), ("Born", stat.btime)] {
        line(format_args!("{name:>8}: {}", date(at)));
    }
    if sha256 && stat.kind == FileKind::File {
        let content = Content::File(zpl.open_file(stat.ino)?);
        line(format_args!("  SHA256: {}", json::sha256(&content, 0, content.size())?));
    }
    for name in zpl.xattr_names(stat.ino)? {
        line(format_args!("   Xattr: {} = {}", Shown(&name), hex(&zpl.xattr(stat.ino, &name)?)));
    }
    if let Some(acl) = zpl.acl(stat.ino)? {
        acl.to_string().lines().for_each(|ace| line(format_args!("     ACL: {ace}")));
    }
    Ok(text)
}

/// A point in time, in the machine's zone.
fn date((seconds, nanoseconds): (i64, u32)) -> String {
    match u64::try_from(seconds) {
        Ok(since) => {
            let zone = time::local(since, c"%z");
            format!("{}.{nanoseconds:09} {zone}", time::local(since, c"%Y-%m-%d %H:%M:%S"))
        }
        Err(_) => format!("{seconds} s after 1970"),
    }
}
