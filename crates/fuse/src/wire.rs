//! What the kernel and a FUSE file system say to each other: numbers, and where they stand in a message.
//!
//! ```text
//!   request   len opcode | unique | node | uid gid pid ext    fuse_in_header, 40 bytes
//!             ...                                             the opcode's own structure, names with a NUL each
//!   reply     len -errno | unique                             fuse_out_header, 16 bytes
//!             ...                                             likewise
//! ```
//!
//! All integers are in the machine's own byte order. Source: linux/fuse.h, protocol 7.45; what older kernels
//! do not know they do not ask for.
//!
//! Above are [`channel`](crate::channel), which moves messages, and the requests that [`session`](crate::session)
//! lists, which understand them. Invariant: what the kernel sent is read through [`RequestBody`], which checks every length.

use base::{Data, Endian, Error, Reader, Result};
use zpl::SetTime;

/// The protocol that is spoken: 7.45 at most, 7.23 at least, since which no structure has grown that all use.
pub(crate) const MAJOR: u32 = 7;
pub(crate) const MINOR: u32 = 45;
pub(crate) const MINOR_MIN: u32 = 23;

/// Bytes before what every request and every reply has of its own.
pub(crate) const IN_HEADER_BYTES: usize = 40;
pub(crate) const OUT_HEADER_BYTES: usize = 16;
/// Bytes of `fuse_write_in`, behind which the data stand.
pub(crate) const WRITE_IN_BYTES: usize = 40;
/// Bytes of `fuse_ioctl_out`, behind which the answer stands.
pub(crate) const IOCTL_OUT_BYTES: usize = 16;
/// Bytes of `fuse_init_out`.
pub(crate) const INIT_OUT_BYTES: usize = 64;
/// Longest write, and longest read, that the kernel is asked to send, in bytes.
pub(crate) const IO_BYTES_MAX: u32 = 1 << 20;

/// `enum fuse_opcode`.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
}

/// What a kernel can do and a file system wants, in INIT.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1;
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const WRITEBACK_CACHE: u64 = 1 << 16;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub(crate) const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    /// There is a second word of these flags.
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const HAS_RESEND: u64 = 1 << 39;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// `FOPEN_*`, in the answer to OPEN.
pub(crate) mod fopen {
    pub(crate) const DIRECT_IO: u32 = 1;
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    pub(crate) const CACHE_DIR: u32 = 1 << 3;
    pub(crate) const NOFLUSH: u32 = 1 << 5;
    pub(crate) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// `FUSE_WRITE_CACHE`: the kernel writes back what programs changed in memory.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// `FUSE_WRITE_KILL_SUIDGID`: the writer may not keep set-id bits.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `FUSE_OPEN_KILL_SUIDGID`, in the second word of flags of CREATE: likewise, if it cuts a file that is there.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1;
/// `FUSE_SETXATTR_ACL_KILL_SGID`: the task that sets the ACL may not keep set-group-id.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1;
/// `FUSE_FSYNC_FDATASYNC`.
pub(crate) const FSYNC_FDATASYNC: u32 = 1;

/// Codes of messages that answer no request.
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;
pub(crate) const NOTIFY_INVAL_ENTRY: i32 = 3;
pub(crate) const NOTIFY_STORE: i32 = 4;
pub(crate) const NOTIFY_RESEND: i32 = 7;
/// `FUSE_UNIQUE_RESEND`: the request was sent before, to a process that did not answer it.
pub(crate) const UNIQUE_RESEND: u64 = 1 << 63;
/// `FUSE_EXPIRE_ONLY`: the name is asked for again, and not dropped. Kernels before 6.2 drop it.
pub(crate) const EXPIRE_ONLY: u32 = 1;

/// `fuse_in_header`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InHeader {
    /// Bytes of the whole request.
    pub(crate) len: u32,
    pub(crate) opcode: u32,
    /// What the reply has to name.
    pub(crate) unique: u64,
    /// The node that is meant.
    pub(crate) node: u64,
    /// The user for whom the task asks.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The task; 0 if it is none that this process can see.
    pub(crate) pid: u32,
}

impl InHeader {
    /// Errors: `Corrupt` for fewer bytes than a header has.
    pub(crate) fn parse(bytes: &[u8]) -> Result<InHeader> {
        let mut words = Reader::new(bytes.get(..IN_HEADER_BYTES).unwrap_or_default(), NATIVE);
        Ok(InHeader {
            len: words.u32()?,
            opcode: words.u32()?,
            unique: words.u64()?,
            node: words.u64()?,
            uid: words.u32()?,
            gid: words.u32()?,
            pid: words.u32()?,
        })
    }
}

/// One request of the kernel.
#[derive(Clone, Debug)]
pub(crate) struct FuseRequest<'a> {
    pub(crate) header: InHeader,
    /// What comes after the header; of a WRITE only its own structure.
    pub(crate) body: RequestBody<'a>,
    /// What a WRITE writes.
    pub(crate) data: Data<'a>,
}

/// The byte order of this machine.
pub(crate) const NATIVE: Endian = if cfg!(target_endian = "big") { Endian::Big } else { Endian::Little };

/// A cursor over what a request says.
#[derive(Clone, Debug)]
pub(crate) struct RequestBody<'a>(Reader<'a>);

impl<'a> RequestBody<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> RequestBody<'a> {
        RequestBody(Reader::new(bytes, NATIVE))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.0.u32()
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.0.u64()
    }

    pub(crate) fn skip(&mut self, bytes: usize) -> Result<()> {
        self.0.take(bytes).map(drop)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        self.0.take(len)
    }

    /// The bytes up to the next NUL.
    pub(crate) fn name(&mut self) -> Result<&'a [u8]> {
        let len = self.0.rest().iter().position(|&b| b == 0).ok_or_else(|| Error::corrupt("a name without end"))?;
        let name = self.0.take(len)?;
        self.0.take(1)?;
        Ok(name)
    }

    /// An offset in a file, or a length.
    pub(crate) fn offset(&mut self) -> Result<u64> {
        let offset = self.0.u64()?;
        match offset > i64::MAX as u64 {
            true => Err(Error::corrupt(format!("offset {offset}"))),
            false => Ok(offset),
        }
    }
}

/// For a fuzzer: takes `bytes` as a request, of every kind.
pub fn fuzz(bytes: &[u8]) {
    let _ = InHeader::parse(bytes);
    let body = RequestBody::new(bytes.get(IN_HEADER_BYTES..).unwrap_or_default());
    let _ = set_attr(&mut body.clone());
    let mut names = body.clone();
    while names.name().is_ok() {}
    let mut words = body;
    while words.offset().is_ok() && words.u32().is_ok() {}
}

/// What SETATTR changes, and whether the asker may not keep set-id bits: `fuse_setattr_in`.
pub(crate) fn set_attr(body: &mut RequestBody<'_>) -> Result<(zpl::SetAttr, bool)> {
    const MODE: u32 = 1;
    const UID: u32 = 1 << 1;
    const GID: u32 = 1 << 2;
    const SIZE: u32 = 1 << 3;
    const ATIME: u32 = 1 << 4;
    const MTIME: u32 = 1 << 5;
    const ATIME_NOW: u32 = 1 << 7;
    const MTIME_NOW: u32 = 1 << 8;
    const CTIME: u32 = 1 << 10;
    const KILL_SUIDGID: u32 = 1 << 11;
    let valid = body.u32()?;
    body.skip(4 + 8)?;
    let size = body.u64()?;
    body.skip(8)?;
    let seconds = [body.u64()?, body.u64()?, body.u64()?].map(u64::cast_signed);
    let nanos = [body.u32()?, body.u32()?, body.u32()?];
    let mode = body.u32()?;
    body.skip(4)?;
    let (uid, gid) = (body.u32()?, body.u32()?);
    let given = |bit: u32| valid & bit != 0;
    let time = |i: usize, set, now| match given(now) {
        true => Some(SetTime::Now),
        false => given(set).then(|| SetTime::At(seconds[i], nanos[i])),
    };
    let drop_set_ids = given(KILL_SUIDGID);
    let set = zpl::SetAttr {
        mode: given(MODE).then_some(mode & 0o7777),
        uid: given(UID).then_some(uid),
        gid: given(GID).then_some(gid),
        size: given(SIZE).then_some(size),
        atime: time(0, ATIME, ATIME_NOW),
        mtime: time(1, MTIME, MTIME_NOW),
        ctime: given(CTIME).then(|| (seconds[2], nanos[2])),
    };
    Ok((set, drop_set_ids))
}

/// GETATTR's `fuse_getattr_in`: the number of the open file that the kernel asks about, if it asks about one.
pub(crate) fn asked_handle(body: &mut RequestBody<'_>) -> Result<Option<u64>> {
    const FH: u32 = 1;
    let flags = body.u32()?;
    body.skip(4)?;
    let handle = body.u64()?;
    Ok((flags & FH != 0).then_some(handle))
}

/// Does an open with these flags allow writing?
pub(crate) fn opens_for_writing(flags: i32) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// Builds a message.
#[derive(Default)]
pub(crate) struct Out(Vec<u8>);

impl Out {
    pub(crate) fn u32(mut self, word: u32) -> Out {
        self.0.extend_from_slice(&word.to_ne_bytes());
        self
    }

    pub(crate) fn u64(mut self, word: u64) -> Out {
        self.0.extend_from_slice(&word.to_ne_bytes());
        self
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Out {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Zeros up to a length.
    pub(crate) fn padded(mut self, len: usize) -> Out {
        self.0.resize(self.0.len().max(len), 0);
        self
    }
}

/// `fuse_out_header` of a reply of so many bytes.
pub(crate) fn out_header(len: usize, errno: i32, unique: u64) -> Out {
    // a reply is shorter than what the kernel has room for
    Out::default().u32(len as u32).u32((-errno).cast_unsigned()).u64(unique)
}

impl std::ops::Deref for Out {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_short_is_an_error() {
        let mut whole = Out::default().u32(43).u32(opcode::LOOKUP).u64(7).u64(1).u32(1000).u32(100).u32(5).u32(0).0;
        whole.extend_from_slice(b"ab\0");
        let header = InHeader::parse(&whole).unwrap();
        assert_eq!((header.len, header.opcode, header.unique, header.node), (43, opcode::LOOKUP, 7, 1));
        assert_eq!((header.uid, header.gid, header.pid), (1000, 100, 5));
        for len in 0..IN_HEADER_BYTES {
            assert!(InHeader::parse(&whole[..len]).is_err());
        }
        let mut body = RequestBody::new(&whole[IN_HEADER_BYTES..]);
        assert_eq!(body.name().unwrap(), b"ab");
        assert!(body.name().is_err());
        assert!(RequestBody::new(b"ab").name().is_err() && RequestBody::new(&[0; 7]).u64().is_err());
        assert!(RequestBody::new(&[0xff; 8]).offset().is_err());
    }

    #[test]
    fn times_and_flags_of_setattr() {
        let words = |valid: u32| {
            let out = Out::default().u32(valid).u32(0).u64(0).u64(77).u64(0);
            let out = out.u64((-3i64).cast_unsigned()).u64(5).u64(6).u32(250).u32(1).u32(2);
            out.u32(0o100_644).u32(0).u32(11).u32(12).u32(0)
        };
        let (set, drop) = set_attr(&mut RequestBody::new(&words(1 | 1 << 3 | 1 << 4 | 1 << 10))).unwrap();
        assert!(!drop);
        assert_eq!((set.mode, set.uid, set.gid, set.size), (Some(0o644), None, None, Some(77)));
        assert!(matches!(set.atime, Some(SetTime::At(-3, 250))) && set.mtime.is_none());
        assert_eq!(set.ctime, Some((6, 2)));
        let (set, drop) = set_attr(&mut RequestBody::new(&words(1 << 1 | 1 << 2 | 1 << 5 | 1 << 8 | 1 << 11))).unwrap();
        assert!(drop);
        assert_eq!(set_attr(&mut RequestBody::new(&words(1 << 6 | 1 << 9))).unwrap(), (zpl::SetAttr::default(), false));
        assert_eq!((set.uid, set.gid, set.mode), (Some(11), Some(12), None));
        assert!(matches!(set.mtime, Some(SetTime::Now)));
        assert!(set_attr(&mut RequestBody::new(&words(0)[..80])).is_err());
    }
}
