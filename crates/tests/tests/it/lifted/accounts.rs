//! Accounts of file systems that others made, and that are older than these.

use format::feature::VERSION;

use super::{Lifted, file_systems, is_long, sync, zpl_of};
use crate::accounts::{FEATURES, check_accounts, count};

/// Pools without features, of old versions, with files that nobody counted: all are counted, and zdb finds nothing wrong.
#[test]
fn files_of_old_pools_are_counted() {
    for &case in &["nofeatures", "be-v28", "fuse-v1", "fuse-v15"][..if is_long() { 4 } else { 3 }] {
        println!("{case}");
        let lifted = Lifted::of(case);
        let pool = lifted.import();
        if pool.version() < VERSION {
            pool.upgrade(VERSION).unwrap();
        }
        let needed = ["com.delphix:extensible_dataset"].into_iter().chain(FEATURES);
        pool.enable_features(needed.map(str::to_owned).collect()).unwrap();
        for (number, name) in file_systems(&pool).into_iter().enumerate() {
            let id = pool.view().dsl().find(&name).unwrap().id;
            if zpl_of(&pool, &name).unwrap().version() < 4 {
                assert!(!pool.count_anew(id).unwrap(), "{name} has to come to a later version first");
                let tx = pool.txgs().begin().unwrap();
                zpl::upgrade_fs(&pool.head(id).unwrap(), &tx, 5, number as u64).unwrap();
            }
            sync(&pool);
            let zpl = zpl_of(&pool, &name).unwrap();
            pool.count_anew(id).unwrap();
            count(&pool, id);
            check_accounts(&pool.view(), &name);
            drop(zpl);
        }
        lifted.judge(pool);
    }
}
