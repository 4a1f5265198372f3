//! The calls of ioctl(2) that chattr(1), lsattr(1) and `zfs project` make.
//!
//! ```text
//!   GETFLAGS    SETFLAGS      u32: flags                             FS_*_FL
//!   FSGETXATTR  FSSETXATTR    struct fsxattr: flags, ..., project    FS_XFLAG_*
//!   GETVERSION                u32: the file's generation
//! ```
//!
//! Flags that a file cannot have are refused. Kernels before 5.13 let everybody set any: so rights are looked at here,
//! too. Source: linux/fs.h.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use base::{Error, Kind, Result};
use export::Parking;
use zpl::{FLAG_APPENDONLY, FLAG_IMMUTABLE, FLAG_NODUMP, FLAG_PROJINHERIT, SetFlags, Stat};

use crate::asker::{Asker, CAP_LINUX_IMMUTABLE};
use crate::faults::FaultLog;
use crate::notifier::Notifier;
use crate::opened::OpenFiles;
use crate::reply::Reply;
use crate::tree::{FileTree, Source};
use crate::trees::{NodePlace, Trees};
use crate::wire::{IOCTL_OUT_BYTES, InHeader, Out, RequestBody};
use crate::write_back::WriteBack;

/// Words of `struct fsxattr`: flags first, the project fourth.
type Xattr = [u32; 7];
const XATTR_BYTES: usize = size_of::<Xattr>();
/// The flag there by which a directory hands its project on.
const HANDS_ON: u32 = 0x200;

const GET_FLAGS: u64 = nix::request_code_read!(b'f', 1, size_of::<libc::c_long>());
const SET_FLAGS: u64 = nix::request_code_write!(b'f', 2, size_of::<libc::c_long>());
const GET_VERSION: u64 = nix::request_code_read!(b'v', 1, size_of::<libc::c_long>());
const GET_XATTR: u64 = nix::request_code_read!(b'X', 31, XATTR_BYTES);
const SET_XATTR: u64 = nix::request_code_write!(b'X', 32, XATTR_BYTES);

/// Flags of a file, and what the two pairs of calls have for them.
const FLAGS: [(u64, u32, u32); 4] = [
    (FLAG_IMMUTABLE, 0x10, 0x8),
    (FLAG_APPENDONLY, 0x20, 0x10),
    (FLAG_NODUMP, 0x40, 0x80),
    (FLAG_PROJINHERIT, 0x2000_0000, HANDS_ON),
];

mod ioctl {
    nix::ioctl_read!(get_xattr, b'X', 31, super::Xattr);
    nix::ioctl_write_ptr!(set_xattr, b'X', 32, super::Xattr);
}

/// The project of a file, of any file system that has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Project {
    /// Its number.
    pub id: u32,
    /// What is made in the directory gets it, too.
    pub is_handed_on: bool,
}

impl Project {
    /// Asks the kernel for that of an open file. Errors: ENOTTY or EOPNOTSUPP if there are no projects.
    pub fn of(file: &File) -> io::Result<Project> {
        let words = xattr_of(file)?;
        Ok(Project { id: words[3], is_handed_on: words[0] & HANDS_ON != 0 })
    }

    /// Gives it to an open file.
    pub fn give(&self, file: &File) -> io::Result<()> {
        let mut words = xattr_of(file)?;
        words[0] = words[0] & !HANDS_ON | if self.is_handed_on { HANDS_ON } else { 0 };
        words[3] = self.id;
        // SAFETY: the kernel reads the words.
        unsafe { ioctl::set_xattr(file.as_raw_fd(), &raw const words) }?;
        Ok(())
    }
}

fn xattr_of(file: &File) -> io::Result<Xattr> {
    let mut words = Xattr::default();
    // SAFETY: the kernel fills the words.
    unsafe { ioctl::get_xattr(file.as_raw_fd(), &raw mut words) }?;
    Ok(words)
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ioctl {
    Flags,
    Xattr,
    Version,
    Set(SetFlags),
    /// Something else.
    Unknown,
}

impl Ioctl {
    /// Reads a call's number and argument. Errors: `Unsupported` for flags that no file can have; `Invalid` for what is
    /// no project; `Corrupt` for an argument that is cut short.
    pub(crate) fn parse(number: u32, mut argument: RequestBody<'_>) -> Result<Ioctl> {
        Ok(match number.into() {
            GET_FLAGS => Ioctl::Flags,
            GET_VERSION => Ioctl::Version,
            GET_XATTR => Ioctl::Xattr,
            SET_FLAGS => {
                let flags = known(argument.u32()?, |&(_, plain, _)| plain)?;
                Ioctl::Set(SetFlags { flags, project: None })
            }
            SET_XATTR => {
                let flags = known(argument.u32()?, |&(.., extended)| extended)?;
                argument.skip(8)?;
                match argument.u32()? {
                    u32::MAX => return Err(Error::new(Kind::Invalid, "no such project")),
                    project => Ioctl::Set(SetFlags { flags, project: Some(project) }),
                }
            }
            _ => Ioctl::Unknown,
        })
    }
}

/// The flags of a file that `bits` stand for.
fn known(bits: u32, bit_of: impl Fn(&(u64, u32, u32)) -> u32) -> Result<u64> {
    let all = FLAGS.iter().fold(0, |all, row| all | bit_of(row));
    if bits & !all != 0 {
        return Err(Error::new(Kind::Unsupported, "no file has such flags"));
    }
    Ok(FLAGS.iter().filter(|row| bits & bit_of(row) != 0).fold(0, |flags, (flag, ..)| flags | flag))
}

/// The bits that stand for the flags of a file.
fn bits(stat: &Stat, bit_of: impl Fn(&(u64, u32, u32)) -> u32) -> u32 {
    FLAGS.iter().filter(|(flag, ..)| stat.flags & flag != 0).fold(0, |bits, row| bits | bit_of(row))
}

/// The answer to a call that asks.
pub(crate) fn answer(call: Ioctl, stat: &Stat) -> Out {
    let out = Out::default();
    match call {
        Ioctl::Version => out.u32(stat.generation as u32),
        Ioctl::Xattr => {
            let project = u32::try_from(stat.projid).unwrap_or(u32::MAX);
            out.u32(bits(stat, |&(.., extended)| extended)).u64(0).u32(project).padded(XATTR_BYTES)
        }
        _ => out.u32(bits(stat, |&(_, plain, _)| plain)),
    }
}

/// Answers calls of ioctl(2).
pub(crate) struct FlagRequests<S: Source> {
    pub(crate) trees: Arc<Trees<S>>,
    pub(crate) files: Arc<OpenFiles<S>>,
    pub(crate) faults: Arc<FaultLog<S>>,
    pub(crate) parking: Arc<Parking>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) write_back: Arc<WriteBack>,
}

impl<S: Source> FlagRequests<S> {
    /// IOCTL.
    pub(crate) fn ioctl(self: &Arc<Self>, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        let (node, asker) = (header.node, Asker::of(header));
        body.skip(8 + 4)?;
        let number = body.u32()?;
        body.skip(8)?;
        let (size, room) = (body.u32()?, body.u32()?);
        let answered = |out: Out| Out::default().padded(IOCTL_OUT_BYTES).bytes(&out);
        match Ioctl::parse(number, RequestBody::new(body.bytes(size as usize)?)) {
            Ok(Ioctl::Unknown) => reply.error(libc::ENOTTY),
            Ok(Ioctl::Set(set)) => {
                let flags = self.clone();
                // what programs stored while they might would be refused afterwards
                self.write_back.before(node, 0, move || {
                    let work = move |flags: &Self| flags.set_flags(node, &set, asker);
                    flags.parking.change(&flags, work, move |flags, done| {
                        let answer = |reply: Reply, ()| reply.bytes(&answered(Out::default()));
                        flags.faults.answer("ioctl", node, done, reply, answer);
                    });
                });
            }
            Ok(call) => match self.flagged(node).map(|stat| answer(call, &stat)) {
                Ok(out) if out.len() <= room as usize => reply.bytes(&answered(out)),
                Ok(_) => reply.error(libc::EINVAL),
                Err(error) => reply.error(self.faults.fail("ioctl", node, error)),
            },
            Err(error) => reply.error(self.faults.fail("ioctl", node, error)),
        }
        Ok(())
    }

    /// The attributes of a node that has flags: those in `.zfs` have none.
    fn flagged(&self, node: u64) -> Result<Stat> {
        match self.trees.place(node)? {
            NodePlace::Object(branch, object) => branch.tree.stat(object),
            NodePlace::Control | NodePlace::Shares | NodePlace::Snapshots => {
                Err(Error::new(Kind::Unsupported, "not a file of the file system"))
            }
        }
    }

    fn set_flags(&self, node: u64, set: &SetFlags, asker: Asker) -> Result<()> {
        let object = self.trees.changeable(node)?;
        let stat = self.trees.live().tree.stat(object)?;
        let limits = |flags: u64| flags & (FLAG_IMMUTABLE | FLAG_APPENDONLY);
        let may = asker.is_owner(&stat) && (limits(stat.flags) == limits(set.flags) || asker.has(CAP_LINUX_IMMUTABLE));
        if !may {
            return Err(Error::new(Kind::Forbidden, "only the owner, and root some flags"));
        }
        // numbers of projects are those of the host, whatever a user namespace has
        let is_other = set.project.is_some_and(|project| u64::from(project) != stat.projid)
            || (stat.flags ^ set.flags) & FLAG_PROJINHERIT != 0;
        if is_other && !asker.is_in_our_namespace() {
            return Err(Error::new(Kind::Invalid, "a project belongs to another user namespace"));
        }
        self.trees.live().tree.set_flags(object, set)?;
        self.files.attributes_changed(node);
        self.notifier.forget_attributes(node);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_flags_of_linux() {
        let parse = |number, words: &[u32]| {
            let out = words.iter().fold(Out::default(), |out, word| out.u32(*word));
            Ioctl::parse(number, RequestBody::new(&out))
        };
        assert_eq!(parse(0x8008_6601, &[]).unwrap(), Ioctl::Flags);
        assert_eq!(parse(0x801c_581f, &[]).unwrap(), Ioctl::Xattr);
        assert_eq!(parse(0x8008_7601, &[]).unwrap(), Ioctl::Version);
        assert_eq!(parse(0x5401, &[]).unwrap(), Ioctl::Unknown);
        let set = |flags, project| Ioctl::Set(SetFlags { flags, project });
        assert_eq!(parse(0x4008_6602, &[0x50]).unwrap(), set(FLAG_IMMUTABLE | FLAG_NODUMP, None));
        assert_eq!(
            parse(0x401c_5820, &[0x218, 0, 0, 9, 0]).unwrap(),
            set(FLAG_IMMUTABLE | FLAG_APPENDONLY | FLAG_PROJINHERIT, Some(9))
        );
        // compressed; no longer than a project; no project
        assert_eq!(parse(0x4008_6602, &[0x4]).unwrap_err().kind(), Kind::Unsupported);
        assert_eq!(parse(0x401c_5820, &[0x218, 0, 0]).unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(parse(0x401c_5820, &[0, 0, 0, u32::MAX]).unwrap_err().kind(), Kind::Invalid);
    }
}
