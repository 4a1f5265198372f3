//! Moving names.
//!
//! ```text
//!   Replace     from ──▶ to       what was at `to` loses that name
//!   NoReplace   from ──▶ to       `Exists` if there is anything at `to`
//!   Exchange    from ◀─▶ to
//!   Whiteout    from ──▶ to       and `from` is then a new character device 0:0, in the same transaction
//! ```
//!
//! Where names have aliases, both ends are spelled from then on as the caller spells them, as in OpenZFS.
//!
//! A directory that gets another parent must not come to lie below itself. An operation that moves one holds the
//! lock of such moves, so the way from the target up to the root stays as it is while it is looked at.

use base::{Error, Kind, Result};
use dmu::Object;
use dmu::zap::Editor;
use format::ids::ObjectId;
use format::sa::Attr;
use zil::{Born, Intent, Renamed};

use crate::attr_tables::{time, word};
use crate::create::{CREATE_BYTES, exists};
use crate::dir::not_found;
use crate::locks::HeldLocks;
use crate::names::{FoundName, KEEPS_NAME, NAME_BYTES, losing_directory};
use crate::nodes::FileNode;
use crate::op::Op;
use crate::{FileKind, New, NewKind, RenameMode, Whiteout, Zpl};

/// How deep directories may lie; more is a circle in a damaged pool.
const DEPTH_MAX: usize = 1 << 16;

/// A place of a name: a directory, and the name in it.
type NamePlace<'a> = (ObjectId, &'a [u8]);

/// What becomes of the old name.
#[derive(Clone, Copy)]
enum OldName<'a> {
    /// It is free.
    Free,
    /// A whiteout gets it, spelled so.
    Whiteout(&'a [u8], NewWhiteout<'a>),
}

/// A whiteout that is to be made.
#[derive(Clone, Copy)]
enum NewWhiteout<'a> {
    Asked(Whiteout),
    Logged(&'a Born),
}

impl OldName<'_> {
    /// By how much the directory has fewer entries then.
    fn entries(self) -> i64 {
        match self {
            OldName::Free => -1,
            OldName::Whiteout(..) => 0,
        }
    }
}

/// One end of a move.
struct RenameEnd {
    directory: FileNode,
    found: FoundName,
    node: FileNode,
    is_directory: bool,
    kind: FileKind,
}

impl Zpl {
    /// Moves the name `from` of a directory to the name `to` of one. An object that lost its last name to
    /// it is returned, as in [`Zpl::unlink`]. Two names of the same object both stay. Errors: `NotFound`,
    /// `Exists`, `NotEmpty`, `IsDirectory`, `NotDirectory`, `OtherProject`; `Invalid` if a directory would come to lie
    /// below itself; as of [`Zpl::create`].
    pub fn rename(&self, from: (ObjectId, &[u8]), to: (ObjectId, &[u8]), mode: RenameMode) -> Result<Option<ObjectId>> {
        let orphan = self.placed(from.0, self.move_name(from, to, mode, None));
        self.settled(ObjectId::NONE, orphan)
    }

    /// The same; the record of a log says what the whiteout is, if there is one.
    pub(crate) fn move_name(
        &self,
        from: NamePlace<'_>,
        to: NamePlace<'_>,
        mode: RenameMode,
        logged: Option<&Born>,
    ) -> Result<Option<ObjectId>> {
        self.check_name(to.1)?;
        let old = match (mode, logged) {
            (_, Some(born)) => OldName::Whiteout(from.1, NewWhiteout::Logged(born)),
            (RenameMode::Whiteout(whiteout), None) => OldName::Whiteout(from.1, NewWhiteout::Asked(whiteout)),
            _ => OldName::Free,
        };
        let op = self.begin_naming(NAME_BYTES + CREATE_BYTES)?;
        let _renames = (from.0 != to.0).then(|| op.live().renames());
        let (source, target, _held) = op.both_ends(from, to)?;
        let source = op.end(from.0, source)?;
        op.check_project(&op.living_directory(to.0)?, &source.node, source.kind)?;
        if from.0 != to.0 && source.is_directory {
            op.check_loop(source.found.ino, to.0)?;
        }
        let target = target.map(|found| op.end(to.0, found)).transpose()?;
        if let Some(target) = &target {
            if matches!(mode, RenameMode::NoReplace | RenameMode::Whiteout(Whiteout { replaces: false, .. })) {
                return Err(exists());
            }
            if from.0 != to.0 && mode == RenameMode::Exchange {
                op.check_project(&source.directory, &target.node, target.kind)?;
                if target.is_directory {
                    op.check_loop(target.found.ino, from.0)?;
                }
            }
            if target.found.ino == source.found.ino {
                return op.respell(from, to, &source, &target.found, mode);
            }
        }
        op.gives_name(to.0, to.1);
        let orphan = match (&target, mode) {
            (Some(target), RenameMode::Exchange) => {
                op.gives_name(from.0, from.1);
                op.exchange((from.1, &source), (to.1, target))?;
                // OpenZFS knows that since 2.2
                op.names_unlogged(Some(&Intent::Rename(zil::Rename { from, to, how: Renamed::Exchanged })));
                return Ok(None);
            }
            (None, RenameMode::Exchange) => return Err(not_found()),
            (Some(target), _) => op.replace(&source, (to.1, target), old)?,
            (None, _) => op.move_to(&source, to, old).map(|()| None)?,
        };
        op.log_removed(orphan);
        match old {
            OldName::Free => {
                // under the name that is in the table
                let from = (from.0, &source.found.name[..]);
                op.log_names(&Intent::Rename(zil::Rename { from, to, how: Renamed::Replaced }));
            }
            // OpenZFS knows that since 2.2, too
            OldName::Whiteout(..) => op.names_unlogged(None),
        }
        Ok(orphan)
    }
}

impl Op<'_> {
    /// Finds both names, and locks all that they lead to.
    fn both_ends(
        &self,
        from: NamePlace<'_>,
        to: NamePlace<'_>,
    ) -> Result<(FoundName, Option<FoundName>, HeldLocks<'_>)> {
        let zpl = self.zpl();
        let peek = |place: NamePlace<'_>| match zpl.peek(place.0, place.1) {
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            found => found.map(Some),
        };
        loop {
            let (source, target) = (zpl.peek(from.0, from.1)?, peek(to)?);
            let target_ino = target.as_ref().map_or(source.ino, |found| found.ino);
            let held = self.alone(&[from.0, to.0, source.ino, target_ino]);
            let now = |place: NamePlace<'_>| zpl.find_entry(zpl.directory(place.0)?.object(), place.1);
            if now(from)?.as_ref() == Some(&source) && now(to)? == target {
                return Ok((source, target, held));
            }
        }
    }

    fn end(&self, dir: ObjectId, found: FoundName) -> Result<RenameEnd> {
        let node = self.zpl().node(found.ino)?;
        self.zpl().check_flags(&node, KEEPS_NAME)?;
        let kind = self.zpl().kind_of(&node)?;
        Ok(RenameEnd {
            directory: losing_directory(self, dir)?,
            found,
            node,
            is_directory: kind == FileKind::Directory,
            kind,
        })
    }

    /// `Invalid` if `ino` is `dir`, or lies above it.
    fn check_loop(&self, ino: ObjectId, dir: ObjectId) -> Result<()> {
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            if at == ino {
                return Err(Error::new(Kind::Invalid, "a directory cannot be moved below itself"));
            }
            if at == self.zpl().root() {
                return Ok(());
            }
            at = self.zpl().attributes(&self.zpl().node(at)?)?.parent()?;
        }
        Err(Error::corrupt(format!("object {dir} lies deeper than {DEPTH_MAX} directories")))
    }

    /// Both names lead to the same object. If they are the same entry, in another spelling, it is spelled anew.
    fn respell(
        &self,
        from: NamePlace<'_>,
        to: NamePlace<'_>,
        source: &RenameEnd,
        target: &FoundName,
        mode: RenameMode,
    ) -> Result<Option<ObjectId>> {
        let is_same_entry = from.0 == to.0 && source.found.name == target.name;
        if mode == RenameMode::Exchange || !is_same_entry || target.name == to.1 {
            return Ok(None);
        }
        let directory = source.directory.object();
        let table = |directory: &Object, name: &[u8]| Editor::new(&directory.changing(self.tx())).remove(name);
        table(directory, &source.found.name)?;
        if let Err(error) = self.add_name(directory, to.1, source.found.ino, source.kind) {
            self.add_name(directory, &source.found.name, source.found.ino, source.kind)?;
            return Err(error);
        }
        self.directory_changed(directory, 0, 0)?;
        self.change(source.node.object(), &[time(Attr::Ctime, self.now())])?;
        self.names_unlogged(None);
        Ok(None)
    }

    /// To a name that is not there yet.
    fn move_to(&self, source: &RenameEnd, to: NamePlace<'_>, old: OldName<'_>) -> Result<()> {
        let target = self.zpl().directory(to.0)?;
        self.add_name(target.object(), to.1, source.found.ino, source.kind)?;
        let from = source.directory.object();
        if let Err(error) = self.vacate(source, old) {
            Editor::new(&target.object().changing(self.tx())).remove(to.1)?;
            return Err(error);
        }
        self.moved(source, to.0)?;
        let subdirectories = i64::from(source.is_directory);
        self.directory_changed(from, old.entries(), -subdirectories)?;
        self.directory_changed(target.object(), 1, subdirectories)
    }

    /// To the name of something else, which loses it.
    fn replace(
        &self,
        source: &RenameEnd,
        (new, target): (&[u8], &RenameEnd),
        old: OldName<'_>,
    ) -> Result<Option<ObjectId>> {
        match (source.is_directory, target.is_directory) {
            (true, true) => self.zpl().check_empty(&target.node)?,
            (false, false) => {}
            (true, false) => return Err(Error::new(Kind::NotDirectory, "not a directory")),
            (false, true) => return Err(Error::new(Kind::IsDirectory, "is a directory")),
        }
        let (from, to) = (source.directory.object(), target.directory.object());
        let orphan = self.drop_link(&target.node, |op| {
            op.put_over(target, new, (source.found.ino, source.kind))?;
            let vacated = op.vacate(source, old);
            if vacated.is_err() {
                op.restore(target, new)?;
            }
            vacated
        })?;
        self.moved(source, to.id())?;
        let subdirectories = i64::from(source.is_directory);
        self.directory_changed(from, old.entries(), -subdirectories)?;
        self.directory_changed(to, 0, 0)?;
        Ok(orphan)
    }

    fn exchange(&self, (old, source): (&[u8], &RenameEnd), (new, target): (&[u8], &RenameEnd)) -> Result<()> {
        let (from, to) = (source.directory.object(), target.directory.object());
        self.put_over(target, new, (source.found.ino, source.kind))?;
        if let Err(error) = self.put_over(source, old, (target.found.ino, target.kind)) {
            self.restore(target, new)?;
            return Err(error);
        }
        self.moved(source, to.id())?;
        self.moved(target, from.id())?;
        let subdirectories = i64::from(target.is_directory) - i64::from(source.is_directory);
        self.directory_changed(from, 0, subdirectories)?;
        self.directory_changed(to, 0, -subdirectories)
    }

    /// The reverse of [`Op::put_over`].
    fn restore(&self, place: &RenameEnd, name: &[u8]) -> Result<()> {
        let (directory, found) = (place.directory.object(), &place.found);
        if found.name == name {
            return self.set_name(directory, name, found.ino, place.kind);
        }
        Editor::new(&directory.changing(self.tx())).remove(name)?;
        self.add_name(directory, &found.name, found.ino, place.kind)
    }

    /// Puts an entry for another object in the place of one, in a spelling that may be another.
    fn put_over(&self, place: &RenameEnd, name: &[u8], (ino, kind): (ObjectId, FileKind)) -> Result<()> {
        let (directory, found) = (place.directory.object(), &place.found);
        if found.name == name {
            return self.set_name(directory, name, ino, kind);
        }
        Editor::new(&directory.changing(self.tx())).remove(&found.name)?;
        if let Err(error) = self.add_name(directory, name, ino, kind) {
            self.add_name(directory, &found.name, found.ino, place.kind)?;
            return Err(error);
        }
        Ok(())
    }

    /// Takes the old name from what is moved.
    fn vacate(&self, source: &RenameEnd, old: OldName<'_>) -> Result<()> {
        let directory = source.directory.object();
        let (name, whiteout) = match old {
            OldName::Free => return Editor::new(&directory.changing(self.tx())).remove(&source.found.name),
            OldName::Whiteout(name, whiteout) => (name, whiteout),
        };
        let (_, parent) = self.parent(directory.id())?;
        let made = match whiteout {
            NewWhiteout::Asked(Whiteout { uid, gid, .. }) => {
                let new = New { kind: NewKind::CharDevice(0), mode: 0, umask: 0, uid, gid };
                self.make_file(&parent, &new, true)?
            }
            NewWhiteout::Logged(born) => self.logged_whiteout(&parent, directory.id(), born)?,
        };
        let put = self.put_over(source, name, (made.id(), FileKind::CharDevice));
        if put.is_err() {
            self.zpl().objset().free_object(self.tx(), made.id())?;
        }
        put
    }

    /// Notes where a moved object is now.
    fn moved(&self, end: &RenameEnd, dir: ObjectId) -> Result<()> {
        let mut changes = vec![word(Attr::Parent, dir.get()), time(Attr::Ctime, self.now())];
        changes.extend(self.flags_by_move(&self.zpl().node(dir)?, &end.node, end.kind)?);
        self.change(end.node.object(), &changes)
    }
}
