//! Whether another host uses a pool that is guarded by property `multihost`, and claiming it against others that
//! import it at the same time.
//!
//! ```text
//!   the pool's process       heartbeat ─ heartbeat ─ heartbeat ─ ...     `live/multihost`
//!   an import of it          look ──── look ──── look ─▶ nothing changed for long enough
//!                            write a number ─ wait ─ is it still there? ─ ten times ─▶ it is ours
//! ```
//!
//! How long is enough the uberblock tells: after so many intervals without a heartbeat its writer suspends the pool,
//! and never writes to it again before it has looked itself. Source: the comments on multihost in OpenZFS's `mmp.c`.

use std::collections::HashSet;
use std::time::Duration;

use base::{Env, Error, Kind, Result, tunables};
use format::ids::Guid;
use format::uberblock::{SEQ_MAX, Uberblock};
use vdev::spec::LeafSpec;
use vdev::{VdevSpec, label};

use crate::discover::uberblocks_of;
use crate::{Candidate, PoolState};

/// How often a pool is claimed.
const CLAIMS: usize = 10;
/// A pool is watched for twice the time after which its writer gives up.
const SAFETY: u64 = 2;
/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// An uberblock that asks to be watched for longer does not mean it.
const WATCH_MAX: Duration = Duration::from_secs(24 * 3600);

/// Why a pool cannot be claimed: [`Kind::Missing`].
pub const CLAIM_MISSING: &str =
    "the multihost claim could not be written to a device\nthe pool configuration expects to be present.";
/// Why a pool cannot be claimed: [`Kind::Io`].
pub const CLAIM_FAILED: &str = "I/O errors occurred while writing the multihost claim.\n\
     Clear the device errors, then run 'zpool import'.";

/// Milliseconds between the heartbeats of a leaf.
pub(crate) fn interval_ms(env: &Env) -> u64 {
    env.tunable(tunables::ZFS_MULTIHOST_INTERVAL).max(100)
}

/// Intervals without a heartbeat after which a pool is suspended; 0: it never is.
pub(crate) fn fail_intervals(env: &Env) -> u64 {
    match env.tunable(tunables::ZFS_MULTIHOST_FAIL_INTERVALS) {
        0 => 0,
        intervals => intervals.max(2),
    }
}

impl Candidate {
    /// Whether it must be watched before the host with that id opens it: it is guarded, and not one that this host
    /// has exported.
    pub fn is_guarded_from(&self, hostid: u64) -> bool {
        let is_ours = self.state == PoolState::Exported && hostid != 0 && self.hostid == Some(hostid);
        let newest = self.uberblocks().into_iter().next();
        newest.is_some_and(|newest| newest.is_guarded()) && !is_ours && self.state != PoolState::Destroyed
    }

    /// Watches it if that is needed, which takes a while; the uberblock in force then. Errors: `Elsewhere` if another
    /// host uses it, or if this one has no id.
    pub fn watch(&self, env: &Env, hostid: u64) -> Result<Option<Uberblock>> {
        let Some(newest) = self.uberblocks().into_iter().next().filter(|_| self.is_guarded_from(hostid)) else {
            return Ok(None);
        };
        if hostid == 0 {
            return Err(Error::new(
                Kind::Elsewhere,
                "the pool is guarded by property multihost, and this host has no id",
            ));
        }
        watch(env, &newest, &|| self.newest_now())?;
        Ok(Some(newest))
    }

    /// Makes sure that no other host imports a pool that was watched at the same time; the devices are open for writing.
    /// Errors: `Elsewhere` if one does; [`CLAIM_MISSING`], [`CLAIM_FAILED`].
    pub(crate) fn claim(&self, env: &Env, watched: &Uberblock) -> Result<()> {
        if self.newest_now().as_ref() != Some(watched) {
            return Err(elsewhere());
        }
        let mmp = watched.mmp.unwrap_or_default();
        let pause = Duration::from_millis(mmp.interval_ms.unwrap_or(interval_ms(env)));
        let before = mmp.seq.filter(|seq| *seq < SEQ_MAX).unwrap_or(0);
        let attempt = || {
            let ours = watched.with_seq(before + 1 + env.random() % (SEQ_MAX - before));
            self.write_heartbeats(env, &ours)?;
            env.pause(pause);
            let now = self.newest_now();
            if now.is_some_and(|now| now.rank() != ours.rank()) { Err(elsewhere()) } else { Ok(()) }
        };
        let claimed = (0..CLAIMS).try_for_each(|_| attempt());
        // the next import finds it as it was
        let restored = self.write_heartbeats(env, watched);
        claimed.and(restored)
    }

    /// Writes the uberblock to the place for heartbeats on all devices of the pool. Errors: if others could import the
    /// pool without looking at one of those that take it.
    fn write_heartbeats(&self, env: &Env, uberblock: &Uberblock) -> Result<()> {
        let root = VdevSpec::parse_root(&self.vdev_tree)?;
        let has_data = |top: &&VdevSpec| top.kind.is_concrete() && !top.top.as_ref().is_some_and(|top| top.is_log);
        let mut heard = Heard { is_relaxed: env.tunable(tunables::MMP_CLAIM_RELAXED) != 0, ..Heard::default() };
        for top in root.children.iter().filter(has_data) {
            let ashift = top.top.as_ref().map_or(9, |top| top.ashift);
            for found in &self.devices {
                let Some(guid) = found.guid().filter(|&guid| has_leaf(top, guid)) else { continue };
                heard.there.insert(guid);
                let written = label::write_heartbeat(&*found.device, 0, uberblock, ashift);
                match written.and_then(|()| found.device.flush()) {
                    Ok(()) => drop(heard.written.insert(guid)),
                    Err(error) => tracing::warn!(path = found.path, "no claim: {error}"),
                }
            }
            if !heard.by_all(top, &heard.there) {
                return Err(Error::new(Kind::Missing, CLAIM_MISSING));
            }
            if !heard.by_all(top, &heard.written) {
                return Err(Error::new(Kind::Io, CLAIM_FAILED));
            }
        }
        Ok(())
    }

    fn newest_now(&self) -> Option<Uberblock> {
        let all = self.devices.iter().flat_map(|found| uberblocks_of(&*found.device));
        all.max_by_key(Uberblock::rank)
    }
}

/// The leaves on which a claim stands.
#[derive(Default)]
struct Heard {
    there: HashSet<Guid>,
    written: HashSet<Guid>,
    /// Whether leaves that this host does not see count for nothing.
    is_relaxed: bool,
}

impl Heard {
    /// Whether any two hosts that write on `leaves` like these have one in common. Of a mirror these are all sides that
    /// the configuration does not mark as absent, since either could be imported alone. Sides that are themselves
    /// several vdevs, while one of them is replaced, may differ, as long as there are others.
    fn by_all(&self, vdev: &VdevSpec, leaves: &HashSet<Guid>) -> bool {
        match vdev.kind {
            kind if kind.nparity() > 0 => {
                let reached = vdev.children.iter().filter(|child| self.by_all(child, leaves)).count();
                reached > kind.nparity()
            }
            kind if kind.is_copies() => {
                let mut sides: Vec<&VdevSpec> = vdev.children.iter().filter(|side| self.is_expected(side)).collect();
                if sides.iter().any(|side| side.children.is_empty()) {
                    sides.retain(|side| side.children.is_empty());
                }
                !sides.is_empty() && sides.iter().all(|side| self.by_all(side, leaves))
            }
            _ => leaves.contains(&vdev.guid),
        }
    }

    /// Whether the pool's configuration expects the vdev to be there.
    fn is_expected(&self, vdev: &VdevSpec) -> bool {
        let is_absent = |leaf: &LeafSpec| leaf.offline || leaf.faulted || leaf.removed;
        let is_unseen = self.is_relaxed && vdev.children.is_empty() && !self.there.contains(&vdev.guid);
        !is_unseen && !vdev.leaf.as_ref().is_some_and(is_absent)
    }
}

fn has_leaf(spec: &VdevSpec, guid: Guid) -> bool {
    spec.guid == guid || spec.children.iter().any(|child| has_leaf(child, guid))
}

/// Looks for as long as `before` asks for whether another uberblock than `before` is the newest. Errors: `Elsewhere`.
pub(crate) fn watch(env: &Env, before: &Uberblock, newest: &dyn Fn() -> Option<Uberblock>) -> Result<()> {
    let time = time_to_watch(env, before);
    if time > WATCH_MAX {
        return Err(Error::corrupt("the uberblock asks to be watched for more than a day"));
    }
    // by chance, so that hosts which start at the same time do not go on so
    let mut left = time + time * (env.random() % 250) as u32 / 1000;
    tracing::info!(seconds = left.as_secs(), "is the pool in use on another host?");
    loop {
        if newest().is_none_or(|now| now.rank() != before.rank()) {
            return Err(elsewhere());
        }
        if left.is_zero() {
            return Ok(());
        }
        env.pause(left.min(LOOK));
        left = left.saturating_sub(LOOK);
    }
}

fn time_to_watch(env: &Env, uberblock: &Uberblock) -> Duration {
    let mmp = uberblock.mmp.unwrap_or_default();
    let looks = env.tunable(tunables::ZFS_MULTIHOST_IMPORT_INTERVALS).max(1);
    let here_ms = interval_ms(env);
    let least_ms = here_ms.saturating_mul(looks).max(1000);
    let of_intervals = |interval_ms: u64| interval_ms.saturating_add(mmp.delay_ns / 1_000_000).saturating_mul(looks);
    Duration::from_millis(match (mmp.interval_ms, mmp.fail_intervals) {
        (Some(interval_ms), Some(fails)) if fails > 0 => fails.saturating_mul(interval_ms).saturating_mul(SAFETY),
        (Some(interval_ms), Some(_)) => of_intervals(interval_ms).max(least_ms),
        // OpenZFS 0.7 does not tell
        _ => of_intervals(here_ms).max(least_ms),
    })
}

fn elsewhere() -> Error {
    Error::new(Kind::Elsewhere, "the pool is in use on another host")
}

#[cfg(test)]
mod tests {
    use format::uberblock::Mmp;

    use format::ids::Txg;

    use super::*;

    fn root(mmp: Mmp) -> Uberblock {
        Uberblock {
            endian: base::Endian::Little,
            version: 5000,
            txg: Txg::new(7),
            guid_sum: 0,
            timestamp_s: 1000,
            rootbp: format::blkptr::BlkPtr::HOLE,
            software_version: 5000,
            mmp: Some(mmp),
            checkpoint_txg: Txg::ZERO,
            raidz_reflow: 0,
        }
    }

    #[test]
    fn how_long_a_pool_is_watched() {
        let env = Env::fixed(0);
        let time = |interval_ms, fail_intervals, delay_ns| {
            let mmp = Mmp { delay_ns, interval_ms, seq: Some(1), fail_intervals };
            time_to_watch(&env, &root(mmp)).as_millis()
        };
        assert_eq!(time(Some(1000), Some(10), 1), 20_000, "it is suspended after ten intervals");
        assert_eq!(time(Some(2000), Some(0), 3_000_000_000), 100_000, "it is never suspended");
        assert_eq!(time(Some(100), Some(0), 1), 20_000, "not less than the tunables say");
        assert_eq!(time(None, None, 1_000_000_000), 40_000, "OpenZFS 0.7");
        assert_eq!(time(Some(0xff_ffff), Some(0xffff), 1), 0xff_ffff * 0xffff * 2);
    }

    #[test]
    fn whoever_asks_for_ever_is_refused() {
        let for_ever =
            root(Mmp { delay_ns: 1, interval_ms: Some(0xff_ffff), seq: Some(1), fail_intervals: Some(0xffff) });
        let refused = watch(&Env::fixed(0), &for_ever, &|| Some(for_ever.clone())).unwrap_err();
        assert_eq!(refused.kind(), Kind::Corrupt);
    }
}
