//! Cache devices of a pool that is in use: what leaves RAM is found there, also after the pool was exported, and
//! whatever becomes of the device, what is read is right. zdb judges headers and logs, if it is there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::Env;
use device::{Device, FaultyDevice, FileDevice, OpenMode};
use format::ids::Guid;
use pool::{Candidate, LivePool, NewDevices, NewLeaf, NewVdevShape, OfflineReason, OpenOptions, PoolState, discover};
use zpl::{New, NewKind, Zpl};

use super::live::{make_fs, new_pool};

/// Bytes of the file, of which RAM takes about two thirds.
const BYTES: usize = 96 << 20;
const CACHE_BYTES: u64 = 256 << 20;
const PIECE: usize = 1 << 20;

/// Cache devices may take so long to answer.
fn env(timeout_ms: u64) -> Env {
    Env::real().with_tunables(move |name| match name {
        "l2arc_rebuild_blocks_min_l2size" => Some(1),
        "zfs_arc_max" => Some(64 << 20),
        "zfs_arc_min" => Some(32 << 20),
        "l2arc_feed_min_ms" => Some(10),
        "l2arc_read_timeout_ms" => Some(timeout_ms),
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
    fn create(env: &Env, dir: &Path) -> Bed {
        let (new, devices) = new_pool(dir, NewVdevShape::Single, 1);
        let pool = LivePool::create(env, &new, &devices, |set, tx, _| make_fs(set, tx, 7)).unwrap();
        pool.start();
        pool.create_dataset("live/fs", vec![("compression".into(), "lz4".into())], |set, tx, _| make_fs(set, tx, 8))
            .unwrap();
        let bed = Bed::open(env, pool, Arc::new(contents()));
        let file = New { kind: NewKind::File, mode: 0o644, umask: 0, uid: 0, gid: 0 };
        let ino = bed.zpl.create(bed.zpl.root(), b"file", &file).unwrap().ino;
        let file = bed.zpl.open_file(ino).unwrap();
        for (n, piece) in bed.expect.chunks(PIECE).enumerate() {
            file.write((n * PIECE) as u64, piece).unwrap();
        }
        bed.pool.sync().unwrap();
        bed
    }

    fn open(env: &Env, pool: Arc<LivePool>, expect: Arc<Vec<u8>>) -> Bed {
        let id = pool.view().dsl().find("live/fs").unwrap().id;
        let set = pool.head(id).unwrap();
        let zpl = Zpl::open_writable(set, pool.txgs().clone(), env.clone(), Default::default(), None).unwrap();
        Bed { pool, zpl, expect }
    }

    fn import(env: &Env, dir: &Path, expect: Arc<Vec<u8>>) -> Bed {
        let mut candidate = Candidate::pick(&Candidate::all(&discover(env, &[dir.into()]).unwrap()), "live").unwrap();
        for found in &mut candidate.devices {
            found.device = file(&found.path);
        }
        let pool = LivePool::import(env, &candidate, &OpenOptions::default(), (7, "here".into())).unwrap();
        pool.start();
        pool.open_caches(&|path: &str| Ok(file(path)));
        Bed::open(env, pool, expect)
    }

    /// Exports the pool; the contents of its file.
    fn export(self) -> Arc<Vec<u8>> {
        self.pool.close(PoolState::Exported).unwrap();
        self.expect
    }

    /// Reads the file in pieces, in an order that is nobody's.
    fn read(&self) {
        self.read_pieces(&|_| ());
    }

    /// The same; `took` is told how long each took.
    fn read_pieces(&self, took: &dyn Fn(Duration)) {
        let file = self.zpl.open_file(self.zpl.resolve(b"/file").unwrap()).unwrap();
        let pieces = BYTES / PIECE;
        for n in (0..pieces).map(|n| n * 37 % pieces) {
            let (mut got, start) = (vec![0; PIECE], Instant::now());
            assert_eq!(file.read((n * PIECE) as u64, &mut got).unwrap(), PIECE);
            took(start.elapsed());
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
        let caches = vec![NewLeaf { path: path.display().to_string(), is_file: true }];
        let new = NewDevices { caches, ..NewDevices::default() };
        self.pool.add(&new, &[(path.to_path_buf(), device)].into()).unwrap();
    }

    fn guid(&self) -> Guid {
        self.pool.view().caches()[0].opt_guid("guid").unwrap()
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
    // a busy machine is no bad device
    let env = env(20_000);
    let bed = Bed::create(&env, dir.path());
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
    let bed = Bed::import(&env, dir.path(), expect);
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

/// What readers of a file have got since they were looked at.
#[derive(Default)]
struct Readers {
    is_over: AtomicBool,
    pieces: AtomicU64,
    slowest_ms: AtomicU64,
}

impl Readers {
    fn work(&self, bed: &Bed) {
        while !self.is_over.load(Ordering::Relaxed) {
            bed.read_pieces(&|took| {
                self.pieces.fetch_add(1, Ordering::Relaxed);
                self.slowest_ms.fetch_max(took.as_millis() as u64, Ordering::Relaxed);
            });
        }
    }

    /// Has something done to the cache device, and waits until a counter shows it, for half a second at least.
    fn while_it(&self, bed: &Bed, what: &str, act: impl FnOnce(), counter: &str) {
        let of = |counter: &str| bed.stat(counter);
        let (start, before, hits) = (Instant::now(), of(counter), of("l2_hits"));
        self.pieces.store(0, Ordering::Relaxed);
        self.slowest_ms.store(0, Ordering::Relaxed);
        act();
        wait_for(|| of(counter) > before && start.elapsed() > Duration::from_millis(500));
        let mib_s = self.pieces.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
        let (slowest_ms, more) = (self.slowest_ms.load(Ordering::Relaxed), of(counter) - before);
        println!("| {what} | {mib_s:.0} | {slowest_ms} | {} | {more} {counter} |", of("l2_hits") - hits);
    }
}

/// Under readers: noise, errors, a stall, offline and online, gone.
#[test]
fn whatever_becomes_of_the_device_reads_are_right() {
    let dir = tempfile::tempdir().unwrap();
    let path = cache_file(dir.path());
    let bed = Bed::create(&env(100), dir.path());
    let faulty = Arc::new(FaultyDevice::new(file(path.to_str().unwrap()), 3));
    bed.add(&path, faulty.clone());
    bed.warm(BYTES as u64 / 2);
    let (guid, same): (_, Arc<dyn Device>) = (bed.guid(), faulty.clone());
    let everywhere = || 0..CACHE_BYTES;
    let readers = Readers::default();
    println!(
        "| the cache device | MiB read a second | slowest MiB, ms | hits on it | counted |\n|---|--:|--:|--:|--:|"
    );
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| readers.work(&bed));
        }
        let step = |what: &str, act: &dyn Fn(), counter: &str| readers.while_it(&bed, what, act, counter);
        step("works", &|| (), "l2_hits");
        step("returns noise", &|| faulty.noise(everywhere()), "l2_cksum_bad");
        step("works again", &|| faulty.heal(), "l2_hits");
        step("stalls", &|| faulty.stall(true), "l2_io_error");
        step("still stalls", &|| (), "misses");
        step("works again", &|| faulty.stall(false), "l2_hits");
        bed.pool.take_off(guid, OfflineReason::Offline, false).unwrap();
        assert_eq!(bed.stat("l2_size"), 0);
        step("is offline", &|| (), "misses");
        assert_eq!(bed.pool.online(guid, false, &|_| Ok(same.clone())).unwrap().state, vdev::VdevState::Healthy);
        step("is online", &|| (), "l2_hits");
        let broken = || {
            faulty.broken(everywhere());
            faulty.unwritable(everywhere());
        };
        step("fails each read and write", &broken, "l2_io_error");
        faulty.heal();
        bed.pool.clear(None, &|_| Ok(same.clone())).unwrap();
        step("is cleared", &|| (), "l2_hits");
        step("is pulled", &|| faulty.vanish(true), "misses");
        wait_for(|| !bed.pool.view().cache().l2arc().reports()[0].is_usable);
        bed.pool.remove(guid).unwrap();
        step("is removed", &|| (), "misses");
        readers.is_over.store(true, Ordering::Relaxed);
    });
    bed.read();
    bed.export();
}
