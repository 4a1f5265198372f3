//! Users at work in a pool of which nobody knows what it holds.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use ::base::{Env, Error, Kind, Result};
use device::Device;
use format::ids::{Guid, ObjectId};
use pool::{LivePool, PoolState, ScrubRange};
use testkit::rng::Rng;
use testkit::workload::{candidate, options};
use zpl::{Allocate, FileKind, NewKind, RenameMode, SetAttr, SetTime, XattrMode, Zpl};

use super::base_pools::{BasePool, make_fs, new_file, noise, open};
use super::finding::{Finding, Reach};

/// Operations of a case.
const STEPS_MAX: u64 = 40;
/// Files of a file system that are known.
const KNOWN_MAX: usize = 200;

/// Why work came to an end early.
pub(super) enum WorkStopped {
    /// The pool cannot be written to.
    Refused,
    /// Something was wrong.
    Wrong(Finding),
}

/// A file that is known: number, kind, directory, name.
type KnownFile = (ObjectId, Option<FileKind>, ObjectId, Vec<u8>);

/// A file system that is open, and the files in it that are known.
struct Known {
    zpl: Zpl,
    files: Vec<KnownFile>,
}

/// A name too long for a micro ZAP, of two.
pub(super) fn long_name(rng: &mut Rng) -> Vec<u8> {
    format!("{}{}", rng.below(2), "-what a long name".repeat(5)).into_bytes()
}

/// Imports the pool, works in it, and exports it or lets it crash.
pub(super) fn work(
    env: &Env,
    base: &BasePool,
    devices: &[Arc<dyn Device>],
    reach: Reach,
    rng: &mut Rng,
) -> std::result::Result<(), WorkStopped> {
    let opened = candidate(devices).and_then(|found| LivePool::import(env, &found, &options(), (7, "here".into())));
    let pool = match opened {
        Ok(pool) => pool,
        Err(error) if reach == Reach::Nothing && base.is_writable => {
            return Err(WorkStopped::Wrong(Finding::new("a whole pool is refused", error.to_string())));
        }
        Err(_) => return Err(WorkStopped::Refused),
    };
    let mut worker = Worker { env, base, pool, known: HashMap::new(), damage: None };
    for _ in 0..rng.below(STEPS_MAX) {
        if let Err(error) = worker.step(rng) {
            worker.note(error);
        }
    }
    worker.end(rng);
    match worker.damage {
        Some(error) if reach == Reach::Nothing => {
            Err(WorkStopped::Wrong(Finding::new("damage in a whole pool", error.to_string())))
        }
        _ => Ok(()),
    }
}

struct Worker<'a> {
    env: &'a Env,
    base: &'a BasePool,
    pool: Arc<LivePool>,
    known: HashMap<String, Known>,
    /// The first error that only damage can explain.
    damage: Option<Error>,
}

impl Worker<'_> {
    fn note(&mut self, error: Error) {
        if matches!(error.kind(), Kind::Corrupt | Kind::Checksum | Kind::Io | Kind::Suspended) {
            self.damage.get_or_insert(error);
        }
    }

    fn step(&mut self, rng: &mut Rng) -> Result<()> {
        match rng.below(23) {
            0 => self.pool.sync(),
            22 => self.change_pool(rng),
            1 => self.change_datasets(rng),
            2 => self.change_properties(rng),
            3 | 4 => self.change_snapshots(rng),
            _ => self.change_files(rng),
        }
    }

    /// Begins or ends something that goes on while others work.
    fn change_pool(&mut self, rng: &mut Rng) -> Result<()> {
        match rng.below(8) {
            0..3 => self.pool.scrub(scrub_range(rng)),
            3 => self.pool.pause_scrub(),
            4 => self.pool.cancel_scrub(),
            5 => self.pool.checkpoint(),
            6 => self.pool.discard_checkpoint(),
            _ => {
                let tops: Vec<Guid> = self.pool.tree().tops().map(|top| top.guid()).collect();
                self.pool.remove(*rng.pick(&tops)).map(drop)
            }
        }
    }

    fn change_datasets(&mut self, rng: &mut Rng) -> Result<()> {
        let name = rng.pick(&self.base.worked_in).clone();
        let new = format!("{}/{}", rng.pick(&self.base.worked_in), rng.pick(&["new", "kid", "deep"]));
        match rng.below(3) {
            0 => make_fs(&self.pool, &new, &[]),
            1 => {
                self.known.retain(|known, _| !known.starts_with(&name));
                self.pool.rename_dataset(&name, &new)
            }
            _ => {
                self.known.remove(&name);
                self.pool.destroy_dataset(&name)
            }
        }
    }

    fn change_snapshots(&mut self, rng: &mut Rng) -> Result<()> {
        let name = rng.pick(&self.base.worked_in).clone();
        let choice = rng.below(9);
        let view = self.pool.view();
        let latest = view.dsl().snapshots(&view.dsl().find(&name)?)?.pop().filter(|_| choice > 2);
        let Some(old) = latest.map(|snapshot| snapshot.name) else {
            return self.pool.snapshot(&[format!("{name}@{}", rng.below(1000))], &[]).map(drop);
        };
        let clone = format!("{}/{}", rng.pick(&self.base.worked_in), rng.pick(&["new", "kid", "deep"]));
        match choice {
            3 => self.pool.destroy_snapshots(&[old], rng.below(2) == 0).map(drop),
            4 => {
                self.known.remove(&name);
                self.pool.rollback(&old)
            }
            5 => self.pool.clone_snapshot(&old, &clone, &[]),
            6 => self.pool.promote(&clone).map(drop),
            7 => self.pool.redact(&old, "redacted", &[format!("{clone}@{}", rng.below(1000))]),
            _ => {
                self.pool.hold(&[(old.clone(), "tag".to_owned())])?;
                self.pool.bookmark(&format!("{name}#mark"), &old)?;
                self.pool.release(&[(old, "tag".to_owned())]).map(drop)
            }
        }
    }

    fn change_properties(&mut self, rng: &mut Rng) -> Result<()> {
        let name = rng.pick(&self.base.worked_in).clone();
        let (property, value) = *rng.pick(&[
            ("compression", "gzip"),
            ("quota", "20M"),
            ("quota", "none"),
            ("reservation", "1M"),
            ("mountpoint", "/else/where"),
            ("copies", "3"),
            ("checksum", "sha256"),
            ("org.cenote:a", "b"),
            ("refquota", "30M"),
            ("atime", "off"),
        ]);
        if rng.below(4) == 0 {
            return self.pool.inherit_property(&name, property, false).map(drop);
        }
        self.pool.set_property(&name, property, value).map(drop)?;
        self.pool.record_history("zfs set it")
    }

    /// The file system of that name, and what is in it.
    fn known(&mut self, name: &str, rng: &mut Rng) -> Result<&mut Known> {
        if !self.known.contains_key(name) {
            let record_bytes = *rng.pick(&[4 << 10, 16 << 10, 128 << 10]);
            let options = zpl::ZplOptions { xattr_sa: rng.below(2) == 0, record_bytes, ..zpl::ZplOptions::default() };
            let zpl = open(self.env, &self.pool, name, options)?;
            let mut files = vec![(zpl.root(), Some(FileKind::Directory), zpl.root(), b".".to_vec())];
            let mut at = 0;
            while at < files.len() && files.len() < KNOWN_MAX {
                let (dir, kind, ..) = files[at].clone();
                at += 1;
                if kind != Some(FileKind::Directory) {
                    continue;
                }
                // a list may end with an error, and what came before is known
                let listed = zpl.readdir(dir, 0, &mut |entry| {
                    files.push((entry.ino, entry.kind, dir, entry.name));
                    if files.len() < KNOWN_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                });
                if let Err(error) = listed {
                    self.damage.get_or_insert(error);
                }
            }
            self.known.insert(name.to_owned(), Known { zpl, files });
        }
        Ok(self.known.get_mut(name).expect("it is there by now"))
    }

    fn change_files(&mut self, rng: &mut Rng) -> Result<()> {
        let name = rng.pick(&self.base.worked_in).clone();
        let Known { zpl, files } = self.known(&name, rng)?;
        let (ino, _, parent, old) = rng.pick(files).clone();
        let dirs: Vec<ObjectId> =
            files.iter().filter(|file| file.1 == Some(FileKind::Directory)).map(|file| file.0).collect();
        let dir = *rng.pick(&dirs);
        let new = match rng.below(8) {
            0 => b"kid".to_vec(),
            1 => b"deep".to_vec(),
            2 | 3 => long_name(rng),
            n => format!("n{n}").into_bytes(),
        };
        // long names are for tables of leaves, where there is one
        let fat = files.iter().find(|file| file.3 == b"fat").filter(|_| new.len() > 50).map(|file| file.0);
        let dir = fat.unwrap_or(dir);
        let user = *rng.pick(&[0, 1000, 1001]);
        let choice = rng.below(20);
        let target = FileTarget { ino, parent, old, dir, new, user };
        match choice {
            0..9 => change_names(zpl, files, target, choice, rng),
            9..13 => change_attributes(zpl, &target, choice, rng),
            19 => {
                let from = zpl.open_file(rng.pick(files).0)?;
                let offset = *rng.pick(&[0, 16 << 10, 3 << 20]);
                zpl.open_file(target.ino)?.copy_from(offset, &from, 0, *rng.pick(&[16 << 10, 80 << 10])).map(drop)
            }
            _ => use_contents(zpl, &target, choice, rng),
        }
    }

    fn end(&mut self, rng: &mut Rng) {
        let is_exported = rng.below(3) > 0;
        self.known.clear();
        let ended = if is_exported { self.pool.close(PoolState::Exported) } else { Ok(()) };
        if let Err(error) = ended {
            self.note(error);
        }
    }
}

/// What a change of files is about.
struct FileTarget {
    /// A file that is known.
    ino: ObjectId,
    /// The directory that it is in, and its name there.
    parent: ObjectId,
    old: Vec<u8>,
    /// Another directory, and a name for it.
    dir: ObjectId,
    new: Vec<u8>,
    user: u32,
}

/// Makes, links, unlinks or moves a file.
fn change_names(zpl: &Zpl, files: &mut Vec<KnownFile>, target: FileTarget, choice: u64, rng: &mut Rng) -> Result<()> {
    let FileTarget { ino, parent, old, dir, new, user } = target;
    match choice {
        0..4 => {
            let kinds = [
                (NewKind::File, FileKind::File),
                (NewKind::Directory, FileKind::Directory),
                (NewKind::Symlink(b"../../../outside"), FileKind::Symlink),
                (NewKind::Fifo, FileKind::Fifo),
            ];
            let (kind, known) = *rng.pick(&kinds);
            let made = zpl.create(dir, &new, &zpl::New { uid: user, ..new_file(kind) })?;
            files.push((made.ino, Some(known), dir, new));
        }
        4 => {
            zpl.link(ino, dir, &new)?;
            files.push((ino, None, dir, new));
        }
        5 => {
            if let Some(lost) = zpl.unlink(parent, &old)? {
                zpl.reclaim(lost)?;
            }
        }
        6 => {
            let lost = zpl.rmdir(parent, &old)?;
            zpl.reclaim(lost)?;
        }
        _ => {
            let mode = *rng.pick(&[RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
            if let Some(lost) = zpl.rename((parent, &old), (dir, &new), mode)? {
                zpl.reclaim(lost)?;
            }
        }
    }
    Ok(())
}

fn change_attributes(zpl: &Zpl, target: &FileTarget, choice: u64, rng: &mut Rng) -> Result<()> {
    let &FileTarget { ino, user, .. } = target;
    match choice {
        9 => {
            let size = *rng.pick(&[0, 100, 20_000, 3 << 20, 1 << 40]);
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            zpl.set_attr(ino, &set)?;
        }
        10 => {
            let set = SetAttr {
                mode: Some(rng.below(0o10000) as u32),
                uid: Some(user),
                gid: (user == 0).then_some(5),
                mtime: Some(SetTime::At(-5, 3)),
                ..SetAttr::default()
            };
            zpl.set_attr(ino, &set)?;
        }
        _ => {
            let name = format!("user.{}", rng.below(3));
            let len = *rng.pick(&[1, 60, 700, 9000]);
            let value = noise(rng, len);
            if rng.below(3) == 0 {
                let mut names = zpl.xattr_names(ino)?;
                names.push(name.into_bytes());
                zpl.remove_xattr(ino, rng.pick::<Vec<u8>>(&names))?;
            } else {
                zpl.set_xattr(ino, name.as_bytes(), &value, XattrMode::Any)?;
            }
        }
    }
    Ok(())
}

/// Writes, reads, or brings to disk.
fn use_contents(zpl: &Zpl, target: &FileTarget, choice: u64, rng: &mut Rng) -> Result<()> {
    let &FileTarget { ino, dir, .. } = target;
    match choice {
        13 => {
            let (offset, len) = (rng.below(60_000), rng.below(100_000) + 1);
            let how = *rng.pick(&[
                Allocate::Reserve { keep_size: false },
                Allocate::PunchHole,
                Allocate::ZeroRange { keep_size: true },
            ]);
            zpl.open_file(ino)?.allocate(how, offset, len)?;
        }
        14 => zpl.sync_object(ino)?,
        15 => {
            let file = zpl.open_file(ino)?;
            let mut buf = vec![0; 20_000];
            let at = *rng.pick(&[0, 3 << 20, 50 << 20]);
            file.read(at, &mut buf)?;
            zpl.stat(ino)?;
            zpl.acl(ino)?;
            zpl.path_of(ino)?;
            zpl.readlink(ino)?;
        }
        16 => {
            zpl.lookup(dir, &target.new)?;
            for name in zpl.xattr_names(ino)? {
                zpl.xattr(ino, &name)?;
            }
        }
        _ => {
            let len = rng.below(40_000) as usize + 1;
            let offset = *rng.pick(&[0, 100, 16 << 10, 3 << 20, 50 << 20]);
            zpl.open_file(ino)?.write(offset, &noise(rng, len)[..])?;
        }
    }
    Ok(())
}

fn scrub_range(rng: &mut Rng) -> ScrubRange {
    match rng.below(4) {
        0 => ScrubRange::SinceLast,
        1 => ScrubRange::Born { from_s: Some(rng.number()), to_s: None },
        2 => ScrubRange::Born { from_s: None, to_s: Some(rng.number()) },
        _ => ScrubRange::All,
    }
}
