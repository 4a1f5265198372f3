//! Pools that Cenote makes and changes, opened again by Cenote and judged by zdb, if that is there.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use base::Env;
use device::{Device, FileDevice, OpenMode};
use dmu::{Objset, Tx};
use pool::{Candidate, LivePool, NewLeaf, NewPool, NewVdev, OpenOptions, Pool, PoolState, Shape, scan};
use testkit::workload::FEATURES;
use zpl::{New, NewFs, NewKind, Zpl, create_fs};

/// Features beside those of every test: objects are counted by owner and project.
const ACCOUNTING: [&str; 2] = ["org.zfsonlinux:userobj_accounting", "org.zfsonlinux:project_quota"];

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
        features: FEATURES.iter().chain(&ACCOUNTING).map(|guid| (*guid).to_owned()).collect(),
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

/// The pool that is on the devices now, as a reader finds it.
fn reopen(dir: &Path) -> Pool {
    let env = Env::real();
    let found = scan(&env, &[dir.to_path_buf()]).unwrap();
    let candidate = Candidate::pick(&Candidate::all(&found), "live").unwrap();
    Pool::open(&env, &candidate, &OpenOptions::default()).unwrap()
}

/// Lets zdb verify every block and every object, if it is there.
fn judge(dir: &Path) {
    if let Some((is_well, text)) = zdb(dir, &["-bcc"]) {
        assert!(is_well && text.contains("No leaks"), "{text}");
        let (is_well, text) = zdb(dir, &["-dddd"]).unwrap();
        assert!(is_well && !text.contains("ERROR"), "{text}");
    }
}

fn make_fs(objset: &Arc<Objset>, tx: &Tx<'_>, now_s: u64) -> base::Result<()> {
    create_fs(objset, tx, &NewFs { now: (now_s, 0), salt: 5, ..NewFs::default() })
}

#[test]
fn files_are_there_after_export() {
    for (shape, leaves) in [(Shape::Single, 1), (Shape::Mirror, 2), (Shape::Raidz(1), 3)] {
        let dir = tempfile::tempdir().unwrap();
        let (new, devices) = new_pool(dir.path(), shape, leaves);
        let env = Env::real();
        let pool = LivePool::create(&env, &new, &devices, |set, tx, _| make_fs(set, tx, 7)).unwrap();
        pool.start();
        pool.create_dataset("live/sub", vec![("compression".into(), "zstd".into())], |set, tx, _| make_fs(set, tx, 8))
            .unwrap();
        let mut expect: Vec<(&str, Vec<u8>, Vec<u8>)> = Vec::new();
        for name in ["live", "live/sub"] {
            let id = pool.view().dsl().find(name).unwrap().id;
            let set = pool.head(id).unwrap();
            let zpl = Zpl::open_writable(set, pool.txgs().clone(), env.clone(), Default::default()).unwrap();
            let directory = New { kind: NewKind::Directory, mode: 0o755, umask: 0, uid: 1000, gid: 100 };
            let d = zpl.create(zpl.root(), b"dir", &directory).unwrap().ino;
            for i in 0..500usize {
                let file = New { kind: NewKind::File, mode: 0o644, umask: 0, uid: 1000 + i as u32 % 3, gid: 100 };
                let path = format!("file-{i}");
                let ino = zpl.create(d, path.as_bytes(), &file).unwrap().ino;
                let bytes: Vec<u8> = (0..i * i * 7 % 300_000).map(|n| (n * i / 11) as u8).collect();
                assert_eq!(zpl.open_file(ino).unwrap().write(0, &bytes).unwrap(), bytes.len());
                expect.push((name, format!("/dir/{path}").into_bytes(), bytes));
                if i % 150 == 149 {
                    pool.sync().unwrap();
                }
            }
            for i in (0..500).step_by(7) {
                let name_of = format!("file-{i}");
                let gone = zpl.unlink(d, name_of.as_bytes()).unwrap().unwrap();
                zpl.reclaim(gone).unwrap();
                expect.retain(|(of, path, _)| *of != name || path[..] != *format!("/dir/{name_of}").as_bytes());
            }
        }
        pool.close(PoolState::Exported).unwrap();
        drop((pool, devices));
        let pool = reopen(dir.path());
        for (name, path, bytes) in &expect {
            let dataset = pool.dsl().find(name).unwrap();
            let zpl = Zpl::open(pool.dsl().objset(&dataset, dmu::Mode::Plain).unwrap()).unwrap();
            let file = zpl.open_file(zpl.resolve(path).unwrap()).unwrap();
            let mut got = vec![0; bytes.len() + 1];
            assert_eq!(file.read(0, &mut got).unwrap(), bytes.len());
            assert!(got[..bytes.len()] == bytes[..], "{}", path.escape_ascii());
        }
        drop(pool);
        judge(dir.path());
    }
}
