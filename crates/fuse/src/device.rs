//! Attaching a FUSE connection to a directory and taking it away: `/dev/fuse` with mount(2) for root,
//! the set-user-id helper fusermount3 for everybody else.
//!
//! `channel` speaks over the connection.

use std::fs::OpenOptions;
use std::io::{ErrorKind, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use base::{Error, Kind, Result};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::sys::statvfs::statvfs;

use crate::mountinfo;
use crate::options::{MountOptions, Unmount};
use crate::point::Folder;

const DEVICE: &str = "/dev/fuse";
/// The helper's names: of libfuse 3, and of libfuse 2.
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];
/// Tells the helper on which file descriptor it shall send the connection.
const HELPER_SOCKET: &str = "_FUSE_COMMFD";

/// Mounts at `folder`, whose path is `point`, and returns the connection.
pub(crate) fn attach(folder: &Folder, point: &Path, options: &MountOptions) -> Result<OwnedFd> {
    if nix::unistd::geteuid().is_root()
        && let Some(connection) = attach_as_root(folder, point, options)?
    {
        return Ok(connection);
    }
    attach_with_helper(point, options)
}

/// Gives what is mounted at `point` the flags that `options` stand for. `Busy` if it is to be read-only while a
/// file is open for writing; `Unsupported` if this user has to mount it anew for that.
pub(crate) fn set_flags(point: &Path, options: &MountOptions) -> Result<()> {
    let folder = Folder::at_real(point)?;
    match mount(None::<&str>, &folder.proc_path(), None::<&str>, MsFlags::MS_REMOUNT | options.flags(), None::<&str>) {
        Ok(()) => Ok(()),
        Err(Errno::EPERM) => Err(Error::new(Kind::Unsupported, "only root can remount")),
        Err(Errno::EBUSY) => Err(busy(point)),
        Err(errno) => Err(at(point, "cannot remount", errno)),
    }
}

/// What breaks the connection of the file system with that device number when it is written to.
pub(crate) fn abort_path(dev: &str) -> PathBuf {
    let minor = dev.rsplit(':').next().unwrap_or_default();
    PathBuf::from(format!("/sys/fs/fuse/connections/{minor}/abort"))
}

/// Unmounts device `dev` from `point`. That it is not mounted there any more is no error; `Busy` if it is in use, or
/// covered.
pub(crate) fn detach_device(point: &Path, dev: &str, how: Unmount) -> Result<()> {
    if !mountinfo::is_mounted(point, dev)? {
        return Ok(());
    }
    // umount2(2) takes the path, and would take what covers it
    if mountinfo::at(point)?.is_some_and(|mount| mount.dev != dev) {
        return Err(hidden());
    }
    let detached = detach(point, how);
    // the kernel ends a mount when it looks for its folder, and that has gone in a rollback
    if !mountinfo::is_mounted(point, dev)? {
        return Ok(());
    }
    match detached {
        // the path leads elsewhere, be it to nothing
        Ok(()) if how != Unmount::Force => Err(hidden()),
        Err(error) if error.kind() == Kind::NotFound => Err(hidden()),
        detached => detached,
    }
}

/// What looks at all mounts, as `df` does, holds each of them for a moment: so often and for so long is waited for it.
const LOOKS: usize = 5;
const LOOK: Duration = Duration::from_millis(20);

/// Unmounts `point`. `Busy` if it is in use.
pub(crate) fn detach(point: &Path, how: Unmount) -> Result<()> {
    let flags = match how {
        Unmount::IfUnused => MntFlags::empty(),
        Unmount::Lazy => MntFlags::MNT_DETACH,
        Unmount::Force => MntFlags::MNT_DETACH | MntFlags::MNT_FORCE,
    };
    let above = point.parent().map(Folder::at_real);
    let by_folder = match (&above, point.file_name()) {
        (Some(Ok(above)), Some(name)) => above.proc_path().join(name),
        // through a dead mount there is no way but the kernel's own
        _ => point.to_owned(),
    };
    let unmount = || umount2(&by_folder, flags | MntFlags::UMOUNT_NOFOLLOW);
    let mut outcome = unmount();
    for _ in 0..LOOKS {
        if outcome != Err(Errno::EBUSY) {
            break;
        }
        std::thread::sleep(LOOK);
        outcome = unmount();
    }
    match outcome {
        // EINVAL: somebody else was faster
        Ok(()) | Err(Errno::EINVAL) => Ok(()),
        Err(Errno::EPERM) => detach_with_helper(point, how),
        Err(Errno::EBUSY) => Err(busy(point)),
        Err(errno) => Err(at(point, "cannot unmount", errno)),
    }
}

/// Unmounts file systems of our kind that a killed process left there; returns how many.
///
/// Errors: `Busy` if another program's dead mount lies there; those of unmounting, among them that there
/// is no way there through another dead mount.
pub(crate) fn clear_dead(wanted: &Path, subtype: &str) -> Result<usize> {
    // this may work on a dead mount, as the kernel remembers its root; if not, it has no links
    let point = wanted.canonicalize().or_else(|_| std::path::absolute(wanted))?;
    let mut cleared = 0;
    while let Some(mount) = mountinfo::at(&point)?
        && mount.fs_type.starts_with("fuse")
        // the one question that the kernel never answers from memory
        // the others are of a mount by io_uring whose end the kernel is still seeing to
        && matches!(statvfs(&point), Err(Errno::ENOTCONN | Errno::ECONNABORTED | Errno::ECANCELED))
    {
        if mount.fs_type != format!("fuse.{subtype}") {
            return Err(Error::new(
                Kind::Busy,
                format!("mountpoint {} is another program's dead mount", point.display()),
            ));
        }
        detach(&point, Unmount::Lazy)?;
        cleared += 1;
    }
    Ok(cleared)
}

/// `None` if this root may not mount, as in many containers.
fn attach_as_root(folder: &Folder, point: &Path, options: &MountOptions) -> Result<Option<OwnedFd>> {
    let device = open_device()?;
    let mode = folder.mode()?;
    let data = format!(
        "fd={},rootmode={mode:o},user_id={},group_id={},{}",
        device.as_raw_fd(),
        nix::unistd::getuid(),
        nix::unistd::getgid(),
        options.fuse_options()
    );
    let target = folder.proc_path();
    match mount(Some(options.fs_name.as_str()), &target, Some("fuse"), options.flags(), Some(data.as_str())) {
        Ok(()) => Ok(Some(device)),
        Err(Errno::EPERM) => Ok(None),
        Err(Errno::ENODEV) => Err(Error::new(Kind::Missing, "the kernel does not know FUSE (try: modprobe fuse)")),
        Err(errno) => Err(at(point, "cannot mount", errno)),
    }
}

pub(crate) fn open_device() -> Result<OwnedFd> {
    let opened = OpenOptions::new().read(true).write(true).open(DEVICE);
    opened.map(OwnedFd::from).map_err(|error| {
        let (kind, what) = match error.kind() {
            ErrorKind::NotFound => (Kind::Missing, "there is no /dev/fuse (try: modprobe fuse)"),
            ErrorKind::PermissionDenied => (Kind::Permission, "no permission to open /dev/fuse"),
            _ => (Kind::Io, "cannot open /dev/fuse"),
        };
        Error::new(kind, what).with_source(error)
    })
}

fn attach_with_helper(point: &Path, options: &MountOptions) -> Result<OwnedFd> {
    // the helper says the same in fewer words
    open_device()?;
    let (ours, theirs) = UnixStream::pair()?;
    let mut child = run_helper(|helper| {
        helper.arg("-o").arg(options.fusermount_options()).arg("--").arg(point);
        // its standard input is the socket: that needs no descriptor to be inherited by other means
        helper.env(HELPER_SOCKET, "0").stdin(OwnedFd::from(theirs.try_clone()?));
        Ok(())
    })?;
    drop(theirs);
    let connection = receive(ours.as_fd(), &mut [0]);
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        std::io::Read::read_to_string(&mut stderr, &mut said)?;
    }
    let status = child.wait()?;
    match connection?.1 {
        Some(connection) => Ok(connection),
        None if said.trim().is_empty() => {
            Err(Error::new(Kind::Permission, format!("fusermount3 did not mount {}: {status}", point.display())))
        }
        None => {
            let mut why = said.trim().replace('\n', "; ");
            if !options.allow_other && mountinfo::above(point).is_ok_and(|mount| mount.fs_type.starts_with("fuse")) {
                why.push_str(NESTED);
            }
            Err(Error::new(Kind::Permission, why))
        }
    }
}

/// Why fusermount3 cannot mount in another mount of the user.
const NESTED: &str = " (the kernel lets nobody but the user himself into his FUSE mount, and so not fusermount3, which \
    has root's rights; line 'user_allow_other' in /etc/fuse.conf changes that for file systems mounted from then on)";

fn detach_with_helper(point: &Path, how: Unmount) -> Result<()> {
    let child = run_helper(|helper| {
        helper.arg("-u");
        if how != Unmount::IfUnused {
            helper.arg("-z");
        }
        helper.arg("--").arg(point).stdin(Stdio::null());
        Ok(())
    })?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false if said.contains("busy") => Err(busy(point)),
        false => Err(Error::new(Kind::Permission, said.trim().replace('\n', "; "))),
    }
}

/// Starts the helper under the first of its names that exists.
fn run_helper(arguments: impl Fn(&mut Command) -> Result<()>) -> Result<std::process::Child> {
    for name in HELPERS {
        let mut helper = Command::new(name);
        // its messages are looked into
        helper.env("LC_ALL", "C").stdout(Stdio::null()).stderr(Stdio::piped());
        arguments(&mut helper)?;
        match helper.spawn() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            child => return Ok(child?),
        }
    }
    Err(Error::new(Kind::Missing, "there is no fusermount3, which mounts for ordinary users (package fuse3)"))
}

/// Takes bytes from a socket, none if its other end was closed first, and a file descriptor, if one came along.
pub(crate) fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> std::io::Result<(usize, Option<OwnedFd>)> {
    let mut slices = [IoSliceMut::new(bytes)];
    let mut space = nix::cmsg_space!([RawFd; 1]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = loop {
        match recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut space), flags) {
            Err(Errno::EINTR) => {}
            message => break message?,
        }
    };
    let controls = match message.cmsgs() {
        // one came along, and there was no room for it among the open files
        Err(Errno::ENOBUFS) => return Ok((message.bytes, None)),
        controls => controls?,
    };
    for control in controls {
        if let ControlMessageOwned::ScmRights(fds) = control
            && let Some(&fd) = fds.first()
        {
            // SAFETY: the kernel just made this descriptor for us, and nobody else knows it.
            return Ok((message.bytes, Some(unsafe { OwnedFd::from_raw_fd(fd) })));
        }
    }
    Ok((message.bytes, None))
}

fn hidden() -> Error {
    Error::new(Kind::Busy, "something else is mounted over it")
}

fn busy(point: &Path) -> Error {
    Error::new(Kind::Busy, format!("{} is busy", point.display()))
}

fn at(point: &Path, what: &str, errno: Errno) -> Error {
    let source = std::io::Error::from(errno);
    Error::new(Error::from(std::io::Error::from(errno)).kind(), format!("{what} {}", point.display()))
        .with_source(source)
}
