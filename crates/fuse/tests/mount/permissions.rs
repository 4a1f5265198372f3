//! Who may do what: the kernel's rules, with the tree's modes and POSIX ACLs.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::harness::{as_user, errno, get_xattr, mounted, require, set_xattr};
use crate::memory::{Memory, MemorySource, ROOT};

/// A POSIX ACL as the kernel's attribute has it: user::rw-, user:1000:r--, group::---, mask::r--, other::---.
fn acl() -> Vec<u8> {
    let mut acl = 2u32.to_le_bytes().to_vec();
    let nobody = u32::MAX;
    for (tag, perm, id) in [(1u16, 6u16, nobody), (2, 4, 1000), (4, 0, nobody), (0x10, 4, nobody), (0x20, 0, nobody)] {
        acl.extend(tag.to_le_bytes());
        acl.extend(perm.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

fn source() -> MemorySource {
    let mut tree = Memory::new();
    for (name, mode, uid, gid) in
        [("all", 0o444, 0, 0), ("owner", 0o400, 1000, 0), ("group", 0o040, 0, 1000), ("root", 0o400, 0, 0)]
    {
        let file = tree.file(ROOT, name, 10);
        let stat = &mut tree.node(file).stat;
        (stat.mode, stat.uid, stat.gid) = (mode, uid, gid);
    }
    let file = tree.file(ROOT, "acl", 10);
    tree.node(file).stat.mode = 0o640;
    tree.node(file).xattrs = vec![(b"system.posix_acl_access".to_vec(), acl())];
    let private = tree.dir(ROOT, "private");
    tree.node(private).stat.mode = 0o700;
    tree.file(private, "file", 10);
    MemorySource::new(tree)
}

#[test]
fn modes() {
    require!(root);
    let m = mounted(source(), |_| {});
    let may = |uid, gid, name| as_user(uid, gid, || fs::read(m.path(name)).map_err(|e| e.raw_os_error().unwrap()));
    let denied = Err(libc::EACCES);
    for (uid, gid, name, allowed) in [
        (1000, 1000, "all", true),
        (1000, 1000, "owner", true),
        (1001, 1001, "owner", false),
        (1001, 1000, "group", true),
        (1001, 1001, "group", false),
        (1000, 1000, "root", false),
        (1000, 1000, "private/file", false),
        // the ACL is not obeyed without acltype=posix
        (1000, 1000, "acl", false),
    ] {
        let read = may(uid, gid, name).map(|data| data.len());
        assert_eq!(read, if allowed { Ok(10) } else { denied }, "{uid}:{gid} {name}");
    }
    assert_eq!(fs::read(m.path("private/file")).unwrap().len(), 10);
}

#[test]
fn posix_acls() {
    require!(root);
    let m = mounted(source(), |options| options.posix_acl = true);
    let may = |uid, name| as_user(uid, uid, || fs::read(m.path(name)).map_err(|e| e.raw_os_error().unwrap()));
    assert_eq!(may(1000, "acl").unwrap().len(), 10);
    assert_eq!(may(1001, "acl"), Err(libc::EACCES));
    assert_eq!(get_xattr(&m.path("acl"), "system.posix_acl_access", 100).unwrap().1, acl());
    assert_eq!(errno(get_xattr(&m.path("all"), "system.posix_acl_access", 100)), libc::ENODATA);
}

/// Property acltype may change while files are in use: their ACLs are obeyed from then on, and shown.
#[test]
fn acls_come_and_go_while_files_are_in_use() {
    require!(root);
    const ACCESS: &str = "system.posix_acl_access";
    let mut tree = Memory::writable();
    let file = tree.file(ROOT, "acl", 10);
    tree.node(file).stat.mode = 0o640;
    tree.node(file).xattrs = vec![(ACCESS.as_bytes().to_vec(), acl())];
    tree.dir(ROOT, "dir");
    let m = mounted(MemorySource::new(tree), |_| {});
    let path = m.path("acl");
    let _user = fs::File::open(&path).unwrap();
    let may = |uid| as_user(uid, uid, || fs::read(&path)).is_ok();
    let mut options = fuse::MountOptions::new("tank/home", m.mount.point());
    for is_on in [false, true, false, true] {
        options.posix_acl = is_on;
        m.mount.remount(&options).unwrap();
        assert_eq!((may(1000), may(1001)), (is_on, false), "{is_on}");
        let (read, set) = (get_xattr(&path, ACCESS, 100), set_xattr(&path, ACCESS, &acl(), 0));
        match is_on {
            true => assert_eq!((read.unwrap().1, set.is_ok()), (acl(), true)),
            false => assert_eq!((errno(read), errno(set)), (libc::ENODATA, libc::EOPNOTSUPP)),
        }
        // the umask counts in either case; the process's own is of all tests that run beside
        let script = format!("umask 077; cd {}/dir; rm -rf f d; touch f; mkdir d", m.path("").display());
        assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
        let mode = |name| fs::metadata(m.path(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("dir/f"), mode("dir/d")), (0o600, 0o700));
    }
}

#[test]
fn others_stay_out_unless_allowed() {
    require!(root);
    let m = mounted(source(), |options| options.allow_other = false);
    assert_eq!(fs::read(m.path("all")).unwrap().len(), 10);
    assert_eq!(errno(as_user(1000, 1000, || fs::read(m.path("all")))), libc::EACCES);
}
