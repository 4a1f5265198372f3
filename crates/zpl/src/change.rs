//! What can be asked of a file system that is being changed: the arguments of the methods of
//! [`Zpl`](crate::Zpl) that change something.

use crate::CaseMode;

/// A file that shall be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct New<'a> {
    /// What it is.
    pub kind: NewKind<'a>,
    /// Permission, set-id and sticky bits as the caller wants them; `umask` is not applied.
    pub mode: u32,
    /// Bits that are taken out of `mode`, unless the directory has a default ACL. 0 where ACLs are off:
    /// the kernel has done it then.
    pub umask: u32,
    /// Owner: the user that asks.
    pub uid: u32,
    /// Group of the user that asks. The directory's own group comes first, if it has the set-group-id
    /// bit, which a new directory then gets, too.
    pub gid: u32,
}

impl New<'_> {
    /// The mode that it gets where there is no default ACL.
    pub fn masked_mode(&self) -> u32 {
        self.mode & !self.umask
    }
}

/// Kinds of files that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewKind<'a> {
    /// An empty regular file.
    File,
    /// An empty directory.
    Directory,
    /// A symbolic link to this target.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device, by its number as the C library packs it.
    CharDevice(u64),
    /// A block device, likewise.
    BlockDevice(u64),
}

/// What becomes of a name that is there already where another one is moved to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// It is replaced: a directory by a directory if it is empty, anything else by anything else.
    Replace,
    /// `Exists`.
    NoReplace,
    /// It gets the other's old name. Both have to be there.
    Exchange,
    /// It is replaced, unless that is refused, and the old name becomes that of a whiteout.
    Whiteout(Whiteout),
}

/// A character device 0:0 without permissions: in the upper folder of an overlayfs it says that nothing below it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whiteout {
    /// What has the new name is replaced; if not, `Exists`.
    pub replaces: bool,
    /// The owner.
    pub uid: u32,
    /// The group, unless the directory decides.
    pub gid: u32,
}

/// Attributes that shall change, all in one step; those that are `None` stay. The time of the last
/// change becomes now, unless `ctime` says else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission, set-id and sticky bits. With POSIX ACLs the access ACL changes, too.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes of a regular file: cut off, or zeros added as a hole. The time of the last modification
    /// becomes now, unless `mtime` says else.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last modification.
    pub mtime: Option<SetTime>,
    /// Last change: seconds since 1970, nanoseconds. Comes only with the kernel's write-back cache,
    /// which keeps the times of files by itself.
    pub ctime: Option<(i64, u32)>,
}

/// What changes beside POSIX attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetFlags {
    /// Those of [`SetFlags::ALL`] that the file has then; the others it has not.
    pub flags: u64,
    /// Its project.
    pub project: Option<u32>,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The tree's clock.
    Now,
    /// Seconds since 1970, nanoseconds below 10^9.
    At(i64, u32),
}

/// May an extended attribute be there already?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Either way.
    Any,
    /// Either way; and with an access ACL, set-group-id goes: the user is not in the file's group.
    AnyDropSetGid,
    /// No: `Exists`.
    Create,
    /// It has to: `NoAttribute`.
    Replace,
}

/// What fallocate(2) does to a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Makes room; bytes that had been written stay. A range past the end makes the file longer, unless
    /// `keep_size`.
    Reserve {
        /// The size stays.
        keep_size: bool,
    },
    /// Reads as zeros and takes no room. The size stays.
    PunchHole,
    /// Reads as zeros. A range past the end makes the file longer, unless `keep_size`.
    ZeroRange {
        /// The size stays.
        keep_size: bool,
    },
}

/// A file system that shall be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewFs {
    /// Version, which has to be 5.
    pub version: u64,
    /// Whether case counts in names.
    pub case: CaseMode,
    /// How names are brought into form before they are compared: the value of the property
    /// `normalization`, 0 for none.
    pub normalization: u64,
    /// Names have to be UTF-8.
    pub utf8only: bool,
    /// Owner of the root directory.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its permission bits: OpenZFS takes 0755.
    pub mode: u32,
    /// Its times: seconds since 1970, nanoseconds.
    pub now: (u64, u32),
    /// What the salts of tables are made from; to be random.
    pub salt: u64,
    /// Slots of 512 bytes of the root directory's dnode: 1 unless `dnodesize` says else.
    pub dnode_slots: usize,
}

impl Default for NewFs {
    fn default() -> NewFs {
        NewFs {
            version: 5,
            case: CaseMode::Sensitive,
            normalization: 0,
            utf8only: false,
            uid: 0,
            gid: 0,
            mode: 0o755,
            now: (0, 0),
            salt: 0,
            dnode_slots: 1,
        }
    }
}
