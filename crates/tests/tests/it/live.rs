//! Pools that Cenote makes and changes, opened again by Cenote and judged by zdb, if that is there.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use base::Env;
use device::{Device, FileDevice, OpenMode};
use pool::{LivePool, NewLeaf, NewPool, NewVdev, PoolState, Shape};

const FEATURES: [&str; 14] = [
    "com.delphix:empty_bpobj",
    "org.illumos:lz4_compress",
    "com.delphix:spacemap_histogram",
    "com.delphix:enabled_txg",
    "com.delphix:hole_birth",
    "com.delphix:extensible_dataset",
    "com.delphix:embedded_data",
    "org.open-zfs:large_blocks",
    "org.illumos:sha512",
    "org.illumos:skein",
    "org.illumos:edonr",
    "com.delphix:spacemap_v2",
    "org.zfsonlinux:allocation_classes",
    "org.freebsd:zstd_compress",
];

fn new_pool(dir: &Path, shape: Shape, leaves: usize) -> (NewPool, HashMap<PathBuf, Arc<dyn Device>>) {
    let paths: Vec<PathBuf> = (0..leaves).map(|i| dir.join(format!("disk{i}"))).collect();
    let mut devices: HashMap<PathBuf, Arc<dyn Device>> = HashMap::new();
    for path in &paths {
        std::fs::File::create(path).unwrap().set_len(256 << 20).unwrap();
        let device = FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap();
        devices.insert(path.clone(), Arc::new(device));
    }
    let new = NewPool {
        name: "live".into(),
        vdevs: vec![NewVdev {
            shape,
            bias: None,
            leaves: paths.into_iter().map(|path| NewLeaf { path, is_file: true }).collect(),
        }],
        spares: Vec::new(),
        caches: Vec::new(),
        ashift: Some(12),
        features: FEATURES.map(str::to_owned).to_vec(),
        properties: Vec::new(),
        fs_properties: Vec::new(),
        history: "zpool create live".into(),
        host: (7, "here".into()),
    };
    (new, devices)
}

/// What zdb says of the pool; `None` if it is not there.
fn zdb(dir: &Path, args: &[&str]) -> Option<(bool, String)> {
    let output = Command::new("zdb").args(["-e", "-p"]).arg(dir).args(args).arg("live").output().ok()?;
    let text = [output.stdout, output.stderr].map(|raw| String::from_utf8_lossy(&raw).into_owned()).concat();
    Some((output.status.success(), text))
}

#[test]
fn a_new_pool_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let (new, devices) = new_pool(dir.path(), Shape::Single, 1);
    let pool = LivePool::create(&Env::real(), &new, &devices, |_, _, _| Ok(())).unwrap();
    assert_eq!(pool.view().uberblock().txg, 4);
    pool.sync().unwrap();
    pool.close(PoolState::Exported).unwrap();
    drop((pool, devices));
    if let Some((is_well, text)) = zdb(dir.path(), &["-bcc"]) {
        assert!(is_well && text.contains("No leaks"), "{text}");
    }
}
