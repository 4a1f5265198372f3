//! Records in words.

use std::fmt;

use super::{Create, Extra, Intent, LoggedSetAttr, Made, Rename, Renamed, WrittenData};

impl fmt::Display for Intent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Intent::Create(create) => write_create(create, f),
            Intent::Remove { dir, name, is_rmdir } => {
                let what = if *is_rmdir { "rmdir" } else { "remove" };
                write!(f, "{what} {} from directory {dir}", ShownName(name))
            }
            Intent::Link { dir, object, name } => {
                write!(f, "link object {object} as {} in directory {dir}", ShownName(name))
            }
            Intent::Rename(rename) => write_rename(rename, f),
            Intent::Write { object, offset, len, data } => {
                write!(f, "write object {object}, offset {offset}, length {len}, ")?;
                match data {
                    WrittenData::Here(_) => write!(f, "data in the log"),
                    WrittenData::Block(bp) if bp.is_hole() => write!(f, "a hole"),
                    WrittenData::Block(bp) => write!(f, "data in a block of txg {}: {bp:?}", bp.birth()),
                }
            }
            Intent::Extend { object, offset, len } => {
                write!(f, "extend object {object}, offset {offset}, length {len}")
            }
            Intent::Truncate { object, offset, len: 0 } => write!(f, "truncate object {object} at {offset}"),
            Intent::Truncate { object, offset, len } => {
                write!(f, "free range of object {object}, offset {offset}, length {len}")
            }
            Intent::SetAttr(set) => write_attributes(set, f),
            Intent::SetAcl { object, acl, .. } => {
                write!(f, "set ACL of object {object}, {} entries, flags 0x{:x}", acl.entries.len(), acl.flags)
            }
            Intent::SetXattr { object, name, value: Some(value) } => {
                write!(f, "set xattr {} of object {object}, {} bytes", ShownName(name), value.len())
            }
            Intent::SetXattr { object, name, value: None } => {
                write!(f, "remove xattr {} of object {object}", ShownName(name))
            }
            Intent::Clone { object, offset, len, block_size, blocks } => write!(
                f,
                "clone into object {object}, offset {offset}, length {len}, {} blocks of {block_size}",
                blocks.len()
            ),
        }
    }
}

/// A name from a disk, which may hold anything.
struct ShownName<'a>(&'a [u8]);

impl fmt::Display for ShownName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// Seconds and nanoseconds.
struct Time([u64; 2]);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0[0] as i64, self.0[1])
    }
}

fn write_create(create: &Create<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Create { made, dir, born, name, extra, acl, domains } = create;
    match made {
        Made::File => write!(f, "create {} as object {} in directory {dir}", ShownName(name), born.object)?,
        Made::Directory => write!(f, "mkdir {} as object {} in directory {dir}", ShownName(name), born.object)?,
        Made::XattrDirectory => write!(f, "mkxattr: object {} for object {dir}", born.object)?,
        Made::Symlink(target) => {
            write!(f, "symlink {} as object {} in directory {dir}", ShownName(name), born.object)?;
            write!(f, ", target {}", ShownName(target))?;
        }
    }
    write!(f, ", mode {:o}, uid {}, gid {}, gen {}", born.mode, born.uid, born.gid, born.generation)?;
    write!(f, ", rdev 0x{:x}, crtime {}", born.rdev, Time(born.crtime))?;
    if born.slots > 1 {
        write!(f, ", {} slots", born.slots)?;
    }
    if let Some(acl) = acl {
        write!(f, ", ACL of {} entries", acl.entries.len())?;
    }
    domains.iter().try_for_each(|domain| write!(f, ", domain {}", ShownName(domain)))?;
    extra.iter().try_for_each(|extra| write_extra(extra, f))
}

fn write_rename(rename: &Rename<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (from, to) = (rename.from, rename.to);
    let how = match rename.how {
        Renamed::Replaced => "rename",
        Renamed::Exchanged => "exchange",
        Renamed::Whiteout(_) => "rename with whiteout",
    };
    write!(f, "{how} {} of directory {} to {} of directory {}", ShownName(from.1), from.0, ShownName(to.1), to.0)?;
    match rename.how {
        Renamed::Whiteout(born) => write!(f, ", whiteout is object {}", born.object),
        _ => Ok(()),
    }
}

fn write_attributes(set: &LoggedSetAttr<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "setattr of object {}", set.object)?;
    let LoggedSetAttr { mode, uid, gid, size, atime, mtime, extra, .. } = set;
    mode.iter().try_for_each(|mode| write!(f, ", mode {mode:o}"))?;
    for (what, value) in [("uid", uid), ("gid", gid), ("size", size)] {
        value.iter().try_for_each(|value| write!(f, ", {what} {value}"))?;
    }
    for (what, time) in [("atime", atime), ("mtime", mtime)] {
        time.iter().try_for_each(|time| write!(f, ", {what} {}", Time(*time)))?;
    }
    set.domains.iter().try_for_each(|domain| write!(f, ", domain {}", ShownName(domain)))?;
    extra.iter().try_for_each(|extra| write_extra(extra, f))
}

fn write_extra(extra: &Extra, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, ", attributes 0x{:x} of 0x{:x}", extra.values, extra.which)?;
    if extra.which & Extra::PROJECT != 0 {
        write!(f, ", project {}", extra.project)?;
    }
    match extra.which & Extra::CRTIME {
        0 => Ok(()),
        _ => write!(f, ", crtime {}", Time(extra.crtime)),
    }
}
