//! What the phases of a group's way to disk do; their order is in [`super::phases`].
//!
//! ```text
//!   MOS, pass 1   what heads, tasks, jobs and tables changed
//!        pass 2   space maps, of what pass 1 allocated and freed; MOS again: what the group wrote already
//!        ...      is written anew in its place, so less and less is allocated
//!   root          flush ─ labels 0 and 2 ─ flush ─ uberblock ─ flush ─ labels 1 and 3 ─ flush
//! ```
//!
//! A step in which devices fail that cannot be done without is made again when they are back; see
//! `suspension`. Until then nothing that follows it is done.
//!
//! From pass 3 on, what dies in the MOS is put off to the next group: otherwise each free would change a
//! space map, whose change would free another block.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Error, Kind, Result, ResultExt};
use codec::compress::Compress;
use dmu::bpobj::{Bpobj, Totals};
use dmu::{Ledger, Mode, Objset, ObjsetPolicy, OnFailure, Synced};
use dsl::property::needs;
use dsl::write::{Change, DatasetLedger, feature};
use format::blkptr::BlkPtr;
use format::feature::{LARGE_BLOCKS, LARGE_DNODE, ZSTD_COMPRESS};
use format::ids::{DatasetId, Txg};
use format::uberblock::Uberblock;

use super::create::mos_policy;
use super::head::Head;
use super::{LivePool, SyncContext};

/// From this pass on frees are put off: zfs_sync_pass_deferred_free.
const PASS_DEFERRED: u32 = 3;
/// From this pass on nothing is compressed, so that what is written anew fits in its place: zfs_sync_pass_dont_compress.
const PASS_UNCOMPRESSED: u32 = 8;
/// Blocks that could be written at none of so many places cannot be written.
const PLACES_MAX: u32 = 8;
/// So few blocks may happen to find bad places again.
const FAILED_FEW: usize = 32;
/// A group that has not converged by then never will.
const PASSES_MAX: u32 = 64;

/// What one pass writes and kills of the MOS.
#[derive(Default)]
struct MosLedger {
    born: Vec<BlkPtr>,
    killed: Vec<BlkPtr>,
}

impl Ledger for MosLedger {
    fn born(&mut self, bp: &BlkPtr) {
        self.born.push(*bp);
    }

    /// Errors: `Corrupt` of a block that says it is in a dedup table: no writer puts those of the MOS there, and when
    /// they are freed the tables have been written.
    fn killed(&mut self, bp: &BlkPtr) -> Result<()> {
        if bp.is_dedup() {
            return Err(Error::corrupt("a block of the MOS is marked as deduplicated"));
        }
        self.killed.push(*bp);
        Ok(())
    }
}

/// What a head writes and kills, and the features that its blocks need.
struct HeadLedger<'a> {
    inner: DatasetLedger<'a>,
    features: BTreeSet<&'static str>,
}

impl<'a> HeadLedger<'a> {
    fn open(change: &Change<'a>, id: DatasetId) -> Result<HeadLedger<'a>> {
        Ok(HeadLedger { inner: DatasetLedger::open(change.mos, id, change.size_of)?, features: BTreeSet::new() })
    }
}

impl Ledger for HeadLedger<'_> {
    fn born(&mut self, bp: &BlkPtr) {
        if bp.lsize() > LARGE_BLOCK && !bp.is_embedded() {
            self.features.insert(LARGE_BLOCKS);
        }
        if Compress::from_u8(bp.compress()) == Some(Compress::Zstd) {
            self.features.insert(ZSTD_COMPRESS);
        }
        let by_checksum = needs::feature_for_checksum(bp.checksum_kind().into());
        self.features.extend(by_checksum.filter(|_| !bp.is_embedded()));
        self.inner.born(bp);
    }

    fn killed(&mut self, bp: &BlkPtr) -> Result<()> {
        self.inner.killed(bp)
    }
}

/// Larger blocks need a feature.
const LARGE_BLOCK: u64 = 128 << 10;

impl LivePool {
    /// Writes the changes of all heads.
    pub(super) fn sync_heads(&self, change: &Change<'_>) -> Result<()> {
        for (id, head) in self.heads().all() {
            if head.is_dirty(change.tx.txg()) {
                self.sync_head(change, id, &head)?;
                self.receives().save(change, id)?;
            }
        }
        Ok(())
    }

    /// Writes the changes of a head.
    pub(super) fn sync_head(&self, change: &Change<'_>, id: DatasetId, head: &Head) -> Result<()> {
        let txg = change.tx.txg();
        let of_log = head.log().is_dirty(txg).then(|| head.log().sync(txg));
        if let Some(update) = &of_log {
            head.objset().set_log_header(update.header)?;
        }
        let mut ledger = HeadLedger::open(change, id)?;
        let objset = head.objset().reading(change.mos.cache().on_failure());
        let synced = objset.sync(change.tx, &mut ledger)?;
        if let Some(error) = objset.take_recount_failure() {
            tracing::error!(dataset = objset.name(), "accounts are not made anew: {error}");
        }
        let Some(synced) = synced else { return Ok(()) };
        let synced = self.finish_writes(change, &objset, synced, &mut ledger)?;
        if synced.has_large_dnodes() {
            ledger.features.insert(LARGE_DNODE);
        }
        for guid in ledger.features {
            feature::use_in(change, id, guid)?;
        }
        self.note_counted(change, &objset, &synced)?;
        let freed = ledger.inner.finish(change, synced.rootbp())?;
        objset.commit(synced);
        self.env().failpoint("head written");
        freed.iter().for_each(|bp| self.free(change, bp));
        of_log.iter().for_each(|update| self.free_of_log(change, update));
        Ok(())
    }

    /// Frees a block. That it is free already is damage; it is logged, and nothing is lost by going on.
    pub(super) fn free(&self, change: &Change<'_>, bp: &BlkPtr) {
        let freed = change.mos.cache().free(change.tx.txg(), bp);
        // others may refer to one that is counted
        if !matches!(freed, Ok(false)) {
            self.scan().freed(bp);
        }
        if let Err(error) = freed {
            tracing::error!(pool = self.name(), ?bp, "a block could not be freed: {error}");
        }
    }

    /// Writes the MOS until nothing more changes.
    pub(super) fn sync_mos(&self, context: &SyncContext<'_>) -> Result<()> {
        let done = self.sync_mos_in_passes(context);
        // late passes leave out compression
        context.change.mos.set_policy(mos_policy(self.config().enabled))?;
        done
    }

    fn sync_mos_in_passes(&self, context: &SyncContext<'_>) -> Result<()> {
        let change = &context.change;
        let txg = change.tx.txg();
        let allocator = self.cache().zio().allocator()?;
        for pass in 1..PASSES_MAX {
            if pass == 2 {
                // a leaf that could not take the first pass has missed the group
                context.write_dtls()?;
            }
            if pass == PASS_UNCOMPRESSED {
                let policy = mos_policy(self.config().enabled);
                change.mos.set_policy(ObjsetPolicy {
                    compress: Compress::Off,
                    compress_meta: Compress::Off,
                    ..policy
                })?;
            }
            if pass > 1 {
                self.maps().write(change, allocator.take_changes(txg), pass)?;
            }
            let mut ledger = MosLedger::default();
            let Some(synced) = change.mos.sync(change.tx, &mut ledger)? else {
                if pass == 1 {
                    // logs may have been claimed without any change beside
                    continue;
                }
                return Ok(());
            };
            let synced = self.finish_writes(change, change.mos, synced, &mut ledger)?;
            self.env().failpoint("pass written");
            change.mos.commit(synced);
            let sum = |bps: &[BlkPtr]| {
                bps.iter().fold(Totals::default(), |sum, bp| sum.plus(Totals::of(bp, (change.size_of)(bp))))
            };
            let (born, killed) = (sum(&ledger.born), sum(&ledger.killed));
            if born != killed {
                dsl::write::charge_mos(change, born, killed)?;
            }
            let is_real = |bp: &&BlkPtr| !bp.is_hole() && !bp.is_embedded();
            let (now, later): (Vec<BlkPtr>, Vec<BlkPtr>) =
                ledger.killed.iter().filter(is_real).partition(|bp| pass < PASS_DEFERRED || bp.birth() == txg);
            now.iter().for_each(|bp| self.free(change, bp));
            if !later.is_empty() {
                self.put_off_list(change)?.append(change.tx, &later, change.size_of)?;
            }
        }
        Err(Error::new(Kind::Io, format!("group {txg} does not converge")))
    }

    /// Frees what earlier groups put off, as much as this one has room for.
    pub(super) fn free_put_off(&self, change: &Change<'_>) -> Result<()> {
        let list = self.put_off_list(change);
        // a new pool has none yet
        let Ok(list) = list else { return Ok(()) };
        if self.dedup_changes().has_logs() {
            return Ok(());
        }
        if !list.is_empty()? {
            list.drain(change.tx, self.dedup_changes().room(), change.size_of, &mut |bp| {
                self.free(change, bp);
                Ok(())
            })?;
        }
        self.frees().put_off(!list.is_empty()?);
        Ok(())
    }

    pub(super) fn put_off_list(&self, change: &Change<'_>) -> Result<Bpobj> {
        Bpobj::open(change.mos, change.in_directory("sync_bplist")?)
    }

    /// Makes the MOS that was written the pool's root.
    pub(super) fn write_root(&self, txg: Txg) -> Result<()> {
        let config = self.config().clone();
        let uberblock = Uberblock {
            endian: base::Endian::Little,
            version: config.version,
            txg,
            guid_sum: config.guid_sum(self.tree()),
            timestamp_s: self.env().now_s(),
            rootbp: self.mos().rootbp(),
            software_version: 5000,
            mmp: Some(self.multihost().fields()),
            checkpoint_txg: Txg::ZERO,
            raidz_reflow: self.tree().reflow_to_come().field(),
        };
        self.flush_writes(txg)?;
        self.env().failpoint("blocks flushed");
        let label_of = |leaf: &vdev::Vdev| config.label(self.tree(), leaf).pack();
        if config.is_dirty {
            self.config().is_dirty = false;
            self.write_and_flush(&|| self.tree().write_labels(&[0, 2], &label_of))?;
        }
        self.write_and_flush(&|| {
            self.multihost().allow(&uberblock)?;
            self.tree().write_uberblock(&uberblock)
        })?;
        self.leaf_watch().note_root(txg);
        self.multihost().synced(&uberblock, self.tree().hearts().len());
        if config.is_dirty {
            self.write_and_flush(&|| self.tree().write_labels(&[1, 3], &label_of))?;
            self.notify("config_sync", None);
        }
        self.tree().set_reflow(self.tree().reflow_to_come());
        self.config().uberblock = Some(uberblock);
        Ok(())
    }

    /// Waits until all blocks that were sent on their way are on the devices, whatever that takes. They are of the object
    /// set that was written last: what becomes of it is returned.
    fn finish_writes(
        &self,
        change: &Change<'_>,
        objset: &Arc<Objset>,
        mut synced: Synced,
        ledger: &mut dyn Ledger,
    ) -> Result<Synced> {
        let zio = self.cache().zio();
        loop {
            self.try_places(change, objset, &mut synced, ledger)?;
            match zio.finish_writes() {
                Ok(()) => return Ok(synced),
                Err(error) if !self.suspension().outlasts(&error) => return Err(error),
                // devices may be back: what fails again is found out above
                Err(_) => drop(zio.retry_writes(change.tx.txg())),
            }
        }
    }

    /// Tries blocks that cannot be written twice where they are, and then elsewhere. A device that is away is not waited for.
    fn try_places(
        &self,
        change: &Change<'_>,
        objset: &Arc<Objset>,
        synced: &mut Synced,
        ledger: &mut dyn Ledger,
    ) -> Result<()> {
        let zio = self.cache().zio();
        let has_bad_place = |done: Result<()>| done.is_err_and(|error| error.kind() == Kind::Io);
        let (mut places, mut failed) = (0, usize::MAX);
        while places < PLACES_MAX && has_bad_place(zio.finish_writes()) && has_bad_place(zio.retry_failed()) {
            places += 1;
            let is_moved = zio.replace_failed(|bookmarks| {
                // a device that takes nothing is worn out, however many places it has
                let is_hopeless = bookmarks.len() > FAILED_FEW && bookmarks.len() >= failed;
                failed = bookmarks.len();
                if is_hopeless {
                    return Ok(false);
                }
                let moved = objset.relocate(change.tx, synced, bookmarks, ledger)?;
                let is_moved = moved.is_some();
                if let Some(moved) = moved {
                    tracing::info!(pool = self.name(), blocks = bookmarks.len(), "written elsewhere");
                    *synced = moved;
                }
                Ok(is_moved)
            })?;
            if !is_moved {
                break;
            }
        }
        Ok(())
    }

    /// Makes them last.
    fn flush_writes(&self, txg: Txg) -> Result<()> {
        let zio = self.cache().zio();
        self.suspension().persist(|again| {
            if again {
                zio.retry_writes(txg)?;
            }
            zio.flush_writes(txg)
        })
    }

    /// Writes something on all leaves, and flushes it: both again if one fails.
    fn write_and_flush(&self, write: &dyn Fn() -> Result<()>) -> Result<()> {
        self.suspension().persist(|again| {
            if again {
                self.tree().begin_again(None);
            }
            write()?;
            self.env().failpoint("labels written");
            self.tree().flush()
        })
    }

    /// Lets readers see the group that has just been written.
    pub(super) fn renew_view(&self) -> Result<()> {
        let config = self.config().clone();
        let Some(uberblock) = config.uberblock.clone() else { return Ok(()) };
        let (before, root) = (self.view(), self.mos().rootbp());
        let read = |on_failure: OnFailure| {
            let cache = Arc::new(self.cache().reading(on_failure));
            let mos = Objset::open(cache, DatasetId::MOS, root, Mode::Plain, self.name())?;
            before.renewed(config.mos_config(self.tree()), uberblock.clone(), mos)
        };
        // the group is on disk already: it has to be seen, and waits for devices that fail if it must
        let view = read(OnFailure::Fail).or_else(|_| read(OnFailure::Wait)?.reading(OnFailure::Fail));
        self.set_view(view.in_pool(self.name())?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_block_of_the_mos_is_deduplicated() {
        let mut bytes = [0; BlkPtr::SIZE];
        let mut ledger = MosLedger::default();
        ledger.killed(&BlkPtr::parse(&bytes).unwrap()).unwrap();
        // the highest bits of the properties: byte order, dedup, encryption
        bytes[55] = 0xc0;
        assert_eq!(ledger.killed(&BlkPtr::parse(&bytes).unwrap()).unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(ledger.killed.len(), 1);
    }
}
