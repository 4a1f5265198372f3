//! Replaying changes of attributes, and of extended ones that lie with the file.

use base::{Error, Kind, Result};
use format::ids::ObjectId;
use format::sa::Attr;
use format::znode::FLAG_PROJID;
use zil::Extra;

use crate::attr_tables::{AttrChange, time, word};
use crate::flags::LOGGED;
use crate::nodes::FileNode;
use crate::op::Op;
use crate::set_xattr::unpacked;
use crate::{SetAttr, SetTime, Zpl};

use super::RECORD_BYTES;

impl Zpl {
    pub(super) fn replay_attributes(&self, set: &zil::LoggedSetAttr<'_>) -> Result<()> {
        if let Some(size) = set.size {
            self.free_most(set.object, size..u64::MAX, &|_, _| Ok(()))?;
        }
        let op = self.begin(RECORD_BYTES, true)?;
        let _held = op.alone(&[set.object]);
        let node = self.node(set.object)?;
        let time_of = |at: [u64; 2]| SetTime::At(at[0] as i64, at[1] as u32);
        let plain = SetAttr {
            mode: set.mode.map(|mode| (mode & 0o7777) as u32),
            size: set.size,
            atime: set.atime.map(time_of),
            mtime: set.mtime.map(time_of),
            ..SetAttr::default()
        };
        let mut changes = match plain == SetAttr::default() && set.uid.is_none() && set.gid.is_none() {
            // flags can be changed also of a file that cannot be changed
            true => vec![time(Attr::Ctime, op.now())],
            false => op.wanted(&node, &plain)?,
        };
        for (attr, id) in [(Attr::Uid, set.uid), (Attr::Gid, set.gid)] {
            if let Some(id) = id {
                changes.push(word(attr, self.logged_owner(id, &set.domains)?));
            }
        }
        if let Some(extra) = &set.extra {
            op.extra_changes(&node, extra, &mut changes)?;
        }
        op.share_owners(&node, &changes)?;
        match set.size {
            Some(size) => op.set_size(node.object(), size, &changes)?,
            None => op.change(node.object(), &changes)?,
        }
        op.object_unlogged(node.object(), None)
    }

    pub(super) fn replay_xattr(&self, ino: ObjectId, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let op = self.begin(RECORD_BYTES + value.map_or(0, |value| value.len() as u64), true)?;
        let _held = op.alone(&[ino]);
        let node = self.node(ino)?;
        let mut pairs = unpacked(&node, &self.attributes(&node)?)?;
        pairs.retain(|(stored, _)| stored != name);
        pairs.extend(value.map(|value| (name.to_vec(), value.to_vec())));
        match op.store_packed(node.object(), &pairs)? {
            true => op.object_unlogged(node.object(), None),
            false => Err(Error::new(Kind::TooBig, "extended attributes that do not fit into the file")),
        }
    }
}

impl Op<'_> {
    /// Adds what a record says of more attributes.
    pub(super) fn extra_changes(&self, node: &FileNode, extra: &Extra, changes: &mut Vec<AttrChange>) -> Result<()> {
        let known = LOGGED.iter().fold(Extra::CRTIME | Extra::PROJECT, |known, (bit, _)| known | bit);
        if extra.which & !known != 0 {
            return Err(Error::new(Kind::Unsupported, format!("attributes 0x{:x}", extra.which & !known)));
        }
        let attrs = self.zpl().attributes(node)?;
        let changed = changes.iter().find(|(attr, _)| *attr == Attr::Flags);
        let mut flags = match changed.and_then(|(_, value)| value.bytes().first_chunk()) {
            Some(raw) => u64::from_le_bytes(*raw),
            None => attrs.u64(Attr::Flags)?,
        };
        for (bit, flag) in LOGGED {
            if extra.which & bit != 0 {
                flags = if extra.values & u64::from(bit) != 0 { flags | flag } else { flags & !flag };
            }
        }
        if extra.which & Extra::CRTIME != 0 {
            changes.push(time(Attr::Crtime, extra.crtime));
        }
        if extra.which & Extra::PROJECT != 0 {
            flags |= FLAG_PROJID;
            changes.push(word(Attr::Projid, extra.project));
        }
        changes.retain(|(attr, _)| *attr != Attr::Flags);
        changes.push(word(Attr::Flags, flags));
        Ok(())
    }
}
