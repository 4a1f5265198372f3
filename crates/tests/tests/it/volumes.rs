//! Volumes and power cuts: what was flushed is there, and all else is what it was at some moment since.
//!
//! ```text
//!   write, discard, zero, flush, groups ─▶ volume ─▶ recording: w w f w ...
//!       └▶ model: of each sector, who wrote it when     │ cut here; import, replay
//!                                                       ▼
//!                        each sector holds what it had at the last flush before the cut, or was given after it
//! ```
//!
//! More cuts: `CENOTE_CRASH_CUTS=2000 CENOTE_CRASH_SEED=7`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use base::{Env, Result};
use device::Device;
use pool::{LivePool, PoolState};
use testkit::recording::{Loss, Recording};
use testkit::rng::Rng;
use testkit::sparse::SparseDevice;
use testkit::workload::{PoolLayout, Workload, candidate, options};
use zvol::{NewVolume, Zvol, create_volume};

use crate::crash::check;

const NAME: &str = "live/vol";
const SECTOR: u64 = 512;
const VOLUME_BYTES: u64 = 2 << 20;
const DEVICE_BYTES: u64 = 64 << 20;
/// Operations of a workload, and cuts of it if nobody asks for more.
const OPERATIONS: usize = 250;
const CUTS_QUICK: u64 = 40;

/// A change of sectors, which hold its number from then on, or zeros.
struct Change {
    sectors: std::ops::Range<u64>,
    tag: u32,
    /// Writes and flushes when it began.
    began: usize,
}

/// What was done to a volume.
struct VolumeHistory {
    recording: Arc<Recording>,
    /// From here on, the volume is on disk.
    born: usize,
    changes: Vec<Change>,
    /// Writes and flushes when something had been flushed, and how many changes that were.
    flushed: Vec<(usize, usize)>,
}

fn open(pool: &Arc<LivePool>) -> Zvol {
    open_with(pool, || {})
}

/// Opens the volume; `before` is called before each operation.
fn open_with(pool: &Arc<LivePool>, before: impl Fn() + Send + Sync + 'static) -> Zvol {
    let id = pool.view().dsl().find(NAME).unwrap().id;
    let head = pool.open_head(id).unwrap();
    head.log().reopen();
    let room = head.clone();
    let admit = Box::new(move |bytes, frees| {
        before();
        room.admit(bytes, frees)
    });
    Zvol::open_writable(head.objset(), pool.txgs().clone(), head.log().clone(), admit).unwrap()
}

fn record(layout: PoolLayout, seed: u64, block_size: u64) -> VolumeHistory {
    let disks = (0..layout.devices()).map(|number| SparseDevice::new(format!("disk{number}"), DEVICE_BYTES));
    let recording = Recording::new(disks.collect());
    let devices: Vec<Arc<dyn Device>> = recording.devices().into_iter().map(|disk| disk as Arc<dyn Device>).collect();
    let mut rng = Rng::new(seed);
    let load = Workload::create(&Env::fixed(1000), layout, &devices, rng.number()).unwrap();
    let compression = *rng.pick(&["off", "lz4"]);
    let properties = [("volsize", VOLUME_BYTES.to_string()), ("volblocksize", block_size.to_string())];
    let dedup = *rng.pick(&["off", "on", "verify"]);
    let others = [("compression", compression.to_owned()), ("dedup", dedup.to_owned())];
    let properties = properties.into_iter().chain(others);
    let properties = properties.map(|(name, value)| (name.to_owned(), value)).collect();
    let new = NewVolume { size: VOLUME_BYTES, block_size, salt: 5 };
    load.pool.create_volume(NAME, properties, move |objset, tx, _| create_volume(objset, tx, &new)).unwrap();
    let volume = open(&load.pool);
    let mut history = VolumeHistory { born: recording.len(), recording, changes: Vec::new(), flushed: Vec::new() };
    history.flushed.push((history.born, 0));
    for _ in 0..OPERATIONS {
        step(&volume, &load.pool, &mut rng, &mut history).unwrap();
    }
    history
}

fn step(volume: &Zvol, pool: &LivePool, rng: &mut Rng, history: &mut VolumeHistory) -> Result<()> {
    let sectors = VOLUME_BYTES / SECTOR;
    let begin = rng.below(sectors);
    let most = *rng.pick(&[4, 64, 300]);
    let len = (1 + rng.below(most)).min(sectors - begin);
    let (offset, bytes) = (begin * SECTOR, len * SECTOR);
    let (began, lasts) = (history.recording.len(), rng.below(6) == 0);
    let tag = history.changes.len() as u32 + 1;
    let mut note = |sectors, tag| history.changes.push(Change { sectors, tag, began });
    match rng.below(10) {
        0 => {
            // only whole blocks go
            let block = volume.block_size() / SECTOR;
            let whole = begin.next_multiple_of(block)..(begin + len) / block * block;
            note(whole.start..whole.end.max(whole.start), 0);
            volume.discard(offset, bytes, lasts)?;
        }
        1 => {
            note(begin..begin + len, 0);
            volume.zero(offset, bytes, lasts)?;
        }
        2 => volume.flush()?,
        3 => pool.sync()?,
        _ => {
            note(begin..begin + len, tag);
            let data: Vec<u8> = tag.to_le_bytes().repeat(bytes as usize / 4);
            volume.write(offset, (&data[..]).into(), lasts)?;
            if !lasts && rng.below(4) > 0 {
                return Ok(());
            }
            volume.flush()?;
        }
    }
    // discards and zeroes that do not last are flushed, too, so that the model knows
    volume.flush()?;
    history.flushed.push((history.recording.len(), history.changes.len()));
    Ok(())
}

/// What is written while a discard goes on group by group, where it has been already, is no more discarded by the log.
#[test]
fn a_discard_in_portions_is_told_in_portions() {
    const SIZE: u64 = 64 << 20;
    let disk = Arc::new(SparseDevice::new("disk0", DEVICE_BYTES));
    let load = Workload::create(&Env::fixed(1000), PoolLayout::Single, &[disk.clone() as Arc<dyn Device>], 1).unwrap();
    let properties = [("volsize", SIZE), ("volblocksize", SECTOR), ("refreservation", 0)];
    let properties = properties.map(|(name, value)| (name.to_owned(), value.to_string())).to_vec();
    let new = NewVolume { size: SIZE, block_size: SECTOR, salt: 5 };
    load.pool.create_volume(NAME, properties, move |objset, tx, _| create_volume(objset, tx, &new)).unwrap();
    let (begun, opened) = (Arc::new(AtomicU32::new(0)), Arc::new(OnceLock::<Weak<Zvol>>::new()));
    let volume = {
        let (begun, opened) = (begun.clone(), opened.clone());
        Arc::new(open_with(&load.pool, move || {
            let Some(volume) = opened.get().and_then(Weak::upgrade) else { return };
            // the second step of the discard: the first has freed the end
            if begun.fetch_add(1, Ordering::SeqCst) == 1 {
                volume.write(SIZE - SECTOR, (&[7; SECTOR as usize][..]).into(), false).unwrap();
            }
        }))
    };
    for at in (0..SIZE).step_by(512 << 10) {
        volume.write(at + SECTOR, (&[1; SECTOR as usize][..]).into(), false).unwrap();
    }
    // the first flush waits for its group, and starts the log
    volume.flush().unwrap();
    opened.set(Arc::downgrade(&volume)).unwrap();
    volume.discard(0, SIZE, false).unwrap();
    assert!(begun.load(Ordering::SeqCst) > 2, "it goes by portions");
    volume.flush().unwrap();
    let left: Vec<Arc<dyn Device>> = vec![Arc::new(disk.copy())];
    let pool = LivePool::import(&Env::fixed(5000), &candidate(&left).unwrap(), &options(), (7, "here".into())).unwrap();
    let volume = open(&pool);
    assert!(volume.replay_log().unwrap().records > 2);
    let holds = |at| volume.read(at, 1, false).unwrap()[0][0];
    assert_eq!((holds(SIZE - SECTOR), holds(SECTOR), holds(SIZE / 2 + SECTOR)), (7, 0, 0));
}

/// Cuts the power and says what is wrong then.
fn judge(history: &VolumeHistory, at: usize, rng: &mut Rng, loss: Loss) -> std::result::Result<u64, String> {
    let mut player = history.recording.play();
    player.advance(at);
    let left = player.cut(rng, loss);
    let left: Vec<Arc<dyn Device>> = left.into_iter().map(|disk| Arc::new(disk) as Arc<dyn Device>).collect();
    let found = candidate(&left).map_err(|e| e.to_string())?;
    let pool =
        LivePool::import(&Env::fixed(5000), &found, &options(), (7, "here".into())).map_err(|e| e.to_string())?;
    let volume = open(&pool);
    let replayed = volume.replay_log().map_err(|e| format!("replay: {e}"))?;
    let contents: Vec<u8> = volume
        .read(0, VOLUME_BYTES as usize, false)
        .map_err(|e| e.to_string())?
        .iter()
        .flat_map(|piece| piece.to_vec())
        .collect();
    let promised = history.flushed.iter().rev().find(|(flushed, _)| *flushed <= at).map_or(0, |(_, changes)| *changes);
    for (sector, bytes) in (0u64..).zip(contents.chunks_exact(SECTOR as usize)) {
        let tags: Vec<u32> = bytes.chunks_exact(4).map(|tag| u32::from_le_bytes(tag.try_into().unwrap())).collect();
        let has = |change: &&Change| change.sectors.contains(&sector);
        let sure = history.changes[..promised].iter().rev().find(has).map_or(0, |change| change.tag);
        let later = history.changes[promised..].iter().filter(has).filter(|change| change.began <= at);
        let allowed: Vec<u32> = later.map(|change| change.tag).chain([sure]).collect();
        if tags.iter().any(|tag| *tag != tags[0]) || !allowed.contains(&tags[0]) {
            return Err(format!("sector {sector} holds {:?}, not one of {allowed:?}", &tags[..2]));
        }
    }
    drop(volume);
    pool.close(PoolState::Exported).map_err(|e| e.to_string())?;
    check(&pool.view(), false)?;
    Ok(replayed.records)
}

#[test]
fn volumes_survive_power_cuts() {
    let number = |name: &str, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (cuts, seed) = (number("CENOTE_CRASH_CUTS", CUTS_QUICK), number("CENOTE_CRASH_SEED", 1));
    let mut replayed = 0;
    let cases = [(PoolLayout::Single, 8 << 10), (PoolLayout::Single, 64 << 10), (PoolLayout::Mirror, 512)];
    for (case, (layout, block_size)) in (0u64..).zip(cases) {
        let history = record(layout, seed + case, block_size);
        let mut rng = Rng::new(seed ^ case << 32);
        for _ in 0..cuts / cases.len() as u64 {
            let at = history.born + rng.below((history.recording.len() - history.born) as u64 + 1) as usize;
            let loss = *rng.pick(&[Loss::Nothing, Loss::Everything, Loss::Some, Loss::Torn, Loss::Sectors]);
            match judge(&history, at, &mut rng, loss) {
                Ok(records) => replayed += records,
                Err(why) => panic!("layout {layout:?}, blocks of {block_size}, seed {seed}, cut at {at}: {why}"),
            }
        }
    }
    assert!(replayed > 20, "only {replayed} records of logs were replayed");
}
