//! `zfs project`: projects of files and directories.
//!
//! ```text
//!   project DIR          lists the directory and what is in it; -d itself, -r all below
//!   project -c DIR       names what is not of the directory's project, or would not hand it on
//!   project -p ID DIR    gives it a project; -s to hand on, to all that is made in it
//!   project -C DIR       takes both away; -k only the handing on
//! ```
//!
//! It needs no pool: the kernel is asked, for files of any file system that has projects. Below a directory only regular
//! files and directories are looked at, as nothing else has a project, and no links are followed.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base::Shown;
use fuse::Project;

use super::client::{Pools, why};
use super::command::{Outcome, Stopped, ZfsCommand, parse, usage};
use crate::getopt::Opt;
use crate::patience::metadata;

/// What is done to each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    List,
    Check,
    Clear,
    Set,
}

/// A command line.
#[derive(Clone, Debug)]
struct ProjectLine {
    task: Deed,
    /// The project to set, or to compare with.
    id: Option<u32>,
    directory_only: bool,
    recursive: bool,
    keeps_id: bool,
    hands_on: bool,
    /// Names end with a NUL, and nothing is explained.
    is_plain: bool,
}

/// Runs the command.
pub(super) fn run(_: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    if args.is_empty() {
        return Err(Outcome { err: usage(command), code: crate::output::USAGE, ..Outcome::default() });
    }
    let (options, files) = options(command, args)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut failures = String::new();
    for file in &files {
        if let Err(why) = handle(Path::new(file), &options, &mut out) {
            failures += &format!("{why}\n");
        }
    }
    if let Err(error) = out.flush() {
        failures += &format!("failed to write: {}\n", why(&error));
    }
    let code = if failures.is_empty() { 0 } else { u8::MAX };
    Ok(Outcome { err: failures, code, ..Outcome::default() })
}

fn options(command: &ZfsCommand, args: &[OsString]) -> Result<(ProjectLine, Vec<OsString>), Stopped> {
    let parsed = parse(command, args, "0Ccdkp:rs", &[])?;
    let misused = |why: &str| Err(Outcome::misused(command, why));
    let mut options = ProjectLine {
        task: Deed::List,
        id: None,
        directory_only: false,
        recursive: false,
        keeps_id: false,
        hands_on: false,
        is_plain: false,
    };
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('C' | 'c' | 's') if options.task != Deed::List => {
                return misused("cannot specify '-C' '-c' '-s' together");
            }
            Opt::Flag('C') => options.task = Deed::Clear,
            Opt::Flag('c') => options.task = Deed::Check,
            Opt::Flag('s') => (options.task, options.hands_on) = (Deed::Set, true),
            // the last one of both counts
            Opt::Flag(flag @ ('d' | 'r')) => (options.directory_only, options.recursive) = (*flag == 'd', *flag == 'r'),
            Opt::Flag('k') => options.keeps_id = true,
            Opt::Flag('0') => options.is_plain = true,
            Opt::Value('p', text) => match number(text).map(u32::try_from) {
                None => return misused(&format!("project ID must be less than {}", u32::MAX)),
                Some(Err(_) | Ok(u32::MAX)) => return misused("invalid project ID"),
                Some(Ok(id)) => options.id = Some(id),
            },
            _ => {}
        }
    }
    if options.task == Deed::List && options.id.is_some() {
        options.task = Deed::Set;
    }
    match options.task {
        Deed::Clear if options.directory_only => return misused("'-d' is useless together with '-C'"),
        Deed::Clear if options.id.is_some() => return misused("'-p' is useless together with '-C'"),
        Deed::Set if options.directory_only => {
            return misused("'-d' is useless for set project ID and/or inherit flag");
        }
        task if options.keeps_id && task != Deed::Clear => return misused("'-k' is only valid together with '-C'"),
        task if options.is_plain && task != Deed::Check => return misused("'-0' is only valid together with '-c'"),
        _ => {}
    }
    match parsed.files.is_empty() {
        true => misused("missing file or directory target(s)"),
        false => Ok((options, parsed.files)),
    }
}

/// A number as strtoull(3) reads it.
fn number(text: &str) -> Option<u64> {
    match (text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")), text.strip_prefix('0')) {
        (Some(hex), _) => u64::from_str_radix(hex, 16).ok(),
        (None, Some(octal)) if !octal.is_empty() => u64::from_str_radix(octal, 8).ok(),
        _ => text.parse().ok(),
    }
}

/// Does it to a file that was named, and to what is below.
fn handle(top: &Path, options: &ProjectLine, out: &mut dyn Write) -> Result<(), String> {
    let failed = |what: &str, error: &io::Error| words(what, top, error);
    let kind = metadata(top).map_err(|e| failed("stat", &e))?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err("only support project quota on regular file or directory".to_owned());
    }
    for (is_given, flag) in [(options.directory_only, 'd'), (options.recursive, 'r')] {
        if is_given && !kind.is_dir() {
            return Err(format!("'-{flag}' option on non-dir target {}", Shown(top.as_os_str().as_bytes())));
        }
    }
    let file = open(top, 0).map_err(|e| failed("open", &e))?;
    let mut options = options.clone();
    if matches!(options.task, Deed::Set | Deed::Check) && options.id.is_none() {
        options.id = Some(Project::of(&file).map_err(|e| failed("get xattr for", &e))?.id);
    }
    apply(top, &file, &options, out)?;
    let enters = options.recursive || matches!(options.task, Deed::List | Deed::Check);
    if !kind.is_dir() || options.directory_only || !enters {
        return Ok(());
    }
    let mut below = vec![top.to_owned()];
    while let Some(directory) = below.pop() {
        handle_directory(&directory, &options, out, &mut below)?;
    }
    Ok(())
}

/// Does it to all that is in a directory, and adds the directories there to `below`. What is gone meanwhile is left out.
fn handle_directory(
    directory: &Path,
    options: &ProjectLine,
    out: &mut dyn Write,
    below: &mut Vec<PathBuf>,
) -> Result<(), String> {
    let entries = match directory.read_dir() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|e| words("opendir", directory, &e))?,
    };
    for entry in entries {
        let entry = entry.map_err(|e| words("readdir", directory, &e))?;
        let (path, kind) = (entry.path(), entry.file_type());
        let kind = kind.map_err(|e| words("stat", &path, &e))?;
        if !kind.is_file() && !kind.is_dir() {
            continue;
        }
        match open(&path, libc::O_NOFOLLOW) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => apply(&path, &file.map_err(|e| words("open", &path, &e))?, options, out)?,
        }
        if options.recursive && kind.is_dir() {
            below.push(path);
        }
    }
    Ok(())
}

fn open(path: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK | flags).open(path)
}

/// Does it to one open file.
fn apply(path: &Path, file: &File, options: &ProjectLine, out: &mut dyn Write) -> Result<(), String> {
    let old = Project::of(file).map_err(|e| words("get xattr for", path, &e))?;
    let wanted = options.id.unwrap_or(old.id);
    let new = match options.task {
        Deed::List => {
            let mark = if old.is_handed_on { 'P' } else { '-' };
            return say(out, &format!("{:>5} {mark} ", old.id), path.as_os_str(), "\n");
        }
        Deed::Check if old == (Project { id: wanted, is_handed_on: true }) => return Ok(()),
        Deed::Check if options.is_plain => {
            return out.write_all(&[path.as_os_str().as_bytes(), b"\0"].concat()).map_err(|e| unsaid(&e));
        }
        Deed::Check => {
            if old.id != wanted {
                let why = format!(" - project ID is not set properly ({}/{wanted})\n", old.id);
                say(out, "", path.as_os_str(), &why)?;
            }
            if !old.is_handed_on {
                say(out, "", path.as_os_str(), " - project inherit flag is not set\n")?;
            }
            return Ok(());
        }
        Deed::Clear => Project { id: if options.keeps_id { old.id } else { 0 }, is_handed_on: false },
        Deed::Set => Project { id: wanted, is_handed_on: old.is_handed_on || options.hands_on },
    };
    match new == old {
        true => Ok(()),
        false => new.give(file).map_err(|e| words("set xattr for", path, &e)),
    }
}

fn say(out: &mut dyn Write, before: &str, path: &OsStr, after: &str) -> Result<(), String> {
    write!(out, "{before}{}{after}", Shown(path.as_bytes())).map_err(|e| unsaid(&e))
}

fn unsaid(error: &io::Error) -> String {
    format!("failed to write: {}", why(error))
}

fn words(what: &str, path: &Path, error: &io::Error) -> String {
    format!("failed to {what} {}: {}", Shown(path.as_os_str().as_bytes()), why(error))
}
