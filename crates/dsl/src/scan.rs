//! Visiting a pool one dataset at a time, in the order in which scrubs and resilvers do: a scan can stop anywhere, and
//! is gone on with after datasets came and went.
//!
//! ```text
//!   MOS ─▶ $ORIGIN's snapshot ─▶ what follows: its clones, which are the first of each file system
//!          dataset            ─▶ what follows: its next snapshot, and its clones
//!          each with the txg after which its own blocks are born
//! ```
//!
//! Source: the order of `dsl_scan.c` of OpenZFS, whose queue is kept on disk ([`format::scan`]).

use std::ops::ControlFlow;

use base::{Error, Kind, Result};
use dmu::traverse::{Range, VisitPosition, Visitor, traverse};
use format::dsl::DatasetPhys;
use format::ids::{DatasetId, ObjectId, Txg};
use zil::ZilHeader;

use crate::Dsl;

impl Dsl {
    /// The record of a dataset; `None` if there is none any more.
    pub fn dataset_phys(&self, id: DatasetId) -> Result<Option<DatasetPhys>> {
        match self.dataset_at(id) {
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            outcome => outcome,
        }
    }

    /// Visits the blocks of the MOS in `range`.
    pub fn scan_mos(&self, range: Range, visitor: &mut dyn Visitor) -> ControlFlow<()> {
        traverse(self.mos().cache(), DatasetId::MOS, &self.mos().rootbp(), range, visitor)
    }

    /// Visits the blocks of a dataset in `range`; if it is a head that is begun with, also those of its log that had
    /// been allocated by group `txg`.
    pub fn scan_dataset(
        &self,
        id: DatasetId,
        phys: &DatasetPhys,
        (range, txg): (Range, Txg),
        visitor: &mut dyn Visitor,
    ) -> ControlFlow<()> {
        if range.from.is_none() {
            self.scan_log(id, phys, txg, visitor)?;
        }
        traverse(self.mos().cache(), id, &phys.bp, range, visitor)
    }

    fn scan_log(&self, id: DatasetId, phys: &DatasetPhys, txg: Txg, visitor: &mut dyn Visitor) -> ControlFlow<()> {
        if phys.is_snapshot() || phys.bp.is_hole() {
            return ControlFlow::Continue(());
        }
        match self.log_header(id, phys) {
            Ok(header) => self.traverse_log(id, &header, txg, visitor),
            // visiting the dataset tells why
            Err(_) => ControlFlow::Continue(()),
        }
    }

    /// Where the log of a head begins.
    fn log_header(&self, id: DatasetId, phys: &DatasetPhys) -> Result<ZilHeader> {
        let cache = self.mos().cache().clone();
        let objset = dmu::Objset::open(cache, id, phys.bp, dmu::Mode::Raw, &format!("dataset {id}"))?;
        ZilHeader::parse(&objset.phys().log_header)
    }

    /// The datasets that follow one in the order of scans, each with the txg after which its blocks are born.
    pub fn scan_followers(&self, phys: &DatasetPhys) -> Result<Vec<(DatasetId, Txg)>> {
        let mut followers = Vec::new();
        if phys.next_snap.is_some() {
            followers.push((phys.next_snap, phys.creation_txg));
        }
        if phys.num_children > 1 && phys.next_clones_zap.is_some() {
            let clones = dmu::zap::Zap::open(self.mos().object(phys.next_clones_zap)?)?.entries()?;
            for clone in clones {
                let id = u64::from_str_radix(&clone.name.to_string(), 16);
                let id = id.map_err(|_| Error::corrupt(format!("clone '{}' in a list of clones", clone.name)))?;
                followers.push((DatasetId::new(id), phys.creation_txg));
            }
        }
        Ok(followers)
    }

    /// The datasets that a scan begins with: all others follow one of them ([`Dsl::scan_followers`]). Each with the txg
    /// after which its blocks are born.
    pub fn scan_roots(&self) -> Result<Vec<(DatasetId, Txg)>> {
        let origin = self.child_ids(&self.root()?)?.into_iter().find(|(name, _)| name == "$ORIGIN");
        let Some((_, dir)) = origin else { return self.first_datasets() };
        let missing = || Error::corrupt("the pool's $ORIGIN has no snapshot");
        let head = self.dir(dir, "$ORIGIN")?.phys.head_dataset;
        let snapshot = self.dataset_phys(head)?.map(|phys| phys.prev_snap).filter(|snap| snap.is_some());
        let origin = self.dataset_phys(snapshot.ok_or_else(missing)?)?.ok_or_else(missing)?;
        self.scan_followers(&origin)
    }

    /// Of each file system or volume the oldest snapshot, or the head: pools before version 11 have no origin of all, and
    /// do not tell the clones of a snapshot.
    fn first_datasets(&self) -> Result<Vec<(DatasetId, Txg)>> {
        let mut first = Vec::new();
        for dir in self.walk()?.into_iter().filter(|dir| dir.phys.head_dataset.is_some()) {
            let mut id = dir.phys.head_dataset;
            let Some(mut phys) = self.dataset_phys(id)? else { continue };
            while phys.prev_snap.is_some() {
                let Some(before) = self.dataset_phys(phys.prev_snap)? else { break };
                // a clone's origin is another's
                if before.next_snap != id || before.prev_snap_txg >= phys.prev_snap_txg {
                    break;
                }
                (id, phys) = (phys.prev_snap, before);
            }
            first.push((id, phys.prev_snap_txg));
        }
        Ok(first)
    }
}

/// The place in a walk that a scan's bookmark stands for: blocks of dnodes stand for their first object, which is in
/// `dnodes_per_block`.
pub fn position_of(object: ObjectId, blkid: u64, dnodes_per_block: u64) -> Option<VisitPosition> {
    match (object, blkid) {
        (ObjectId::META_DNODE, 0) => None,
        (ObjectId::META_DNODE, blkid) => Some(VisitPosition::of_block(blkid, dnodes_per_block)),
        (object, blkid) => Some(VisitPosition { object, blkid }),
    }
}
