//! The mounted file systems of an imported pool.
//!
//! A mountpoint that is not there is made, with the folders above it; what was made is removed again
//! when the file system is unmounted, unless somebody has put something there.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use base::{Env, Error, Kind, Mutex, MutexGuard, Result};
use fuse::{Helper, Mount, MountOptions, Unmount};
use protocol::datasets::Mounted;
use zpl::Counters;

use crate::descriptors;
use crate::live::{ServedPool, Used};
use crate::source::FileSystem;
use crate::verbs::is_at_or_below_name;

/// The mounts, in the order in which they were made.
pub struct Mounts {
    helper: Helper,
    list: Mutex<Vec<One>>,
    /// How much they are used: who mounts and unmounts keeps nobody from that.
    counters: Mutex<Vec<Counted>>,
}

/// What is counted of a mount, and the object of its dataset.
struct Counted {
    dataset: u64,
    counters: Weak<Counters>,
    page_cache: bool,
}

struct One {
    mount: Mount,
    source: Arc<FileSystem>,
    options: MountOptions,
    /// How many folders were made for it: the mountpoint, and those above it.
    made: usize,
}

impl Mounts {
    /// None yet; `helper` will make them.
    pub fn new(helper: Helper) -> Mounts {
        Mounts { helper, list: Mutex::default(), counters: Mutex::default() }
    }

    /// Mounts a file system or snapshot of `pool` as `options` say; false if it is mounted read-only though it was not
    /// to be, as it can only be read. Errors: those of making the mountpoint, reading the file system and mounting.
    pub fn mount(&self, pool: &Arc<ServedPool>, options: &MountOptions, env: &Env) -> Result<bool> {
        let source = Arc::new(FileSystem::open(pool, options, env)?);
        let as_wanted = options.read_only || source.is_writable() || !pool.is_writable();
        descriptors::check_room(options.descriptors())?;
        let made = self.helper.make_folders(options)?;
        match fuse::mount(source.clone(), options, env, &self.helper) {
            Ok(mount) => {
                tracing::info!(dataset = options.fs_name, point = %options.mountpoint.display(), "mounted");
                let mut options = options.clone();
                options.read_only |= !source.is_writable();
                let ((dataset, counters), page_cache) = (source.counters(), options.page_cache);
                self.counters.lock().push(Counted { dataset, counters: Arc::downgrade(counters), page_cache });
                self.lock().push(One { mount, source, options, made });
                Ok(as_wanted)
            }
            Err(e) => {
                self.helper.remove_folders(options, made);
                Err(e)
            }
        }
    }

    /// The options of a mounted file system, as they are now.
    pub fn options_of(&self, dataset: &str) -> Option<MountOptions> {
        let list = self.lock();
        let one = list.iter().rfind(|one| one.options.fs_name == dataset && one.mount.is_mounted());
        one.map(|one| one.options.clone())
    }

    /// Gives a mounted file system these options, in place; false if it has to be mounted anew for one of them. Errors:
    /// `Busy` if it cannot be read-only now; `NotFound`.
    pub fn remount(&self, options: &MountOptions) -> Result<bool> {
        let mut list = self.lock();
        let one = list.iter_mut().rfind(|one| one.options.fs_name == options.fs_name && one.mount.is_mounted());
        let one =
            one.ok_or_else(|| Error::new(Kind::NotFound, "not currently mounted").in_dataset(&options.fs_name))?;
        let wanted = MountOptions { read_only: options.read_only || !one.source.is_writable(), ..options.clone() };
        let changed = one.options.remounted(&wanted);
        match one.mount.remount(&changed) {
            Ok(()) => {
                one.source.set_sync(changed.sync)?;
                one.options = changed;
            }
            Err(e) if e.kind() == Kind::Unsupported => return Ok(false),
            Err(e) => return Err(e),
        }
        Ok(one.options == wanted)
    }

    /// Lets files be written as the properties of their file systems say now.
    pub fn renew(&self) {
        for one in self.lock().iter() {
            if let Err(error) = one.source.renew() {
                tracing::warn!(dataset = one.options.fs_name, "files are written as before: {error}");
            }
        }
    }

    /// What is mounted of a dataset, and of those below it, has another name now.
    pub fn renamed(&self, from: &str, to: &str) {
        for one in self.lock().iter_mut() {
            if is_at_or_below_name(&one.options.fs_name, from) {
                one.options.fs_name.replace_range(..from.len(), to);
            }
        }
    }

    /// Unmounts a file system wherever it is mounted. Errors: `NotFound`, `Busy`.
    pub fn unmount(&self, dataset: &str, how: Unmount) -> Result<()> {
        let mut list = self.lock();
        let at = list.iter().rposition(|one| one.options.fs_name == dataset && one.mount.is_mounted());
        let at = at.ok_or_else(|| Error::new(Kind::NotFound, "not currently mounted").in_dataset(dataset))?;
        list[at].unmount(how, &self.helper)?;
        drop(list.remove(at));
        Ok(())
    }

    /// Unmounts all, the last one first; ends with the first that cannot be. Errors: `Busy`, and which.
    pub fn unmount_all(&self, how: Unmount) -> Result<(), (PathBuf, Error)> {
        let mut list = self.lock();
        while let Some(one) = list.last() {
            one.unmount(how, &self.helper).map_err(|e| (one.mount.point().to_owned(), e))?;
            list.pop();
        }
        Ok(())
    }

    /// The file systems that are mounted now, sorted by path; of those at the same place, the first one is below.
    pub fn list(&self) -> Vec<Mounted> {
        let mut list = self.lock();
        // somebody may have called umount
        list.retain(|one| one.mount.is_mounted());
        let file_systems = list.iter().filter(|one| !one.options.fs_name.contains('@'));
        let mut mounted: Vec<Mounted> = file_systems.map(One::describe).collect();
        mounted.sort_by(|a, b| a.path.cmp(&b.path));
        mounted
    }

    /// How much the mounted file systems have been used, by the objects of their datasets.
    pub fn used(&self) -> BTreeMap<u64, Used> {
        let mut all = self.counters.lock();
        all.retain(|one| one.counters.strong_count() > 0);
        let used = |one: &Counted| Some(Used { counts: one.counters.upgrade()?.sums(), page_cache: one.page_cache });
        all.iter().filter_map(|one| Some((one.dataset, used(one)?))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<One>> {
        self.list.lock()
    }
}

impl One {
    fn unmount(&self, how: Unmount, helper: &Helper) -> Result<()> {
        self.mount.unmount(how)?;
        helper.remove_folders(&self.options, self.made);
        Ok(())
    }

    fn describe(&self) -> Mounted {
        let options = &self.options;
        let words = [
            (if options.read_only { "ro" } else { "rw" }, true),
            (if options.setuid { "suid" } else { "nosuid" }, true),
            (if options.devices { "dev" } else { "nodev" }, true),
            (if options.exec { "exec" } else { "noexec" }, true),
            ("noatime", !options.atime),
            ("relatime", options.atime && options.relatime),
            ("nodiratime", !options.dir_atime),
            ("sync", options.sync),
            (if options.xattrs { "xattr" } else { "noxattr" }, true),
            ("posixacl", options.posix_acl),
        ];
        Mounted {
            dataset: self.options.fs_name.clone(),
            path: self.mount.point().to_string_lossy().into_owned(),
            options: words.iter().filter(|(_, is_on)| *is_on).map(|(word, _)| (*word).to_owned()).collect(),
        }
    }
}
