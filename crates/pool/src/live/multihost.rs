//! Property `multihost`: heartbeats, by which other hosts see that the pool is in use.
//!
//! ```text
//!   thread `mmp`   one leaf after the other, but for those that are busy with their last heartbeat
//!   a thread each  is the last heartbeat still there? ─▶ the next one
//!                     └── another host's   └── none got through for too long ──▶ lost
//!   the syncer     before a group, and before its uberblock: lost, or overdue? ──▶ suspended
//!   zpool clear    does another host use it? ──▶ goes on
//! ```
//!
//! A heartbeat is the uberblock in force with the time of day and a number that grows within the second, in the last
//! slot of a ring. How long the pool may be without one is in every uberblock: an import of it waits for
//! longer ([`crate::activity`]). So a process that was stopped for longer must not write an uberblock when it goes on,
//! and does not: it looks at its clock first.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{Condvar, Env, Error, Kind, Mutex, Result};
use dsl::PropertyValue;
use format::ids::{Guid, Txg};
use format::uberblock::{Mmp, Uberblock};
use vdev::{Tree, label};

use super::events::EIO;
use super::heartbeats::{HeartbeatHistory, HeartbeatPlace, HeartbeatRecord, SKIPPED_ALL_BUSY, SKIPPED_NO_LEAF};
use super::suspension::Suspension;
use crate::activity::{self, fail_intervals, interval_ms};
use crate::discover::uberblocks_of;

/// The heartbeats of a pool.
pub(super) struct Multihost {
    env: Env,
    /// Weak, as the thread that beats may outlive the pool.
    tree: Weak<Tree>,
    suspension: Arc<Suspension>,
    is_on: AtomicBool,
    has_thread: AtomicBool,
    heart: Mutex<Heart>,
    changed: Condvar,
    /// A heartbeat is over.
    is_quiet: Condvar,
    history: Mutex<HeartbeatHistory>,
}

#[derive(Default)]
struct Heart {
    /// The uberblock in force, as the last heartbeat had it.
    uberblock: Option<Uberblock>,
    /// What was tried to be written since: it may be on a device, whatever the device said.
    tried: Vec<Uberblock>,
    /// Number of the next heartbeat within the second.
    seq: u64,
    /// When an uberblock was last written, by [`Env::ticks_ns`].
    last_ns: u64,
    /// About how far they are apart.
    delay_ns: u64,
    /// How many there were: whose turn it is.
    count: usize,
    /// By guid of the leaf: label and content of its last heartbeat.
    left: HashMap<Guid, (usize, Uberblock)>,
    /// Leaves to which one is being written.
    busy: HashSet<Guid>,
    /// Why the pool may be another host's by now.
    lost: Option<&'static str>,
    is_beating: bool,
    ends: bool,
}

/// A heartbeat that is to be written.
#[derive(Clone)]
struct Heartbeat {
    leaf: Guid,
    label: usize,
    next: Uberblock,
    /// Label and content of the last one of that leaf.
    before: Option<(usize, Uberblock)>,
    /// How many leaves take turns.
    leaves: usize,
    /// Its number in the history.
    record: u64,
}

/// Uberblocks that failed to be written, of which any may be the newest on disk: the last ones.
const TRIED_MAX: usize = 256;

/// Why a pool is lost.
const DELAYED: &str = "multihost writes failed or were delayed";
const FOREIGN: &str = "another host has written to it";

impl Multihost {
    /// For a pool with those stored properties.
    pub(super) fn new(
        env: &Env,
        tree: &Arc<Tree>,
        suspension: &Arc<Suspension>,
        properties: &[(String, PropertyValue)],
    ) -> Multihost {
        let multihost = Multihost {
            env: env.clone(),
            tree: Arc::downgrade(tree),
            suspension: suspension.clone(),
            is_on: AtomicBool::default(),
            has_thread: AtomicBool::default(),
            heart: Mutex::default(),
            changed: Condvar::default(),
            is_quiet: Condvar::default(),
            history: Mutex::default(),
        };
        properties.iter().for_each(|(name, value)| multihost.note_property(name, value));
        multihost
    }

    /// A property of the pool is set.
    pub(super) fn note_property(&self, name: &str, value: &PropertyValue) {
        if name != "multihost" {
            return;
        }
        let mut heart = self.heart.lock();
        self.is_on.store(matches!(value, PropertyValue::Number(1)), Ordering::Relaxed);
        heart.start(&self.env);
        self.changed.notify_all();
    }

    fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// What the next uberblock says of it.
    pub(super) fn fields(&self) -> Mmp {
        match self.is_on() {
            false => Mmp::default(),
            true => self.fields_with(self.heart.lock().delay_ns, 0),
        }
    }

    fn fields_with(&self, delay_ns: u64, seq: u64) -> Mmp {
        Mmp {
            delay_ns: delay_ns.max(1),
            interval_ms: Some(interval_ms(&self.env)),
            seq: Some(seq),
            fail_intervals: Some(fail_intervals(&self.env)),
        }
    }

    /// Asked before an uberblock is written. Errors: `Io` if the pool may be another host's by now.
    pub(super) fn allow(&self, uberblock: &Uberblock) -> Result<()> {
        self.check()?;
        self.heart.lock().tries(uberblock);
        Ok(())
    }

    /// A group's uberblock is on disk.
    pub(super) fn synced(&self, uberblock: &Uberblock, leaves: usize) {
        let mut heart = self.heart.lock();
        heart.seq = 1;
        heart.has_written(uberblock, &self.env, leaves);
    }

    /// Why the pool may be another host's, if it may.
    pub(super) fn lost(&self) -> Option<&'static str> {
        self.heart.lock().lost
    }

    /// Asked before a group is synced. Errors: `Io` if the pool may be another host's by now.
    pub(super) fn check(&self) -> Result<()> {
        let mut heart = self.heart.lock();
        if self.is_on()
            && self.has_thread.load(Ordering::Relaxed)
            && heart.lost.is_none()
            && heart.is_overdue(&self.env)
        {
            heart.lost = Some(DELAYED);
        }
        heart.lost.map_or(Ok(()), |why| Err(Error::new(Kind::Io, why)))
    }

    /// Nobody else has the pool: heartbeats go on.
    fn forgive(&self) {
        let mut heart = self.heart.lock();
        heart.lost = None;
        heart.start(&self.env);
        self.changed.notify_all();
    }

    /// No heartbeat begins any more.
    pub(super) fn stop(&self) {
        self.heart.lock().ends = true;
        self.changed.notify_all();
    }

    /// No heartbeat is written any more when this returns.
    pub(super) fn end(&self) {
        self.stop();
        let mut heart = self.heart.lock();
        while heart.is_beating || !heart.busy.is_empty() {
            heart = self.is_quiet.wait(heart);
        }
    }

    /// Starts the thread that writes heartbeats if the pool is guarded.
    pub(super) fn guard(self: &Arc<Self>) {
        if !self.is_on() || self.has_thread.swap(true, Ordering::Relaxed) {
            return;
        }
        self.heart.lock().start(&self.env);
        let beating = Arc::downgrade(self);
        let started = self.env.spawn("mmp", move || beat_on(&beating));
        self.has_thread.store(started, Ordering::Relaxed);
    }

    /// Begins a heartbeat on the leaf whose turn it is. One that hangs does not keep the others from theirs.
    fn beat(self: &Arc<Self>, tree: &Arc<Tree>) {
        let Some(heartbeat) = self.next_heartbeat(tree) else { return };
        let (multihost, tree) = (self.clone(), tree.clone());
        let write = move || multihost.write(&tree, &heartbeat);
        if !self.env.spawn("heartbeat", write.clone()) {
            write();
        }
    }

    /// What to write, and where; `None` if there is nothing to write, or no leaf that could take it.
    fn next_heartbeat(&self, tree: &Tree) -> Option<Heartbeat> {
        let leaves = tree.hearts();
        let is_suspended = self.suspension.is_suspended();
        let mut heart = self.heart.lock();
        if is_suspended && heart.lost.is_none() {
            // devices have failed: when it is resumed, it is looked whether another host has it
            heart.last_ns = self.env.ticks_ns();
            return None;
        }
        let uberblock = heart.uberblock.as_ref()?;
        let txg = uberblock.txg;
        let free = (0..leaves.len()).find(|after| !heart.busy.contains(&leaves[(heart.count + after) % leaves.len()]));
        let Some(after) = free else {
            let why = if leaves.is_empty() { SKIPPED_NO_LEAF } else { SKIPPED_ALL_BUSY };
            let record = HeartbeatRecord { error: why, ..self.record(txg, heart.delay_ns) };
            self.history.lock().add(&self.env, record);
            return None;
        };
        let turn = heart.count + after;
        let leaf = leaves[turn % leaves.len()];
        let now_s = self.env.now_s();
        let seq = if uberblock.timestamp_s == now_s { heart.seq } else { 1 };
        let mmp = Some(self.fields_with(heart.delay_ns, seq));
        let next = Uberblock { timestamp_s: now_s, mmp, ..uberblock.clone() };
        (heart.seq, heart.count) = (seq + 1, turn + 1);
        heart.tries(&next);
        heart.busy.insert(leaf);
        let label = (self.env.random() % label::COUNT as u64) as usize;
        let path = tree.leaf(leaf).map(|leaf| leaf.name().to_owned()).unwrap_or_default();
        let place = HeartbeatPlace { leaf, label, path };
        let record = HeartbeatRecord { place: Some(place), ..self.record(txg, heart.delay_ns) };
        let record = self.history.lock().add(&self.env, record);
        Some(Heartbeat { leaf, label, next, before: heart.left.get(&leaf).cloned(), leaves: leaves.len(), record })
    }

    fn record(&self, txg: Txg, delay_ns: u64) -> HeartbeatRecord {
        HeartbeatRecord { id: 0, txg, time_s: self.env.now_s(), error: 0, duration_ns: 0, delay_ns, place: None }
    }

    /// Writes a heartbeat, and notes what came of it.
    fn write(&self, tree: &Tree, heartbeat: &Heartbeat) {
        let Heartbeat { leaf, label, next, before, leaves, record } = heartbeat;
        let begun_ns = self.env.ticks_ns();
        let found = before.as_ref().and_then(|(at, ours)| Some((ours, tree.read_heartbeat(*leaf, *at).ok()??)));
        let is_foreign = found.is_some_and(|(ours, now)| self.heart.lock().is_foreign(ours, &now));
        let written = if is_foreign { Ok(()) } else { tree.write_heartbeat(*leaf, *label, next) };
        let duration_ns = self.env.ticks_ns().saturating_sub(begun_ns);
        self.history.lock().finish(*record, duration_ns, written.as_ref().map_or(EIO, |()| 0));
        let mut heart = self.heart.lock();
        match written {
            _ if is_foreign => heart.lost = Some(FOREIGN),
            Ok(()) => {
                heart.has_written(next, &self.env, *leaves);
                heart.left.insert(*leaf, (*label, next.clone()));
            }
            Err(error) => tracing::warn!(pool = self.suspension.pool(), "no heartbeat: {error}"),
        }
        heart.busy.remove(leaf);
        drop(heart);
        self.raise_if_lost();
        self.is_quiet.notify_all();
    }

    fn raise_if_lost(&self) {
        if let Some(why) = self.lost().filter(|_| self.is_on() && !self.suspension.is_suspended()) {
            self.suspension.raise(why);
        }
    }

    /// The last heartbeats, as many as are kept.
    pub(super) fn history(&self) -> Vec<HeartbeatRecord> {
        self.history.lock().all(&self.env)
    }

    /// Before a suspended pool goes on: whether another host has it by now. Errors: `Elsewhere`.
    pub(super) fn take_back(&self) -> Result<()> {
        if !self.is_on() || self.suspension.suspended().is_none() {
            return Ok(());
        }
        let lost = || Error::new(Kind::Elsewhere, "pool is imported on a different host");
        let newest = || newest_of(&*self.tree.upgrade()?);
        let now = newest().ok_or_else(|| Error::new(Kind::Io, "no device answers"))?;
        if self.heart.lock().is_beyond_ours(&now) {
            return Err(lost());
        }
        activity::watch(&self.env, &now, &newest).map_err(|_| lost())?;
        self.forgive();
        Ok(())
    }
}

impl Heart {
    fn start(&mut self, env: &Env) {
        self.last_ns = env.ticks_ns();
        self.delay_ns = interval_ms(env) * 1_000_000;
        self.left.clear();
    }

    fn is_overdue(&self, env: &Env) -> bool {
        let fails = fail_intervals(env);
        let since_ns = env.ticks_ns().saturating_sub(self.last_ns);
        fails != 0 && since_ns > fails.saturating_mul(interval_ms(env)).saturating_mul(1_000_000)
    }

    fn tries(&mut self, uberblock: &Uberblock) {
        if self.tried.len() == TRIED_MAX {
            self.tried.remove(0);
        }
        self.tried.push(uberblock.clone());
    }

    /// An uberblock was written. Their distance is a decaying mean, in which long waits show at once.
    fn has_written(&mut self, uberblock: &Uberblock, env: &Env, leaves: usize) {
        // a heartbeat may come later than the next group, or than that of another leaf
        if self.uberblock.as_ref().is_none_or(|current| current.rank() <= uberblock.rank()) {
            self.uberblock = Some(uberblock.clone());
        }
        self.tried.retain(|tried| tried.rank() > uberblock.rank());
        let now_ns = env.ticks_ns();
        let delay_ns = now_ns.saturating_sub(self.last_ns);
        let least_ns = interval_ms(env) * 1_000_000 / leaves.max(1) as u64;
        self.delay_ns = match delay_ns < self.delay_ns {
            true => ((delay_ns + self.delay_ns * 127) / 128).max(least_ns),
            false => delay_ns,
        };
        self.last_ns = now_ns;
    }

    /// Whether what is where we left `ours` is the sign of life of a host that has the pool, too. One that only tries to
    /// import it writes the same uberblock with other numbers, and gives up when it sees our next one.
    fn is_foreign(&self, ours: &Uberblock, now: &Uberblock) -> bool {
        let latest = self.uberblock.as_ref().unwrap_or(ours);
        let has_gone_on = (now.txg, now.timestamp_s) > (latest.txg, latest.timestamp_s);
        let is_another = now.txg == latest.txg && now.rootbp != latest.rootbp;
        !self.is_ours(now) && now.rank() > ours.rank() && (has_gone_on || is_another)
    }

    /// Whether the newest uberblock on disk was not written here; an older one may be all that is left of ours.
    fn is_beyond_ours(&self, now: &Uberblock) -> bool {
        let is_beyond = |ours: &Uberblock| now.rank() > ours.rank() || now.txg == ours.txg && now.rootbp != ours.rootbp;
        !self.is_ours(now) && self.uberblock.as_ref().is_none_or(is_beyond)
    }

    fn is_ours(&self, now: &Uberblock) -> bool {
        self.uberblock.as_ref() == Some(now) || self.tried.contains(now)
    }
}

fn newest_of(tree: &Tree) -> Option<Uberblock> {
    let devices = tree.hearts().into_iter().filter_map(|guid| tree.leaf(guid)?.state().device());
    devices.flat_map(|device| uberblocks_of(device)).max_by_key(Uberblock::rank)
}

/// What the thread does, until the pool is closed or gone.
fn beat_on(multihost: &Weak<Multihost>) {
    loop {
        let Some(multihost) = multihost.upgrade() else { return };
        let Some(tree) = multihost.tree.upgrade() else { return };
        {
            let mut heart = multihost.heart.lock();
            if heart.ends {
                return;
            }
            heart.is_beating = true;
        }
        let is_on = multihost.is_on();
        if is_on && multihost.check().is_ok() {
            multihost.beat(&tree);
        }
        multihost.raise_if_lost();
        let leaves = tree.hearts().len().max(1) as u64;
        let pause = Duration::from_millis((interval_ms(&multihost.env) / leaves).max(1));
        drop(tree);
        let mut heart = multihost.heart.lock();
        heart.is_beating = false;
        multihost.is_quiet.notify_all();
        if heart.ends {
            return;
        }
        // turning it on wakes it; that a pool is dropped it finds out in time
        let pause = if is_on { pause } else { Duration::from_secs(1) };
        drop(multihost.changed.wait_timeout(heart, pause));
    }
}
