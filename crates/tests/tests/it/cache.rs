//! Cache devices of a pool that is in use: what leaves RAM is found there, also after the pool was exported, and
//! whatever becomes of the device, what is read is right. zdb judges headers and logs, if it is there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::Env;
use device::{Device, FaultyDevice, FileDevice, OpenMode};
use pool::{Candidate, LivePool, NewDevices, NewLeaf, Off, OpenOptions, PoolState, Shape, scan};
use zpl::{New, NewKind, Zpl};

use super::live::{make_fs, new_pool};

/// Bytes of the file, of which RAM takes about two thirds.
const BYTES: usize = 96 << 20;
const CACHE_BYTES: u64 = 256 << 20;
const PIECE: usize = 1 << 20;

fn env() -> Env {
    Env::real().with_tunables(|name| match name {
        "l2arc_rebuild_blocks_min_l2size" => Some(1),
        "zfs_arc_max" => Some(64 << 20),
        "zfs_arc_min" => Some(32 << 20),
        "l2arc_feed_min_ms" => Some(10),
        "l2arc_read_timeout_ms" => Some(100),
        _ => None,
    })
}

/// Contents that compress to about the half.
fn contents() -> Vec<u8> {
    let mut state = 1u64;
    let mut bytes = Vec::with_capacity(BYTES);
    while bytes.len() < BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state >> 32).to_le_bytes());
    }
    bytes
}

/// A pool with a file in it, open.
struct Bed {
    pool: Arc<LivePool>,
    zpl: Zpl,
    expect: Arc<Vec<u8>>,
}

impl Bed {
    fn create(dir: &Path) -> Bed {
        let (new, devices) = new_pool(dir, Shape::Single, 1);
        let pool = LivePool::create(&env(), &new, &devices, |set, tx, _| make_fs(set, tx, 7)).unwrap();
        pool.start();
        pool.create_dataset("live/fs", vec![("compression".into(), "lz4".into())], |set, tx, _| make_fs(set, tx, 8))
            .unwrap();
        let bed = Bed::open(pool, Arc::new(contents()));
        let file = New { kind: NewKind::File, mode: 0o644, umask: 0, uid: 0, gid: 0 };
        let ino = bed.zpl.create(bed.zpl.root(), b"file", &file).unwrap().ino;
        let file = bed.zpl.open_file(ino).unwrap();
        for (n, piece) in bed.expect.chunks(PIECE).enumerate() {
            file.write((n * PIECE) as u64, piece).unwrap();
        }
        bed.pool.sync().unwrap();
        bed
    }

    fn open(pool: Arc<LivePool>, expect: Arc<Vec<u8>>) -> Bed {
        let id = pool.view().dsl().find("live/fs").unwrap().id;
        let set = pool.head(id).unwrap();
        let zpl = Zpl::open_writable(set, pool.txgs().clone(), env(), Default::default(), None).unwrap();
        Bed { pool, zpl, expect }
    }

    fn import(dir: &Path, expect: Arc<Vec<u8>>, open: &dyn Fn(&str) -> base::Result<Arc<dyn Device>>) -> Bed {
        let mut candidate = Candidate::pick(&Candidate::all(&scan(&env(), &[dir.into()]).unwrap()), "live").unwrap();
        for found in &mut candidate.devices {
            found.device = file(&found.path);
        }
        let pool = LivePool::import(&env(), &candidate, &OpenOptions::default(), (7, "here".into())).unwrap();
        pool.start();
        pool.open_caches(open);
        Bed::open(pool, expect)
    }

    /// Exports the pool; the contents of its file.
    fn export(self) -> Arc<Vec<u8>> {
        self.pool.close(PoolState::Exported).unwrap();
        self.expect
    }

    /// Reads the file in pieces, in an order that is nobody's.
    fn read(&self) {
        let file = self.zpl.open_file(self.zpl.resolve(b"/file").unwrap()).unwrap();
        let pieces = BYTES / PIECE;
        for n in (0..pieces).map(|n| n * 37 % pieces) {
            let mut got = vec![0; PIECE];
            assert_eq!(file.read((n * PIECE) as u64, &mut got).unwrap(), PIECE);
            assert!(got == self.expect[n * PIECE..][..PIECE], "piece {n}");
        }
    }

    fn stat(&self, name: &str) -> u64 {
        let table = self.pool.view().cache().arcstats();
        table.iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("no {name}")).1
    }

    /// Reads until so much of the file is on the cache device.
    fn warm(&self, bytes: u64) {
        wait_for(|| {
            self.read();
            self.stat("l2_size") >= bytes
        });
    }

    fn add(&self, path: &Path, device: Arc<dyn Device>) {
        let caches = vec![NewLeaf { path: path.into(), is_file: true }];
        let new = NewDevices { caches, ..NewDevices::default() };
        self.pool.add(&new, &[(path.to_path_buf(), device)].into()).unwrap();
    }

    fn guid(&self) -> u64 {
        self.pool.view().caches()[0].opt_u64("guid").unwrap()
    }
}

fn wait_for(mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(120), "this takes for ever");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn file(path: &str) -> Arc<dyn Device> {
    Arc::new(FileDevice::open(path, OpenMode::ReadWrite).unwrap())
}

fn open(path: &str) -> base::Result<Arc<dyn Device>> {
    Ok(Arc::new(FileDevice::open(path, OpenMode::ReadWrite)?))
}

fn cache_file(dir: &Path) -> PathBuf {
    let path = dir.join("cache0");
    std::fs::File::create(&path).unwrap().set_len(CACHE_BYTES).unwrap();
    path
}

/// What zdb says of a cache device: how many logs are good. `None` if it is not there.
fn logs_by_zdb(path: &Path) -> Option<u64> {
    let output = Command::new("zdb").arg("-lll").arg(path).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("L2ARC device header") && text.contains("0 with invalid cksum"), "{text}");
    let line = text.lines().find(|line| line.starts_with("log_blk_count:")).unwrap_or_else(|| panic!("{text}"));
    line.split_whitespace().nth(1).map(|count| count.parse().unwrap())
}

#[test]
fn a_cache_device_is_warm_after_export() {
    let dir = tempfile::tempdir().unwrap();
    let path = cache_file(dir.path());
    let bed = Bed::create(dir.path());
    bed.add(&path, file(path.to_str().unwrap()));
    bed.warm(BYTES as u64 / 2);
    let hits = bed.stat("l2_hits");
    bed.read();
    assert!(bed.stat("l2_hits") > hits && bed.stat("l2_cksum_bad") + bed.stat("l2_io_error") == 0);
    let size = bed.stat("l2_size");
    let expect = bed.export();
    if let Some(logs) = logs_by_zdb(&path) {
        assert!(logs > 0);
    }
    let bed = Bed::import(dir.path(), expect, &open);
    wait_for(|| !bed.pool.view().cache().l2arc().is_rebuilding());
    let table = bed.pool.view().cache().l2arc().table();
    assert_eq!((bed.stat("l2_rebuild_success"), bed.stat("l2_rebuild_io_errors")), (1, 0), "{table:?}");
    let rebuilt = bed.stat("l2_rebuild_size");
    assert!(rebuilt >= size / 10 * 9, "{rebuilt} of {size}");
    bed.read();
    let read = bed.stat("l2_read_bytes");
    assert!(bed.stat("l2_hits") > 100 && bed.stat("l2_cksum_bad") == 0, "{read} bytes from the device");
    // and goes on
    bed.warm(rebuilt);
    let paths = bed.pool.remove(bed.guid()).unwrap();
    assert_eq!(paths, [path.to_str().unwrap()]);
    bed.read();
    assert_eq!((bed.stat("l2_size"), bed.pool.view().caches().len()), (0, 0));
    bed.export();
}

/// Under readers: noise, errors, a stall, offline and online, gone.
#[test]
fn whatever_becomes_of_the_device_reads_are_right() {
    let dir = tempfile::tempdir().unwrap();
    let path = cache_file(dir.path());
    let bed = Bed::create(dir.path());
    let faulty = Arc::new(FaultyDevice::new(file(path.to_str().unwrap()), 3));
    bed.add(&path, faulty.clone());
    bed.warm(BYTES as u64 / 2);
    let guid = bed.guid();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let everywhere = || 0..CACHE_BYTES;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    bed.read();
                }
            });
        }
        let counts_more = |name: &str| {
            let before = bed.stat(name);
            wait_for(|| bed.stat(name) > before);
        };
        faulty.noise(everywhere());
        counts_more("l2_cksum_bad");
        faulty.heal();
        counts_more("l2_hits");
        faulty.stall(true);
        counts_more("l2_io_error");
        let misses = bed.stat("misses");
        wait_for(|| bed.stat("misses") > misses + 500);
        faulty.stall(false);
        counts_more("l2_hits");
        bed.pool.take_off(guid, Off::Offline, false).unwrap();
        assert_eq!(bed.stat("l2_size"), 0);
        let same: Arc<dyn Device> = faulty.clone();
        assert_eq!(bed.pool.online(guid, &|_| Ok(same.clone())).unwrap().state, vdev::State::Healthy);
        counts_more("l2_hits");
        faulty.broken(everywhere());
        faulty.unwritable(everywhere());
        counts_more("l2_io_error");
        faulty.heal();
        bed.pool.clear(None, &|_| Ok(same.clone())).unwrap();
        counts_more("l2_hits");
        faulty.vanish(true);
        wait_for(|| !bed.pool.view().cache().l2arc().reports()[0].is_usable);
        bed.pool.remove(guid).unwrap();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    bed.read();
    bed.export();
}
