//! Frees in a pool with dedup tables of OpenZFS: the tables tell what there is, and no block leaks.

mod fast;
mod writes;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use base::{AlignedBuf, Env};
use device::{Device, FileDevice, OpenMode};
use dmu::traverse::Visit;
use format::blkptr::BlkPtr;
use format::ddt::DdtKey;
use format::ids::ObjectId;
use pool::check::{BlockKind, CheckOptions, Observer, Verify};
use pool::{DedupSums, LivePool, Pool, PoolState};
use testkit::corpus;
use testkit::program;
use testkit::recording::{Loss, Recording};
use testkit::rng::Rng;
use testkit::sparse::SparseDevice;
use testkit::workload::{candidate, options};
use zpl::Zpl;

const POOL: &str = "t_dedup";

fn import(dir: &Path) -> Arc<LivePool> {
    let path = dir.join("vda.img");
    let device = FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap();
    import_device(Arc::new(device))
}

fn import_device(device: Arc<dyn Device>) -> Arc<LivePool> {
    LivePool::import(&Env::real(), &candidate(&[device]).unwrap(), &options(), (7, "here".into())).unwrap()
}

fn open(pool: &LivePool, name: &str) -> Zpl {
    let id = pool.view().dsl().find(name).unwrap().id;
    Zpl::open_writable(pool.head(id).unwrap(), pool.txgs().clone(), Env::real(), Default::default(), None).unwrap()
}

pub(crate) fn names_in(zpl: &Zpl, dir: ObjectId) -> Vec<(Vec<u8>, ObjectId)> {
    let mut names = Vec::new();
    zpl.readdir(dir, 0, &mut |entry| {
        names.push((entry.name.to_vec(), entry.ino));
        ControlFlow::Continue(())
    })
    .unwrap();
    names.retain(|(name, _)| name != b"." && name != b"..");
    names
}

/// Removes all that is in a directory.
pub(crate) fn empty(zpl: &Zpl, dir: ObjectId) {
    for (name, ino) in names_in(zpl, dir) {
        let gone = match zpl.stat(ino).unwrap().kind {
            zpl::FileKind::Directory => {
                empty(zpl, ino);
                Some(zpl.rmdir(dir, &name).unwrap())
            }
            _ => zpl.unlink(dir, &name).unwrap(),
        };
        gone.into_iter().for_each(|ino| zpl.reclaim(ino).unwrap());
    }
}

/// The deduplicated blocks that a walk finds, by what an entry tells apart: of each place a pointer, and how many there
/// are of it.
#[derive(Default)]
struct Found(HashMap<(u8, DdtKey), Places>);

type Places = HashMap<[u64; 2], (BlkPtr, u64)>;

impl Observer for Found {
    fn block(&mut self, visit: &Visit<'_>, _kind: BlockKind) {
        if visit.bp.is_dedup() {
            let entry = self.0.entry((visit.bp.checksum_kind(), DdtKey::of(visit.bp))).or_default();
            entry.entry(visit.bp.dvas()[0].words()).or_insert((*visit.bp, 0)).1 += 1;
        }
    }
}

/// The tables are what a walk through the pool finds, and all that is allocated is some block's. The number of pointers
/// to deduplicated blocks.
fn check(pool: &LivePool) -> u64 {
    pool.sync().unwrap();
    pool.sync().unwrap();
    check_view(&pool.view())
}

pub(crate) fn check_view(view: &Pool) -> u64 {
    check_with(view, false)
}

/// As [`check_view`]; of a key, tables and logs may each have an entry, if there are logs.
fn check_with(view: &Pool, has_logs: bool) -> u64 {
    let mut found = Found::default();
    let report = view.check(CheckOptions { verify: Verify::All, space: true }, &mut found).unwrap();
    assert_eq!((report.leaks, report.unallocated_blocks, report.lost_parts), (Vec::new(), 0, 0));
    assert_eq!((report.found_bytes, report.lost_blocks), (report.allocated_bytes, Vec::new()));
    let mut expect = vec![DedupSums::default(); pool::DEDUP_BUCKETS];
    let blocks = found.0.values().flat_map(|entry| {
        let bucket = entry.values().map(|(_, count)| count).sum::<u64>().ilog2() as usize;
        entry.values().map(move |(bp, count)| (bucket, bp, *count))
    });
    for (bucket, bp, count) in blocks {
        let sums = &mut expect[bucket];
        let dsize: u64 = bp.copies().map(|dva| view.tree().deflate(dva.vdev(), dva.asize()).unwrap()).sum();
        sums.blocks += 1;
        sums.lsize_bytes += bp.lsize();
        sums.psize_bytes += bp.psize();
        sums.dsize_bytes += dsize;
        sums.ref_blocks += count;
        sums.ref_lsize_bytes += bp.lsize() * count;
        sums.ref_psize_bytes += bp.psize() * count;
        sums.ref_dsize_bytes += dsize * count;
    }
    let mut dedup = view.dedup().unwrap();
    // there may never have been a table
    dedup.histogram.resize(pool::DEDUP_BUCKETS, DedupSums::default());
    assert!(dedup.entries == found.0.len() as u64 || has_logs, "{} entries", dedup.entries);
    if dedup.histogram != expect {
        let rows = dedup.histogram.iter().zip(&expect).filter(|(is, should)| is != should);
        rows.for_each(|(is, should)| eprintln!("is     {is:?}\nshould {should:?}"));
        panic!("the sums of the tables are wrong");
    }
    dedup.total().ref_blocks
}

/// zdb agrees, if it is there.
fn judge(dir: &Path) {
    for args in [&["-bcc"][..], &["-DD"]] {
        let zdb = Command::new("zdb").args(["-e", "-p"]).arg(dir).args(args).arg(POOL).output();
        let Ok(output) = zdb else { return eprintln!("SKIPPED: there is no zdb") };
        let text = [output.stdout, output.stderr].map(|raw| String::from_utf8_lossy(&raw).into_owned()).concat();
        assert!(output.status.success(), "{args:?}: {text}");
        assert!(args[0] != "-bcc" || text.contains("No leaks"), "{text}");
    }
}

#[test]
fn what_is_shared_already_would_not_be_saved() {
    // OpenZFS's tables of dedup, and those of clones, say that so much is saved
    for (name, shared) in [("dedup", "4.89M"), ("fastdedup", "3.04M"), ("cloned", "1.58M")] {
        let (case, dir) = (corpus::case(name), tempfile::tempdir().unwrap());
        case.extract(dir.path()).unwrap();
        let told = program::run(["dedup", "-d", dir.path().to_str().unwrap(), &case.pool]).well().unwrap();
        assert!(told.contains(&format!("\nalready shared: {shared}\n")), "{name}: {told}");
        assert!(told.contains("\ndedup = 1.00, saves 0B\n"), "{name}: {told}");
    }
}

#[test]
fn the_tables_follow_what_is_freed() {
    let dir = tempfile::tempdir().unwrap();
    corpus::case("dedup").extract(dir.path()).unwrap();
    let pool = import(dir.path());
    pool.start();
    let begin = check(&pool);
    assert!(begin > 50, "{begin} pointers");

    // files go
    let zpl = open(&pool, "t_dedup/sha256");
    let copy1 = zpl.resolve(b"/copy1").unwrap();
    empty(&zpl, copy1);
    let after_rm = check(&pool);
    assert!(after_rm < begin - 5, "{after_rm} of {begin} pointers are left");
    let used = pool.view().dedup().unwrap().total().blocks;

    // files are written over, and cut off
    let zpl = open(&pool, "t_dedup/sha512-verify");
    let copy1 = zpl.resolve(b"/copy1").unwrap();
    for (i, (_, ino)) in names_in(&zpl, copy1).into_iter().enumerate() {
        let stat = zpl.stat(ino).unwrap();
        if stat.kind == zpl::FileKind::File && stat.size > 1000 {
            let file = zpl.open_file(ino).unwrap();
            match i % 2 {
                0 => drop(file.write(500, b"other bytes").unwrap()),
                _ => file.allocate(zpl::Allocate::PunchHole, 0, stat.size).unwrap(),
            }
        }
    }
    let after_write = check(&pool);
    assert!(after_write < after_rm, "{after_write}");

    // a file system goes, in groups of their own
    pool.destroy_dataset("t_dedup/skein").unwrap();
    let after_destroy = check(&pool);
    assert!(after_destroy < after_write, "{after_destroy}");
    assert!(pool.view().dedup().unwrap().total().blocks < used, "blocks without pointers are freed");
    pool.close(PoolState::Exported).unwrap();
    drop((zpl, pool));
    judge(dir.path());

    // the last pointers go, and the tables with them
    let pool = import(dir.path());
    for name in ["sha256", "sha512-verify"] {
        let zpl = open(&pool, &format!("t_dedup/{name}"));
        empty(&zpl, zpl.root());
    }
    assert_eq!(check(&pool), 0);
    let names: Vec<String> = pool::object_directory(pool.view().mos())
        .unwrap()
        .entries()
        .unwrap()
        .iter()
        .map(|e| e.name.to_string())
        .collect();
    assert!(!names.iter().any(|name| name.starts_with("DDT-sha")), "{names:?}");
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    judge(dir.path());
}

/// The first device of a case of the corpus.
pub(crate) fn sparse(case: &str) -> SparseDevice {
    let image = &corpus::case(case).load()[0];
    let device = SparseDevice::new("disk", image.size());
    let (mut chunk, bytes) = (AlignedBuf::zeroed(1 << 20), image.size());
    for at in (0..bytes).step_by(chunk.len()) {
        image.read_at(at, &mut chunk).unwrap();
        if chunk.iter().any(|&byte| byte != 0) {
            device.write_at(at, &chunk).unwrap();
        }
    }
    device
}

/// Whenever the power is cut, the tables are what the pool has.
#[test]
fn a_power_cut_between_frees() {
    let recording = Recording::new(vec![sparse("dedup")]);
    let pool = import_device(recording.devices()[0].clone());
    let begin = recording.len();
    let pointers = check(&pool);
    for name in ["sha256", "skein", "sha512-verify"] {
        let zpl = open(&pool, &format!("t_dedup/{name}"));
        for (name, ino) in names_in(&zpl, zpl.root()) {
            if zpl.stat(ino).unwrap().kind == zpl::FileKind::Directory {
                empty(&zpl, ino);
                zpl.reclaim(zpl.rmdir(zpl.root(), &name).unwrap()).unwrap();
                pool.sync().unwrap();
            }
        }
    }
    let end = recording.len();
    drop(pool);
    let (mut rng, mut left) = (Rng::new(11), std::collections::BTreeSet::new());
    for _ in 0..12 {
        let at = begin + rng.below((end - begin) as u64) as usize;
        let device: Arc<dyn Device> = Arc::new(recording.cut(at, &mut rng, Loss::Some).remove(0));
        let found = candidate(std::slice::from_ref(&device)).unwrap();
        left.insert(check_view(&Pool::open(&Env::real(), &found, &options()).unwrap()));
        // and it goes on from there
        let pool = import_device(device);
        let zpl = open(&pool, "t_dedup/skein");
        empty(&zpl, zpl.root());
        assert!(check(&pool) <= pointers);
    }
    assert!(left.len() > 2 && left.first() < Some(&pointers), "{left:?} of {pointers} pointers were left");
}
