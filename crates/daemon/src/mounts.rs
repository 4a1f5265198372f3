//! The mounted file systems of an imported pool.
//!
//! A mountpoint that is not there is made, with the folders above it; what was made is removed again when the file system
//! goes, or the pool, unless somebody has put something there. It stays when the file system is unmounted by hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::{Env, Error, Kind, Mutex, MutexGuard, Result};
use export::Export;
use format::ids::{DatasetId, ObjectId};
use fuse::{AdoptedMount, Helper, InheritedMount, LostObjects, Mount, MountOptions, MountTable, Unmount};
use pool::LivePool;
use protocol::datasets::Mounted;
use zpl::Zpl;

use crate::descriptors;
use crate::exports::Exports;
use crate::live::{ServedPool, Used};
use crate::source::FileSystem;
use crate::verbs::is_at_or_below_name;

/// A change of a file: how many bytes it has changed.
type FileChange<'a> = dyn Fn(&Zpl, ObjectId) -> Result<u64> + 'a;

/// The mounts, in the order in which they were made.
pub struct Mounts {
    helper: Helper,
    exports: Arc<Exports>,
    list: Mutex<Vec<Arc<MountedDataset>>>,
}

/// A file system or snapshot that is mounted.
struct MountedDataset {
    mount: Mount,
    source: Arc<FileSystem>,
    helper: Helper,
    options: Mutex<MountOptions>,
}

impl Mounts {
    /// None yet; `helper` will make them, and they will be among `exports`.
    pub fn new(helper: Helper, exports: Arc<Exports>) -> Mounts {
        Mounts { helper, exports, list: Mutex::default() }
    }

    /// Mounts a file system or snapshot of `pool` as `options` say. Errors: those of making the mountpoint, reading the file system and mounting.
    pub fn mount(&self, pool: &Arc<ServedPool>, options: &MountOptions, env: &Env) -> Result<()> {
        let source = Arc::new(FileSystem::open(pool, &self.exports, options, env, true)?);
        descriptors::check_room(options.descriptors())?;
        let folders_made = self.helper.make_folders(options)?;
        let options = &MountOptions { folders_made, ..options.clone() };
        match fuse::mount(source.clone(), options, env, &self.helper) {
            Ok(mount) => {
                tracing::info!(dataset = options.fs_name, point = %options.mountpoint.display(), "mounted");
                self.add(mount, source, options.clone());
                Ok(())
            }
            Err(e) => {
                self.helper.remove_folders(options, folders_made);
                Err(e)
            }
        }
    }

    /// Goes on serving a mount of the process before this one. Errors: those of reading the file system; the mount has ended
    /// then.
    pub fn adopt(&self, pool: &Arc<ServedPool>, inherited: InheritedMount, env: &Env) -> Result<()> {
        let options = inherited.options().clone();
        let open = || FileSystem::open(pool, &self.exports, &options, env, false).map(Arc::new);
        let AdoptedMount { mount, source, lost } = fuse::adopt(open, inherited, env, &self.helper)?;
        tracing::info!(dataset = options.fs_name, point = %mount.point().display(), "goes on being served");
        if let (false, Ok(pool)) = (lost.is_empty(), pool.live()) {
            tell_lost(pool, &options.fs_name, &source.live(), &lost);
        }
        self.add(mount, source, options);
        Ok(())
    }

    fn add(&self, mount: Mount, source: Arc<FileSystem>, mut options: MountOptions) {
        options.read_only |= !source.is_writable();
        let (helper, options) = (self.helper.clone(), Mutex::new(options));
        let mounted = Arc::new(MountedDataset { mount, source, helper, options });
        self.lock().push(mounted.clone());
        self.exports.add(mounted);
    }

    /// Removes the folder where nothing is mounted as `options` say any more, if it is empty.
    pub fn remove_folder(&self, options: &MountOptions) {
        self.helper.remove_folders(options, 1);
    }

    /// The options of a mounted file system, as they are now.
    pub fn options_of(&self, dataset: &str) -> Option<MountOptions> {
        self.find(dataset).map(|mounted| mounted.options())
    }

    /// Gives a mounted file system these options, in place; false if it has to be mounted anew for one of them. Errors:
    /// `Busy` if it cannot be read-only now; `NotFound`.
    pub fn remount(&self, options: &MountOptions) -> Result<bool> {
        let mounted = self.find(&options.fs_name);
        let mounted =
            mounted.ok_or_else(|| Error::new(Kind::NotFound, "not currently mounted").in_dataset(&options.fs_name))?;
        let wanted = MountOptions { read_only: options.read_only || !mounted.source.is_writable(), ..options.clone() };
        let mut now = mounted.options.lock();
        let changed = now.remounted(&wanted);
        // before the kernel asks for them
        mounted.source.set_acls(changed.posix_acl);
        let done = mounted.mount.remount(&changed);
        if done.is_err() {
            mounted.source.set_acls(now.posix_acl);
        }
        match done {
            Ok(()) => {
                mounted.source.set_sync(changed.sync)?;
                *now = changed;
            }
            Err(e) if e.kind() == Kind::Unsupported => return Ok(false),
            Err(e) => return Err(e),
        }
        Ok(*now == wanted)
    }

    /// The file systems that are mounted now, sorted by path; of those at the same place, the first one is below.
    pub fn list(&self) -> Vec<Mounted> {
        let file_systems = self.all().into_iter().filter(|mounted| !mounted.dataset().contains('@'));
        let mut mounted: Vec<Mounted> = file_systems.map(|mounted| mounted.describe()).collect();
        mounted.sort_by(|a, b| a.path.cmp(&b.path));
        mounted
    }

    /// How much the mounted file systems have been used, by the objects of their datasets.
    pub fn used(&self) -> BTreeMap<DatasetId, Used> {
        let used = |mounted: &Arc<MountedDataset>| {
            let ((dataset, counters), page_cache) = (mounted.source.counters(), mounted.options().page_cache);
            (dataset, Used { counts: counters.sums(), page_cache })
        };
        let list = self.lock().clone();
        list.iter().filter(|mounted| !mounted.mount.has_ended()).map(used).collect()
    }

    /// The files of a file system or snapshot that is mounted, as they are now.
    pub fn contents_of(&self, dataset: DatasetId) -> Option<Arc<Zpl>> {
        let mounted = self.all().into_iter().find(|mounted| mounted.source.counters().0 == dataset);
        mounted.map(|mounted| mounted.source.live())
    }

    /// Lets `change` change a file of a mounted file system, by its number there; how many bytes it says that it has changed
    /// this returns. Errors: `NotFound` if it is not mounted; as of [`Mount::change_file`].
    pub fn change_file(&self, dataset: &str, inode: u64, change: &FileChange<'_>) -> Result<u64> {
        let mounted = self.find(dataset);
        let mounted = mounted.ok_or_else(|| Error::new(Kind::NotFound, "not currently mounted").in_dataset(dataset))?;
        mounted.mount.change_file(inode, &|object| change(&mounted.source.live(), object))
    }

    /// Has the kernel send what it keeps of changes of these datasets: what is done next knows of all that programs read.
    pub fn send_pages(&self, datasets: &[&str]) {
        for mounted in self.all().iter().filter(|mounted| datasets.contains(&&*mounted.dataset())) {
            mounted.mount.send_pages();
        }
    }

    /// The same of all datasets.
    pub fn send_all_pages(&self) {
        self.all().iter().for_each(|mounted| mounted.mount.send_pages());
    }

    /// All that was changed is on disk: how much room files take shows at once.
    pub fn settled(&self) {
        self.all().iter().for_each(|mounted| mounted.mount.settled());
    }

    /// How many files of a file system have no name, and are not freed yet; 0 if it is not mounted.
    pub fn unlinked(&self, dataset: &str) -> u64 {
        self.find(dataset).map_or(0, |mounted| {
            let counts = mounted.source.counters().1.sums();
            counts.unlinks.saturating_sub(counts.unlinked)
        })
    }

    /// Whether a file system is mounted where the path of its mountpoint leads: that is looked at, so what the kernel only
    /// takes for mounted still is not any more afterwards.
    pub fn is_at_its_place(&self, dataset: &str) -> bool {
        self.find(dataset).is_some_and(|mounted| mounted.mount.is_at_its_place())
    }

    /// The last one that is mounted of a dataset.
    fn find(&self, dataset: &str) -> Option<Arc<MountedDataset>> {
        let list = self.lock().clone();
        list.into_iter().rfind(|mounted| mounted.dataset() == dataset && mounted.is_served())
    }

    /// Those that are mounted now.
    fn all(&self) -> Vec<Arc<MountedDataset>> {
        let mut list = self.lock();
        // an administrator may have called umount
        let now = MountTable::now();
        list.retain(|mounted| mounted.mount.is_among(&now));
        list.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<MountedDataset>>> {
        self.list.lock()
    }
}

impl Export for MountedDataset {
    fn dataset(&self) -> String {
        self.options.lock().fs_name.clone()
    }

    fn place(&self) -> String {
        self.mount.point().to_string_lossy().into_owned()
    }

    fn is_served(&self) -> bool {
        self.mount.is_mounted()
    }

    fn stop(&self, force: bool) -> Result<()> {
        self.mount.take_away(if force { Unmount::Force } else { Unmount::IfUnused })
    }

    fn settle(&self, limit: Duration) {
        self.mount.settle(limit);
    }

    fn clear(&self) {
        let options = self.options();
        self.helper.remove_folders(&options, options.folders_made);
    }

    fn renamed(&self, name: &str) {
        name.clone_into(&mut self.options.lock().fs_name);
        self.mount.renamed(name);
    }

    fn depends_on(&self, dataset: &str) -> bool {
        is_at_or_below_name(&self.dataset(), dataset)
    }

    fn property_changed(&self) -> Result<()> {
        self.source.renew()?;
        self.mount.snapshots_changed()
    }

    fn freeze(&self) -> Result<()> {
        self.mount.freeze()
    }

    fn thaw(&self) -> Result<()> {
        self.mount.thaw()
    }

    fn hold(&self) -> Result<()> {
        self.mount.hold()
    }

    fn calm(&self) {
        self.mount.calm();
    }

    fn flush(&self) {
        self.mount.flush();
    }

    fn park(&self) -> Result<()> {
        self.mount.park();
        Ok(())
    }

    fn go_on(&self) {
        self.mount.go_on();
    }
}

impl MountedDataset {
    fn options(&self) -> MountOptions {
        self.options.lock().clone()
    }

    fn describe(&self) -> Mounted {
        let options = self.options();
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
            dataset: options.fs_name,
            path: self.place(),
            options: words.iter().filter(|(_, is_on)| *is_on).map(|(word, _)| (*word).to_owned()).collect(),
        }
    }
}

/// Tells in the log and in events what was lost with the process before.
fn tell_lost(pool: &LivePool, dataset: &str, files: &Zpl, lost: &LostObjects) {
    let all = if lost.are_all { " at least" } else { "" };
    tracing::warn!(
        dataset,
        "{} files lost changes{all}: the next fsync of each fails; {} were lost that were new",
        lost.changed.len(),
        lost.gone.len()
    );
    let path = |object| files.path_of(object).ok().map(|path| String::from_utf8_lossy(&path).into_owned());
    let changed = lost.changed.iter().map(|&object| (object, path(object)));
    let gone = lost.gone.keys().map(|&object| (object, None));
    pool.notify_of_lost_files(dataset, changed.chain(gone), lost.are_all);
}
