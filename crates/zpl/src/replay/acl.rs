//! Replaying access control lists of NFSv4, which FreeBSD and servers of SMB set.

use base::{Error, Kind, Result};
use format::acl::{Ace, Acl};
use format::ids::ObjectId;
use format::sa::Attr;
use zil::LoggedAcl;

use crate::attr_tables::{AttrChange, AttrValue, time, word};
use crate::nodes::FileNode;
use crate::op::Op;
use crate::{FileKind, Zpl};

use super::RECORD_BYTES;

/// Bytes of an entry on disk.
const ENTRY_BYTES: u64 = 16;
/// Solaris gives users and groups of a domain a number above, and the record names them apart from their entries.
const PLAIN_ID_MAX: u32 = i32::MAX as u32;
/// Flags of a file: new files inherit entries; the list says no more than the mode; nobody is denied to execute.
const INHERIT_ACE: u64 = 0x2;
const TRIVIAL: u64 = format::znode::FLAG_ACL_TRIVIAL;
const NO_EXECS_DENIED: u64 = 0x100;
/// Entries have GUIDs.
const OBJECT_ACE: u64 = 0x8;
/// Flags of lists in records, and those of files: inherited by themselves, protected from that, made by default.
const LIST_FLAGS: [(u64, u64); 3] = [(0x1, 0x40), (0x2, 0x10), (0x4, 0x20)];

impl Zpl {
    pub(super) fn replay_acl(&self, ino: ObjectId, acl: &LoggedAcl, domains: &[&[u8]]) -> Result<()> {
        let op = self.begin(RECORD_BYTES + acl.entries.len() as u64 * ENTRY_BYTES, true)?;
        let _held = op.alone(&[ino]);
        let node = self.node(ino)?;
        let mut changes = op.acl_changes(&node, acl, domains)?;
        changes.push(time(Attr::Ctime, op.now()));
        op.change(node.object(), &changes)?;
        op.object_unlogged(node.object(), None)
    }

    /// The list that a record has, with the owners of domains that it names.
    fn logged_acl(&self, acl: &LoggedAcl, domains: &[&[u8]]) -> Result<Acl> {
        let mut owners = acl.owners.iter();
        let entries = acl.entries.iter().map(|entry| {
            if entry.guids.is_some() || entry.kind > 3 {
                return Err(Error::new(Kind::Unsupported, format!("an ACL with an entry of type {}", entry.kind)));
            }
            let plain = Ace::new(entry.kind, entry.flags, entry.mask, entry.who.into());
            let is_named = matches!(plain.who, format::acl::Who::User(_) | format::acl::Who::Group(_));
            if !is_named || entry.who <= PLAIN_ID_MAX || acl.owners.is_empty() {
                return Ok(plain);
            }
            let owner = owners.next().ok_or_else(|| Error::corrupt("an ACL with an owner of no domain"))?;
            Ok(Ace::new(entry.kind, entry.flags, entry.mask, self.logged_owner(*owner, domains)?))
        });
        Ok(Acl { entries: entries.collect::<Result<_>>()? })
    }
}

impl Op<'_> {
    /// What changes when a file gets the list of a record: its mode and flags follow from it.
    pub(super) fn acl_changes(
        &self,
        node: &FileNode,
        logged: &LoggedAcl,
        domains: &[&[u8]],
    ) -> Result<Vec<AttrChange>> {
        let acl = self.zpl().logged_acl(logged, domains)?;
        let attrs = self.zpl().attributes(node)?;
        let (old_mode, old_flags) = (attrs.u64(Attr::Mode)?, attrs.u64(Attr::Flags)?);
        let (bits, all_execute) = acl.mode(attrs.u64(Attr::Uid)?, attrs.u64(Attr::Gid)?);
        drop(attrs);
        let mode = old_mode & !0o777 | u64::from(bits);
        let is_directory = FileKind::of_mode(mode) == FileKind::Directory;
        let listed = LIST_FLAGS.iter().fold(0, |all, (_, flag)| all | flag);
        let mut flags = old_flags & !(listed | INHERIT_ACE | TRIVIAL | OBJECT_ACE | NO_EXECS_DENIED);
        let mut set = |flag, is_set| flags |= if is_set { flag } else { 0 };
        LIST_FLAGS.iter().for_each(|(bit, flag)| set(*flag, logged.flags & bit != 0));
        set(INHERIT_ACE, is_directory && acl.entries.iter().any(Ace::is_inherited));
        set(TRIVIAL, acl == Acl::trivial(bits, is_directory));
        set(NO_EXECS_DENIED, all_execute);
        Ok(vec![
            word(Attr::Mode, mode),
            word(Attr::Flags, flags),
            word(Attr::DaclCount, acl.entries.len() as u64),
            (Attr::DaclAces, AttrValue::Bytes(acl.bytes())),
        ])
    }
}
