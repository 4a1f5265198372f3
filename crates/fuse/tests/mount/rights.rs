//! Whom new files belong to, who may do what, and which changes take rights away.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::harness::{
    Mounted, as_user, errno, get_xattr, mounted, remove_xattr, require, set_xattr, wait_until, writable,
};
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
    assert_eq!(mode(&m, "program"), 0o767, "a sign for mandatory locks goes as well");
    set(0o2767);
    as_user(1000, 0, write);
    assert_eq!(mode(&m, "program"), 0o2767, "but not by a member of the group");
    as_user(1000, 1000, write);
    assert_eq!(mode(&m, "program"), 0o767, "and the next one is looked at again");
    for uid in [1000, 0] {
        set(0o6777);
        remove_xattr(&path, "security.capability").unwrap();
        chown(&path, Some(1000), None).unwrap();
        chmod(&m, "program", 0o6777);
        as_user(uid, 1000, || chown(&path, None, None)).unwrap();
        assert_eq!(mode(&m, "program"), 0o777, "no new owner, by {uid}");
    }
    chown(&path, Some(0), None).unwrap();
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

/// Runs `f` as root without `CAP_FSETID`.
fn without_fsetid<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    const CAP_FSETID: u32 = 4;
    /// The header of capget(2) and capset(2), and two words of effective, permitted and inheritable capabilities.
    const VERSION_3: u32 = 0x2008_0522;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let (header, mut sets) = ([VERSION_3, 0], [0u32; 6]);
            // SAFETY: buffers of the sizes that this version has; it is this short-lived thread's matter alone.
            unsafe {
                assert_eq!(libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()), 0);
                sets[0] &= !(1 << CAP_FSETID);
                assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()), 0);
            }
            f()
        });
        thread.join().unwrap()
    })
}

/// Each change of a file's contents that takes set-id bits away, by its name.
fn change_contents(path: &Path, how: &str) {
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    match how {
        "write" => file.write_all(b"y").unwrap(),
        "truncate" => file.set_len(0).unwrap(),
        "open with O_TRUNC" => drop(OpenOptions::new().write(true).truncate(true).open(path).unwrap()),
        // SAFETY: a call with plain numbers, on a descriptor of ours.
        "fallocate" => assert_eq!(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, 100) }, 0),
        "copy" => {
            let from = File::open(path.with_file_name("source")).unwrap();
            // SAFETY: no offsets are given, and both descriptors are ours.
            let copied = unsafe {
                let (no, none) = (std::ptr::null_mut(), std::ptr::null_mut());
                libc::copy_file_range(from.as_raw_fd(), no, file.as_raw_fd(), none, 10, 0)
            };
            assert_eq!(copied, 10);
        }
        _ => unreachable!(),
    }
}

#[test]
fn set_id_bits_go_by_capability_and_at_once() {
    require!(root);
    const EACH: [&str; 5] = ["write", "truncate", "open with O_TRUNC", "fallocate", "copy"];
    for page_cache in [true, false] {
        let m = mounted(MemorySource::new(Memory::writable()), |options| options.page_cache = page_cache);
        let path = m.path("program");
        fs::write(m.path("source"), [b's'; 10]).unwrap();
        fs::write(&path, "x").unwrap();
        for how in EACH {
            for (who, left) in [("root", 0o6777), ("root without CAP_FSETID", 0o777), ("somebody", 0o777)] {
                chmod(&m, "program", 0o6777);
                let change = || change_contents(&path, how);
                match who {
                    "root" => change(),
                    "somebody" => as_user(1000, 1000, change),
                    _ => without_fsetid(change),
                }
                // no attribute is asked for before: this is what the kernel has, or is told at once
                assert_eq!(mode(&m, "program"), left, "{how} by {who}, page cache: {page_cache}");
            }
        }
        // who may not write a file does not take its bits by a change of no owner
        chmod(&m, "program", 0o6755);
        as_user(1000, 1000, || drop(chown(&path, None, None)));
        assert_eq!(mode(&m, "program"), 0o6755);
    }
}

#[test]
fn nobody_runs_with_the_bits_of_what_he_wrote() {
    require!(root);
    for page_cache in [true, false] {
        let m = mounted(MemorySource::new(Memory::writable()), |options| options.page_cache = page_cache);
        let path = m.path("id");
        fs::copy("/usr/bin/id", &path).unwrap();
        // a shell of its own, as another test's child may have what this process has open, and an exec then fails
        let run = |script| {
            let out = Command::new("sh").args(["-c", script]).arg(&path).uid(1000).gid(1000).output().unwrap();
            String::from_utf8(out.stdout).unwrap().trim().to_owned()
        };
        for _ in 0..20 {
            chmod(&m, "id", 0o6777);
            wait_until(|| run("\"$0\" -u") == "0");
            assert_eq!(run("echo >> \"$0\"; \"$0\" -u"), "1000", "page cache: {page_cache}");
        }
    }
}

#[test]
fn an_acl_by_who_is_not_in_the_group_takes_set_group_id() {
    require!(root);
    let m = mounted(MemorySource::new(Memory::writable()), |options| options.posix_acl = true);
    let own = [(USER_OBJ, 7, NOBODY), (USER, 7, 1002), (GROUP_OBJ, 7, NOBODY), (MASK, 7, NOBODY), (OTHER, 5, NOBODY)];
    fs::create_dir(m.path("dir")).unwrap();
    fs::write(m.path("file"), "x").unwrap();
    for path in ["file", "dir"] {
        let set = |attribute| set_xattr(&m.path(path), name(attribute), &acl(&own), 0).unwrap();
        for (gid, left) in [(1000, 0o775), (3000, 0o2775)] {
            chown(m.path(path), Some(1000), Some(3000)).unwrap();
            chmod(&m, path, 0o2777);
            as_user(1000, gid, || set(ACCESS));
            assert_eq!(mode(&m, path), left, "{path}, of group {gid}");
        }
        chmod(&m, path, 0o2777);
        set(ACCESS);
        assert_eq!(mode(&m, path), 0o2775, "{path}: root keeps it");
        without_fsetid(|| set(ACCESS));
        assert_eq!(mode(&m, path), 0o775, "{path}: but not without CAP_FSETID");
    }
    // the ACL for what is made in a directory says nothing of the directory
    chmod(&m, "dir", 0o2777);
    as_user(1000, 1000, || set_xattr(&m.path("dir"), name(DEFAULT), &acl(&own), 0).unwrap());
    assert_eq!(mode(&m, "dir"), 0o2777);
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
