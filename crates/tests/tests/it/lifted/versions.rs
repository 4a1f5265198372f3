//! Pools of versions 1 to 28 are written to as their versions have it, and brought to later ones.

use format::feature::{FEATURES, Feature, HEAD_ERRLOG, Support, VERSION};
use pool::AttachAs;

use super::{
    Lifted, check_files, end_stage, file_systems, is_long, live_with, live_with_all, make_files, snapshot, sync,
    write_files, zpl_of,
};
use crate::live::is_newer_judge;
use crate::replace::{finish, put_beside};
use crate::scrub::scrub;

#[test]
fn the_last_without_features() {
    live_with(&Lifted::of("v28"));
}

#[test]
fn of_opensolaris() {
    live_with_all(&["fuse-v3", "fuse-v21", "fuse-v15", "fuse-v9", "fuse-v1"]);
}

#[test]
fn of_all_shapes() {
    live_with_all(&["fuse-raidz1", "fuse-single", "fuse-mirror", "fuse-raidz2", "fuse-files", "fuse-snapshots"]);
}

/// Before version 11 no list has all file systems and clones: all that is there is scrubbed, and copied to a new disk.
#[test]
fn the_disk_of_an_old_pool_is_replaced() {
    let cases = ["fuse-v9", "fuse-v1", "fuse-v3", "fuse-snapshots", "fuse-v15"];
    for case in &cases[..if is_long() { cases.len() } else { 2 }] {
        println!("{case}");
        let mut lifted = Lifted::of(case);
        let pool = lifted.import();
        let root = pool.name().to_owned();
        let mut expected = Vec::new();
        for number in 1..4 {
            expected = write_files(&pool, &root, number);
            snapshot(&pool, &format!("{root}@scan-{number}"));
        }
        pool.clone_snapshot(&format!("{root}@scan-2"), &format!("{root}/scan-clone"), &[]).unwrap();
        let of_clone = write_files(&pool, &format!("{root}/scan-clone"), 9);
        let done = scrub(&pool);
        assert!(done.examined_bytes >= done.to_examine_bytes / 10 * 9, "{done:?}");
        let (old, new) = (lifted.paths[0].clone(), lifted.path().join("new"));
        put_beside(&pool, &old, &new, old.metadata().unwrap().len(), AttachAs::Replacement).unwrap();
        finish(&pool);
        check_files(&pool, &expected);
        check_files(&pool, &of_clone);
        std::fs::remove_file(old).unwrap();
        lifted.paths = vec![new];
        // all of it is read there
        lifted.judge(pool);
    }
}

/// A log of version 22 or before is claimed, and replayed; nothing is logged after that.
#[test]
fn an_old_log() {
    live_with(&Lifted::of("fuse-log"));
}

/// A pool goes from its version to the latest, step by step, and is used at each.
#[test]
fn from_each_version_to_later_ones() {
    for &case in &["fuse-v1", "fuse-v9", "fuse-v15"][..if is_long() { 3 } else { 1 }] {
        let lifted = Lifted::of(case);
        let mut expected = Vec::new();
        for version in [2, 3, 9, 11, 15, 22, 24, 26, 28, VERSION] {
            let pool = lifted.import();
            check_files(&pool, &expected);
            if version <= pool.version() {
                assert_eq!(pool.upgrade(version).is_ok(), version == pool.version());
                continue;
            }
            println!("{case} to {version}");
            let root = pool.name().to_owned();
            if pool.version() < 24 && version >= 24 {
                let refused = pool.check_files_version(1, 5).unwrap_err();
                assert_eq!(refused.kind(), base::Kind::Unsupported);
            }
            snapshot(&pool, &format!("{root}@before-{version}"));
            pool.upgrade(version).unwrap();
            let of = pool.view();
            assert_eq!((of.uberblock().version, of.config().u64("version").unwrap()), (version, version));
            drop(of);
            expected.extend(write_files(&pool, &root, version));
            let new = format!("{root}/at-{version}");
            pool.create_dataset(&new, Vec::new(), make_files).unwrap();
            snapshot(&pool, &format!("{new}@snap"));
            expected.extend(write_files(&pool, &new, version));
            pool.clone_snapshot(&format!("{new}@snap"), &format!("{new}-clone"), &[]).unwrap();
            expected.extend(write_files(&pool, &format!("{new}-clone"), version));
            snapshot(&pool, &format!("{root}@after-{version}"));
            if version >= 24 {
                for name in file_systems(&pool) {
                    let head = pool.head(pool.view().dsl().find(&name).unwrap().id).unwrap();
                    let tx = pool.txgs().begin().unwrap();
                    zpl::upgrade_fs(&head, &tx, 5, version).unwrap();
                    drop(tx);
                    assert_eq!(zpl_of(&pool, &name).unwrap().version(), 5);
                }
                expected.extend(write_files(&pool, &root, version + 100));
            }
            if version == VERSION {
                // one that is in use at once keeps OpenZFS 2.1 from reading the pool
                let is_known = |feature: &&Feature| is_newer_judge() || feature.guid != HEAD_ERRLOG;
                let given = FEATURES.iter().filter(|feature| feature.support == Support::Give).filter(is_known);
                pool.enable_features(given.map(|feature| feature.guid.to_owned()).collect()).unwrap();
                expected.extend(write_files(&pool, &root, version + 200));
            }
            if version == VERSION { lifted.judge(pool) } else { end_stage(&lifted, pool) }
        }
        // the snapshots of all these ages go, the middle ones first
        let pool = lifted.import();
        check_files(&pool, &expected);
        let root = pool.name().to_owned();
        let dsl = pool.view();
        let head = dsl.dsl().find(&root).unwrap();
        let mut names: Vec<String> =
            dsl.dsl().snapshots(&head).unwrap().into_iter().map(|snapshot| snapshot.name).collect();
        drop(dsl);
        names.retain(|name| name.contains("@before-") || name.contains("@after-"));
        while !names.is_empty() {
            let name = names.remove(names.len() / 2);
            super::destroy_snapshot(&pool, &name);
        }
        sync(&pool);
        lifted.judge(pool);
    }
}
