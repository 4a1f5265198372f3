//! Receiving while other things are asked for, at the moments when that is hard.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use base::{Env, Kind, Mutex};
use dsl::receive::StreamReader;
use dsl::send::{SendFlags, StreamWriter};
use format::ids::DatasetId;
use format::stream::{RecordFields, StreamEmbedded, StreamFeatures, StreamRecord};
use pool::{LivePool, NewVdevShape};
use testkit::streams::{ReceiveFlags, begin, receive, send};

use super::live::{make_fs, new_pool};

type Act = Box<dyn FnOnce(&Arc<LivePool>) + Send>;

/// Does something beside a group, when that comes to a place; the group waits until it has had time.
#[derive(Default)]
struct Beside {
    pool: OnceLock<Weak<LivePool>>,
    act: Mutex<Option<(&'static str, Act)>>,
    /// Times that the place is passed before.
    passes: AtomicUsize,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Beside {
    fn env(self: &Arc<Beside>) -> Env {
        let own = self.clone();
        Env::real().with_failpoints(move |place| {
            own.reach(place);
            false
        })
    }

    /// After so many passes, `act` is done at `place`.
    fn arm(&self, place: &'static str, passes: usize, act: impl FnOnce(&Arc<LivePool>) + Send + 'static) {
        self.passes.store(passes, Ordering::Relaxed);
        *self.act.lock() = Some((place, Box::new(act)));
    }

    fn reach(&self, place: &str) {
        let mut armed = self.act.lock();
        if armed.as_ref().is_none_or(|(wanted, _)| *wanted != place) {
            return;
        }
        if self.passes.load(Ordering::Relaxed) > 0 {
            self.passes.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let (_, act) = armed.take().unwrap();
        let pool = self.pool.get().unwrap().upgrade().unwrap();
        *self.thread.lock() = Some(spawn(move || act(&pool)));
        sleep(Duration::from_millis(300));
    }

    fn join(&self) {
        let thread = self.thread.lock().take();
        thread.expect("the place was reached").join().unwrap();
    }
}

/// A pool without a thread of its own, which has a file system with two snapshots, and what is done beside its groups.
fn pool_with_snapshots(dir: &std::path::Path) -> (Arc<LivePool>, Arc<Beside>) {
    let beside = Arc::new(Beside::default());
    let (new, devices) = new_pool(dir, NewVdevShape::Single, 1);
    let pool = LivePool::create(&beside.env(), &new, &devices, |set, tx, _| make_fs(set, tx, 7)).unwrap();
    beside.pool.set(Arc::downgrade(&pool)).unwrap();
    pool.create_dataset("live/a", Vec::new(), |set, tx, _| make_fs(set, tx, 8)).unwrap();
    take(&pool, "live/a@1");
    change(&pool, "live/a");
    take(&pool, "live/a@2");
    (pool, beside)
}

fn take(pool: &LivePool, name: &str) {
    assert!(pool.snapshot(&[name.to_owned()], &[]).unwrap().is_empty());
}

fn change(pool: &Arc<LivePool>, name: &str) {
    let head = pool.open_head(pool.view().dsl().find(name).unwrap().id).unwrap();
    let zpl =
        zpl::Zpl::open_writable(head.objset().clone(), pool.txgs().clone(), Env::real(), Default::default(), None);
    let zpl = zpl.unwrap();
    let new = zpl::New { kind: zpl::NewKind::File, mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let ino = zpl.create(zpl.root(), b"new", &new).unwrap().ino;
    zpl.open_file(ino).unwrap().write(0, b"contents").unwrap();
}

fn snapshots(pool: &LivePool, name: &str) -> Vec<String> {
    let view = pool.view();
    let all = view.dsl().snapshots(&view.dsl().find(name).unwrap()).unwrap();
    all.into_iter().map(|one| one.name.split_once('@').unwrap().1.to_owned()).collect()
}

/// Somebody takes a snapshot in the group in which a head gets what was received for it: that has its own snapshot, and
/// the other one comes after it.
#[test]
fn the_snapshot_of_a_receive_is_the_first_of_its_group() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, beside) = pool_with_snapshots(dir.path());
    let whole = send(&pool, "live/a@1", None, SendFlags::default()).unwrap();
    receive(&pool, "live/b@1", &whole, ReceiveFlags::default()).unwrap();
    let rest = send(&pool, "live/a@2", Some("live/a@1"), SendFlags::default()).unwrap();
    let (receiving, came) = begin(&pool, "live/b@2", &rest, ReceiveFlags::default()).unwrap();
    came.unwrap();
    // the first group brings what came to disk, the second one ends the receive
    beside.arm("group closed", 1, |pool| take(pool, "live/b@other"));
    receiving.finish().unwrap();
    beside.join();
    assert_eq!(snapshots(&pool, "live/b"), ["1", "2", "other"]);
    let view = pool.view();
    let guid = |name: &str| view.dsl().find(name).unwrap().phys.guid;
    assert_eq!(guid("live/b@2"), guid("live/a@2"));
    assert!(view.dsl().find_dir("live/b/%recv").is_err());
    crate::crash::check(&view, false).unwrap();
}

/// A head that is being received into gets another name: what came is there under that.
#[test]
fn what_is_renamed_during_a_receive_gets_what_came() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, _) = pool_with_snapshots(dir.path());
    let whole = send(&pool, "live/a@1", None, SendFlags::default()).unwrap();
    let (receiving, came) = begin(&pool, "live/b@1", &whole, ReceiveFlags::default()).unwrap();
    came.unwrap();
    pool.rename_dataset("live/b", "live/c").unwrap();
    receiving.finish().unwrap();
    let rest = send(&pool, "live/a@2", Some("live/a@1"), SendFlags::default()).unwrap();
    let (receiving, came) = begin(&pool, "live/c@2", &rest, ReceiveFlags::default()).unwrap();
    came.unwrap();
    assert_eq!(pool.destroy_dataset("live/c/%recv").unwrap_err().kind(), Kind::Busy);
    pool.rename_dataset("live/c", "live/d").unwrap();
    receiving.finish().unwrap();
    assert_eq!(snapshots(&pool, "live/d"), ["1", "2"]);
    crate::crash::check(&pool.view(), false).unwrap();
}

/// What goes on is neither taken away nor begun again; what was interrupted is.
#[test]
fn a_receive_that_goes_on_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, _) = pool_with_snapshots(dir.path());
    let whole = send(&pool, "live/a@1", None, SendFlags::default()).unwrap();
    let rest = send(&pool, "live/a@2", Some("live/a@1"), SendFlags::default()).unwrap();
    let flags = ReceiveFlags { resumable: true, ..ReceiveFlags::default() };
    for (target, stream) in [("live/b@1", &whole), ("live/b@2", &rest)] {
        let (receiving, came) = begin(&pool, target, stream, flags).unwrap();
        came.unwrap();
        pool.sync().unwrap();
        assert_eq!(pool.abort_receive("live/b").unwrap_err().kind(), Kind::Busy);
        let again = begin(&pool, target, stream, flags).map(drop).unwrap_err().kind();
        assert!(matches!(again, Kind::Busy | Kind::Exists), "{again:?}");
        let name = if target.ends_with('1') { "live/b" } else { "live/b/%recv" };
        let id = pool.view().dsl().find(name).unwrap().id;
        assert_eq!(pool.keep_snapshots(&[id], &[]).map(drop).unwrap_err().kind(), Kind::Busy);
        drop(receiving);
        let kept = pool.keep_snapshots(&[id], &[]).unwrap();
        assert_eq!(pool.abort_receive("live/b").unwrap_err().kind(), Kind::Busy);
        drop(kept);
        pool.abort_receive("live/b").unwrap();
        assert_eq!(pool.abort_receive("live/b").unwrap_err().kind(), Kind::NotFound);
        receive(&pool, target, stream, flags).unwrap();
    }
    assert_eq!(snapshots(&pool, "live/b"), ["1", "2"]);
    crate::crash::check(&pool.view(), false).unwrap();
}

/// A snapshot whose destruction is on its way to disk is not there any more for who has kept it.
#[test]
fn a_snapshot_is_kept_or_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, beside) = pool_with_snapshots(dir.path());
    let id = pool.view().dsl().find("live/a@1").unwrap().id;
    let seen = Arc::new(Mutex::new(None));
    let told = seen.clone();
    beside.arm("labels written", 0, move |pool| {
        let _kept = pool.keep_snapshots(&[id], &[]).unwrap();
        *told.lock() = Some(pool.view().dsl().find("live/a@1").is_ok());
    });
    assert!(pool.destroy_snapshots(&["live/a@1".to_owned()], false).unwrap().is_empty());
    beside.join();
    assert_eq!(*seen.lock(), Some(false));
    let id = pool.view().dsl().find("live/a@2").unwrap().id;
    let _kept = pool.keep_snapshots(&[id], &[]).unwrap();
    let refused = pool.destroy_snapshots(&["live/a@2".to_owned()], false).unwrap();
    assert_eq!(refused[0].1.kind(), Kind::Busy);
}

/// One whose destruction waits for a hold or a clone goes with that, but not while it is kept; the history has it.
#[test]
fn a_snapshot_that_is_kept_goes_with_no_hold_or_clone() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, _) = pool_with_snapshots(dir.path());
    let id_of = |name: &str| pool.view().dsl().find(name).map(|dataset| dataset.id);
    let (held, cloned) = (id_of("live/a@1").unwrap(), id_of("live/a@2").unwrap());
    let holds = ["x", "y"].map(|tag| ("live/a@1".to_owned(), tag.to_owned()));
    assert!(pool.hold(&holds).unwrap().is_empty());
    pool.clone_snapshot("live/a@2", "live/clone", &[]).unwrap();
    let names = ["live/a@1", "live/a@2"].map(str::to_owned);
    assert!(pool.destroy_snapshots(&names, true).unwrap().is_empty());

    let kept = pool.keep_snapshots(&[held, cloned], &[]).unwrap();
    assert!(pool.release(&holds[..1]).unwrap().is_empty());
    let refused = pool.release(&holds[1..]).unwrap();
    assert_eq!((refused.len(), refused[0].1.kind()), (1, Kind::Busy));
    assert_eq!(pool.destroy_dataset("live/clone").unwrap_err().kind(), Kind::Busy);
    assert_eq!(snapshots(&pool, "live/a"), ["1", "2"]);

    drop(kept);
    assert!(pool.release(&holds[1..]).unwrap().is_empty());
    pool.destroy_dataset("live/clone").unwrap();
    assert!(snapshots(&pool, "live/a").is_empty());
    let gone = pool.view().history().unwrap().map(|record| record.unwrap()).filter_map(|record| {
        let is_it = record.opt_str("internal_name") == Some("destroy");
        record.opt_u64("dsid").filter(|_| is_it).map(DatasetId::new)
    });
    let gone: Vec<DatasetId> = gone.collect();
    assert!(gone.contains(&held) && gone.contains(&cloned), "{gone:?}");
    crate::crash::check(&pool.view(), false).unwrap();
}

/// OpenZFS 2.4 sends a spill block that is embedded in its pointer as embedded data, at an offset that wraps around.
#[test]
fn a_spill_block_may_come_as_embedded_data() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, _) = pool_with_snapshots(dir.path());
    let set = pool.open_head(pool.view().dsl().find("live/a").unwrap().id).unwrap().objset().clone();
    let zpl = zpl::Zpl::open(set.clone()).unwrap();
    let ino = zpl.lookup(zpl.root(), b"new").unwrap();
    let mut spill = vec![0; 512];
    spill[0] = 7;
    {
        let tx = pool.txgs().begin().unwrap();
        set.object(ino).unwrap().set_spill(&tx, Some(&spill)).unwrap();
    }
    take(&pool, "live/a@spill");
    let sent = send(&pool, "live/a@spill", None, SendFlags::default()).unwrap();
    // two literals, 505 times the last one, five literals; their number of bytes before
    let packed = [0, 0, 0, 13, 0x2f, 7, 0, 1, 0, 255, 231, 0x50, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let (mut stream, bytes, mut spills) = (Vec::new(), AtomicU64::new(0), 0);
    let mut from = &sent[..];
    let mut reader = StreamReader::new(&mut from);
    let mut writer = StreamWriter::new(&mut stream, &bytes);
    let (mut begin, to_guid, _) = reader.begin().unwrap().unwrap();
    begin.features = begin.features.with(StreamFeatures::EMBED_DATA).with(StreamFeatures::LZ4);
    let record = |fields| StreamRecord { fields, to_guid, sum: [0; 4] };
    writer.record(record(RecordFields::Begin(begin)), &[]).unwrap();
    loop {
        let part = reader.record().unwrap();
        match part.record.fields {
            RecordFields::End { .. } => break,
            RecordFields::Spill(one) => {
                spills += 1;
                let offset = 0u64.wrapping_sub(2 * one.len);
                let (object, len, lsize) = (one.object, one.len, one.len as u32);
                let fields = StreamEmbedded { object, offset, len, compress: 15, kind: 0, lsize, psize: 17 };
                writer.record(record(RecordFields::Embedded(fields)), &packed).unwrap();
            }
            fields => writer.record(record(fields), &part.payload).unwrap(),
        }
    }
    writer.finish(to_guid).unwrap();
    assert_eq!(spills, 1);
    receive(&pool, "live/b@spill", &stream, ReceiveFlags::default()).unwrap();
    let view = pool.view();
    let came = view.dsl().objset(&view.dsl().find("live/b@spill").unwrap(), dmu::Mode::Plain).unwrap();
    let object = came.object(ino).unwrap();
    assert_eq!(object.spill().unwrap().as_deref(), Some(&spill[..]));
    assert_eq!(object.dnode().block_max, 0);
}
