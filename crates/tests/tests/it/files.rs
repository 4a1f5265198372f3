//! File systems of real pools through the library: what no manifest says.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use base::{Env, Kind};
use dmu::Mode;
use format::ids::ObjectId;
use pool::Pool;
use testkit::corpus;
use testkit::survey;
use zpl::{CaseMode, DirEntry, FileKind, Visible, Zpl};

fn open(case: &str) -> Pool {
    let images = corpus::case(case).load();
    survey::open(&corpus::as_devices(&images), &Env::fixed(0)).unwrap_or_else(|e| panic!("{case}: {e}"))
}

fn file_system(pool: &Pool, name: &str) -> Zpl {
    let dataset = pool.dsl().find(name).unwrap_or_else(|e| panic!("{name}: {e}"));
    Zpl::open(pool.dsl().objset(&dataset, Mode::Plain).unwrap()).unwrap()
}

/// Lists a directory in portions of `step` entries.
fn list(zpl: &Zpl, dir: ObjectId, step: usize) -> Vec<DirEntry> {
    let mut all: Vec<DirEntry> = Vec::new();
    loop {
        let before = all.len();
        let cookie = all.last().map_or(0, |entry| entry.cookie);
        zpl.readdir(dir, cookie, &mut |entry| {
            all.push(entry);
            if all.len() == before + step { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
        if all.len() == before {
            return all;
        }
    }
}

/// Calls `each` with the path and number of everything below the root.
fn walk(zpl: &Zpl, each: &mut dyn FnMut(&[u8], ObjectId)) {
    let mut rest = vec![(Vec::new(), zpl.root())];
    while let Some((path, ino)) = rest.pop() {
        each(&path, ino);
        if zpl.stat(ino).unwrap().kind == FileKind::Directory {
            let entries = list(zpl, ino, usize::MAX).into_iter().skip(2);
            rest.extend(entries.map(|entry| ([&path[..], b"/", &entry.name].concat(), entry.ino)));
        }
    }
}

/// The names that `dirs` has, and others that are the same to some file systems.
#[test]
fn names_match_by_the_rules_of_their_file_system() {
    let pool = open("dirs");
    // name asked for: found with exact names, in a form, in a form that knows compatible letters, without
    // case, in a form without case
    let questions = [
        ("README", [true, true, true, true, true]),
        ("readme", [false, false, false, true, true]),
        ("mIXEDcASE", [false, false, false, true, true]),
        ("\u{e9}", [true, true, true, true, true]),
        ("e\u{301}", [false, true, true, false, true]),
        ("E\u{301}", [false, false, false, false, true]),
        ("\u{c4}\u{d6}\u{dc}", [true, true, true, true, true]),
        ("A\u{308}O\u{308}U\u{308}", [false, true, true, false, true]),
        ("\u{e4}\u{f6}\u{fc}", [false, false, false, true, true]),
        ("\u{ff32}EADME", [false, false, true, false, false]),
        ("absent", [false; 5]),
        ("\u{e9}\u{301}", [false; 5]),
    ];
    let file_systems = [
        ("formC-sensitive", 1, CaseMode::Sensitive),
        ("formD-sensitive", 1, CaseMode::Sensitive),
        ("formKC-sensitive", 2, CaseMode::Sensitive),
        ("formKD-sensitive", 2, CaseMode::Sensitive),
        ("none-insensitive", 3, CaseMode::Insensitive),
        ("formD-insensitive", 4, CaseMode::Insensitive),
        ("formC-mixed", 1, CaseMode::Mixed), // POSIX heeds case in a mixed one
    ];
    for (name, column, case) in file_systems {
        let zpl = file_system(&pool, &format!("t_dirs/{name}"));
        assert_eq!(zpl.master().case, case);
        let names: BTreeMap<ObjectId, Vec<u8>> =
            list(&zpl, zpl.root(), 3).into_iter().map(|entry| (entry.ino, entry.name)).collect();
        for (asked, found) in &questions {
            match zpl.lookup(zpl.root(), asked.as_bytes()) {
                Ok(ino) => {
                    assert!(found[column], "{name} finds {asked} as {:?}", String::from_utf8_lossy(&names[&ino]))
                }
                Err(e) => assert!(!found[column] && e.kind() == Kind::NotFound, "{name}, {asked}: {e}"),
            }
        }
    }
}

#[test]
fn listings_resume_where_they_were_cut() {
    let pool = open("dirs");
    for (fs, path, count) in [("t_dirs/large", "5000", 5002), ("t_dirs/small", "fifty", 52), ("t_dirs/small", "", 5)] {
        let zpl = file_system(&pool, fs);
        let dir = zpl.resolve(path.as_bytes()).unwrap();
        let whole = list(&zpl, dir, usize::MAX);
        assert_eq!(whole.len(), count, "{fs} {path}");
        for step in [1, 63, 64, 65, 1000] {
            assert!(list(&zpl, dir, step) == whole, "{fs} {path} in steps of {step}");
        }
        let mut cookies: Vec<u64> = whole.iter().map(|entry| entry.cookie).collect();
        assert_eq!(cookies[..2], [1, 2]);
        cookies.sort_unstable();
        cookies.dedup();
        assert_eq!(cookies.len(), count, "no two entries have the same cookie");
        assert!(cookies[2] > 3 && *cookies.last().unwrap() <= i64::MAX as u64, "cookies are offsets of a file");
    }
}

#[test]
fn paths_lead_both_ways() {
    for (case, fs) in
        [("v28", "t_v28/zpl1"), ("be-v28", "be_v28/zpl4"), ("xattr", "t_xattr/sa"), ("dirs", "t_dirs/names")]
    {
        let pool = open(case);
        let zpl = file_system(&pool, fs);
        let mut files = 0;
        walk(&zpl, &mut |path, ino| {
            files += 1;
            assert_eq!(zpl.resolve(path).unwrap(), ino);
            let one = zpl.path_of(ino).unwrap();
            // a file of several links has one path of them
            assert_eq!(zpl.resolve(&one).unwrap(), ino);
            assert!(one == path || zpl.stat(ino).unwrap().nlink > 1 || path.is_empty() && one == b"/");
        });
        assert!(files > 10);
        assert_eq!(zpl.resolve(b"absent/x").unwrap_err().kind(), Kind::NotFound);
        assert_eq!(zpl.lookup(zpl.root(), b"..").unwrap(), zpl.root());
    }
}

#[test]
fn attributes_show_as_properties_say() {
    let pool = open("xattr");
    for fs in ["t_xattr/sa", "t_xattr/on"] {
        let zpl = Arc::new(file_system(&pool, fs));
        let acl_dir = zpl.resolve(b"acl-dir").unwrap();
        let acls = [&b"system.posix_acl_access"[..], b"system.posix_acl_default"];
        assert_eq!(zpl.xattr_names(acl_dir).unwrap(), acls);
        assert_eq!(zpl.xattr(acl_dir, acls[0]).unwrap()[..4], [2, 0, 0, 0]);
        assert_eq!(zpl.xattr(acl_dir, b"user.none").unwrap_err().kind(), Kind::NoAttribute);
        let hiding = file_system(&pool, fs).showing(Visible { posix_acls: false, user: false });
        walk(&hiding, &mut |path, ino| {
            let hidden = |name: &Vec<u8>| name.starts_with(b"user.") || name.starts_with(b"system.posix");
            for name in zpl.xattr_names(ino).unwrap() {
                let shows = hiding.xattr(ino, &name).is_ok();
                assert_eq!(shows, !hidden(&name), "{}", String::from_utf8_lossy(path));
            }
            assert!(!hiding.xattr_names(ino).unwrap().iter().any(hidden));
        });
    }
    let packed = file_system(&pool, "t_xattr/sa");
    let filed = file_system(&pool, "t_xattr/on");
    assert_eq!(packed.xattr_dir(packed.resolve(b"acl").unwrap()).unwrap(), None);
    let dir = filed.xattr_dir(filed.resolve(b"acl").unwrap()).unwrap().expect("it was made with xattr=dir");
    let file = filed.lookup(dir, b"system.posix_acl_access").unwrap();
    assert_eq!(filed.path_of(file).unwrap(), b"/acl/<xattrdir>/system.posix_acl_access");
}

/// An ACL that says what the mode says, in all versions of the file system and both byte orders.
#[test]
fn acls_of_every_version() {
    let expect = "owner@:rw-p-DaARWcCos:-------:allow\n\
                  group@:r-----a-R-c--s:-------:allow\n\
                  everyone@:r-----a-R-c--s:-------:allow\n";
    for (case, pool_name) in [("v28", "t_v28"), ("be-v28", "be_v28")] {
        let pool = open(case);
        for version in 1..=5 {
            let zpl = file_system(&pool, &format!("{pool_name}/zpl{version}"));
            assert_eq!(zpl.version(), version);
            let empty = zpl.resolve(b"empty").unwrap();
            assert_eq!(zpl.acl_text(&zpl.acl(empty).unwrap().unwrap()), expect, "{case} zpl{version}");
        }
    }
}

#[test]
fn the_wrong_kind_is_refused() {
    let pool = open("single");
    let zpl = file_system(&pool, "t_single");
    let mut seen = 0;
    walk(&zpl, &mut |_, ino| {
        let kind = zpl.stat(ino).unwrap().kind;
        seen |= 1 << (kind.mode_bits() >> 12);
        let errors = [
            zpl.open_file(ino).map(drop).map_err(|e| e.kind()),
            zpl.readlink(ino).map(drop).map_err(|e| e.kind()),
            zpl.lookup(ino, b"x").map(drop).map_err(|e| e.kind()),
        ];
        let expect = match kind {
            FileKind::File => [Ok(()), Err(Kind::Invalid), Err(Kind::NotDirectory)],
            FileKind::Directory => [Err(Kind::IsDirectory), Err(Kind::Invalid), Err(Kind::NotFound)],
            FileKind::Symlink => [Err(Kind::Invalid), Ok(()), Err(Kind::NotDirectory)],
            _ => [Err(Kind::Invalid), Err(Kind::Invalid), Err(Kind::NotDirectory)],
        };
        assert_eq!(errors, expect, "object {ino}, {kind:?}");
    });
    assert_eq!(seen & (1 << 4 | 1 << 8 | 1 << 10), 1 << 4 | 1 << 8 | 1 << 10, "the pool has files, directories, links");
    // the master node is an object, but no file
    assert_eq!(zpl.stat(ObjectId::new(1)).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(zpl.stat(ObjectId::new(1 << 40)).unwrap_err().kind(), Kind::NotFound);
    let volume = open("zvol");
    let dataset = volume.dsl().find("t_zvol/vol8K").unwrap();
    let objset = volume.dsl().objset(&dataset, Mode::Plain).unwrap();
    assert_eq!(Zpl::open(objset).map(drop).unwrap_err().kind(), Kind::Invalid);
}
