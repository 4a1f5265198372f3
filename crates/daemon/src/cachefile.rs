//! Cache files: which pools are in use here, and where their devices are, for `zpool import -c`.
//!
//! ```text
//!   packed list:  "tank" ─▶ configuration of the pool
//!                 "data" ─▶ ...                          as OpenZFS writes /etc/zfs/zpool.cache
//! ```
//!
//! Only the property `cachefile` makes a pool's process write one. The system's own file is none of its
//! business: what is listed there the kernel imports when it starts, and would do so under a living process.
//!
//! Several processes may write one file, each its own entry, under a lock on the folder. New contents take
//! the place of the old ones at once. A file that is no such list is left alone.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base::{Error, Kind, Result};
use format::nvlist::{NvList, Value};
use nix::fcntl::{Flock, FlockArg};
use protocol::words::of_system;

/// A file about all pools of a machine is far smaller.
const BYTES_MAX: u64 = 64 << 20;

/// Reads a cache file.
pub fn read(file: &Path) -> Result<NvList> {
    let len = file.metadata()?.len();
    if len > BYTES_MAX {
        return Err(Error::new(Kind::TooBig, format!("cache file of {len} bytes")));
    }
    NvList::unpack(&std::fs::read(file)?)
}

/// Makes the file, without entries, if there is none: a process that may make no file of its own is to put its pool there.
/// Errors: it cannot be made, and is not there; the message names it.
pub fn offer(file: &Path) -> Result<()> {
    match write(file, &NvList::new().pack()) {
        Err(error) if error.kind() == Kind::Exists => Ok(()),
        made => made.map_err(|error| unwritten(file, &error)),
    }
}

/// The error in words for users.
pub(crate) fn unwritten(file: &Path, error: &Error) -> Error {
    let source = std::error::Error::source(error);
    let why = source.map_or_else(|| error.to_string(), of_system);
    Error::new(error.kind(), format!("cannot write cache file '{}': {why}", file.display()))
}

/// Gives a pool its entry in a cache file, which is made if there is none.
pub fn put(file: &Path, pool: &str, config: &NvList) -> Result<()> {
    change(file, |pools| pools.set(pool, Value::List(config.clone())))
}

/// Takes a pool's entry out of a cache file. One without entries is removed.
pub fn remove(file: &Path, pool: &str) -> Result<()> {
    change(file, |pools| pools.remove(pool))
}

fn change(file: &Path, change: impl FnOnce(&mut NvList)) -> Result<()> {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
        return Err(Error::new(Kind::Invalid, format!("'{}' is not a valid file", file.display())));
    };
    let lock = Flock::lock(File::open(folder)?, FlockArg::LockExclusive);
    let _lock = lock.map_err(|(_, errno)| Error::from(std::io::Error::from(errno)))?;
    let is_there = file.try_exists()?;
    let mut pools = if is_there { read(file)? } else { NvList::new() };
    change(&mut pools);
    if pools.is_empty() {
        return if is_there { Ok(std::fs::remove_file(file)?) } else { Ok(()) };
    }
    let mut new = PathBuf::from(folder);
    new.push(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    write(&new, &pools.pack())?;
    Ok(or_remove(&new, std::fs::rename(&new, file))?)
}

/// Makes a file. Errors: `Exists` if there is one; what could be written of a new one goes.
fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    let mut options = File::options();
    let mut out = options.create_new(true).write(true).mode(0o644).custom_flags(libc::O_NOFOLLOW).open(file)?;
    Ok(or_remove(file, out.write_all(bytes).and_then(|()| out.sync_all()))?)
}

/// Without success, the file goes.
fn or_remove(file: &Path, outcome: std::io::Result<()>) -> std::io::Result<()> {
    if outcome.is_err() {
        // an error here is of no more use than the one before it
        let _ = std::fs::remove_file(file);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use format::ids::Guid;

    use super::*;

    #[test]
    fn pools_come_and_go() {
        let folder = std::env::temp_dir().join(format!("cenote-cache-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("zpool.cache");
        let config = |guid| [("pool_guid".to_owned(), Value::U64(guid))].into_iter().collect::<NvList>();
        remove(&file, "tank").unwrap();
        put(&file, "tank", &config(1)).unwrap();
        put(&file, "data", &config(2)).unwrap();
        put(&file, "tank", &config(3)).unwrap();
        let guid = |pool: &str| read(&file).unwrap().opt_list(pool).and_then(|config| config.opt_guid("pool_guid"));
        assert_eq!((guid("tank"), guid("data"), guid("other")), (Some(Guid::new(3)), Some(Guid::new(2)), None));
        remove(&file, "data").unwrap();
        remove(&file, "data").unwrap();
        assert_eq!((guid("tank"), guid("data")), (Some(Guid::new(3)), None));
        remove(&file, "tank").unwrap();
        assert_eq!(folder.read_dir().unwrap().count(), 0);
        // what is something else stays
        std::fs::write(&file, "precious").unwrap();
        assert!(put(&file, "tank", &config(1)).is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
        assert_eq!(folder.read_dir().unwrap().count(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
