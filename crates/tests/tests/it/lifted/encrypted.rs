//! Encrypted datasets beside others are left as they are; what needs no key is done to them.

use base::{Env, Kind};
use format::feature::ENCRYPTION;
use pool::{FeatureState, Pool};
use testkit::seal::{Atlas, Forge, MOS};
use testkit::workload::{candidate, options};
use zil::ZilHeader;

use super::{Lifted, destroy_snapshot, live_with, snapshot, sync, zpl_of};

#[test]
fn beside_encrypted_ones() {
    live_with(&Lifted::of("encrypted"));
}

/// Snapshots, bookmarks, rollback, new names, holds and destruction need no key; contents do.
#[test]
fn what_needs_no_key() {
    let lifted = Lifted::of("encrypted");
    let pool = lifted.import();
    let encrypted = "t_encrypted/aes-256-gcm";
    assert_eq!(zpl_of(&pool, encrypted).err().unwrap().kind(), Kind::Encrypted);
    let refused = |result: base::Result<()>| assert_eq!(result.unwrap_err().kind(), Kind::Encrypted);
    refused(pool.create_dataset(&format!("{encrypted}/new"), Vec::new(), |_, _, _| Ok(())));
    refused(pool.clone_snapshot(&format!("{encrypted}@s"), "t_encrypted/clone", &[]));
    refused(pool.rename_dataset(&format!("{encrypted}/child"), "t_encrypted/child"));
    for name in [encrypted, "t_encrypted/aes-256-gcm/vol", "t_encrypted/aes-128-ccm"] {
        snapshot(&pool, &format!("{name}@new"));
        let view = pool.view();
        let taken = view.dsl().find(&format!("{name}@new")).unwrap();
        assert!(view.dsl().dataset_field(&taken, "com.datto:ivset_guid").unwrap().is_some(), "{name}");
    }
    pool.bookmark(&format!("{encrypted}#mark"), &format!("{encrypted}@new")).unwrap();
    pool.rename_dataset(&format!("{encrypted}/child"), &format!("{encrypted}/renamed")).unwrap();
    pool.rename_dataset(&format!("{encrypted}/own"), "t_encrypted/own").unwrap();
    pool.set_property(encrypted, "atime", "off").unwrap();
    lifted.judge(pool);

    let pool = lifted.import();
    pool.rollback(&format!("{encrypted}@new")).unwrap();
    sync(&pool);
    lifted.judge(pool);

    let pool = lifted.import();
    destroy_snapshot(&pool, &format!("{encrypted}@new"));
    // the clone has the key of its origin, which stays; those of the others go
    for name in ["aes-256-gcm/clone", "aes-256-gcm/renamed", "own", "aes-192-ccm"] {
        pool.destroy_dataset(&format!("t_encrypted/{name}")).unwrap();
    }
    sync(&pool);
    lifted.judge(pool);
}

/// The log of an encrypted file system is claimed, and stays for those that have the key.
#[test]
fn logs_are_claimed_without_a_key() {
    let lifted = Lifted::of("zilcrypt");
    let pool = lifted.import();
    let id = pool.view().dsl().find("t_zilcrypt/fs").unwrap().id;
    let header = |pool: &pool::LivePool| {
        let view = pool.view();
        let dataset = view.dsl().dataset(id, "fs").unwrap();
        let set = view.dsl().raw_objset(&dataset).unwrap();
        assert!(set.is_encrypted());
        ZilHeader::parse(&set.phys().log_header).unwrap()
    };
    let claimed = header(&pool);
    assert!(claimed.is_claimed() && claimed.flags & ZilHeader::FLAG_REPLAY_NEEDED != 0, "{claimed:?}");
    lifted.judge(pool);
    let pool = lifted.import();
    assert_eq!(header(&pool), claimed);
    lifted.judge(pool);
}

/// Keys of before ZFS on Linux 0.8 are errata 3, whatever else is there.
#[test]
fn old_keys_are_told() {
    let lifted = Lifted::of("encrypted");
    let devices = lifted.devices();
    let open = || Pool::open(&Env::real(), &candidate(&devices).unwrap(), &options()).unwrap();
    let pool = open();
    assert_eq!((pool.features().state(ENCRYPTION), pool.errata()), (FeatureState::Active, 0));
    let dir = pool.dsl().find_dir("t_encrypted/aes-256-gcm/own").unwrap();
    let key = pool.dsl().key_object(&dir).unwrap().unwrap();
    let atlas = Atlas::of(&devices).unwrap();
    let mut forge = Forge::new(&atlas);
    forge.set_entry(MOS, key, b"DSL_CRYPTO_VERSION", 8, &0u64.to_be_bytes()).unwrap();
    forge.seal(&devices).unwrap();
    let pool = open();
    assert_eq!((pool.dsl().has_old_key(&dir).unwrap(), pool.errata()), (true, 3));
    drop(pool);
    let pool = lifted.import();
    sync(&pool);
    assert_eq!(pool.view().errata(), 3);
    lifted.judge(pool);
}
