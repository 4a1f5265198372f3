//! Names, links, and what is made.

use super::*;
use format::znode::FLAG_PROJID;

#[test]
fn a_new_file_system() {
    let fs = fs_with(NewFs { uid: 3, gid: 4, ..NewFs::default() }, ZplOptions::default());
    let stat = fs.stat(fs.root);
    assert_eq!((stat.kind, stat.mode, stat.nlink, stat.size), (FileKind::Directory, 0o755, 2, 2));
    assert_eq!((stat.uid, stat.gid, stat.parent, stat.mtime), (3, 4, fs.root, (NOW_S as i64 - 1, 5)));
    // what OpenZFS on Linux writes
    assert_eq!(stat.flags, 0x8408_0000_0144);
    assert_eq!(fs.zpl.master().version, 5);
    assert_eq!(fs.names(fs.root), [""; 0]);
    let reopened = Zpl::open(fs.zpl.objset().clone()).unwrap();
    assert_eq!(reopened.stat(fs.root).unwrap(), stat);
    assert_eq!(kind(reopened.create(fs.root, b"x", &new(NewKind::File, 0))), Kind::ReadOnly);
    let file = fs.stat(fs.file(fs.root, "f"));
    assert_eq!((file.flags, file.projid), (0x8408_0000_0004, 0));
    assert_ne!(file.flags & FLAG_PROJID, 0);
}

#[test]
fn attributes_lie_where_space_accounting_reads_them() {
    let fs = fs_with(NewFs::default(), ZplOptions::default());
    let ino = fs.file(fs.root, "f");
    let object = fs.zpl.objset().object(ino).unwrap();
    let header = usize::from(u16::from_le_bytes([object.bonus()[4], object.bonus()[5]]) >> 10) * 8;
    let word = |at: usize| u64::from_le_bytes(*object.bonus()[header + at..].first_chunk().unwrap());
    assert_eq!((word(24), word(32), word(40)), (10, 20, fs.root.get()));
    assert_eq!((word(48), word(128)), (fs.stat(ino).flags, 0));
    assert_eq!(object.dnode().blkptrs.len(), 1);
    let node = fs.zpl.node(ino).unwrap();
    let numbers: Vec<u16> = fs.zpl.attributes(&node).unwrap().all().unwrap().iter().map(|(n, _)| *n).collect();
    assert_eq!(numbers, [5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 21, 16, 19]);
    assert_eq!(fs.zpl.acl(ino).unwrap().unwrap(), format::acl::Acl::trivial(0o100644, false));
}

#[test]
fn every_kind() {
    let fs = fs();
    let dev = libc::makedev(8, 1);
    let long = vec![b'x'; 3000];
    let kinds = [
        ("file", NewKind::File, FileKind::File),
        ("dir", NewKind::Directory, FileKind::Directory),
        ("link", NewKind::Symlink(b"target"), FileKind::Symlink),
        ("long", NewKind::Symlink(&long), FileKind::Symlink),
        ("pipe", NewKind::Fifo, FileKind::Fifo),
        ("sock", NewKind::Socket, FileKind::Socket),
        ("char", NewKind::CharDevice(dev), FileKind::CharDevice),
        ("block", NewKind::BlockDevice(dev), FileKind::BlockDevice),
    ];
    for (name, how, kind) in kinds {
        let stat = fs.zpl.create(fs.root, name.as_bytes(), &new(how, 0o4751)).unwrap();
        assert_eq!(stat, fs.stat(stat.ino), "{name}");
        assert_eq!((stat.kind, stat.uid, stat.gid, stat.generation), (kind, 10, 20, 5));
        assert_eq!(stat.mode, if kind == FileKind::Symlink { 0o777 } else { 0o4751 });
        assert_eq!(stat.nlink, if kind == FileKind::Directory { 2 } else { 1 });
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        assert_eq!(stat.rdev, if is_device { dev } else { 0 });
        assert_eq!(fs.zpl.lookup(fs.root, name.as_bytes()).unwrap(), stat.ino);
        assert_eq!(fs.zpl.path_of(stat.ino).unwrap(), format!("/{name}").as_bytes());
    }
    let target = |name: &[u8]| fs.zpl.readlink(fs.zpl.lookup(fs.root, name).unwrap()).unwrap();
    assert_eq!((target(b"link"), target(b"long")), (b"target".to_vec(), long));
    assert_eq!((fs.stat(fs.root).size, fs.stat(fs.root).nlink), (10, 3));
    assert_eq!(fs.stat(fs.root).mtime, (NOW_S as i64, 0));
    let empty = fs.zpl.create(fs.root, b"none", &new(NewKind::Symlink(b""), 0));
    assert_eq!(kind(empty), Kind::NotFound);
    let too_long = fs.zpl.create(fs.root, b"none", &new(NewKind::Symlink(&[b'x'; 4096]), 0));
    assert_eq!(kind(too_long), Kind::TooLong);
}

#[test]
fn names_that_can_be() {
    let fs = fs();
    let make = |name: &[u8]| fs.zpl.create(fs.root, name, &new(NewKind::File, 0o600)).map(|stat| stat.ino);
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
        assert_eq!(kind(make(name)), Kind::Invalid);
    }
    make(&[b'n'; 255]).unwrap();
    assert_eq!(kind(make(&[b'n'; 256])), Kind::TooLong);
    assert_eq!(kind(make(&[b'n'; 255])), Kind::Exists);
    make(b"\xff").unwrap();
    let file = make(b"f").unwrap();
    assert_eq!(kind(fs.zpl.create(file, b"x", &new(NewKind::File, 0))), Kind::NotDirectory);

    let strict = fs_with(NewFs { utf8only: true, ..NewFs::default() }, ZplOptions::default());
    assert_eq!(kind(strict.zpl.create(strict.root, b"\xff", &new(NewKind::File, 0))), Kind::Invalid);
    strict.file(strict.root, "ü");
}

#[test]
fn case_and_forms_of_names() {
    let insensitive = fs_with(NewFs { case: CaseMode::Insensitive, ..NewFs::default() }, ZplOptions::default());
    let (fs, root) = (&insensitive.zpl, insensitive.root);
    let ino = insensitive.file(root, "File");
    assert_eq!(kind(fs.create(root, b"fILE", &new(NewKind::File, 0))), Kind::Exists);
    assert_eq!(fs.lookup(root, b"FILE").unwrap(), ino);
    assert_eq!(fs.rename((root, b"file"), (root, b"FiLe"), RenameMode::Replace).unwrap(), None);
    assert_eq!((insensitive.names(root), insensitive.stat(root).size), (vec!["FiLe".to_owned()], 3));
    assert_eq!(fs.unlink(root, b"file").unwrap(), Some(ino));

    // a name that is moved over another spelling is spelled as it was moved, and exchanged ones likewise
    let (report, tmp) = (insensitive.file(root, "Report.TXT"), insensitive.file(root, "tmp"));
    assert_eq!(fs.rename((root, b"TMP"), (root, b"report.txt"), RenameMode::Replace).unwrap(), Some(report));
    assert_eq!((insensitive.names(root), insensitive.stat(root).size), (vec!["report.txt".to_owned()], 3));
    assert_eq!(fs.lookup(root, b"REPORT.txt").unwrap(), tmp);
    let other = insensitive.file(root, "other");
    assert_eq!(fs.rename((root, b"Report.txt"), (root, b"OTHER"), RenameMode::Exchange).unwrap(), None);
    assert_eq!(
        (insensitive.names(root), insensitive.stat(root).size),
        (["OTHER", "Report.txt"].map(str::to_owned).to_vec(), 4)
    );
    assert_eq!((fs.lookup(root, b"other").unwrap(), fs.lookup(root, b"report.txt").unwrap()), (tmp, other));

    let mixed = fs_with(NewFs { case: CaseMode::Mixed, ..NewFs::default() }, ZplOptions::default());
    let (small, large) = (mixed.file(mixed.root, "a"), mixed.file(mixed.root, "A"));
    assert_eq!(mixed.zpl.lookup(mixed.root, b"A").unwrap(), large);
    assert_eq!(mixed.zpl.unlink(mixed.root, b"a").unwrap(), Some(small));

    let forms = fs_with(NewFs { normalization: 0x10, ..NewFs::default() }, ZplOptions::default());
    let ino = forms.file(forms.root, "é");
    assert_eq!(forms.zpl.lookup(forms.root, "e\u{301}".as_bytes()).unwrap(), ino);
    assert!(forms.zpl.has_aliases() && !super::fs().zpl.has_aliases());
}

#[test]
fn links_and_unlinked_files() {
    let fs = fs();
    let (dir, ino) = (fs.dir(fs.root, "d"), fs.file(fs.root, "a"));
    let file = fs.zpl.open_file(ino).unwrap();
    file.write(0, b"text").unwrap();
    assert_eq!(fs.zpl.link(ino, dir, b"b").unwrap().nlink, 2);
    assert_eq!(kind(fs.zpl.link(ino, dir, b"b")), Kind::Exists);
    assert_eq!(kind(fs.zpl.link(dir, fs.root, b"b")), Kind::Forbidden);
    assert_eq!(fs.zpl.unlink(fs.root, b"a").unwrap(), None);
    assert_eq!(kind(fs.zpl.unlink(fs.root, b"a")), Kind::NotFound);
    assert_eq!(kind(fs.zpl.unlink(fs.root, b"d")), Kind::IsDirectory);
    assert_eq!((fs.zpl.unlink(dir, b"b").unwrap(), fs.queued()), (Some(ino), 1));
    // still in use
    assert_eq!((fs.stat(ino).nlink, fs.contents(ino)), (0, b"text".to_vec()));
    file.append(b"!").unwrap();
    assert_eq!(kind(fs.zpl.link(ino, dir, b"c")), Kind::NotFound);
    fs.zpl.reclaim(ino).unwrap();
    assert_eq!((fs.queued(), file.size()), (0, 0));
    assert_eq!(kind(fs.zpl.stat(ino)), Kind::NotFound);
    assert_eq!(kind(file.read(0, &mut [0; 4])), Kind::NotFound);
}

#[test]
fn directories_come_and_go() {
    let fs = fs();
    let dir = fs.dir(fs.root, "d");
    let inner = fs.dir(dir, "e");
    assert_eq!((fs.stat(dir).nlink, fs.stat(dir).size), (3, 3));
    assert_eq!(kind(fs.zpl.rmdir(fs.root, b"d")), Kind::NotEmpty);
    let file = fs.file(dir, "f");
    assert_eq!(kind(fs.zpl.rmdir(dir, b"f")), Kind::NotDirectory);
    assert_eq!(fs.zpl.rmdir(dir, b"e").unwrap(), inner);
    assert_eq!((fs.stat(dir).nlink, fs.stat(dir).size, fs.stat(inner).nlink), (2, 3, 0));
    assert_eq!(kind(fs.zpl.create(inner, b"x", &new(NewKind::File, 0))), Kind::NotFound);
    assert_eq!(kind(fs.zpl.link(file, inner, b"x")), Kind::NotFound);
    assert_eq!(kind(fs.zpl.rename((dir, b"f"), (inner, b"x"), RenameMode::Replace)), Kind::NotFound);
    fs.zpl.reclaim(inner).unwrap();
    assert_eq!(kind(fs.zpl.lookup(inner, b"x")), Kind::NotFound);
}

#[test]
fn files_without_a_name() {
    let fs = fs();
    let ino = fs.zpl.create_unnamed(fs.root, &new(NewKind::File, 0o600)).unwrap().ino;
    assert_eq!((fs.stat(ino).nlink, fs.queued(), fs.stat(fs.root).size), (0, 1, 2));
    assert_eq!(fs.zpl.link(ino, fs.root, b"named").unwrap().nlink, 1);
    assert_eq!(fs.queued(), 0);
    fs.zpl.reclaim(ino).unwrap();
    assert_eq!(fs.stat(ino).nlink, 1, "it has a name");

    // after a crash
    let lost = fs.zpl.create_unnamed(fs.root, &new(NewKind::File, 0o600)).unwrap().ino;
    fs.zpl.set_xattr(lost, b"user.a", b"b", XattrMode::Any).unwrap();
    let dir = fs.dir(fs.root, "d");
    fs.zpl.rmdir(fs.root, b"d").unwrap();
    fs.sync(|| ());
    let again = fs.reopened();
    assert_eq!((again.queued(), again.zpl.clean_unlinked().unwrap()), (2, 2));
    assert_eq!((again.queued(), kind(again.zpl.stat(lost))), (0, Kind::NotFound));
    assert_eq!((kind(again.zpl.stat(dir)), again.stat(ino).nlink), (Kind::NotFound, 1));
}

#[test]
fn groups_and_modes_of_new_files() {
    let fs = fs();
    let dir = fs.dir(fs.root, "d");
    fs.zpl.set_attr(dir, &SetAttr { mode: Some(0o2777), gid: Some(77), ..SetAttr::default() }).unwrap();
    let inner = fs.stat(fs.dir(dir, "e"));
    assert_eq!((inner.gid, inner.mode), (77, 0o2755));
    let file = fs.stat(fs.file(dir, "f"));
    assert_eq!((file.gid, file.mode), (77, 0o644));
    let masked = New { umask: 0o027, ..new(NewKind::File, 0o666) };
    assert_eq!(fs.zpl.create(dir, b"g", &masked).unwrap().mode, 0o640);
}

#[test]
fn renames() {
    let fs = fs();
    let (one, two) = (fs.dir(fs.root, "one"), fs.dir(fs.root, "two"));
    let (a, b) = (fs.file(one, "a"), fs.file(two, "b"));
    let rename = |from: (ObjectId, &str), to: (ObjectId, &str), mode| {
        fs.zpl.rename((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()), mode)
    };
    let replace = RenameMode::Replace;
    assert_eq!(kind(rename((one, "a"), (two, "b"), RenameMode::NoReplace)), Kind::Exists);
    assert_eq!(rename((one, "a"), (two, "b"), replace).unwrap(), Some(b));
    assert_eq!((fs.names(one).len(), fs.zpl.lookup(two, b"b").unwrap(), fs.stat(a).parent), (0, a, two));
    assert_eq!((fs.stat(one).size, fs.stat(two).size, fs.stat(b).nlink, fs.queued()), (2, 3, 0, 1));
    assert_eq!(rename((two, "b"), (two, "c"), RenameMode::NoReplace).unwrap(), None);
    assert_eq!(kind(rename((two, "b"), (two, "c"), replace)), Kind::NotFound);
    assert_eq!(kind(rename((two, "c"), (two, "x"), RenameMode::Exchange)), Kind::NotFound);

    // two names of one file stay
    fs.zpl.link(a, one, b"a2").unwrap();
    assert_eq!(rename((one, "a2"), (two, "c"), replace).unwrap(), None);
    assert_eq!((fs.names(one).len(), fs.names(two).len()), (1, 1));
    assert_eq!(rename((two, "c"), (two, "c"), replace).unwrap(), None);

    // directories
    assert_eq!(kind(rename((fs.root, "one"), (two, "c"), replace)), Kind::NotDirectory);
    assert_eq!(kind(rename((two, "c"), (fs.root, "one"), replace)), Kind::IsDirectory);
    assert_eq!(kind(rename((fs.root, "one"), (fs.root, "two"), replace)), Kind::NotEmpty);
    let deep = fs.dir(one, "deep");
    assert_eq!(kind(rename((fs.root, "one"), (deep, "x"), replace)), Kind::Invalid);
    assert_eq!(kind(rename((fs.root, "one"), (one, "x"), replace)), Kind::Invalid);
    assert_eq!(kind(rename((one, "deep"), (fs.root, "one"), RenameMode::Exchange)), Kind::Invalid);
    let empty = fs.dir(fs.root, "empty");
    assert_eq!(rename((one, "deep"), (fs.root, "empty"), replace).unwrap(), Some(empty));
    assert_eq!((fs.stat(fs.root).nlink, fs.stat(one).nlink, fs.stat(deep).parent), (5, 2, fs.root));
    assert_eq!(fs.zpl.path_of(deep).unwrap(), b"/empty");

    // exchange of a file and a directory
    assert_eq!(rename((fs.root, "empty"), (two, "c"), RenameMode::Exchange).unwrap(), None);
    assert_eq!((fs.zpl.lookup(two, b"c").unwrap(), fs.zpl.lookup(fs.root, b"empty").unwrap()), (deep, a));
    assert_eq!((fs.stat(fs.root).nlink, fs.stat(two).nlink), (4, 3));
    let mut kinds = Vec::new();
    let mut each = |entry: DirEntry| {
        kinds.push(entry.kind);
        ControlFlow::Continue(())
    };
    fs.zpl.readdir(two, 2, &mut each).unwrap();
    assert_eq!(kinds, [Some(FileKind::Directory)]);
}

#[test]
fn a_large_directory_is_listed_while_it_changes() {
    let fs = fs();
    let dir = fs.dir(fs.root, "d");
    let count = 5000;
    for n in 0..count {
        fs.file(dir, &format!("name number {n}"));
    }
    assert_eq!(fs.stat(dir).size, count + 2);
    let mut seen = Vec::new();
    let mut each = |entry: DirEntry| {
        // the directory is not locked here
        fs.zpl.unlink(dir, &entry.name).unwrap();
        fs.file(dir, &format!("other {}", seen.len()));
        seen.push(entry.name);
        if seen.len() < 2000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    fs.zpl.readdir(dir, 2, &mut each).unwrap();
    let all: std::collections::HashSet<_> = seen.iter().collect();
    assert_eq!(all.len(), seen.len(), "no name comes twice");
    assert_eq!(fs.names(dir).len() as u64, count);
}

#[test]
fn who_is_asked_for_room() {
    struct Full;
    impl Room for Full {
        fn admit(&self, _bytes: u64, frees: bool) -> Result<()> {
            if frees { Ok(()) } else { Err(base::Error::new(Kind::NoSpace, "full")) }
        }
    }
    let fs = fs();
    let ino = fs.file(fs.root, "f");
    let file = fs.zpl.open_file(ino).unwrap();
    file.write(0, &[1; 1000]).unwrap();
    fs.zpl.set_options(ZplOptions { room: Arc::new(Full), ..ZplOptions::default() }).unwrap();
    assert_eq!(kind(fs.zpl.create(fs.root, b"g", &new(NewKind::File, 0))), Kind::NoSpace);
    assert_eq!(kind(file.write(0, &[1])), Kind::NoSpace);
    let size = |size| fs.zpl.set_attr(ino, &SetAttr { size: Some(size), ..SetAttr::default() });
    assert_eq!(kind(size(1001)), Kind::NoSpace);
    assert_eq!(size(10).unwrap().size, 10);
    assert_eq!(fs.zpl.unlink(fs.root, b"f").unwrap(), Some(ino));
    fs.zpl.reclaim(ino).unwrap();
}

#[test]
fn flags_that_forbid() {
    let fs = fs();
    let (ino, dir) = (fs.file(fs.root, "f"), fs.dir(fs.root, "d"));
    let file = fs.zpl.open_file(ino).unwrap();
    file.write(0, b"text").unwrap();
    let set = |ino, flag: u64| {
        let op = fs.zpl.begin(0, false).unwrap();
        let changes = [crate::attr_tables::word(format::sa::Attr::Flags, fs.stat(ino).flags & 0xffff_ffff | flag)];
        op.change(&fs.zpl.objset().object(ino).unwrap(), &changes).unwrap();
    };
    set(ino, format::znode::FLAG_APPENDONLY);
    assert_eq!(kind(file.write(1, b"x")), Kind::Forbidden);
    assert_eq!(file.append(b"!").unwrap(), 4);
    assert_eq!(kind(fs.zpl.unlink(fs.root, b"f")), Kind::Forbidden);
    set(ino, format::znode::FLAG_READONLY);
    assert_eq!(kind(file.append(b"!")), Kind::Forbidden);
    set(ino, format::znode::FLAG_IMMUTABLE);
    assert_eq!(kind(fs.zpl.set_attr(ino, &SetAttr { uid: Some(1), ..SetAttr::default() })), Kind::Forbidden);
    assert_eq!(kind(fs.zpl.set_xattr(ino, b"user.a", b"", XattrMode::Any)), Kind::Forbidden);
    assert_eq!(kind(fs.zpl.rename((fs.root, b"f"), (dir, b"f"), RenameMode::Replace)), Kind::Forbidden);
    set(ino, format::znode::FLAG_NOUNLINK);
    assert_eq!(kind(fs.zpl.unlink(fs.root, b"f")), Kind::Forbidden);
    set(dir, format::znode::FLAG_IMMUTABLE);
    assert_eq!(kind(fs.zpl.create(dir, b"x", &new(NewKind::File, 0))), Kind::Forbidden);
    set(ino, 0);
    assert_eq!(kind(fs.zpl.link(ino, dir, b"x")), Kind::Forbidden);
    fs.zpl.unlink(fs.root, b"f").unwrap();
}

#[test]
fn a_file_of_an_older_version_gets_system_attributes() {
    let fs = fs();
    let acl = format::acl::Acl::trivial(0o120777, false).bytes();
    let words = [9u64, 1, 8, 2, 7, 3, 6, 4, 3, 0o120777, 6, fs.root.get(), 1, 0, 0, 0x4, 501, 20];
    let mut bonus: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bonus.resize(184, 0);
    bonus.extend_from_slice(&(acl.len() as u32).to_le_bytes());
    bonus.extend_from_slice(&[1, 0, 3, 0]);
    bonus.extend_from_slice(&acl);
    bonus.resize(264, 0);
    bonus.extend_from_slice(b"target");
    let ino = {
        let op = fs.zpl.begin(0, false).unwrap();
        let mut dnode = format::dnode::Dnode::new(format::object_type::ObjectType::PLAIN_FILE_CONTENTS, 512, 17, 1, 1);
        (dnode.bonus_type, dnode.bonus) = (format::object_type::ObjectType::ZNODE, bonus);
        fs.zpl.objset().allocate(op.tx(), dnode).unwrap().id()
    };
    let before = fs.stat(ino);
    assert_eq!((before.uid, before.atime, fs.zpl.readlink(ino).unwrap()), (501, (9, 1), b"target".to_vec()));
    let after = fs.zpl.set_attr(ino, &SetAttr { uid: Some(502), ..SetAttr::default() }).unwrap();
    assert_eq!(after, Stat { uid: 502, ctime: (NOW_S as i64, 0), ..before });
    assert_eq!(fs.zpl.readlink(ino).unwrap(), b"target");
    assert_eq!(fs.zpl.acl(ino).unwrap().unwrap().bytes(), acl);
    assert!(fs.zpl.attributes(&fs.zpl.node(ino).unwrap()).unwrap().fixed().is_none());
}

#[test]
fn whiteouts() {
    let fs = fs();
    let (root, dir) = (fs.root, fs.dir(fs.root, "d"));
    let whiteout = |replaces| RenameMode::Whiteout(Whiteout { replaces, uid: 7, gid: 8 });
    let (a, b, sub) = (fs.file(root, "a"), fs.file(dir, "b"), fs.dir(root, "sub"));
    assert_eq!(kind(fs.zpl.rename((root, b"a"), (dir, b"b"), whiteout(false))), Kind::Exists);
    assert_eq!(kind(fs.zpl.rename((root, b"sub"), (dir, b"b"), whiteout(true))), Kind::NotDirectory);
    assert_eq!((fs.names(root), fs.stat(root).size), (["a", "d", "sub"].map(str::to_owned).to_vec(), 5));
    assert_eq!(fs.zpl.rename((root, b"a"), (dir, b"b"), whiteout(true)).unwrap(), Some(b));
    assert_eq!(fs.zpl.rename((root, b"sub"), (dir, b"sub"), whiteout(false)).unwrap(), None);
    assert_eq!((fs.zpl.lookup(dir, b"b").unwrap(), fs.zpl.lookup(dir, b"sub").unwrap()), (a, sub));
    for name in [&b"a"[..], b"sub"] {
        let left = fs.stat(fs.zpl.lookup(root, name).unwrap());
        assert_eq!((left.kind, left.rdev, left.mode & 0o7777), (FileKind::CharDevice, 0, 0));
        assert_eq!((left.uid, left.gid, left.nlink, left.size, left.parent), (7, 8, 1, 0, root));
    }
    let counts = |ino| (fs.stat(ino).size, fs.stat(ino).nlink);
    assert_eq!((counts(root), counts(dir)), ((5, 3), (4, 3)));
    // over the whiteout of before, which goes
    let old = fs.zpl.lookup(root, b"a").unwrap();
    assert_eq!(fs.zpl.rename((dir, b"b"), (root, b"a"), whiteout(true)).unwrap(), Some(old));
    assert_eq!((counts(root), counts(dir), fs.zpl.lookup(root, b"a").unwrap()), ((5, 3), (4, 3), a));
    fs.zpl.reclaim(old).unwrap();

    let folded = fs_with(NewFs { case: CaseMode::Insensitive, ..NewFs::default() }, ZplOptions::default());
    folded.file(folded.root, "File");
    assert_eq!(folded.zpl.rename((folded.root, b"FILE"), (folded.root, b"new"), whiteout(true)).unwrap(), None);
    assert_eq!(folded.names(folded.root), ["FILE", "new"]);
}
