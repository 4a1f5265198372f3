//! The one error type: what went wrong ([`Kind`]), where ([`ErrorPlace`]), and what caused it.
//!
//! Bytes that came from a disk or a socket and make no sense are always an [`Error`]; a panic means
//! that Cenote itself is broken. An error is made where the fault is seen, and layers above only
//! add to its place: the vdev, the bookmark of the block, the dataset, the pool.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use crate::Shower;

/// Shorthand for results of this workspace.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The class of a failure. [`Error::errno`] maps each to one errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A device did not do what was asked.
    Io,
    /// Bytes were read, but their checksum is not the one in the block pointer.
    Checksum,
    /// Bytes have the right checksum, or need none, but make no sense.
    Corrupt,
    /// A device that is needed is not there.
    Missing,
    /// The thing named does not exist.
    NotFound,
    /// The thing named exists already.
    Exists,
    /// In use by somebody else.
    Busy,
    /// In use on another machine.
    Elsewhere,
    /// The caller's argument makes no sense.
    Invalid,
    /// A correct request for something that this version cannot do.
    Unsupported,
    /// Data is encrypted, and there is no key for it.
    Encrypted,
    /// The caller may not do that.
    Permission,
    /// Nobody, or the file's owner only, may do that: a flag of the file, or its kind, forbids it.
    Forbidden,
    /// Written to something that is open read-only.
    ReadOnly,
    /// Not a directory.
    NotDirectory,
    /// A directory where something else is needed.
    IsDirectory,
    /// A name or value is too long.
    TooLong,
    /// No such attribute.
    NoAttribute,
    /// The caller's buffer is too small.
    Range,
    /// More than a limit allows.
    TooBig,
    /// Stopped on request.
    Interrupted,
    /// The pool has no room.
    NoSpace,
    /// A quota does not allow it.
    Quota,
    /// A directory that is not empty.
    NotEmpty,
    /// More links to a file than can be counted.
    TooManyLinks,
    /// The pool has stopped writing after a device failed.
    Suspended,
    /// A file of another project than the directory hands on.
    OtherProject,
    /// A file of a root that was replaced since: it is not there any more.
    Stale,
}

/// The address of a block: object set, object, level of indirection (0 is data), block number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Bookmark {
    /// Object set id (0 is the MOS).
    pub objset: u64,
    /// Object number (0 is the object set's meta dnode).
    pub object: u64,
    /// Level: 0 data, 1 and up indirect, -1 the object set itself.
    pub level: i64,
    /// Number of the block within its level.
    pub blkid: u64,
}

impl fmt::Display for Bookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bookmark { objset, object, level, blkid } = self;
        write!(f, "objset {objset} object {object} level {level} block {blkid}")
    }
}

/// Where an error happened; layers fill in what they know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorPlace {
    /// Pool name.
    pub pool: Option<String>,
    /// Dataset name, with `@snapshot` if it is one.
    pub dataset: Option<String>,
    /// Device path or vdev name.
    pub vdev: Option<String>,
    /// Block within the pool.
    pub bookmark: Option<Bookmark>,
    /// Byte offset on the device.
    pub offset: Option<u64>,
}

/// An error with its place; cheap to move.
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    what: Cow<'static, str>,
    place: ErrorPlace,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind`; `what` is a clause without a full stop.
    pub fn new(kind: Kind, what: impl Into<Cow<'static, str>>) -> Error {
        Error(Box::new(Inner { kind, what: what.into(), place: ErrorPlace::default(), source: None }))
    }

    /// Bytes from a disk that make no sense.
    pub fn corrupt(what: impl Into<Cow<'static, str>>) -> Error {
        Error::new(Kind::Corrupt, what)
    }

    /// The class of the failure.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// What went wrong, without the place.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// Where it went wrong.
    pub fn place(&self) -> &ErrorPlace {
        &self.0.place
    }

    /// Adds the cause.
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        self.0.source = Some(source.into());
        self
    }

    /// Names the pool, unless a layer below did.
    pub fn in_pool(mut self, pool: &str) -> Error {
        self.0.place.pool.get_or_insert_with(|| pool.to_owned());
        self
    }

    /// Names the dataset, unless a layer below did.
    pub fn in_dataset(mut self, dataset: &str) -> Error {
        self.0.place.dataset.get_or_insert_with(|| dataset.to_owned());
        self
    }

    /// Names the device, unless a layer below did.
    pub fn at_vdev(mut self, vdev: impl Into<String>) -> Error {
        self.0.place.vdev.get_or_insert_with(|| vdev.into());
        self
    }

    /// Names the block, unless a layer below did.
    pub fn at_block(mut self, bookmark: Bookmark) -> Error {
        self.0.place.bookmark.get_or_insert(bookmark);
        self
    }

    /// Names the byte offset on the device, unless a layer below did.
    pub fn at_offset(mut self, offset: u64) -> Error {
        self.0.place.offset.get_or_insert(offset);
        self
    }

    /// The errno for a caller that only understands those.
    pub fn errno(&self) -> i32 {
        match self.0.kind {
            Kind::Io | Kind::Checksum | Kind::Corrupt => libc::EIO,
            Kind::Missing => libc::ENXIO,
            Kind::NotFound => libc::ENOENT,
            Kind::Exists => libc::EEXIST,
            Kind::Busy => libc::EBUSY,
            Kind::Elsewhere => libc::EREMOTEIO,
            Kind::Invalid => libc::EINVAL,
            Kind::Unsupported => libc::ENOTSUP,
            Kind::Encrypted | Kind::Permission => libc::EACCES,
            Kind::Forbidden => libc::EPERM,
            Kind::ReadOnly => libc::EROFS,
            Kind::NotDirectory => libc::ENOTDIR,
            Kind::IsDirectory => libc::EISDIR,
            Kind::TooLong => libc::ENAMETOOLONG,
            Kind::NoAttribute => libc::ENODATA,
            Kind::Range => libc::ERANGE,
            Kind::TooBig => libc::EFBIG,
            Kind::Interrupted => libc::EINTR,
            Kind::NoSpace => libc::ENOSPC,
            Kind::Quota => libc::EDQUOT,
            Kind::NotEmpty => libc::ENOTEMPTY,
            Kind::TooManyLinks => libc::EMLINK,
            Kind::Suspended => libc::EIO,
            Kind::OtherProject => libc::EXDEV,
            Kind::Stale => libc::ESTALE,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // much of it may be names from a disk
        let f = &mut Shower(f);
        let place = &self.0.place;
        match (&place.dataset, &place.pool) {
            // a dataset's name begins with its pool's
            (Some(dataset), _) => write!(f, "{dataset}: ")?,
            (None, Some(pool)) => write!(f, "{pool}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.0.what)?;
        if let Some(bookmark) = &place.bookmark {
            write!(f, ", {bookmark}")?;
        }
        if let Some(vdev) = &place.vdev {
            write!(f, ", on {vdev}")?;
        }
        if let Some(offset) = place.offset {
            write!(f, ", at byte {offset:#x}")?;
        }
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}

impl Kind {
    /// The class of a failure that another process tells of by [`Error::errno`]; `Io` for what processes do not
    /// tell each other.
    pub fn of_errno(errno: i32) -> Kind {
        match errno {
            libc::ENXIO => Kind::Missing,
            libc::ENOENT => Kind::NotFound,
            libc::EEXIST => Kind::Exists,
            libc::EBUSY => Kind::Busy,
            libc::EREMOTEIO => Kind::Elsewhere,
            libc::EINVAL => Kind::Invalid,
            libc::ENOTSUP => Kind::Unsupported,
            libc::EACCES | libc::EPERM => Kind::Permission,
            libc::EROFS => Kind::ReadOnly,
            libc::EFBIG => Kind::TooBig,
            _ => Kind::Io,
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(source: std::io::Error) -> Error {
        use std::io::ErrorKind;
        let kind = match source.kind() {
            ErrorKind::NotFound => Kind::NotFound,
            ErrorKind::PermissionDenied => Kind::Permission,
            ErrorKind::AlreadyExists => Kind::Exists,
            ErrorKind::Interrupted => Kind::Interrupted,
            _ => Kind::Io,
        };
        Error::new(kind, "I/O error").with_source(source)
    }
}

/// The place-adding methods of [`Error`], on a `Result`.
pub trait ResultExt<T> {
    /// See [`Error::in_pool`].
    fn in_pool(self, pool: &str) -> Result<T>;
    /// See [`Error::in_dataset`].
    fn in_dataset(self, dataset: &str) -> Result<T>;
    /// See [`Error::at_vdev`].
    fn at_vdev(self, vdev: &str) -> Result<T>;
    /// See [`Error::at_block`].
    fn at_block(self, bookmark: Bookmark) -> Result<T>;
}

impl<T, E: Into<Error>> ResultExt<T> for std::result::Result<T, E> {
    fn in_pool(self, pool: &str) -> Result<T> {
        self.map_err(|e| e.into().in_pool(pool))
    }
    fn in_dataset(self, dataset: &str) -> Result<T> {
        self.map_err(|e| e.into().in_dataset(dataset))
    }
    fn at_vdev(self, vdev: &str) -> Result<T> {
        self.map_err(|e| e.into().at_vdev(vdev))
    }
    fn at_block(self, bookmark: Bookmark) -> Result<T> {
        self.map_err(|e| e.into().at_block(bookmark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_place() {
        let e = Error::new(Kind::Checksum, "checksum mismatch")
            .at_vdev("/dev/sda")
            .at_offset(0x1000)
            .at_block(Bookmark { objset: 54, object: 7, level: 1, blkid: 3 })
            .in_pool("tank")
            .in_dataset("tank/home");
        assert_eq!(
            e.to_string(),
            "tank/home: checksum mismatch, objset 54 object 7 level 1 block 3, on /dev/sda, at byte 0x1000"
        );
        assert_eq!(e.errno(), libc::EIO);
    }

    #[test]
    fn the_innermost_place_stays() {
        let e = Error::corrupt("bad").in_dataset("a/b").in_dataset("a");
        assert_eq!(e.place().dataset.as_deref(), Some("a/b"));
    }
}
