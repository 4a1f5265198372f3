//! How a dataset is mounted: [`MountOptions`], and what they are called by the kernel and fusermount3.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use nix::mount::MsFlags;
use serde::{Deserialize, Serialize};

/// Threads of a mount that take requests, if nothing else is said: at least, and at most.
const THREADS_MIN: usize = 8;
const THREADS_MAX: usize = 32;

/// How to mount a dataset. [`MountOptions::new`] has the defaults of ZFS's properties.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountOptions {
    /// The dataset, shown as the source of the mount: `tank/home`.
    pub fs_name: String,
    /// An existing directory.
    pub mountpoint: PathBuf,
    /// A folder above it, or itself, below which no symbolic link is followed on the way. Without one, links
    /// are followed that are on no file system of the same pool.
    pub beneath: Option<PathBuf>,
    /// The type is shown as `fuse.SUBTYPE`.
    pub subtype: String,
    /// Mount read-only, as property `readonly` says. A tree that cannot be written is mounted so anyway.
    pub read_only: bool,
    /// Let every user in, and not only the one that mounts. An ordinary user may ask for it only
    /// where `/etc/fuse.conf` says `user_allow_other`.
    pub allow_other: bool,
    /// The kernel checks mode bits (and POSIX ACLs, see `posix_acl`) as on any file system.
    pub default_permissions: bool,
    /// Property `acltype` is `posix`: there are ACLs, `system.posix_acl_access`, that the kernel reads and obeys.
    pub posix_acl: bool,
    /// Property `xattr` is not `off`: there are attributes of users.
    pub xattrs: bool,
    /// Property `atime`.
    pub atime: bool,
    /// Property `relatime`.
    pub relatime: bool,
    /// Reading a directory moves its time, if `atime`.
    pub dir_atime: bool,
    /// Every write and change is on disk before it is answered: the source's matter. The kernel shows it.
    pub sync: bool,
    /// Property `exec`.
    pub exec: bool,
    /// Property `setuid`. Only root's mounts may.
    pub setuid: bool,
    /// Property `devices`. Only root's mounts may.
    pub devices: bool,
    /// Property `snapdir`.
    pub snapdir: SnapDir,
    /// Mount over a directory that has something in it, as property `overlay` allows.
    pub overlay: bool,
    /// Property `direct`: which reads go past the pool's cache.
    pub direct: Direct,
    /// The kernel keeps the contents of files that are read and written in its page cache, so that what is read
    /// again costs no request. Without, each read and write of a program is a request, and what files hold is in RAM
    /// once only, in the pool's cache; a mapping that is shared needs Linux 6.6 then.
    pub page_cache: bool,
    /// What is in the page cache stays there from one opening of a file to the next, as property `primarycache` allows.
    /// Without, each opening lets go of it.
    pub keep_pages: bool,
    /// Whether the kernel keeps what is written, if there is its page cache, and sends it later, in pieces of 1 MiB and several
    /// at once: see [`Mount::send_pages`](crate::Mount::send_pages). It then has the last word on sizes and times of
    /// files. While little room is left, it does not.
    #[serde(default)]
    pub write_back: WriteBackCache,
    /// The mount outlives the process that serves it: another one takes it over. Needs Linux 6.9, and a helper that was
    /// started before.
    pub reattach: bool,
    /// By which way requests come.
    #[serde(default)]
    pub transport: Transport,
    /// Folders that were made for it: the mountpoint, and those above it.
    pub folders_made: usize,
    /// Threads that take requests; 0 chooses.
    pub n_threads: usize,
    /// Bytes that the kernel reads ahead of a sequential reader. More than the system's default
    /// needs root.
    pub readahead_bytes: u32,
}

/// By which way the kernel's requests come, and are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// By /dev/fuse.
    #[default]
    Device,
    /// By a queue of io_uring for each core, where the kernel has that (Linux 6.14) and is told to
    /// (`/sys/module/fuse/parameters/enable_uring`); else by /dev/fuse. The mount ends with the process that serves it then.
    IoUring,
}

/// Property `snapdir`: whether the root has a `.zfs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SnapDir {
    /// There is none.
    Disabled,
    /// It can be entered by its name, but is not listed.
    #[default]
    Hidden,
    /// It is listed.
    Visible,
}

/// Property `direct`: which reads go past the pool's cache, and leave nothing there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direct {
    /// None.
    Disabled,
    /// Those of files that were opened with `O_DIRECT`.
    #[default]
    Standard,
    /// All.
    Always,
}

/// Whether the kernel's write-back cache is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteBackCache {
    /// It is not.
    Off,
    /// Where nothing is lost by it and nothing hidden: the mount outlives the process that serves it, a helper may go to its
    /// files, and when it is mounted there is room.
    #[default]
    IfSafe,
    /// It is, whatever that means.
    On,
}

/// How to unmount while somebody has files open there, or stands in a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unmount {
    /// Refuse, with [`base::Kind::Busy`].
    #[default]
    IfUnused,
    /// Take it out of sight at once; programs that use it go on until they are done.
    Lazy,
    /// Take it out of sight at once, and let programs that use it run into errors. For an ordinary user's
    /// mount that needs the kernel's `/sys/fs/fuse/connections`; without it this is [`Unmount::Lazy`].
    Force,
}

impl MountOptions {
    /// Mounts `fs_name` at `mountpoint` as its properties' defaults say, for everybody if root does it, or
    /// `/etc/fuse.conf` lets everybody do so: the kernel checks rights there, as anywhere. Only in such
    /// a mount can an ordinary user mount another one.
    pub fn new(fs_name: impl Into<String>, mountpoint: impl Into<PathBuf>) -> MountOptions {
        let root = nix::unistd::geteuid().is_root();
        MountOptions {
            fs_name: fs_name.into(),
            mountpoint: mountpoint.into(),
            beneath: None,
            subtype: "zfs".to_owned(),
            read_only: false,
            allow_other: root || users_may_allow_others(),
            default_permissions: true,
            posix_acl: false,
            xattrs: true,
            atime: true,
            relatime: true,
            dir_atime: true,
            sync: false,
            exec: true,
            setuid: root,
            devices: root,
            snapdir: SnapDir::default(),
            overlay: true,
            direct: Direct::default(),
            page_cache: true,
            keep_pages: true,
            write_back: WriteBackCache::Off,
            reattach: false,
            transport: Transport::Device,
            folders_made: 0,
            n_threads: 0,
            readahead_bytes: 1 << 20,
        }
    }

    /// These options, with those of `other` that [`Mount::remount`](crate::Mount::remount) can change.
    pub fn remounted(&self, other: &MountOptions) -> MountOptions {
        MountOptions {
            read_only: other.read_only,
            atime: other.atime,
            relatime: other.relatime,
            dir_atime: other.dir_atime,
            sync: other.sync,
            exec: other.exec,
            setuid: other.setuid,
            devices: other.devices,
            snapdir: other.snapdir,
            xattrs: other.xattrs,
            posix_acl: other.posix_acl,
            ..self.clone()
        }
    }

    /// Several requests wait for devices while others are answered from memory: more threads than
    /// cores, but each with a stack and a buffer of its own, while they are needed. As many commits share a flush of the
    /// log at most, so there are several on the smallest machine, too.
    pub(crate) fn threads(&self) -> usize {
        match self.n_threads {
            0 => std::thread::available_parallelism()
                .map_or(THREADS_MIN, |n| n.get() * 2)
                .clamp(THREADS_MIN, THREADS_MAX),
            n => n,
        }
    }

    /// How many files the process that serves the mount has open for it.
    pub fn descriptors(&self) -> usize {
        // of each thread: where it takes requests, and where it waits for them
        2 * self.threads()
    }

    /// For mount(2).
    pub(crate) fn flags(&self) -> MsFlags {
        let mut flags = MsFlags::empty();
        flags.set(MsFlags::MS_RDONLY, self.read_only);
        flags.set(MsFlags::MS_NOEXEC, !self.exec);
        flags.set(MsFlags::MS_NOSUID, !self.setuid);
        flags.set(MsFlags::MS_NODEV, !self.devices);
        flags.set(MsFlags::MS_NOATIME, !self.atime);
        flags.set(MsFlags::MS_NODIRATIME, !self.dir_atime);
        flags.set(MsFlags::MS_SYNCHRONOUS, self.sync);
        flags.set(MsFlags::MS_RELATIME, self.atime && self.relatime);
        flags.set(MsFlags::MS_STRICTATIME, self.atime && !self.relatime);
        flags
    }

    /// The options of the FUSE file system itself, for the data of mount(2) and for fusermount3.
    pub(crate) fn fuse_options(&self) -> String {
        let mut options = format!("subtype={}", self.subtype);
        for (on, name) in [(self.allow_other, ",allow_other"), (self.default_permissions, ",default_permissions")] {
            if on {
                options.push_str(name);
            }
        }
        options
    }

    /// All options for `fusermount3 -o`. It adds `nosuid,nodev` by itself.
    pub(crate) fn fusermount_options(&self) -> String {
        let fs_name: String = self.fs_name.chars().flat_map(escape).collect();
        let mut options = format!("fsname={fs_name},{}", self.fuse_options());
        for (on, name) in
            [(self.read_only, ",ro"), (!self.exec, ",noexec"), (!self.atime, ",noatime"), (self.sync, ",sync")]
        {
            if on {
                options.push_str(name);
            }
        }
        options
    }
}

/// What a remount changes of a mount, as its threads see it.
pub(crate) struct Remountable {
    read_only: AtomicBool,
    atime: AtomicBool,
    relatime: AtomicBool,
    dir_atime: AtomicBool,
    xattrs: AtomicBool,
    posix_acl: AtomicBool,
    /// A [`SnapDir`].
    snapdir: AtomicU8,
}

impl Remountable {
    pub(crate) fn new(options: &MountOptions) -> Remountable {
        let MountOptions { read_only, atime, relatime, dir_atime, xattrs, posix_acl, .. } = *options;
        let [read_only, atime, relatime] = [read_only, atime, relatime].map(AtomicBool::new);
        let [dir_atime, xattrs, posix_acl] = [dir_atime, xattrs, posix_acl].map(AtomicBool::new);
        let snapdir = AtomicU8::new(options.snapdir as u8);
        Remountable { read_only, atime, relatime, dir_atime, xattrs, posix_acl, snapdir }
    }

    pub(crate) fn set(&self, options: &MountOptions) {
        self.read_only.store(options.read_only, Ordering::Relaxed);
        self.atime.store(options.atime, Ordering::Relaxed);
        self.relatime.store(options.relatime, Ordering::Relaxed);
        self.dir_atime.store(options.dir_atime, Ordering::Relaxed);
        self.xattrs.store(options.xattrs, Ordering::Relaxed);
        self.posix_acl.store(options.posix_acl, Ordering::Relaxed);
        self.snapdir.store(options.snapdir as u8, Ordering::Relaxed);
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// Do reads move the time of the last access, of a directory or another file?
    pub(crate) fn moves_atime(&self, of_directory: bool) -> bool {
        let is_on = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        is_on(&self.atime) && (!of_directory || is_on(&self.dir_atime)) && !self.is_read_only()
    }

    /// Are there attributes of users?
    pub(crate) fn has_xattrs(&self) -> bool {
        self.xattrs.load(Ordering::Relaxed)
    }

    /// Are there POSIX ACLs?
    pub(crate) fn has_acls(&self) -> bool {
        self.posix_acl.load(Ordering::Relaxed)
    }

    /// Has the root a `.zfs`?
    pub(crate) fn snapdir(&self) -> SnapDir {
        let number = self.snapdir.load(Ordering::Relaxed);
        [SnapDir::Disabled, SnapDir::Hidden, SnapDir::Visible]
            .into_iter()
            .find(|s| *s as u8 == number)
            .unwrap_or_default()
    }

    /// Only if that is due?
    pub(crate) fn is_relatime(&self) -> bool {
        self.relatime.load(Ordering::Relaxed)
    }
}

/// Whether an ordinary user's mounts may be for everybody: fuse.conf(5), mount.fuse3(8).
fn users_may_allow_others() -> bool {
    let text = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    text.lines().any(|line| line.trim() == "user_allow_other")
}

/// fusermount3 wants a backslash before a comma or backslash in a value.
fn escape(c: char) -> impl Iterator<Item = char> {
    matches!(c, ',' | '\\').then_some('\\').into_iter().chain([c])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_become_flags() {
        let mut options = MountOptions::new("tank/a,b", "/tank");
        options.read_only = true;
        options.exec = false;
        options.atime = false;
        options.setuid = false;
        options.devices = false;
        options.allow_other = false;
        assert_eq!(
            options.flags(),
            MsFlags::MS_RDONLY | MsFlags::MS_NOEXEC | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOATIME
        );
        assert_eq!(options.fusermount_options(), "fsname=tank/a\\,b,subtype=zfs,default_permissions,ro,noexec,noatime");
        options.atime = true;
        assert!(options.flags().contains(MsFlags::MS_RELATIME));
    }

    #[test]
    fn there_are_always_threads() {
        let mut options = MountOptions::new("tank", "/tank");
        assert!(options.threads() >= 4);
        options.n_threads = 1;
        assert_eq!(options.threads(), 1);
    }
}
