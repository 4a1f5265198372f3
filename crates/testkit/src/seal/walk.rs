//! The walk: from the uberblock to every block, and from each to what it points to.

use std::collections::HashMap;

use base::Bookmark;
use format::blkptr::{BlkPtr, Dva};
use format::dnode::{Dnode, SLOT_SIZE};
use format::ids::{DatasetId, ObjectId};
use format::object_type::ObjectType;
use zio::{Mode, ReadRequest, Zio};

use super::blocks::{AtlasPlace, FoundBlock, META, MOS, Parent, Role};

/// Most blocks of a pool: an atlas keeps the contents of all.
const BLOCKS_MAX: usize = 200_000;
/// Offset of the pointer to the object set in the bonus buffer of a dataset.
const DATASET_BP_AT: usize = 128;
/// Offset of the log's header in the head of an object set, and of the first pointer in it.
const LOG_BP_AT: usize = 512 + 16;
/// Offset of the dnodes of accounting in the head of an object set.
const ACCOUNTING_AT: usize = 1024;
/// Bytes of the link in a log block of the older kind, which is at its end.
const LOG_LINK_SIZE: usize = 184;

/// A pointer to be followed.
struct Step {
    parent: Parent,
    bp: BlkPtr,
    role: Role,
    objset: DatasetId,
    object: ObjectId,
    level: u8,
    blkid: u64,
    /// log2 of the pointers in an indirect block of the object.
    pointers_shift: u32,
}

/// The blocks that were found, and how they are called.
#[derive(Default)]
pub(super) struct BlockMap {
    pub(super) blocks: Vec<FoundBlock>,
    /// By object set, object, level and number.
    pub(super) by_name: HashMap<(DatasetId, ObjectId, u8, u64), usize>,
    pub(super) spills: HashMap<(DatasetId, ObjectId), usize>,
    pub(super) dnodes: HashMap<(DatasetId, ObjectId), AtlasPlace>,
    /// The heads of datasets, by object.
    pub(super) heads: HashMap<DatasetId, usize>,
}

impl BlockMap {
    /// Follows every pointer from the root. What cannot be read is left out, with all below.
    pub(super) fn of(zio: &Zio, root: BlkPtr) -> BlockMap {
        let mut map = BlockMap::default();
        map.walk(zio, root);
        map
    }

    fn walk(&mut self, zio: &Zio, root: BlkPtr) {
        let mut steps = vec![Step::head(Parent::Uberblock, root, MOS)];
        let mut seen: HashMap<Dva, usize> = HashMap::new();
        while let Some(step) = steps.pop() {
            if self.blocks.len() == BLOCKS_MAX || step.bp.is_hole() || step.bp.uses_crypt() || step.bp.is_gang() {
                continue;
            }
            let address = (!step.bp.is_embedded()).then(|| step.bp.dvas()[0]);
            if let Some(&known) = address.and_then(|address| seen.get(&address)) {
                // snapshots and clones share blocks
                if !self.blocks[known].parents.contains(&step.parent) {
                    self.blocks[known].parents.push(step.parent);
                }
                self.note_name(&step, known);
                if self.blocks[known].objset != step.objset {
                    self.pass_on(&step, known, &mut steps);
                }
                continue;
            }
            let bookmark = Bookmark {
                objset: step.objset.get(),
                object: step.object.get(),
                level: step.level.into(),
                blkid: step.blkid,
            };
            let contents = match step.role {
                Role::Log => zio.read_log_block(&step.bp, bookmark).map(|(bytes, _)| bytes),
                _ => zio.read(ReadRequest { bp: step.bp, bookmark, mode: Mode::Plain }),
            };
            let Ok(contents) = contents else { continue };
            let id = self.blocks.len();
            if let Some(address) = address {
                seen.insert(address, id);
            }
            self.note_name(&step, id);
            self.blocks.push(FoundBlock {
                role: step.role,
                objset: step.objset,
                object: step.object,
                level: step.level,
                blkid: step.blkid,
                bp: step.bp,
                contents: contents[..].into(),
                parents: vec![step.parent],
            });
            self.pass_on(&step, id, &mut steps);
        }
    }

    fn note_name(&mut self, step: &Step, id: usize) {
        match step.role {
            Role::Objset => {
                self.heads.insert(step.objset, id);
            }
            Role::Spill => {
                self.spills.insert((step.objset, step.object), id);
            }
            Role::Log => {}
            _ => {
                self.by_name.insert((step.objset, step.object, step.level, step.blkid), id);
            }
        }
    }

    /// Adds what block `id` points to.
    fn pass_on(&mut self, step: &Step, id: usize, steps: &mut Vec<Step>) {
        let contents = self.blocks[id].contents.clone();
        match step.role {
            Role::Objset => {
                self.dnode_steps(step.objset, META, AtlasPlace { block: id, at: 0 }, steps);
                let accounting = contents.len().saturating_sub(ACCOUNTING_AT) / SLOT_SIZE;
                for number in 0..accounting.min(3) {
                    let place = AtlasPlace { block: id, at: ACCOUNTING_AT + number * SLOT_SIZE };
                    let object = ObjectId::new(u64::MAX - number as u64);
                    self.dnode_steps(step.objset, object, place, steps);
                }
                self.log_step(step, id, LOG_BP_AT, steps);
            }
            Role::Dnodes => {
                let per_block = (contents.len() / SLOT_SIZE) as u64;
                let mut slot = 0;
                while slot * SLOT_SIZE < contents.len() {
                    let place = AtlasPlace { block: id, at: slot * SLOT_SIZE };
                    let object = ObjectId::in_block(step.blkid, slot as u64, per_block);
                    self.dnode_steps(step.objset, object, place, steps);
                    slot += Dnode::slots_at(&contents[slot * SLOT_SIZE..]).unwrap_or(1);
                }
            }
            Role::Indirect => {
                for (number, bp) in BlkPtr::slice(&contents).iter().enumerate() {
                    let level = step.level - 1;
                    steps.push(Step {
                        parent: Parent::Block(id, number * BlkPtr::SIZE),
                        bp: *bp,
                        role: role_of(step.object, level),
                        level,
                        blkid: (step.blkid << step.pointers_shift) + number as u64,
                        ..*step
                    });
                }
            }
            Role::Log => {
                let is_new = codec::checksum::Checksum::from_u8(step.bp.checksum_kind())
                    == Some(codec::checksum::Checksum::Zilog2);
                let link = if is_new { 0 } else { contents.len().saturating_sub(LOG_LINK_SIZE) };
                self.log_step(step, id, link + 8, steps);
            }
            Role::Data | Role::Spill => {}
        }
    }

    fn log_step(&self, step: &Step, id: usize, at: usize, steps: &mut Vec<Step>) {
        let Some(bp) = self.blocks[id].contents.get(at..).and_then(BlkPtr::parse) else { return };
        let blkid = bp.checksum()[3];
        steps.push(Step { parent: Parent::Block(id, at), bp, role: Role::Log, object: META, level: 0, blkid, ..*step });
    }

    /// Adds what a dnode points to, and an object set that begins in it.
    fn dnode_steps(&mut self, objset: DatasetId, object: ObjectId, place: AtlasPlace, steps: &mut Vec<Step>) {
        let contents = self.blocks[place.block].contents.clone();
        let Some(dnode) = contents.get(place.at..).and_then(|bytes| Dnode::parse(bytes).ok()?) else { return };
        self.dnodes.insert((objset, object), place);
        let pointers_shift = if dnode.levels > 1 { dnode.pointers_shift() } else { 0 };
        let level = dnode.levels - 1;
        let step = |at: usize, bp: BlkPtr, role: Role, blkid: u64| Step {
            parent: Parent::Block(place.block, place.at + at),
            bp,
            role,
            objset,
            object,
            level: if role == Role::Spill { 0 } else { level },
            blkid,
            pointers_shift,
        };
        for (number, bp) in dnode.blkptrs.iter().enumerate() {
            steps.push(step(64 + number * BlkPtr::SIZE, *bp, role_of(object, level), number as u64));
        }
        if let Some(bp) = dnode.spill {
            steps.push(step(dnode.slots * SLOT_SIZE - BlkPtr::SIZE, bp, Role::Spill, 0));
        }
        if objset == MOS
            && dnode.bonus_type == ObjectType::DSL_DATASET
            && let Some(bp) = dnode.bonus.get(DATASET_BP_AT..).and_then(BlkPtr::parse)
        {
            let at = place.at + 64 + dnode.blkptrs.len() * BlkPtr::SIZE + DATASET_BP_AT;
            steps.push(Step::head(Parent::Block(place.block, at), bp, DatasetId::of_object(object)));
        }
    }
}

impl Step {
    fn head(parent: Parent, bp: BlkPtr, objset: DatasetId) -> Step {
        Step { parent, bp, role: Role::Objset, objset, object: META, level: 0, blkid: 0, pointers_shift: 0 }
    }
}

fn role_of(object: ObjectId, level: u8) -> Role {
    match (object, level) {
        (_, 1..) => Role::Indirect,
        (META, 0) => Role::Dnodes,
        _ => Role::Data,
    }
}
