//! Random operations in a small tree.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, IFlags, Mode, RenameFlags, SeekFrom, Timespec, Timestamps, XattrFlags,
    ioctl_setflags,
};
use testkit::rng::Rng;

use super::super::World;
use super::super::opens::{Mapped, does};

pub(super) const DIRECTORIES: [&str; 3] = ["", "d0", "d1"];
pub(super) const NAMES: [&str; 6] = ["a", "b", "c", "e", "d0", "d1"];
/// Files that are held open.
const HELD_MAX: usize = 4;
/// Files are about so long.
const LEN: u64 = 200_000;

macro_rules! kinds {
    ($($kind:ident)*) => {
        /// A kind of operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(in super::super) enum Kind {
            $($kind,)*
        }

        const ALL: &[Kind] = &[$(Kind::$kind,)*];
    };
}

kinds! {
    Create CreateOnly Truncated Mkdir Mkfifo Symlink Link Unnamed
    Rename Exchange Whiteout Unlink Rmdir
    Chmod Chown Utimes Chattr SetAttribute RemoveAttribute SetAcl
    Write Append Store Truncate Allocate Punch Copy
    Read List Stat Absent Seek Hold
    Snapshot Rollback RenameDataset
}

/// How many there are.
pub(super) const KINDS: usize = ALL.len();

impl Kind {
    pub(super) fn all() -> impl Iterator<Item = Kind> {
        ALL.iter().copied()
    }
}

/// Takes steps in a file system.
pub(super) struct Steps<'a> {
    world: &'a World,
    dataset: String,
    mount: PathBuf,
    rng: Rng,
    /// Files that stay open for a while, with a mapping if there may be one.
    held: VecDeque<(File, Option<Mapped>)>,
    /// Objects that were stored into by mappings.
    stored: BTreeSet<u64>,
    has_snapshot: bool,
    last: VecDeque<String>,
    done: [u64; KINDS],
}

impl<'a> Steps<'a> {
    pub(super) fn new(world: &'a World, dataset: &str, mount: &Path, rng: Rng) -> Steps<'a> {
        let (dataset, mount) = (dataset.to_owned(), mount.to_owned());
        let (held, last) = (VecDeque::new(), VecDeque::new());
        Steps { world, dataset, mount, rng, held, stored: BTreeSet::new(), has_snapshot: false, last, done: [0; KINDS] }
    }

    /// Makes the folders and some files.
    pub(super) fn prepare(&mut self) {
        for directory in &DIRECTORIES[1..] {
            fs::create_dir(self.mount.join(directory)).unwrap();
            fs::write(self.mount.join(directory).join("a"), "first").unwrap();
        }
    }

    /// The last steps, and what came of them.
    pub(super) fn last(&self) -> &VecDeque<String> {
        &self.last
    }

    /// How many succeeded of each kind.
    pub(super) fn done(&self) -> [u64; KINDS] {
        self.done
    }

    pub(super) fn close_all(&mut self) {
        self.held.clear();
    }

    /// The objects that were stored into by mappings since they were asked for last. A store changes their times when the
    /// kernel sends it, as mmap(2) has it.
    pub(super) fn take_stored(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.stored)
    }

    /// Takes one step. What comes of it does not matter here, but what is seen afterwards.
    pub(super) fn take(&mut self) {
        let mut kind = *self.rng.pick(ALL);
        if matches!(kind, Kind::Snapshot | Kind::Rollback | Kind::RenameDataset) && self.rng.below(4) > 0 {
            kind = Kind::Write;
        }
        let (at, other) = (self.place(), self.place());
        let done = self.names(kind, &at, &other);
        let shown = |path: &Path| path.strip_prefix(&self.mount).unwrap_or(path).display().to_string();
        self.last.push_back(format!("{kind:?} {} {}: {done:?}", shown(&at), shown(&other)));
        if self.last.len() > 150 {
            self.last.pop_front();
        }
        self.done[kind as usize] += u64::from(done.is_ok());
    }

    fn place(&mut self) -> PathBuf {
        let directory = self.mount.join(self.rng.pick(&DIRECTORIES));
        directory.join(self.rng.pick(&NAMES))
    }

    /// Steps about names.
    fn names(&mut self, kind: Kind, at: &Path, other: &Path) -> io::Result<()> {
        let moved = |flags| Ok(rustix::fs::renameat_with(CWD, at, CWD, other, flags)?);
        match kind {
            Kind::Create => self.create(at, OpenOptions::new().read(true).write(true).create(true)),
            Kind::CreateOnly => self.create(at, OpenOptions::new().read(true).write(true).create_new(true)),
            Kind::Truncated => self.create(at, OpenOptions::new().read(true).write(true).truncate(true)),
            Kind::Mkdir => fs::create_dir(at),
            Kind::Mkfifo => Ok(rustix::fs::mknodat(CWD, at, FileType::Fifo, Mode::from(0o640), 0)?),
            Kind::Symlink => symlink(other, at),
            Kind::Link => fs::hard_link(at, other),
            Kind::Unnamed => self.unnamed(at),
            Kind::Rename => fs::rename(at, other),
            Kind::Exchange => moved(RenameFlags::EXCHANGE),
            Kind::Whiteout => moved(RenameFlags::WHITEOUT),
            Kind::Unlink => fs::remove_file(at),
            Kind::Rmdir => fs::remove_dir(at),
            Kind::List => fs::read_dir(at.parent().unwrap())?.try_for_each(|entry| entry.map(drop)),
            Kind::Stat => fs::symlink_metadata(at).map(drop),
            Kind::Absent => match fs::symlink_metadata(at.with_extension("absent")) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
                Ok(found) => panic!("{at:?}: {found:?}"),
            },
            Kind::Snapshot | Kind::Rollback | Kind::RenameDataset => self.datasets(kind),
            _ => self.attributes(kind, at, other),
        }
    }

    fn create(&mut self, at: &Path, how: &mut OpenOptions) -> io::Result<()> {
        let file = how.custom_flags(libc::O_NONBLOCK).open(at)?;
        let len = self.rng.below(LEN);
        self.fill(&file, 0, len)?;
        self.hold(file);
        Ok(())
    }

    fn unnamed(&mut self, at: &Path) -> io::Result<()> {
        let parent = at.parent().unwrap();
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).open(parent)?;
        self.fill(&file, 1000, 5000)?;
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        rustix::fs::linkat(CWD, link.as_str(), CWD, at, AtFlags::SYMLINK_FOLLOW)?;
        self.hold(file);
        Ok(())
    }

    fn hold(&mut self, file: File) {
        if self.rng.below(2) > 0 {
            let len = file.metadata().map_or(0, |stat| stat.len());
            let mapped = if len > 0 { Mapped::new(&file, len as usize) } else { None };
            self.held.push_back((file, mapped));
            if self.held.len() > HELD_MAX {
                self.held.pop_front();
            }
        }
    }

    fn fill(&mut self, file: &File, at: u64, len: u64) -> io::Result<()> {
        let byte = self.rng.below(5) as u8;
        file.write_all_at(&vec![byte; len as usize], at)
    }

    /// Steps about attributes.
    fn attributes(&mut self, kind: Kind, at: &Path, other: &Path) -> io::Result<()> {
        match kind {
            Kind::Chmod => fs::set_permissions(at, fs::Permissions::from_mode(*self.rng.pick(&[0o644, 0o4755, 0o600]))),
            Kind::Chown => std::os::unix::fs::lchown(at, Some(*self.rng.pick(&[0, 1000])), Some(7)),
            Kind::Utimes => {
                let time = Timespec { tv_sec: self.rng.below(2_000_000_000) as i64, tv_nsec: 5 };
                let times = Timestamps { last_access: time, last_modification: time };
                Ok(rustix::fs::utimensat(CWD, at, &times, AtFlags::SYMLINK_NOFOLLOW)?)
            }
            Kind::Chattr => {
                let none = IFlags::empty();
                let flags = *self.rng.pick(&[none, none, none, IFlags::NODUMP, IFlags::IMMUTABLE, IFlags::APPEND]);
                // whatever it is, not for long
                let at = if self.rng.below(2) > 0 { self.marked().unwrap_or(at.to_owned()) } else { at.to_owned() };
                Ok(ioctl_setflags(OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(at)?, flags)?)
            }
            Kind::SetAttribute => {
                let (name, len) = (*self.rng.pick(&["user.one", "user.two"]), self.rng.below(500));
                Ok(rustix::fs::lsetxattr(at, name, &vec![b'x'; len as usize], XattrFlags::empty())?)
            }
            Kind::RemoveAttribute => Ok(rustix::fs::lremovexattr(at, *self.rng.pick(&["user.one", "user.two"]))?),
            Kind::SetAcl => {
                let permission = self.rng.below(8) as u16;
                Ok(rustix::fs::lsetxattr(at, "system.posix_acl_access", &acl(permission), XattrFlags::empty())?)
            }
            _ => self.contents(kind, at, other),
        }
    }

    /// A file that may not be written, if there is one.
    fn marked(&self) -> Option<PathBuf> {
        let places = DIRECTORIES.iter().flat_map(|directory| NAMES.iter().map(move |name| (directory, name)));
        let mut places = places.map(|(directory, name)| self.mount.join(directory).join(name));
        places.find(|place| {
            let is_kept = place.symlink_metadata().is_ok_and(|stat| stat.is_file() || stat.is_dir());
            let flags = if is_kept {
                File::open(place).ok().and_then(|file| rustix::fs::ioctl_getflags(file).ok())
            } else {
                None
            };
            flags.is_some_and(|flags| flags.intersects(IFlags::IMMUTABLE | IFlags::APPEND))
        })
    }

    /// Steps about contents: of a file by name, or of one that is held.
    fn contents(&mut self, kind: Kind, at: &Path, other: &Path) -> io::Result<()> {
        let open = |path: &Path, how: &mut OpenOptions| how.custom_flags(libc::O_NONBLOCK).open(path);
        if kind == Kind::Append {
            let len = self.rng.below(5000) as usize;
            return open(at, OpenOptions::new().append(true))?.write_all(&vec![b'a'; len]);
        }
        let file = match self.held.front() {
            Some((file, _)) if self.rng.below(2) > 0 => file.try_clone()?,
            _ => open(at, OpenOptions::new().read(true).write(!matches!(kind, Kind::Read | Kind::Seek)))?,
        };
        let (offset, len) = (self.rng.below(LEN), 1 + self.rng.below(LEN / 4));
        if matches!(kind, Kind::Write | Kind::Store) && may_not_change(&file) {
            return Err(io::Error::other("a page that is refused is dropped: see the tests of what is opened"));
        }
        match kind {
            Kind::Write => self.fill(&file, offset, len),
            Kind::Store => self.store(&file),
            Kind::Truncate => file.set_len(offset),
            Kind::Allocate => {
                let how =
                    *self.rng.pick(&[FallocateFlags::empty(), FallocateFlags::KEEP_SIZE, FallocateFlags::ZERO_RANGE]);
                Ok(rustix::fs::fallocate(&file, how, offset, len)?)
            }
            Kind::Punch => {
                Ok(rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)?)
            }
            Kind::Copy => {
                let to = open(other, OpenOptions::new().write(true))?;
                let is_same = |a: &File, b: &File| Ok::<bool, io::Error>(a.metadata()?.ino() == b.metadata()?.ino());
                let (mut from_at, mut to_at) = (0, if is_same(&file, &to)? { LEN * 2 } else { offset });
                let len = len as usize;
                Ok(rustix::fs::copy_file_range(&file, Some(&mut from_at), &to, Some(&mut to_at), len).map(drop)?)
            }
            Kind::Read => file.read_at(&mut vec![0; len as usize], offset).map(drop),
            Kind::Seek => Ok(rustix::fs::seek(&file, SeekFrom::Data(0)).map(drop)?),
            Kind::Hold => {
                self.hold(file);
                Ok(())
            }
            other => panic!("{other:?} is done elsewhere"),
        }
    }

    /// A store through a mapping, of a file that is held if there is one with a mapping.
    fn store(&mut self, file: &File) -> io::Result<()> {
        let byte = [b's' + self.rng.below(3) as u8; 100];
        for (file, mapped) in &self.held {
            let Some(mapped) = mapped else { continue };
            let len = file.metadata()?.len().min(mapped.len());
            if len >= 100 && !may_not_change(file) {
                self.stored.insert(file.metadata()?.ino());
                mapped.store((len - 100) as usize, &byte);
                return Ok(());
            }
        }
        let len = file.metadata()?.len();
        match Mapped::new(file, len as usize).filter(|_| len >= 100) {
            Some(mapped) => {
                self.stored.insert(file.metadata()?.ino());
                mapped.store(self.rng.below(len - 99) as usize, &byte);
            }
            None => return Err(io::Error::other("no mapping")),
        }
        Ok(())
    }

    /// Steps about the dataset.
    fn datasets(&mut self, kind: Kind) -> io::Result<()> {
        let Steps { world, dataset, .. } = &*self;
        match kind {
            Kind::Snapshot => {
                if self.has_snapshot {
                    does(world, &format!("destroy {dataset}@s"));
                }
                does(world, &format!("snapshot {dataset}@s"));
                self.has_snapshot = true;
            }
            Kind::Rollback if self.has_snapshot => {
                let line = format!("rollback {dataset}@s");
                self.held.clear();
                does(self.world, &line);
            }
            Kind::Rollback => return Err(io::Error::other("no snapshot")),
            _ => {
                let line = [format!("rename {dataset} {dataset}-moved"), format!("rename {dataset}-moved {dataset}")];
                self.held.clear();
                line.iter().for_each(|line| does(self.world, line));
            }
        }
        Ok(())
    }
}

/// Has it a flag that keeps contents from being changed?
fn may_not_change(file: &File) -> bool {
    rustix::fs::ioctl_getflags(file).is_ok_and(|flags| flags.intersects(IFlags::IMMUTABLE | IFlags::APPEND))
}

/// An access ACL with an entry for one user.
fn acl(permission: u16) -> Vec<u8> {
    let none = u32::MAX;
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, none), (2, permission, 1234), (4, 4, none), (0x10, 7, none), (0x20, 4, none)];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permission, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permission.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}
