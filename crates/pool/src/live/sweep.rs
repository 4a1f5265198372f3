//! Sweeps: all that is free on a leaf is written to once (`zpool initialize`), or its device is told that nobody needs it
//! (`zpool trim`).
//!
//! ```text
//!   each group: free bytes are lent by the allocator ─▶ where they are on the leaf ─▶ written, or discarded ─▶ given back
//!               how far that is goes into the table of the leaf, where OpenZFS goes on with it
//! ```
//!
//! With property `autotrim`, what has become free is lent by itself, every metaslab in its turn; nothing is kept on disk
//! of that.

use std::ops::Range;

use base::{Error, Kind, Result, tunables};
use dmu::zap::Zap;
use format::ids::{Guid, ObjectId, VdevNumber};
use vdev::LeafVdev;
use vdev::spec::TopSpec;

use super::sweeps::{Sweep, SweepAction, SweepKind, SweepState};
use super::{LivePool, SyncContext};

/// Writes that are on their way at once.
const WRITES_AT_ONCE: u64 = 16;
/// Bytes at most of one of them.
const CHUNK_BYTES_MAX: u64 = 16 << 20;
/// Groups at most until it is a metaslab's turn again.
const TURN_TXGS_MAX: u64 = 1 << 20;
/// Milliseconds that a group is held up while somebody waits for it.
const STEP_MS_MIN: u64 = 100;
/// Groups after which all is free that was freed before.
const FREED_GROUPS: u64 = 3;
/// Bytes that have become free for which groups are made, one each `zfs_txg_timeout`: more than these groups free.
const IDLE_TRIM_BYTES: u64 = 16 << 20;
/// Bytes that are discarded to see whether a device can.
const PROBE_BYTES: u64 = 1 << 20;

impl LivePool {
    /// Begins, halts or ends sweeps of leaves, by their guids. Returns what was refused, by guid: `NotFound` if there is
    /// no such leaf, or nothing to be halted; `Invalid` if it is no device that is used; `Busy` if it is swept already;
    /// `Unsupported` if the device, or the pool, cannot. Errors: those of writing.
    pub fn sweep(&self, kind: SweepKind, action: SweepAction, leaves: Vec<Guid>) -> Result<Vec<(Guid, Error)>> {
        let _alone = self.change_vdevs_alone();
        self.run(move |context| {
            let change = |guid: Guid| context.change_sweep(kind, action, guid).err().map(|error| (guid, error));
            Ok(leaves.into_iter().filter_map(change).collect())
        })
    }

    /// Takes up what is on disk of sweeps, and whether what becomes free is trimmed. That a table of a leaf cannot be
    /// read keeps nobody from the pool.
    pub(super) fn load_sweeps(&self) -> Result<()> {
        self.take_up_autotrim()?;
        for leaf in self.tree().leaves() {
            let zap = leaf.vdev().leaf_spec().map_or(ObjectId::NONE, |spec| spec.zap);
            if zap.is_none() {
                continue;
            }
            let table = self.mos().object(zap).and_then(Zap::open);
            match table.and_then(|table| Sweep::read(&table)) {
                Ok(found) => {
                    for (kind, sweep) in found {
                        let cursor = self.tree().address_on_top(leaf, sweep.offset);
                        let pass_start_ns = self.env().ticks_ns();
                        let sweep = Sweep { cursor, pass_start_ns, ..sweep };
                        self.sweeps().lock().by_leaf.insert((kind, leaf.guid()), sweep);
                    }
                }
                Err(error) => tracing::warn!(pool = self.name(), vdev = leaf.name(), "its table is not read: {error}"),
            }
        }
        Ok(())
    }

    /// Whether a step of a sweep would do something.
    pub(super) fn has_sweep_work(&self) -> bool {
        self.sweeps().active().iter().any(|((_, guid), sweep)| self.is_due(*guid, sweep))
    }

    /// Whether devices are to be told of what has become free, also if nothing else happens: of much, until each metaslab
    /// has had its turn.
    pub(super) fn has_much_to_trim(&self) -> bool {
        let Ok(allocator) = self.cache().zio().allocator() else { return false };
        let bytes = allocator.untrimmed_bytes(self.trimmed_bytes().0);
        let txg = self.txgs().synced_txg();
        let mut sweeps = self.sweeps().lock();
        if bytes >= IDLE_TRIM_BYTES {
            sweeps.trims_until_txg = txg.plus(FREED_GROUPS + self.trim_turns());
        }
        bytes > 0 && txg < sweeps.trims_until_txg
    }

    /// Groups until it is a metaslab's turn again.
    fn trim_turns(&self) -> u64 {
        self.env().tunable(tunables::ZFS_TRIM_TXG_BATCH).clamp(1, TURN_TXGS_MAX)
    }

    /// Bytes that a device is told at once to be free: at least, and at most.
    fn trimmed_bytes(&self) -> (u64, u64) {
        let max = self.env().tunable(tunables::ZFS_TRIM_EXTENT_BYTES_MAX).clamp(1 << 20, 1 << 40);
        (self.env().tunable(tunables::ZFS_TRIM_EXTENT_BYTES_MIN), max)
    }

    fn is_due(&self, guid: Guid, sweep: &Sweep) -> bool {
        let ns = self.env().ticks_ns().saturating_sub(sweep.pass_start_ns);
        let allowed = u128::from(sweep.rate) * u128::from(ns) / 1_000_000_000;
        let is_slow_enough = sweep.rate == 0 || u128::from(sweep.pass_bytes) <= allowed;
        let is_still =
            |leaf: &LeafVdev<'_>| !self.tree().top_of(leaf.vdev()).top_spec().is_some_and(TopSpec::is_expanding);
        let leaf = self.tree().leaf(guid).filter(is_still);
        is_slow_enough && leaf.is_some_and(|leaf| leaf.state().health().is_readable())
    }
}

impl SyncContext<'_> {
    fn change_sweep(&self, kind: SweepKind, action: SweepAction, guid: Guid) -> Result<()> {
        let (tree, sweeps) = (self.pool.tree(), self.pool.sweeps());
        let invalid = || Error::new(Kind::Invalid, "invalid device");
        let leaf = self.pool.leaf_or(guid, invalid)?;
        if !leaf.state().health().is_readable() {
            return Err(invalid());
        }
        if leaf.vdev().leaf_spec().is_none_or(|spec| spec.zap.is_none()) {
            return Err(Error::new(Kind::Unsupported, "operation not supported on this type of pool"));
        }
        let before = sweeps.lock().by_leaf.get(&(kind, guid)).copied().unwrap_or_default();
        let [under_way, none] = match kind {
            SweepKind::Initialize => ["currently initializing", "there is no active initialization"],
            SweepKind::Trim => ["currently trimming", "there is no active trim"],
        };
        let is_active = before.state == SweepState::Active;
        let is_suspended = before.state == SweepState::Suspended;
        let now_s = self.change.env.now_s();
        let (sweep, told, event) = match action {
            SweepAction::Start { .. } | SweepAction::Forget if is_active => {
                return Err(Error::new(Kind::Busy, under_way));
            }
            SweepAction::Start { rate, secure } => {
                tree.ranges_on_leaf(leaf, &(0..0))?;
                let is_secure = secure || is_suspended && before.secure;
                if kind == SweepKind::Trim {
                    self.probe_discard(leaf, is_secure)?;
                }
                let pass_start_ns = self.change.env.ticks_ns();
                let skips_unused = self.change.env.tunable(tunables::ZFS_TRIM_METASLAB_SKIP) != 0;
                let partial = kind == SweepKind::Trim && skips_unused;
                let begun = if is_suspended { before } else { Sweep { action_s: now_s, partial, ..Sweep::default() } };
                let rate = if rate == 0 { begun.rate } else { rate };
                let state = SweepState::Active;
                let from_txg = self.change.tx.txg().plus(FREED_GROUPS);
                let secure = is_secure;
                let sweep = Sweep { state, rate, secure, pass_bytes: 0, pass_start_ns, from_txg, ..begun };
                (sweep, " activated", if is_suspended { "resume" } else { "start" })
            }
            SweepAction::Suspend if is_active => {
                (Sweep { state: SweepState::Suspended, ..before }, " suspended", "suspend")
            }
            SweepAction::Cancel if is_active || is_suspended => {
                (Sweep { state: SweepState::Canceled, action_s: now_s, ..Sweep::default() }, " canceled", "cancel")
            }
            SweepAction::Cancel | SweepAction::Suspend => return Err(Error::new(Kind::NotFound, none)),
            SweepAction::Forget => (Sweep::default(), "", ""),
        };
        self.set_sweep(kind, leaf, sweep)?;
        let name = if action == SweepAction::Forget { "uninitialize" } else { kind.name() };
        self.log_event(name, &format!("vdev={}{told}", leaf.name()));
        if !event.is_empty() {
            self.pool.notify(&format!("{}_{event}", kind.name()), Some(leaf.vdev()));
        }
        Ok(())
    }

    /// A leaf that is given up is not swept any more, not even when it comes back.
    pub(super) fn cancel_sweeps(&self, guid: Guid) -> Result<()> {
        let Some(leaf) = self.pool.tree().leaf(guid) else { return Ok(()) };
        for kind in SweepKind::ALL {
            let before = self.pool.sweeps().lock().by_leaf.get(&(kind, guid)).copied().unwrap_or_default();
            if matches!(before.state, SweepState::Active | SweepState::Suspended) {
                let (state, action_s) = (SweepState::Canceled, self.change.env.now_s());
                self.set_sweep(kind, leaf, Sweep { state, action_s, ..Sweep::default() })?;
                self.pool.notify(&format!("{}_cancel", kind.name()), Some(leaf.vdev()));
            }
        }
        Ok(())
    }

    fn set_sweep(&self, kind: SweepKind, leaf: LeafVdev<'_>, sweep: Sweep) -> Result<()> {
        sweep.write(&self.change, leaf.vdev().leaf_spec().map_or(ObjectId::NONE, |spec| spec.zap), kind)?;
        self.pool.sweeps().lock().by_leaf.insert((kind, leaf.guid()), sweep);
        Ok(())
    }

    /// Discards something that is free, to see whether the device can. Errors: `Unsupported`.
    fn probe_discard(&self, leaf: LeafVdev<'_>, secure: bool) -> Result<()> {
        let top = self.pool.tree().top_of(leaf.vdev()).number();
        let with = |range: Range<u64>| self.pool.tree().discard_on_leaf(leaf, range, secure);
        match self.with_lent(leaf, (top, 0), PROBE_BYTES, false, &with)? {
            Some((_, Err(error))) if error.kind() == Kind::Unsupported => {
                Err(Error::new(Kind::Unsupported, "trim operations are not supported by this device"))
            }
            _ => Ok(()),
        }
    }

    /// Does something with what is free on a leaf from a place on, some `bytes` of it; if it is `partial`, not in metaslabs
    /// in which nothing has ever been. Returns the range that was looked at, and the first error; `None` if nothing is free
    /// behind.
    #[allow(clippy::type_complexity)] // said above
    fn with_lent(
        &self,
        leaf: LeafVdev<'_>,
        (top, cursor): (VdevNumber, u64),
        bytes: u64,
        partial: bool,
        with: &dyn Fn(Range<u64>) -> Result<()>,
    ) -> Result<Option<(Range<u64>, Result<()>)>> {
        let (tree, allocator) = (self.pool.tree(), self.pool.cache().zio().allocator()?);
        let lent = allocator.lend(top, cursor, bytes)?;
        let (Some(first), Some(last)) = (lent.first(), lent.last()) else { return Ok(None) };
        let is_wanted = !partial || self.pool.maps().has_been_used(top, first.start);
        let each = |range: &Range<u64>| tree.ranges_on_leaf(leaf, range)?.into_iter().try_for_each(with);
        let done: Vec<Result<()>> = if is_wanted { lent.iter().map(each).collect() } else { Vec::new() };
        allocator.give_back(top, &lent);
        Ok(Some((first.start..last.end, done.into_iter().collect())))
    }

    /// Goes on with all sweeps for a while.
    pub(super) fn step_sweeps(&self) -> Result<()> {
        let (pool, txg) = (self.pool, self.change.tx.txg());
        let start_ns = self.change.env.ticks_ns();
        let max_ms = self.change.env.tunable(tunables::ZFS_TXG_TIMEOUT).saturating_mul(1000);
        loop {
            let is_due = |guid: Guid, sweep: &Sweep| sweep.from_txg <= txg && pool.is_due(guid, sweep);
            let due: Vec<_> =
                pool.sweeps().active().into_iter().filter(|((_, guid), sweep)| is_due(*guid, sweep)).collect();
            for ((kind, guid), sweep) in &due {
                if let Some(leaf) = pool.tree().leaf(*guid) {
                    self.sweep_on(*kind, leaf, *sweep)?;
                }
            }
            let ms = self.change.env.ticks_ns().saturating_sub(start_ns) / 1_000_000;
            if due.is_empty() || ms >= max_ms || ms >= STEP_MS_MIN && pool.txgs().is_wanted() {
                break;
            }
        }
        // leaves that have left are nobody's
        pool.sweeps().lock().by_leaf.retain(|(_, guid), _| pool.tree().leaf(*guid).is_some());
        for ((kind, guid), sweep) in pool.sweeps().active() {
            let Some(leaf) = pool.tree().leaf(guid) else { continue };
            self.set_sweep(kind, leaf, sweep)?;
        }
        Ok(())
    }

    /// Sweeps the next free bytes of a leaf.
    fn sweep_on(&self, kind: SweepKind, leaf: LeafVdev<'_>, sweep: Sweep) -> Result<()> {
        let (pool, tree) = (self.pool, self.pool.tree());
        let top = tree.top_of(leaf.vdev()).number();
        let env = &self.change.env;
        let chunk_bytes = env.tunable(tunables::ZFS_INITIALIZE_CHUNK_SIZE).clamp(512, CHUNK_BYTES_MAX);
        let pattern = env.tunable(tunables::ZFS_INITIALIZE_VALUE);
        let fill = |range: Range<u64>| tree.fill_on_leaf(leaf, range, (pattern, chunk_bytes));
        let (min_bytes, max_bytes) = pool.trimmed_bytes();
        let discard = |range: Range<u64>| match range.end - range.start < min_bytes {
            true => Ok(()),
            false => tree.discard_on_leaf(leaf, range, sweep.secure),
        };
        let place = (top, sweep.cursor);
        let swept = match kind {
            SweepKind::Initialize => self.with_lent(leaf, place, chunk_bytes * WRITES_AT_ONCE, false, &fill)?,
            SweepKind::Trim => self.with_lent(leaf, place, max_bytes, sweep.partial, &discard)?,
        };
        let Some((range, done)) = swept else {
            let (state, action_s) = (SweepState::Complete, self.change.env.now_s());
            self.set_sweep(kind, leaf, Sweep { state, action_s, ..sweep })?;
            self.log_event(kind.name(), &format!("vdev={} complete", leaf.name()));
            pool.notify(&format!("{}_finish", kind.name()), Some(leaf.vdev()));
            return Ok(());
        };
        match done {
            // it goes on there when the device is back
            Err(error) if error.kind() == Kind::Missing => return Ok(()),
            // what fails is charged to the leaf, if it is to be, and is not tried again
            Err(error) => tracing::debug!(pool = pool.name(), vdev = leaf.name(), "not swept: {error}"),
            Ok(()) => {}
        }
        let offset = tree.offset_on_leaf(leaf, range.end);
        let pass_bytes = sweep.pass_bytes + (range.end - range.start);
        let sweep = Sweep { cursor: range.end, offset, pass_bytes, ..sweep };
        pool.sweeps().lock().by_leaf.insert((kind, leaf.guid()), sweep);
        Ok(())
    }

    /// Tells devices what has become free, of the metaslabs whose turn it is. That one cannot use it is no harm.
    pub(super) fn autotrim(&self) -> Result<()> {
        let (tree, allocator) = (self.pool.tree(), self.pool.cache().zio().allocator()?);
        let turns = self.pool.trim_turns() as usize;
        let turn = self.change.tx.txg().slot(turns);
        for (top, ranges) in allocator.lend_untrimmed(self.pool.trimmed_bytes().0, (turn, turns)) {
            let leaves = tree.top(top).map(|top| tree.leaves_of(top.id())).unwrap_or_default();
            let is_settled = |leaf: &LeafVdev<'_>| {
                let above = leaf.parent().map(|id| tree.vdev(id).kind());
                !matches!(above, Some(vdev::VdevKind::Replacing | vdev::VdevKind::Spare))
            };
            for leaf in leaves.into_iter().filter(is_settled) {
                for range in &ranges {
                    let ranges = tree.ranges_on_leaf(leaf, range);
                    let discard = |on_leaf: Range<u64>| tree.discard_on_leaf(leaf, on_leaf, false);
                    let told = ranges.and_then(|ranges| ranges.into_iter().try_for_each(discard));
                    if let Err(error) = told {
                        tracing::debug!(pool = self.pool.name(), vdev = leaf.name(), "not trimmed: {error}");
                        break;
                    }
                }
            }
            allocator.give_back(top, &ranges);
        }
        Ok(())
    }
}
