//! Pieces of the files and volumes of a pool, drawn at random by their bytes.
//!
//! ```text
//!   each head ─▶ pointers to its data ─▶ objects and the pieces that have data ─▶ some at random ─▶ these are read
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use base::Result;
use dmu::traverse::{Range, Visit, Visitor, traverse};
use dmu::{Mode, Objset};
use dsl::Dataset;
use format::blkptr::BlkPtr;
use format::ids::ObjectId;
use format::object_type::ObjectType;
use pool::Pool;

use super::measure::{CHUNK_BYTES, RecordPlan, TakenBytes};
use crate::advise::priority::PrioritySample;
use crate::advise::sizes::SizeClasses;
use crate::advise::subject::PoolSubject;

/// A piece that was drawn.
#[derive(Clone, Copy, Debug)]
struct ChunkPlace {
    /// Number of the head.
    head: usize,
    object: ObjectId,
    /// Of the piece, in pieces.
    number: u64,
    /// Bytes of the object.
    size: u64,
}

/// What is in the heads of a pool.
pub struct PoolChunks {
    heads: Vec<Dataset>,
    sample: PrioritySample<ChunkPlace>,
    pub sizes: SizeClasses,
    /// Bytes of the data, and what it takes now.
    pub bytes: u64,
    pub now_bytes: u64,
    pub failures: u64,
    /// Where the walk is.
    head: usize,
    object: ObjectId,
    next: u64,
}

/// The first vdev that data is allocated on: its ashift, and the bytes that a block takes there in the accounts of space.
pub fn layout(pool: &Pool) -> (u32, Box<TakenBytes>) {
    let is_for_data = |spec: &vdev::spec::TopSpec| !spec.is_log && spec.bias.is_none() && spec.metaslabs() > 0;
    let specs =
        |top: &vdev::Vdev| top.top_spec().filter(|spec| is_for_data(spec)).map(|spec| (top.number(), spec.ashift));
    let Some((number, ashift)) = pool.tree().tops().find_map(specs) else {
        return (12, Box::new(|bytes| bytes));
    };
    let tree = pool.tree().clone();
    let taken = move |bytes: u64| {
        let taken = tree.asize(number, bytes).and_then(|asize| tree.deflate(number, asize));
        taken.unwrap_or(bytes)
    };
    (ashift, Box::new(taken))
}

impl PoolChunks {
    /// Draws pieces of what was asked about, snapshots left out unless one was named. Errors: its datasets cannot be listed.
    pub fn of(subject: &PoolSubject, plan: &RecordPlan) -> Result<PoolChunks> {
        let (heads, failures) = subject.heads()?;
        let mut chunks = PoolChunks {
            heads,
            sample: PrioritySample::new(plan.pieces, plan.seed),
            sizes: SizeClasses::default(),
            bytes: 0,
            now_bytes: 0,
            failures,
            head: 0,
            object: ObjectId::NONE,
            next: 0,
        };
        for head in 0..chunks.heads.len() {
            let (id, bp) = (chunks.heads[head].id, chunks.heads[head].phys.bp);
            (chunks.head, chunks.object, chunks.next) = (head, ObjectId::NONE, 0);
            let mut walk = ChunkWalk { chunks: &mut chunks, pool: &subject.pool };
            let _ = traverse(subject.pool.cache(), id, &bp, Range::default(), &mut walk);
        }
        Ok(chunks)
    }

    fn add(&mut self, visit: &Visit<'_>, bytes: u64) {
        let Some(dnode) = visit.dnode else { return };
        self.bytes = self.bytes.saturating_add(visit.bp.lsize());
        self.now_bytes = self.now_bytes.saturating_add(bytes);
        let block = dnode.block_size.max(1);
        let size = dnode.block_max.saturating_add(1).saturating_mul(block);
        if visit.object() != self.object {
            (self.object, self.next) = (visit.object(), 0);
            self.sizes.add(size);
        }
        let Some(start) = visit.bookmark.blkid.checked_mul(block) else { return };
        let (first, end) = (start / CHUNK_BYTES, start.saturating_add(block).div_ceil(CHUNK_BYTES));
        for number in first.max(self.next)..end {
            let len = size.saturating_sub(number * CHUNK_BYTES).min(CHUNK_BYTES);
            let place = ChunkPlace { head: self.head, object: self.object, number, size };
            self.sample.add(len as f64, || place);
        }
        self.next = self.next.max(end);
    }

    /// Reads what was drawn, and shows it with its weight and whether it is a whole file.
    pub fn read(&mut self, pool: &Pool, show: &mut dyn FnMut(f64, &[u8], bool)) {
        let mut opened: HashMap<usize, Option<Arc<Objset>>> = HashMap::new();
        let mut buffer = vec![0; CHUNK_BYTES as usize];
        let drawn = std::mem::replace(&mut self.sample, PrioritySample::new(0, 0));
        for (weight, place) in drawn.into_things() {
            let head = &self.heads[place.head];
            let objset = opened.entry(place.head).or_insert_with(|| pool.dsl().objset(head, Mode::Plain).ok());
            let start = place.number * CHUNK_BYTES;
            let len = place.size.saturating_sub(start).min(CHUNK_BYTES) as usize;
            let piece = &mut buffer[..len];
            let read = objset.as_ref().map(|objset| objset.object(place.object)?.read(start, piece));
            match read {
                Some(Ok(())) => show(weight, piece, place.size < CHUNK_BYTES),
                _ => self.failures += 1,
            }
        }
    }
}

/// Shows the pointers of a head.
struct ChunkWalk<'a> {
    chunks: &'a mut PoolChunks,
    pool: &'a Pool,
}

fn is_data(bp: &BlkPtr) -> bool {
    let is_kind = matches!(bp.object_type(), ObjectType::PLAIN_FILE_CONTENTS | ObjectType::ZVOL);
    bp.level() == 0 && is_kind && !bp.is_hole()
}

impl Visitor for ChunkWalk<'_> {
    fn block(&mut self, visit: &Visit<'_>) -> std::ops::ControlFlow<(), dmu::traverse::Descend> {
        if visit.bookmark.level == 0 && is_data(visit.bp) {
            self.chunks.add(visit, dmu::dsize(self.pool.cache(), visit.bp));
        }
        std::ops::ControlFlow::Continue(dmu::traverse::Descend::Below)
    }

    fn lost(&mut self, _error: base::Error) {
        self.chunks.failures += 1;
    }
}
