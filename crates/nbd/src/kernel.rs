//! The kernel's client of NBD: block devices `/dev/nbdN`, which are set up by generic netlink.
//!
//! The kernel takes one end of a pair of sockets, and asks for blocks there, without a handshake
//! ([`NbdServer::serve_agreed`](crate::NbdServer::serve_agreed)). A device has in sysfs the name that its maker gave it, its
//! *backend identifier* (Linux 5.14). When its socket is closed, it waits for another one, and what was asked and not
//! answered is asked again.
//!
//! Source: `include/uapi/linux/nbd-netlink.h` of Linux, and its driver.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use neli::consts::genl::{Cmd, NlAttrType};
use neli::consts::nl::NlmF;
use neli::consts::socket::NlFamily;
use neli::err::RouterError;
use neli::genl::{AttrTypeBuilder, Genlmsghdr, GenlmsghdrBuilder, Nlattr, NlattrBuilder};
use neli::nl::NlPayload;
use neli::router::synchronous::NlRouter;
use neli::types::{Buffer, GenlBuffer};
use neli::utils::Groups;
use neli::{Size, ToBytes, neli_enum};

use crate::wire::can;

const FAMILY: &str = "nbd";
const VERSION: u8 = 1;
/// The unit of a device, in bytes: that of OpenZFS's, as partition tables count in it.
const SECTOR_BYTES: u64 = 512;
/// How long a device waits for another socket, in seconds: then all that is asked of it fails.
const DEAD_SECONDS: u64 = 300;

#[neli_enum(serialized_type = "u8")]
enum NbdVerb {
    Unspecified = 0,
    Connect = 1,
    Disconnect = 2,
    Reconfigure = 3,
}
impl Cmd for NbdVerb {}

#[neli_enum(serialized_type = "u16")]
enum NbdAttribute {
    Unspecified = 0,
    Index = 1,
    SizeBytes = 2,
    BlockSizeBytes = 3,
    ServerFlags = 5,
    Sockets = 7,
    DeadConnTimeout = 8,
    BackendIdentifier = 10,
}
impl NlAttrType for NbdAttribute {}

#[neli_enum(serialized_type = "u16")]
enum NbdSocketList {
    Unspecified = 0,
    Item = 1,
}
impl NlAttrType for NbdSocketList {}

#[neli_enum(serialized_type = "u16")]
enum NbdSocketItem {
    Unspecified = 0,
    Descriptor = 1,
}
impl NlAttrType for NbdSocketItem {}

type Attribute = Nlattr<NbdAttribute, Buffer>;

/// The kernel's devices.
pub struct KernelNbd {
    router: NlRouter,
    family: u16,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelDevice(u32);

impl KernelDevice {
    /// That of an index.
    pub fn new(index: u32) -> KernelDevice {
        KernelDevice(index)
    }

    /// Its name, as `nbd0`.
    pub fn name(self) -> String {
        format!("nbd{}", self.0)
    }

    /// Its file.
    pub fn path(self) -> PathBuf {
        Path::new("/dev").join(self.name())
    }

    /// What the kernel says of it.
    pub fn sysfs(self) -> PathBuf {
        Path::new("/sys/block").join(self.name())
    }

    /// Its backend identifier; `None` if it is free, or was set up by another way.
    pub fn backend(self) -> Option<String> {
        Some(fs::read_to_string(self.sysfs().join("backend")).ok()?.trim_end().to_owned())
    }

    /// All devices that have a backend identifier. Errors: those of reading sysfs.
    pub fn all() -> io::Result<Vec<(KernelDevice, String)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/sys/block")? {
            let name = entry?.file_name();
            let index = name.to_str().and_then(|name| name.strip_prefix(FAMILY)?.parse().ok());
            if let Some(device) = index.map(KernelDevice)
                && let Some(backend) = device.backend()
            {
                found.push((device, backend));
            }
        }
        Ok(found)
    }

    /// The device of that backend identifier. Errors: as of [`KernelDevice::all`].
    pub fn of(backend: &str) -> io::Result<Option<KernelDevice>> {
        let found = KernelDevice::all()?.into_iter().find(|(_, other)| other == backend);
        Ok(found.map(|(device, _)| device))
    }
}

impl KernelNbd {
    /// Errors: `NotFound` if the kernel has no such devices, as its module is not loaded.
    pub fn open() -> io::Result<KernelNbd> {
        let (router, _) = NlRouter::connect(NlFamily::Generic, None, Groups::empty()).map_err(io::Error::other)?;
        match router.resolve_genl_family(FAMILY) {
            Ok(family) => Ok(KernelNbd { router, family }),
            Err(error) => Err(io::Error::new(io::ErrorKind::NotFound, error.to_string())),
        }
    }

    /// Sets up a device of so many bytes, of which blocks are asked for at the other end of `socket`. Errors: those of
    /// the kernel; `Unsupported` if it keeps no backend identifier.
    pub fn connect(
        &self,
        socket: BorrowedFd<'_>,
        backend: &str,
        (bytes, is_read_only): (u64, bool),
    ) -> io::Result<KernelDevice> {
        let mut flags = can::HAS_FLAGS | can::FLUSH | can::FUA | can::TRIM | can::WRITE_ZEROES;
        if is_read_only {
            flags |= can::READ_ONLY;
        }
        let attributes = vec![
            attribute(NbdAttribute::SizeBytes, bytes)?,
            attribute(NbdAttribute::BlockSizeBytes, SECTOR_BYTES)?,
            attribute(NbdAttribute::ServerFlags, u64::from(flags))?,
            attribute(NbdAttribute::DeadConnTimeout, DEAD_SECONDS)?,
            sockets(socket)?,
            attribute(NbdAttribute::BackendIdentifier, backend)?,
        ];
        let index = self.ask(NbdVerb::Connect, attributes)?;
        let device = KernelDevice(index.ok_or_else(|| io::Error::other("the kernel does not say which device it is"))?);
        if device.backend().is_none() {
            self.disconnect(device)?;
            return Err(io::Error::new(io::ErrorKind::Unsupported, "block devices for volumes need Linux 5.14"));
        }
        Ok(device)
    }

    /// Gives a device another socket in the place of one that was closed. Errors: `StorageFull` (ENOSPC) if none was.
    pub fn reconnect(&self, device: KernelDevice, socket: BorrowedFd<'_>, backend: &str) -> io::Result<()> {
        self.reconfigure(device, backend, vec![sockets(socket)?])
    }

    /// A device has another size from now on.
    pub fn resize(&self, device: KernelDevice, backend: &str, bytes: u64) -> io::Result<()> {
        let block = attribute(NbdAttribute::BlockSizeBytes, SECTOR_BYTES)?;
        self.reconfigure(device, backend, vec![attribute(NbdAttribute::SizeBytes, bytes)?, block])
    }

    /// Gives a device up, also if it is in use.
    pub fn disconnect(&self, device: KernelDevice) -> io::Result<()> {
        self.ask(NbdVerb::Disconnect, vec![attribute(NbdAttribute::Index, device.0)?]).map(drop)
    }

    fn reconfigure(&self, device: KernelDevice, backend: &str, mut changes: Vec<Attribute>) -> io::Result<()> {
        changes.push(attribute(NbdAttribute::Index, device.0)?);
        changes.push(attribute(NbdAttribute::BackendIdentifier, backend)?);
        self.ask(NbdVerb::Reconfigure, changes).map(drop)
    }

    /// Has the kernel do it; the index that it tells of, if any.
    fn ask(&self, verb: NbdVerb, attributes: Vec<Attribute>) -> io::Result<Option<u32>> {
        let attributes: GenlBuffer<_, _> = attributes.into_iter().collect();
        let message = GenlmsghdrBuilder::default().cmd(verb).version(VERSION).attrs(attributes).build();
        let payload = NlPayload::Payload(message.map_err(io::Error::other)?);
        let sent = self.router.send::<_, _, u16, Genlmsghdr<NbdVerb, NbdAttribute>>(self.family, NlmF::ACK, payload);
        let mut index = None;
        for answer in sent.map_err(failure)? {
            let answer = answer.map_err(failure)?;
            if let Some(message) = answer.get_payload() {
                index = message.attrs().get_attr_handle().get_attr_payload_as(NbdAttribute::Index).ok().or(index);
            }
        }
        Ok(index)
    }
}

fn attribute<T: NlAttrType, P: Size + ToBytes>(kind: T, value: P) -> io::Result<Nlattr<T, Buffer>> {
    let kind = AttrTypeBuilder::default().nla_type(kind).build().map_err(io::Error::other)?;
    NlattrBuilder::default().nla_type(kind).nla_payload(value).build().map_err(io::Error::other)
}

fn sockets(socket: BorrowedFd<'_>) -> io::Result<Attribute> {
    let nothing = Vec::<u8>::new;
    let descriptor = attribute(NbdSocketItem::Descriptor, socket.as_raw_fd().cast_unsigned())?;
    let item = attribute(NbdSocketList::Item, nothing())?.nest(&descriptor).map_err(io::Error::other)?;
    attribute(NbdAttribute::Sockets, nothing())?.nest(&item).map_err(io::Error::other)
}

/// The error of the system that the kernel has answered with.
fn failure<T, P>(error: RouterError<T, P>) -> io::Error
where
    RouterError<T, P>: std::fmt::Display,
{
    match &error {
        RouterError::Nlmsgerr(told) if *told.error() < 0 => io::Error::from_raw_os_error(-*told.error()),
        _ => io::Error::other(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn attributes_are_as_the_kernel_has_them() {
        let bytes = |attribute: &Attribute| {
            let mut out = Cursor::new(Vec::new());
            attribute.to_bytes(&mut out).unwrap();
            out.into_inner()
        };
        let size = attribute(NbdAttribute::SizeBytes, 1_u64 << 33).unwrap();
        assert_eq!(bytes(&size), [12, 0, 2, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
        // strings end with a zero, and are filled up
        let name = attribute(NbdAttribute::BackendIdentifier, "abcd").unwrap();
        assert_eq!(bytes(&name), [9, 0, 10, 0, b'a', b'b', b'c', b'd', 0, 0, 0, 0]);
        let file = fs::File::open("/dev/null").unwrap();
        let number = u8::try_from(file.as_raw_fd()).unwrap();
        let nested = bytes(&sockets(file.as_fd()).unwrap());
        assert_eq!(nested, [16, 0, 7, 0x80, 12, 0, 1, 0x80, 8, 0, 1, 0, number, 0, 0, 0]);
    }

    #[test]
    fn names_of_devices() {
        let device = KernelDevice::new(12);
        assert_eq!((device.path(), device.sysfs()), ("/dev/nbd12".into(), "/sys/block/nbd12".into()));
        assert_eq!(KernelDevice::of("of none").unwrap(), None);
    }
}
