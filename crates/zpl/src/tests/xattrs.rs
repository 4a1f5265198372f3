//! Extended attributes and POSIX ACLs.

use super::*;
use crate::posix_acl::tests::packed;

fn systems() -> [Fs; 2] {
    [true, false].map(|xattr_sa| fs_with(NewFs::default(), ZplOptions { xattr_sa, ..ZplOptions::default() }))
}

#[test]
fn set_and_removed_in_both_places() {
    for fs in systems() {
        let (zpl, ino) = (&fs.zpl, fs.file(fs.root, "f"));
        let any = XattrMode::Any;
        zpl.set_xattr(ino, b"user.a", b"1", any).unwrap();
        zpl.set_xattr(ino, b"user.b", &[7; 5000], any).unwrap();
        zpl.set_xattr(ino, b"trusted.c", b"", any).unwrap();
        assert_eq!(zpl.xattr_dir(ino).unwrap().is_some(), !zpl.live().unwrap().options().xattr_sa);
        let mut names = zpl.xattr_names(ino).unwrap();
        names.sort();
        assert_eq!(names, [&b"trusted.c"[..], b"user.a", b"user.b"]);
        assert_eq!(zpl.xattr(ino, b"user.b").unwrap(), [7; 5000]);
        assert_eq!(kind(zpl.set_xattr(ino, b"user.a", b"2", XattrMode::Create)), Kind::Exists);
        assert_eq!(kind(zpl.set_xattr(ino, b"user.x", b"2", XattrMode::Replace)), Kind::NoAttribute);
        zpl.set_xattr(ino, b"user.b", b"short", XattrMode::Replace).unwrap();
        assert_eq!(zpl.xattr(ino, b"user.b").unwrap(), b"short");
        zpl.remove_xattr(ino, b"user.a").unwrap();
        assert_eq!(kind(zpl.remove_xattr(ino, b"user.a")), Kind::NoAttribute);
        assert_eq!(kind(zpl.xattr(ino, b"user.a")), Kind::NoAttribute);
        assert_eq!(kind(zpl.set_xattr(ino, b"user.big", &[0; 65_537], any)), Kind::TooBig);
        assert_eq!(kind(zpl.set_xattr(ino, &[b'u'; 256], b"", any)), Kind::TooLong);
        assert_eq!(kind(zpl.set_xattr(ino, b"colour", b"", any)), Kind::Unsupported);
        // many, more than a spill block has room for
        for n in 0..40u8 {
            zpl.set_xattr(ino, format!("user.n{n}").as_bytes(), &vec![n; 4000], any).unwrap();
        }
        zpl.set_xattr(ino, b"user.huge", &[9; 65_536], any).unwrap();
        assert_eq!(zpl.xattr(ino, b"user.huge").unwrap(), [9; 65_536]);
        assert!((0..40u8).all(|n| zpl.xattr(ino, format!("user.n{n}").as_bytes()).unwrap() == [n; 4000]));
        assert_eq!(zpl.xattr_names(ino).unwrap().len(), 43);
        // attributes do not stand in the way of the others
        zpl.set_attr(ino, &SetAttr { mode: Some(0o741), ..SetAttr::default() }).unwrap();
        zpl.open_file(ino).unwrap().write(0, b"text").unwrap();
        assert_eq!((fs.stat(ino).mode, fs.stat(ino).size, fs.contents(ino)), (0o741, 4, b"text".to_vec()));

        let dir = zpl.xattr_dir(ino).unwrap().unwrap();
        let inside = zpl.lookup(dir, b"user.huge").unwrap();
        zpl.unlink(fs.root, b"f").unwrap();
        zpl.reclaim(ino).unwrap();
        assert_eq!((kind(zpl.stat(dir)), kind(zpl.stat(inside))), (Kind::NotFound, Kind::NotFound));
    }
}

#[test]
fn a_value_moves_to_the_place_that_the_property_names() {
    let [fs, _] = systems();
    let ino = fs.file(fs.root, "f");
    let set = |value: &[u8]| fs.zpl.set_xattr(ino, b"user.a", value, XattrMode::Any).unwrap();
    let in_directory = || fs.zpl.xattr_dir(ino).unwrap().map_or(0, |dir| fs.names(dir).len());
    set(b"1");
    fs.zpl.set_options(ZplOptions { xattr_sa: false, ..ZplOptions::default() }).unwrap();
    set(b"2");
    assert_eq!((fs.zpl.xattr(ino, b"user.a").unwrap(), in_directory()), (b"2".to_vec(), 1));
    assert_eq!(fs.zpl.xattr_names(ino).unwrap().len(), 1);
    fs.zpl.set_options(ZplOptions::default()).unwrap();
    set(b"3");
    assert_eq!((fs.zpl.xattr(ino, b"user.a").unwrap(), in_directory()), (b"3".to_vec(), 0));
    assert_eq!(fs.zpl.xattr_names(ino).unwrap().len(), 1);
}

#[test]
fn acls_and_modes() {
    const ACCESS: &[u8] = b"system.posix_acl_access";
    const DEFAULT: &[u8] = b"system.posix_acl_default";
    let acl = |owner, user, group, mask, other| {
        packed(&[
            (1, owner, u32::MAX),
            (2, user, 501),
            (4, group, u32::MAX),
            (16, mask, u32::MAX),
            (32, other, u32::MAX),
        ])
    };
    for fs in systems() {
        let zpl = &fs.zpl;
        let (ino, dir) = (fs.file(fs.root, "f"), fs.dir(fs.root, "d"));
        let set = |ino, name, value: &[u8]| zpl.set_xattr(ino, name, value, XattrMode::Any);
        set(ino, ACCESS, &acl(7, 7, 5, 4, 0)).unwrap();
        assert_eq!((fs.stat(ino).mode, zpl.xattr(ino, ACCESS).unwrap()), (0o740, acl(7, 7, 5, 4, 0)));
        zpl.set_attr(ino, &SetAttr { mode: Some(0o625), ..SetAttr::default() }).unwrap();
        assert_eq!(zpl.xattr(ino, ACCESS).unwrap(), acl(6, 7, 5, 2, 5));
        // one that is no more than a mode
        set(ino, ACCESS, &packed(&[(1, 7, 0), (4, 5, 0), (32, 1, 0)])).unwrap();
        assert_eq!((fs.stat(ino).mode, kind(zpl.xattr(ino, ACCESS))), (0o751, Kind::NoAttribute));
        assert_eq!(kind(set(ino, ACCESS, b"nonsense")), Kind::Unsupported);
        assert_eq!(kind(set(ino, DEFAULT, &acl(7, 7, 5, 4, 0))), Kind::Permission);

        set(dir, DEFAULT, &acl(7, 6, 5, 7, 4)).unwrap();
        assert_eq!(fs.stat(dir).mode, 0o755);
        let open = New { umask: 0o077, ..new(NewKind::File, 0o666) };
        let file = zpl.create(dir, b"f", &open).unwrap();
        assert_eq!((file.mode, zpl.xattr(file.ino, ACCESS).unwrap()), (0o664, acl(6, 6, 5, 6, 4)));
        assert_eq!(kind(zpl.xattr(file.ino, DEFAULT)), Kind::NoAttribute);
        let inner = fs.dir(dir, "inner");
        assert_eq!(zpl.xattr(inner, DEFAULT).unwrap(), acl(7, 6, 5, 7, 4));
        let link = zpl.create(dir, b"l", &new(NewKind::Symlink(b"x"), 0o777)).unwrap();
        assert_eq!(zpl.xattr_names(link.ino).unwrap().len(), 0);
        zpl.remove_xattr(dir, DEFAULT).unwrap();
        assert_eq!(zpl.create(dir, b"g", &open).unwrap().mode, 0o600);
    }
}
