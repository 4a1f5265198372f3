//! `cenote reflink`: a copy of a file that shares its blocks, also between file systems of a pool.
//!
//! ```text
//!   source, open to be read ───┐                            ┌─▶ shared, as far as that can be done
//!   target, open to be written ┴─▶ the pool's process ──────┤
//!                                                           └─▶ the rest: read here, and written
//! ```
//!
//! `cp` has the kernel ask for that, which it does only within a mount.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use protocol::client::{self, Connection};
use protocol::share::{ShareOrder, SharedFile};
use protocol::wire::{PoolReply, Request};
use protocol::words::nicenum::nicebytes;

use crate::patience::real_path;
use crate::{output, zfs};

/// Bytes that are copied before it is tried again to share.
const COPY_BYTES: u64 = 1 << 20;

/// Copy a file within a pool so that both share blocks: also from one file system to another, or out of a snapshot
///
/// The copy takes no room and no time, and both can be changed afterwards, as each block is kept until nobody has it.
/// Blocks that cannot be shared are copied, and how many bytes these were is told: blocks that have just been written, and
/// those of what is there already in larger blocks, among others. TARGET, a file or a folder, is written over. The
/// pool's feature block_cloning has to be enabled. Within a file system, cp does the same.
#[derive(clap::Parser)]
#[command(name = "cenote reflink", no_binary_name = true)]
struct ReflinkArgs {
    /// A regular file, also one below .zfs/snapshot
    source: PathBuf,
    /// What it is copied to, in the same pool
    target: PathBuf,
}

/// Bytes of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CopiedBytes {
    shared: u64,
    copied: u64,
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    let args: ReflinkArgs = match output::parse_args(args) {
        Ok(args) => args,
        Err(code) => return code,
    };
    let target = match (args.target.is_dir(), args.source.file_name()) {
        (true, Some(name)) => args.target.join(name),
        _ => args.target,
    };
    match copy(&args.source, &target) {
        Ok(CopiedBytes { shared, copied }) => {
            println!("{}: {} shared, {} copied", target.display(), nicebytes(shared), nicebytes(copied));
            ExitCode::SUCCESS
        }
        Err(why) => {
            output::complain("reflink", why);
            output::FAILED.into()
        }
    }
}

/// Where a file is: its pool, and what that calls it.
struct FilePlace {
    pool: String,
    file: SharedFile,
}

fn copy(source_path: &Path, target_path: &Path) -> Result<CopiedBytes, String> {
    let open = |path: &Path, e: io::Error| format!("cannot open '{}': {e}", path.display());
    let source = File::open(source_path).map_err(|e| open(source_path, e))?;
    let found = source.metadata().map_err(|e| open(source_path, e))?;
    if !found.is_file() {
        return Err(format!("'{}': not a regular file", source_path.display()));
    }
    let from = place_of(source_path, &found)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(found.mode() & 0o777);
    let (target, is_new) = match options.create_new(true).open(target_path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => (options.create_new(false).open(target_path), false),
        opened => (opened, true),
    };
    let target = target.map_err(|e| open(target_path, e))?;
    let done = copy_to(&source, (&found, from), &target, target_path);
    if done.is_err() && is_new {
        // the error is told
        let _ = std::fs::remove_file(target_path);
    }
    done
}

fn copy_to(
    source: &File,
    (found, from): (&Metadata, FilePlace),
    target: &File,
    target_path: &Path,
) -> Result<CopiedBytes, String> {
    let failed = |e: io::Error| format!("cannot write '{}': {e}", target_path.display());
    let before = target.metadata().map_err(failed)?;
    if !before.is_file() {
        return Err(format!("'{}': not a regular file", target_path.display()));
    }
    if (before.dev(), before.ino()) == (found.dev(), found.ino()) {
        return Err(format!("'{}' is the source itself", target_path.display()));
    }
    let to = place_of(target_path, &before)?;
    if to.pool != from.pool {
        return Err(format!("the files are in different pools, '{}' and '{}'", from.pool, to.pool));
    }
    let connection = client::connect(&to.pool).map_err(|e| e.to_string())?;
    let mut connection = connection.ok_or_else(|| format!("pool '{}' is not imported", to.pool))?;
    let order = ShareOrder { source: from.file, source_offset: 0, target: to.file, offset: 0, len: 0 };
    // nothing yet: whether it can be
    share(&mut connection, &order)?;
    target.set_len(0).map_err(failed)?;
    // what the kernel has not written yet could not be shared
    source.sync_data().map_err(|e| format!("cannot read what was written last: {e}"))?;
    let (mut done, mut offset, mut buffer) = (CopiedBytes::default(), 0, vec![0; COPY_BYTES as usize]);
    while offset < found.len() {
        let len = found.len() - offset;
        let shared = share(&mut connection, &ShareOrder { source_offset: offset, offset, len, ..order.clone() })?;
        offset += shared;
        done.shared += shared;
        if shared == 0 {
            let part = &mut buffer[..len.min(COPY_BYTES) as usize];
            let read = source.read_at(part, offset).map_err(|e| format!("cannot read: {e}"))?;
            if read == 0 {
                break;
            }
            target.write_all_at(&part[..read], offset).map_err(failed)?;
            offset += read as u64;
            done.copied += read as u64;
        }
    }
    // the kernel may know only of what went through it
    target.set_len(offset).map_err(failed)?;
    Ok(done)
}

fn share(connection: &mut Connection, order: &ShareOrder) -> Result<u64, String> {
    match connection.ask(&Request::Share(order.clone())) {
        Ok(PoolReply::Shared(bytes)) => Ok(bytes),
        Ok(_) => Err("the pool's process answers something else than was asked".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The file system of an imported pool that a file is in, or the snapshot below its `.zfs`.
fn place_of(path: &Path, found: &Metadata) -> Result<FilePlace, String> {
    let mounted = zfs::mounted_at(path).map_err(|e| e.to_string())??;
    let not_there = |e: io::Error| format!("cannot open '{}': {e}", path.display());
    let root = std::fs::metadata(&mounted.path).map_err(not_there)?;
    if root.dev() != found.dev() {
        return Err(format!("'{}': not in a file system that the pool has mounted", path.display()));
    }
    let real = real_path(path).map_err(not_there)?;
    let inside = real.strip_prefix(&mounted.path).unwrap_or(&real);
    let dataset = match snapshot_of(inside) {
        Some(name) => format!("{}@{name}", mounted.dataset),
        None => mounted.dataset,
    };
    let pool = dataset.split(['/', '@']).next().unwrap_or_default().to_owned();
    Ok(FilePlace { pool, file: SharedFile { dataset, inode: found.ino() } })
}

/// The snapshot that a path inside a file system leads into.
fn snapshot_of(inside: &Path) -> Option<&str> {
    let mut names = inside.iter();
    let is_below = names.next()? == ".zfs" && names.next()? == "snapshot";
    names.next().filter(|_| is_below)?.to_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_into_snapshots() {
        let of = |path: &'static str| snapshot_of(Path::new(path));
        assert_eq!(of(".zfs/snapshot/monday/a/b"), Some("monday"));
        assert_eq!([of("a/.zfs/snapshot/monday"), of(".zfs/shares/x"), of(".zfs/snapshot"), of("b")], [None; 4]);
    }
}
