//! `cenote ls`: names of files, one a line; of a pool or dataset without a path, what is in it.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;

use base::{Error, Result, Shown};
use dmu::Mode;
use dsl::{Dataset, Dir};
use format::objset::ObjsetType;
use pool::Pool;
use protocol::words::nicenum::nicebytes;
use protocol::words::time;
use zpl::{FileKind, Stat, Zpl};

use super::stat::StatLine;
use super::target::{FileArgs, OpenTarget, Opener, Target};
use super::tree::{FileVisitor, WalkedFile, Walker};
use crate::output::{Quoted, complain, stdout, write_name, written};

/// List files in pools that are not imported
///
/// Without a path (POOL or POOL/DATASET, no colon) the datasets, volumes and snapshots are listed.
#[derive(clap::Parser)]
#[command(name = "cenote ls", no_binary_name = true)]
pub struct LsArgs {
    #[command(flatten)]
    files: FileArgs,
    /// List everything below a folder, one path a line
    #[arg(short, visible_short_alias = 'R')]
    recursive: bool,
    /// Show mode, links, owner, group, size and time, too
    #[arg(short)]
    long: bool,
    /// One JSON object a line, as 'cenote stat' prints it
    #[arg(short)]
    json: bool,
    /// What to list
    #[arg(required = true, value_name = "POOL[/DS][@SNAP][:/PATH]")]
    targets: Vec<OsString>,
}

pub fn run(args: LsArgs) -> bool {
    let mut opener = Opener::of_files(&args.files);
    let mut lister =
        Lister { args: &args, out: Box::new(stdout()), to_terminal: io::stdout().is_terminal(), well: true };
    for (i, text) in args.targets.iter().enumerate() {
        let shown = text.to_string_lossy();
        if args.targets.len() > 1 && !args.json {
            let gap = if i > 0 { "\n" } else { "" };
            lister.print(|out| writeln!(out, "{gap}{shown}"));
        }
        if let Err(e) = lister.target(&mut opener, text) {
            lister.complain(&shown, b".", &e);
        }
    }
    let flushed = lister.out.flush();
    lister.well & written("ls", flushed)
}

struct Lister<'a> {
    args: &'a LsArgs,
    out: Box<dyn Write>,
    to_terminal: bool,
    well: bool,
}

impl Lister<'_> {
    fn target(&mut self, opener: &mut Opener, text: &OsString) -> Result<()> {
        let target = Target::parse(text)?;
        if target.path.is_none() {
            return self.datasets(opener, &target);
        }
        let shown = text.to_string_lossy();
        match opener.open(&target)? {
            OpenTarget::Volume(volume) => {
                let size = nicebytes(volume.size());
                let long = self.args.long;
                self.print(
                    |out| if long { writeln!(out, "volume {size:>6} {shown}") } else { writeln!(out, "{shown}") },
                );
            }
            OpenTarget::File(zpl, ino) => {
                let stat = zpl.stat(ino)?;
                let mut files = FileLister { lister: self, zpl: &zpl, shown: &shown };
                if stat.kind != FileKind::Directory {
                    let name = target.last_name();
                    let _ = files.file(WalkedFile { path: &name, stat: Ok(stat) });
                } else if files.lister.args.recursive {
                    let _ = Walker::new(&zpl).walk(ino, &mut files);
                } else {
                    let (entries, error) = Walker::new(&zpl).list(ino);
                    for entry in entries {
                        let needed = files.lister.args.long || files.lister.args.json;
                        let stat = if needed { Some(zpl.stat(entry.ino)) } else { None };
                        files.entry(&entry.name, stat);
                    }
                    if let Some(e) = error {
                        files.failed(b".", e);
                    }
                }
            }
        }
        Ok(())
    }

    /// A dataset with everything below it, and all their snapshots.
    fn datasets(&mut self, opener: &mut Opener, target: &Target) -> Result<()> {
        let (pool, name) = opener.pool_of(target)?;
        let dsl = pool.dsl();
        if name.contains('@') {
            return self.dataset(&pool, &dsl.find(&name)?, None);
        }
        for dir in dsl.walk_from(dsl.find_dir(&name)?)? {
            let head = dsl.head(&dir)?;
            self.dataset(&pool, &head, Some(&dir))?;
            for snapshot in dsl.snapshots(&head)? {
                self.dataset(&pool, &snapshot, None)?;
            }
        }
        Ok(())
    }

    fn dataset(&mut self, pool: &Pool, dataset: &Dataset, dir: Option<&Dir>) -> Result<()> {
        let phys = &dataset.phys;
        let kind = match (dir, pool.dsl().objset(dataset, Mode::Raw)) {
            (None, _) => "snapshot",
            (_, Ok(objset)) if objset.kind() == ObjsetType::Zvol => "volume",
            _ => "filesystem",
        };
        let locked = if phys.bp.uses_crypt() { "encrypted" } else { "-" };
        let (name, args) = (&dataset.name, self.args);
        self.print(|out| {
            if args.json {
                let (refer, creation) = (phys.referenced_bytes, phys.creation_time_s);
                let name = Quoted(name.as_bytes());
                let crypt = phys.bp.uses_crypt();
                writeln!(out, "{{\"name\":\"{name}\",\"type\":\"{kind}\",\"referenced\":{refer},\"creation\":{creation},\"encrypted\":{crypt}}}")
            } else if args.long {
                let created = time::local(phys.creation_time_s, c"%Y-%m-%d %H:%M");
                writeln!(out, "{kind:10} {:>6} {created} {locked:9} {name}", nicebytes(phys.referenced_bytes))
            } else {
                writeln!(out, "{name}")
            }
        });
        Ok(())
    }

    fn print(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        let result = write(&mut self.out);
        self.well &= written("ls", result);
    }

    fn complain(&mut self, shown: &str, path: &[u8], error: &Error) {
        // what was found comes before what was not
        let _ = self.out.flush();
        self.well = false;
        match path {
            b"." => complain("ls", format_args!("{shown}: {error}")),
            _ => complain("ls", format_args!("{shown}: {}: {error}", Shown(path))),
        }
    }
}

/// Lists the files of one target.
struct FileLister<'a, 'b> {
    lister: &'a mut Lister<'b>,
    zpl: &'a Zpl,
    shown: &'a str,
}

impl FileLister<'_, '_> {
    /// One line. Without attributes, only the name is shown.
    fn entry(&mut self, path: &[u8], stat: Option<Result<Stat>>) {
        let args = self.lister.args;
        let stat = match stat.transpose() {
            Ok(stat) => stat,
            Err(e) => {
                self.failed(path, e);
                return;
            }
        };
        let Some(stat) = stat.filter(|_| args.long || args.json) else {
            let to_terminal = self.lister.to_terminal;
            self.lister.print(|out| {
                write_name(out, path, to_terminal)?;
                out.write_all(b"\n")
            });
            return;
        };
        if args.json {
            let (line, errors) = StatLine::of(self.zpl, path, &stat, false);
            self.lister.print(|out| writeln!(out, "{line}"));
            errors.into_iter().for_each(|e| self.failed(path, e));
            return;
        }
        let target = match stat.kind {
            FileKind::Symlink => self.zpl.readlink(stat.ino).map(Some),
            _ => Ok(None),
        };
        let to_terminal = self.lister.to_terminal;
        let (target, error) = match target {
            Ok(target) => (target, None),
            Err(e) => (None, Some(e)),
        };
        self.lister.print(|out| {
            write!(out, "{} ", long(&stat))?;
            write_name(out, path, to_terminal)?;
            if let Some(target) = target {
                out.write_all(b" -> ")?;
                write_name(out, &target, to_terminal)?;
            }
            out.write_all(b"\n")
        });
        if let Some(e) = error {
            self.failed(path, e);
        }
    }
}

impl FileVisitor for FileLister<'_, '_> {
    fn file(&mut self, found: WalkedFile<'_>) -> ControlFlow<()> {
        // the folder that was asked for is no entry of itself
        if found.path == b"." && found.stat.as_ref().is_ok_and(|stat| stat.kind == FileKind::Directory) {
            return ControlFlow::Continue(());
        }
        self.entry(found.path, Some(found.stat));
        ControlFlow::Continue(())
    }

    fn failed(&mut self, path: &[u8], error: Error) {
        self.lister.complain(self.shown, path, &error);
    }
}

/// Mode, links, owner, group, size or device, and time of modification.
fn long(stat: &Stat) -> String {
    let size = match stat.kind {
        FileKind::CharDevice | FileKind::BlockDevice => {
            format!("{}, {}", libc::major(stat.rdev), libc::minor(stat.rdev))
        }
        _ => stat.size.to_string(),
    };
    let (seconds, _) = stat.mtime;
    let date = match u64::try_from(seconds) {
        Ok(since) => time::local(since, c"%Y-%m-%d %H:%M"),
        Err(_) => format!("{seconds:>16}"),
    };
    format!("{} {:>3} {:>5} {:>5} {size:>10} {date}", mode_text(stat), stat.nlink, stat.uid, stat.gid)
}

/// As ls(1): `drwxr-sr-x`.
fn mode_text(stat: &Stat) -> String {
    let kind = match stat.kind {
        FileKind::Fifo => 'p',
        FileKind::CharDevice => 'c',
        FileKind::Directory => 'd',
        FileKind::BlockDevice => 'b',
        FileKind::File => '-',
        FileKind::Symlink => 'l',
        FileKind::Socket => 's',
    };
    let mut text = String::from(kind);
    for (shift, special, (set, unset)) in [(6, 0o4000, ('s', 'S')), (3, 0o2000, ('s', 'S')), (0, 0o1000, ('t', 'T'))] {
        let bits = stat.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, stat.mode & special != 0) {
            (true, true) => set,
            (false, true) => unset,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}
