//! Whom new files belong to, who may do what, and which changes take rights away.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};

use crate::harness::{Mounted, as_user, errno, get_xattr, mounted, remove_xattr, require, set_xattr, writable};
use crate::memory::acl::{ACCESS, DEFAULT, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ, acl};
use crate::memory::{Memory, MemorySource};

const NOBODY: u32 = u32::MAX;

fn name(attribute: &[u8]) -> &str {
    std::str::from_utf8(attribute).unwrap()
}

fn mode(m: &Mounted, path: &str) -> u32 {
    fs::symlink_metadata(m.path(path)).unwrap().mode() & 0o7777
}

fn chmod(m: &Mounted, path: &str, mode: u32) {
    fs::set_permissions(m.path(path), PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn files_belong_to_their_makers() {
    require!(root);
    let m = writable();
    as_user(1000, 2000, || {
        fs::write(m.path("file"), "x").unwrap();
        fs::create_dir(m.path("dir")).unwrap();
        symlink("x", m.path("link")).unwrap();
    });
    for name in ["file", "dir", "link"] {
        let stat = fs::symlink_metadata(m.path(name)).unwrap();
        assert_eq!((stat.uid(), stat.gid()), (1000, 2000), "{name}");
    }
    as_user(1001, 2001, || {
        for error in [errno(OpenOptions::new().write(true).open(m.path("file"))), errno(fs::write(m.path("dir/x"), ""))]
        {
            assert_eq!(error, libc::EACCES);
        }
        let owner = chown(m.path("file"), Some(1001), None);
        let mode = fs::set_permissions(m.path("file"), PermissionsExt::from_mode(0o777));
        assert_eq!((errno(owner), errno(mode)), (libc::EPERM, libc::EPERM));
        // anybody may remove anybody's, where anybody may write
        fs::remove_file(m.path("file")).unwrap();
    });

    chmod(&m, "", 0o1777);
    as_user(1000, 2000, || fs::write(m.path("sticky"), "x").unwrap());
    as_user(1001, 2001, || {
        assert_eq!(errno(fs::remove_file(m.path("sticky"))), libc::EPERM);
        assert_eq!(errno(fs::rename(m.path("sticky"), m.path("mine"))), libc::EPERM);
    });
    as_user(1000, 2000, || fs::remove_file(m.path("sticky")).unwrap());
}

#[test]
fn directories_that_pass_on_their_group() {
    require!(root);
    let m = writable();
    fs::create_dir(m.path("shared")).unwrap();
    chown(m.path("shared"), None, Some(3000)).unwrap();
    chmod(&m, "shared", 0o2777);
    as_user(1000, 2000, || {
        fs::DirBuilder::new().mode(0o755).create(m.path("shared/dir")).unwrap();
        fs::write(m.path("shared/dir/file"), "").unwrap();
        // for a group that one is not in there is no set-group-id
        let options = &mut OpenOptions::new();
        options.write(true).create(true).mode(0o2775).open(m.path("shared/program")).unwrap();
    });
    for name in ["shared/dir", "shared/dir/file", "shared/program"] {
        let stat = fs::metadata(m.path(name)).unwrap();
        assert_eq!((stat.uid(), stat.gid()), (1000, 3000), "{name}");
    }
    assert_eq!((mode(&m, "shared/dir"), mode(&m, "shared/program") & libc::S_ISGID), (0o2755, 0));
}

#[test]
fn changes_take_set_id_bits_away() {
    require!(root);
    let m = writable();
    let path = m.path("program");
    fs::write(&path, "x").unwrap();
    let set = |mode| {
        chmod(&m, "program", 0o777);
        set_xattr(&path, "security.capability", CAPABILITY, 0).unwrap();
        chmod(&m, "program", mode);
    };
    let capable = || get_xattr(&path, "security.capability", 100).is_ok();
    /// cap_net_raw, permitted and effective.
    const CAPABILITY: &[u8] = &[1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let write = || OpenOptions::new().append(true).open(&path).unwrap().write_all(b"y").unwrap();
    for _ in 0..2 {
        set(0o6777);
        write();
        assert_eq!((mode(&m, "program"), capable()), (0o6777, false), "root keeps the bits");
        set(0o6777);
        as_user(1000, 1000, write);
        assert_eq!((mode(&m, "program"), capable()), (0o777, false), "a write");
    }
    set(0o2767);
    as_user(1000, 1000, write);
    assert_eq!(mode(&m, "program"), 0o2767, "without the right to execute it is no set-group-id");
    set(0o6777);
    as_user(1000, 1000, || OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap());
    assert_eq!((mode(&m, "program"), capable()), (0o777, false), "a truncation");
    set(0o6777);
    chown(&path, Some(1000), None).unwrap();
    assert_eq!((mode(&m, "program"), capable()), (0o777, false), "a new owner");
    // of a directory the bits mean something else
    fs::create_dir(m.path("dir")).unwrap();
    chmod(&m, "dir", 0o2775);
    chown(m.path("dir"), Some(1000), None).unwrap();
    assert_eq!(mode(&m, "dir"), 0o2775);
}

#[test]
fn posix_acls() {
    require!(root);
    let m = mounted(MemorySource::new(Memory::writable()), |options| options.posix_acl = true);
    let path = m.path("file");
    File::create(&path).unwrap().write_all(b"x").unwrap();
    chmod(&m, "file", 0o600);
    let may_read = || as_user(1000, 1000, || fs::read(&path)).is_ok();
    assert!(!may_read());
    let own = [(USER_OBJ, 6, NOBODY), (USER, 4, 1000), (GROUP_OBJ, 0, NOBODY), (MASK, 4, NOBODY), (OTHER, 0, NOBODY)];
    set_xattr(&path, name(ACCESS), &acl(&own), 0).unwrap();
    assert_eq!(get_xattr(&path, name(ACCESS), 100).unwrap().1, acl(&own));
    assert_eq!(mode(&m, "file"), 0o640, "the mask is the group's place");
    assert!(may_read());
    chmod(&m, "file", 0o600);
    assert!(!may_read(), "chmod is the mask's");
    for _ in 0..2 {
        remove_xattr(&path, name(ACCESS)).unwrap();
    }
    assert_eq!(errno(get_xattr(&path, name(ACCESS), 100)), libc::ENODATA);
}

#[test]
fn default_acls_come_before_the_umask() {
    require!(root);
    let m = mounted(MemorySource::new(Memory::writable()), |options| options.posix_acl = true);
    for dir in ["plain", "shared"] {
        fs::create_dir(m.path(dir)).unwrap();
        chmod(&m, dir, 0o777);
    }
    let default =
        [(USER_OBJ, 7, NOBODY), (USER, 7, 1001), (GROUP_OBJ, 5, NOBODY), (MASK, 7, NOBODY), (OTHER, 0, NOBODY)];
    set_xattr(&m.path("shared"), name(DEFAULT), &acl(&default), 0).unwrap();
    // the umask is the process's, and other tests run beside: so in a process of its own
    let script =
        format!("umask 077; cd {}; for d in plain shared; do touch $d/f; mkdir $d/d; done", m.path("").display());
    assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
    assert_eq!((mode(&m, "plain/f"), mode(&m, "plain/d")), (0o600, 0o700));
    assert_eq!((mode(&m, "shared/f"), mode(&m, "shared/d")), (0o660, 0o770));
    assert_eq!(get_xattr(&m.path("shared/d"), name(DEFAULT), 100).unwrap().1, acl(&default));
    as_user(1001, 1001, || fs::write(m.path("shared/f"), "by its ACL").unwrap());
}
