//! What this host remembers of pools: which are its own.
//!
//! ```text
//!   /var/lib/cenote               root's
//!   $XDG_STATE_HOME/cenote        an ordinary user's, or
//!   ~/.local/state/cenote         if that is not set
//!   $CENOTE_RUN/state             if only that is set
//!   $CENOTE_STATE                 if it is set
//!     key                         32 random bytes, of mode 0600
//!     pools/GUID                  of a pool that was made here, or taken in: a sum of it by the key; and of one that is
//!                                 not in use, a sum of its last root
//! ```
//!
//! A label tells which host had a pool last, and anybody can write a label. So a pool is known by numbers in it that no
//! command tells, under a key that nobody else has: neither the id of a host nor the guid of a pool is a secret.
//!
//! A pool that another host had meanwhile is no longer on the list: what it holds may have been put there. That host may say in
//! the label that it is this one; but the pool has another root than it was left with, then. Of a pool that was in use when
//! this host or its process died nothing is known but what the label says.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base::{Env, Error, Kind, Result};
use export::{FileRights, read_host_file};
use format::ids::Guid;
use nix::unistd::geteuid;
use sha2::{Digest, Sha256};

const OF_ROOT: &str = "/var/lib/cenote";
const KEY_BYTES: usize = 32;
/// Longest file of a pool, in bytes.
const POOL_BYTES_MAX: u64 = 4 << 10;
/// Bytes that SHA-256 takes at a time.
const HASH_BLOCK_BYTES: usize = 64;

/// A pool, as it is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolIdentity {
    /// Its guid.
    pub guid: Guid,
    /// Numbers in it that no command tells.
    pub hidden: [u64; 4],
}

/// The folder, and the key in it.
pub struct HostState {
    folder: PathBuf,
    key: [u8; KEY_BYTES],
}

impl HostState {
    /// The folder of this user, which is made if there is none. Errors: it cannot be, or others may write it or read
    /// the key.
    pub fn open() -> Result<HostState> {
        HostState::at(place())
    }

    /// The same of any folder.
    pub fn at(folder: PathBuf) -> Result<HostState> {
        let failed = |why: &dyn std::fmt::Display| {
            Error::new(Kind::Permission, format!("cannot use {}: {why}", folder.display()))
        };
        let pools = folder.join("pools");
        // others may enter what is above it
        fs::create_dir_all(folder.parent().unwrap_or(Path::new("/"))).map_err(|e| failed(&e))?;
        DirBuilder::new().recursive(true).mode(0o700).create(&pools).map_err(|e| failed(&e))?;
        for made in [&folder, &pools] {
            let about = fs::symlink_metadata(made).map_err(|e| failed(&e))?;
            if !about.is_dir() || about.uid() != geteuid().as_raw() || about.mode() & 0o022 != 0 {
                return Err(failed(&"it is not this user's alone; CENOTE_STATE names another folder"));
            }
        }
        let file = folder.join("key");
        if fs::symlink_metadata(&file).is_err() {
            make_key(&folder, &file).map_err(|e| failed(&e))?;
        }
        let bytes = read_host_file(&file, FileRights::Secret, KEY_BYTES as u64)?;
        let key = bytes.try_into().map_err(|_| failed(&"its key is broken"))?;
        Ok(HostState { folder, key })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether a pool is this host's own.
    pub fn is_own(&self, pool: &PoolIdentity) -> bool {
        self.sums_of(pool.guid)[0].as_ref() == Some(&self.sum_of_pool(pool))
    }

    /// Whether a pool of this host's own has the root that it was left with, or was in use until now.
    pub fn is_as_left(&self, pool: &PoolIdentity, root: &[u8]) -> bool {
        self.sums_of(pool.guid)[1].as_ref().is_none_or(|left| *left == self.sum_of_root(pool, root))
    }

    /// A pool of this host's own is left with that root. Errors: those of writing it down.
    pub fn leave(&self, pool: &PoolIdentity, root: &[u8]) -> Result<()> {
        self.write_sums(pool, &[self.sum_of_pool(pool), self.sum_of_root(pool, root)])
    }

    /// Makes a pool this host's own, which is in use. Errors: those of writing it down.
    pub fn take_in(&self, pool: &PoolIdentity) -> Result<()> {
        self.write_sums(pool, &[self.sum_of_pool(pool)])
    }

    /// Takes a pool off the list. Errors: those of removing a file.
    pub fn forget(&self, guid: Guid) -> Result<()> {
        match fs::remove_file(self.file_of(guid)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// A sum that only this host can make, of words in that order.
    pub fn sum(&self, words: &[&str]) -> String {
        let mut text = Vec::new();
        for word in words {
            text.extend_from_slice(&(word.len() as u64).to_le_bytes());
            text.extend_from_slice(word.as_bytes());
        }
        // HMAC (RFC 2104)
        let padded = |pad: u8| {
            let mut block = [pad; HASH_BLOCK_BYTES];
            block.iter_mut().zip(self.key).for_each(|(byte, key)| *byte ^= key);
            block
        };
        let inner = Sha256::new().chain_update(padded(0x36)).chain_update(&text).finalize();
        let sum = Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize();
        sum.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }

    fn sum_of_pool(&self, pool: &PoolIdentity) -> String {
        self.sum(&["pool", &pool.guid.to_string(), &format!("{:?}", pool.hidden)])
    }

    /// What is remembered of a pool: the sum of it, and that of its last root. What cannot be read is not there.
    fn sums_of(&self, guid: Guid) -> [Option<String>; 2] {
        let stored = read_host_file(&self.file_of(guid), FileRights::Secret, POOL_BYTES_MAX).unwrap_or_default();
        let text = String::from_utf8_lossy(&stored);
        let mut lines = text.lines().map(str::to_owned);
        [lines.next(), lines.next()]
    }

    fn write_sums(&self, pool: &PoolIdentity, sums: &[String]) -> Result<()> {
        let lines: String = sums.iter().map(|sum| format!("{sum}\n")).collect();
        Ok(write_new(&self.folder, &self.file_of(pool.guid), lines.as_bytes())?)
    }

    fn sum_of_root(&self, pool: &PoolIdentity, root: &[u8]) -> String {
        self.sum(&["root", &pool.guid.to_string(), &format!("{root:?}")])
    }

    fn file_of(&self, guid: Guid) -> PathBuf {
        self.folder.join("pools").join(format!("{guid:016x}"))
    }
}

/// Makes the key; another process may have made one before.
fn make_key(folder: &Path, file: &Path) -> std::io::Result<()> {
    let env = Env::real();
    let key: Vec<u8> = (0..KEY_BYTES / 8).flat_map(|_| env.random().to_ne_bytes()).collect();
    let (temporary, mut written) = temporary_in(folder)?;
    let linked =
        written.write_all(&key).and_then(|()| written.sync_all()).and_then(|()| fs::hard_link(&temporary, file));
    fs::remove_file(&temporary)?;
    match linked {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked.and_then(|()| sync_folder(folder)),
    }
}

/// Puts bytes in a file's place, whole.
fn write_new(folder: &Path, file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let (temporary, mut written) = temporary_in(folder)?;
    written.write_all(bytes)?;
    written.sync_all()?;
    fs::rename(temporary, file)?;
    sync_folder(file.parent().unwrap_or(folder))
}

fn temporary_in(folder: &Path) -> std::io::Result<(PathBuf, File)> {
    let path = folder.join(format!("new-{:016x}", Env::real().random()));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    Ok((path, file))
}

fn sync_folder(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Where the folder is.
fn place() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_run = || set("CENOTE_RUN").map(|run| run.join("state"));
    let of_user = || {
        if geteuid().is_root() {
            return None;
        }
        let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
        state.map(|state| state.join("cenote"))
    };
    set("CENOTE_STATE").or_else(of_run).or_else(of_user).unwrap_or_else(|| PathBuf::from(OF_ROOT))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn pool(guid: u64, hidden: u64) -> PoolIdentity {
        PoolIdentity { guid: Guid::new(guid), hidden: [hidden, 2, 3, 4] }
    }

    #[test]
    fn own_pools_are_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let state = || HostState::at(dir.path().join("state")).unwrap();
        assert!(!state().is_own(&pool(1, 1)));
        state().take_in(&pool(1, 1)).unwrap();
        state().take_in(&pool(1, 1)).unwrap();
        assert!(state().is_own(&pool(1, 1)));
        // it is in use: nobody knows its root
        assert!(state().is_as_left(&pool(1, 1), b"any"));
        state().leave(&pool(1, 1), b"last").unwrap();
        assert!(state().is_own(&pool(1, 1)) && state().is_as_left(&pool(1, 1), b"last"));
        assert!(!state().is_as_left(&pool(1, 1), b"later"));
        state().take_in(&pool(1, 1)).unwrap();
        assert!(state().is_as_left(&pool(1, 1), b"later"));
        // the guid is no secret, and a list without the key is none
        assert!(!state().is_own(&pool(1, 9)) && !state().is_own(&pool(2, 1)));
        let other = HostState::at(dir.path().join("other")).unwrap();
        fs::copy(state().file_of(Guid::new(1)), other.file_of(Guid::new(1))).unwrap();
        assert!(!other.is_own(&pool(1, 1)));
        state().forget(Guid::new(1)).unwrap();
        state().forget(Guid::new(1)).unwrap();
        assert!(!state().is_own(&pool(1, 1)));
    }

    #[test]
    fn sums_are_of_a_key_and_of_words() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = HostState::at(dir.path().join("a")).unwrap();
        let other = HostState::at(dir.path().join("b")).unwrap();
        assert_eq!(state.sum(&["a", "b"]), HostState::at(dir.path().join("a")).unwrap().sum(&["a", "b"]));
        let sums = [state.sum(&["a", "b"]), state.sum(&["ab"]), state.sum(&["", "ab"]), other.sum(&["a", "b"])];
        let different: std::collections::HashSet<&String> = sums.iter().collect();
        assert_eq!((different.len(), sums[0].len()), (4, 64));
        // reckoned by Python's hmac
        state.key = [7; KEY_BYTES];
        assert_eq!(state.sum(&["x"]), "9a8ef0361bfda523cd9ce5743158a876ba60b1369c119c1162d249a5d1fe3682");
    }

    #[test]
    fn nobody_else_has_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state");
        let key = folder.join("key");
        HostState::at(folder.clone()).unwrap();
        assert_eq!(fs::metadata(&key).unwrap().mode() & 0o777, 0o600);
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        set(&key, 0o644);
        assert!(HostState::at(folder.clone()).is_err());
        set(&key, 0o600);
        set(&folder, 0o777);
        assert!(HostState::at(folder.clone()).is_err());
        set(&folder, 0o700);
        HostState::at(folder.clone()).unwrap();
        fs::write(&key, "short").unwrap();
        assert!(HostState::at(folder).is_err());
    }
}
