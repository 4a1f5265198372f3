//! Flags and projects.

use super::*;
use base::Mutex;
use dmu::Object;
use dmu::zap::Zap;
use format::znode::{FLAG_APPENDONLY, FLAG_IMMUTABLE, FLAG_NODUMP, FLAG_PROJINHERIT};

fn set(fs: &Fs, ino: ObjectId, flags: u64, project: Option<u32>) -> Result<()> {
    fs.zpl.set_flags(ino, &SetFlags { flags, project })
}

/// Bytes and objects of a project, as of the latest group on disk.
fn used(fs: &Fs, project: u64) -> (u64, u64) {
    let set = fs.zpl.objset();
    let dnode = set.phys().accounting[2].clone().expect("space is counted by project");
    let book = Zap::open(Object::outside(set.clone(), ObjectId::new(u64::MAX - 2), dnode)).unwrap();
    let number = |name: &str| book.u64(name).unwrap().unwrap_or(0);
    (number(&format!("{project:x}")), number(&format!("obj-{project:x}")))
}

#[test]
fn flags_forbid() {
    let fs = fs();
    let (zpl, dir) = (&fs.zpl, fs.dir(fs.root, "d"));
    let ino = fs.file(dir, "f");
    let open = zpl.open_file(ino).unwrap();
    open.write(0, b"0123456789").unwrap();
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };

    set(&fs, ino, FLAG_APPENDONLY | FLAG_NODUMP, None).unwrap();
    assert_eq!(fs.stat(ino).flags & SetFlags::ALL, FLAG_APPENDONLY | FLAG_NODUMP);
    assert_eq!(kind(open.write(3, b"x")), Kind::Forbidden);
    open.write(10, b"x").unwrap();
    assert_eq!(kind(zpl.set_attr(ino, &SetAttr { size: Some(0), ..SetAttr::default() })), Kind::Forbidden);
    assert_eq!(kind(zpl.set_attr(ino, &mode)), Kind::Forbidden);
    assert_eq!(kind(zpl.link(ino, dir, b"g")), Kind::Forbidden);
    assert_eq!(kind(zpl.set_xattr(ino, b"user.a", b"1", XattrMode::Any)), Kind::Forbidden);
    assert_eq!(kind(zpl.unlink(dir, b"f")), Kind::Forbidden);
    assert_eq!(kind(zpl.rename((dir, b"f"), (dir, b"g"), RenameMode::Replace)), Kind::Forbidden);
    let allocate = |how| open.allocate(how, 0, 4096);
    assert_eq!(kind(allocate(Allocate::PunchHole)), Kind::Forbidden);

    set(&fs, ino, FLAG_IMMUTABLE, None).unwrap();
    assert_eq!(kind(open.write(11, b"x")), Kind::Forbidden);
    assert_eq!(kind(zpl.set_attr(ino, &mode)), Kind::Forbidden);
    assert_eq!(kind(zpl.link(ino, dir, b"g")), Kind::Forbidden);
    assert_eq!(kind(zpl.unlink(dir, b"f")), Kind::Forbidden);
    set(&fs, ino, 0, None).unwrap();
    assert_eq!(fs.contents(ino), b"0123456789x");

    // of directories: nothing comes or goes; or things only come
    set(&fs, dir, FLAG_IMMUTABLE, None).unwrap();
    assert_eq!(kind(zpl.create(dir, b"g", &new(NewKind::File, 0o644))), Kind::Forbidden);
    assert_eq!(kind(zpl.unlink(dir, b"f")), Kind::Forbidden);
    set(&fs, dir, FLAG_APPENDONLY, None).unwrap();
    fs.file(dir, "g");
    assert_eq!(kind(zpl.unlink(dir, b"f")), Kind::Forbidden);
    assert_eq!(kind(zpl.rename((dir, b"f"), (fs.root, b"f"), RenameMode::Replace)), Kind::Forbidden);
    set(&fs, dir, 0, None).unwrap();
    zpl.unlink(dir, b"f").unwrap();

    let link = zpl.create(dir, b"link", &new(NewKind::Symlink(b"g"), 0)).unwrap().ino;
    assert_eq!(kind(set(&fs, link, FLAG_NODUMP, None)), Kind::Unsupported);
}

#[test]
fn a_project_is_handed_on() {
    let fs = fs();
    let zpl = &fs.zpl;
    let (tree, other) = (fs.dir(fs.root, "tree"), fs.file(fs.root, "other"));
    set(&fs, tree, FLAG_PROJINHERIT, Some(7)).unwrap();
    let (sub, file) = (fs.dir(tree, "sub"), fs.file(tree, "file"));
    let deep = fs.file(sub, "deep");
    let of = |ino| (fs.stat(ino).projid, fs.stat(ino).flags & FLAG_PROJINHERIT != 0);
    assert_eq!([sub, file, deep, other].map(of), [(7, true), (7, true), (7, true), (0, false)]);

    // nothing of another project comes in, but by being made; what can have no project does
    let rename = |from: (ObjectId, &[u8]), to: (ObjectId, &[u8]), mode| zpl.rename(from, to, mode);
    let replace = RenameMode::Replace;
    assert_eq!(kind(rename((fs.root, b"other"), (tree, b"other"), replace)), Kind::OtherProject);
    assert_eq!(kind(rename((tree, b"file"), (fs.root, b"other"), RenameMode::Exchange)), Kind::OtherProject);
    assert_eq!(kind(zpl.link(other, tree, b"other")), Kind::OtherProject);
    let link = zpl.create(fs.root, b"link", &new(NewKind::Symlink(b"x"), 0)).unwrap();
    assert_eq!(link.flags & format::znode::FLAG_PROJID, 0);
    rename((fs.root, b"link"), (sub, b"link"), replace).unwrap();
    set(&fs, other, 0, Some(7)).unwrap();
    rename((fs.root, b"other"), (tree, b"other"), replace).unwrap();
    assert_eq!(of(other), (7, true));
    // and what goes out keeps it
    rename((sub, b"deep"), (fs.root, b"deep"), replace).unwrap();
    assert_eq!(of(deep), (7, true));
    fs.sync(|| ());
    assert_eq!(used(&fs, 7).1, 5);
    set(&fs, deep, 0, Some(0)).unwrap();
    fs.sync(|| ());
    assert_eq!(used(&fs, 7).1, 4);
    assert_eq!(fs.reopened().stat(tree).projid, 7);
}

#[test]
fn files_of_before_get_room_for_a_project() {
    let fs = fs_counting(NewFs::default(), ZplOptions { xattr_sa: false, ..ZplOptions::default() }, false);
    let zpl = &fs.zpl;
    let (plain, full, dir) = (fs.file(fs.root, "plain"), fs.file(fs.root, "full"), fs.dir(fs.root, "dir"));
    zpl.set_xattr(plain, b"user.hidden", &[1; 20_000], XattrMode::Any).unwrap();
    let mut options = zpl.live().unwrap().options();
    options.xattr_sa = true;
    zpl.set_options(options).unwrap();
    zpl.set_xattr(full, b"user.spilled", &[2; 3000], XattrMode::Any).unwrap();
    zpl.open_file(plain).unwrap().write(0, &[3; 5000]).unwrap();
    assert_eq!(kind(set(&fs, plain, 0, Some(3))), Kind::Unsupported);
    assert_eq!(kind(set(&fs, dir, FLAG_PROJINHERIT, None)), Kind::Unsupported);
    set(&fs, dir, FLAG_NODUMP, Some(0)).unwrap();
    fs.sync(|| ());

    zpl.objset().count_objects(true);
    for (ino, project) in [(plain, 3), (full, 4), (dir, u32::MAX - 1)] {
        set(&fs, ino, 0, Some(project)).unwrap();
        let object = zpl.objset().object(ino).unwrap();
        let header = usize::from(u16::from_le_bytes([object.bonus()[4], object.bonus()[5]]) >> 10) * 8;
        let word = |at: usize| u64::from_le_bytes(*object.bonus()[header + at..].first_chunk().unwrap());
        assert_eq!((word(24), word(32), word(128)), (10, 20, project.into()));
        assert_eq!(word(48), fs.stat(ino).flags);
        assert_eq!(fs.stat(ino).projid, project.into());
    }
    fs.sync(|| ());
    let fs = fs.reopened();
    assert_eq!(fs.contents(plain), [3; 5000]);
    assert_eq!(fs.zpl.xattr(plain, b"user.hidden").unwrap(), [1; 20_000]);
    assert_eq!(fs.zpl.xattr(full, b"user.spilled").unwrap(), [2; 3000]);
    // the file, its hidden directory, the attribute in it
    let dir = fs.zpl.xattr_dir(plain).unwrap().unwrap();
    let value = fs.zpl.lookup(dir, b"user.hidden").unwrap();
    assert_eq!([dir, value].map(|ino| fs.stat(ino).projid), [3, 3]);
    let bytes: u64 = [plain, dir, value].map(|ino| fs.stat(ino).blocks * 512).iter().sum();
    assert_eq!(used(&fs, 3), (bytes, 3));
    assert_eq!(used(&fs, 4).1, 1);

    // so it is with other owners
    fs.zpl.set_attr(plain, &SetAttr { uid: Some(77), gid: Some(88), ..SetAttr::default() }).unwrap();
    assert_eq!([dir, value].map(|ino| (fs.stat(ino).uid, fs.stat(ino).gid)), [(77, 88); 2]);
}

/// A room in which some may not have more: what was asked is kept.
struct Full(Mutex<Vec<(Owner, u64, bool)>>);

impl Room for Full {
    fn admit(&self, _bytes: u64, _frees: bool) -> Result<()> {
        Ok(())
    }

    fn has_limits(&self) -> bool {
        true
    }

    fn admit_owner(&self, owner: Owner, id: u64, is_new: bool) -> Result<()> {
        self.0.lock().push((owner, id, is_new));
        match (owner, id) {
            (Owner::Project, 13) => Err(base::Error::new(Kind::Quota, "disk quota exceeded")),
            _ => Ok(()),
        }
    }
}

#[test]
fn projects_have_limits() {
    let room = Arc::new(Full(Mutex::default()));
    let fs = fs_with(NewFs::default(), ZplOptions { room: room.clone(), ..ZplOptions::default() });
    let (dir, file) = (fs.dir(fs.root, "d"), fs.file(fs.root, "f"));
    room.0.lock().clear();
    set(&fs, dir, FLAG_PROJINHERIT, Some(12)).unwrap();
    assert_eq!(*room.0.lock(), [(Owner::Project, 12, true)]);
    assert_eq!(kind(set(&fs, file, 0, Some(13))), Kind::Quota);
    // an owner that leaves a project is not asked
    set(&fs, dir, 0, Some(0)).unwrap();
    assert_eq!(room.0.lock().len(), 2);
}
