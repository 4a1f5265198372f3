//! The blocks of a log that is being written, and which of them are still needed.
//!
//! ```text
//!   header ─▶ written ── written ── writing ── tail
//!             └─ group synced: freed, and the header leads to the next    └ allocated, not written yet
//! ```
//!
//! A block goes in the first group that is synced with all its records, and not before the group that it was
//! allocated in. The tail stays, so that there is always a place to write to that the header leads to. When
//! a chain has ended, because a block could not be written or all is to be gone, the tail goes, too.

use std::collections::VecDeque;

use format::blkptr::BlkPtr;
use format::ids::Txg;

use crate::ZilHeader;

/// A block of the chain.
#[derive(Debug)]
struct ChainBlock {
    bp: BlkPtr,
    /// The group that it was allocated in.
    txg: Txg,
    /// The last group that it has records of.
    last_txg: Txg,
    /// Counts all blocks of all chains.
    number: u64,
    state: ChainBlockState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChainBlockState {
    /// Nothing is in it.
    Empty,
    Writing,
    /// What is in it lasts, or does not count.
    Written,
}

/// What may be done with a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChainStage {
    /// It was there before the pool was opened, and has to be replayed.
    Old,
    /// It is written to.
    Open,
    /// It goes; then there may be a new one.
    Ending,
    /// It goes, and there is no new one.
    Closed,
}

/// Where the next records go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// There; the header on disk leads to it when this group is synced.
    At(BlkPtr, Txg),
    /// A chain is to be started.
    Nowhere,
    /// Nothing can be logged now.
    Refused,
}

/// See the top of the file.
#[derive(Debug)]
pub(crate) struct Chain {
    header: ZilHeader,
    stage: ChainStage,
    /// No chain is ever begun.
    is_disabled: bool,
    blocks: VecDeque<ChainBlock>,
    grown: u64,
    /// The group whose header leads to it for the first time.
    started: Txg,
    /// Groups in which blocks were allocated or records replayed, by their lowest bit.
    dirty: [Txg; 2],
    /// The last record that was replayed in a group, by its lowest bit.
    replayed: [u64; 2],
    /// The log that was replayed: its blocks, and those of data.
    doomed: Option<(Vec<BlkPtr>, Vec<BlkPtr>)>,
}

/// What a group changes.
#[derive(Debug)]
pub struct Update {
    /// The head of the log, in the head of the object set.
    pub header: [u8; 192],
    /// Log blocks to be freed.
    pub blocks: Vec<BlkPtr>,
    /// Blocks of data that only the log led to, to be freed.
    pub data: Vec<BlkPtr>,
}

impl Chain {
    /// The chain of a set with that header on disk.
    pub(crate) fn new(header: ZilHeader) -> Chain {
        let stage = if header.first.is_hole() { ChainStage::Open } else { ChainStage::Old };
        let header = if stage == ChainStage::Old { header } else { ZilHeader::EMPTY };
        Chain {
            header,
            stage,
            is_disabled: false,
            blocks: VecDeque::new(),
            grown: 0,
            started: Txg::ZERO,
            dirty: [Txg::ZERO; 2],
            replayed: [0; 2],
            doomed: None,
        }
    }

    /// Nothing is to be logged: what others have logged is replayed all the same.
    pub(crate) fn disable(&mut self) {
        self.is_disabled = true;
    }

    /// The header of a log that has to be replayed.
    pub(crate) fn old(&self) -> Option<ZilHeader> {
        (self.stage == ChainStage::Old).then_some(self.header)
    }

    /// In `txg` an old log was claimed, or found to be of no use.
    pub(crate) fn claim(&mut self, txg: Txg, header: ZilHeader) {
        *self = Chain { dirty: self.dirty, grown: self.grown, is_disabled: self.is_disabled, ..Chain::new(header) };
        self.mark(txg);
    }

    pub(crate) fn tail(&self) -> Tail {
        match (self.stage, self.blocks.back()) {
            _ if self.is_disabled => Tail::Refused,
            (ChainStage::Open, Some(tail)) => Tail::At(tail.bp, self.started),
            (ChainStage::Open, None) => Tail::Nowhere,
            _ => Tail::Refused,
        }
    }

    /// Starts a chain with a block that was allocated in `txg`. False if that is not to be.
    pub(crate) fn start(&mut self, txg: Txg, bp: BlkPtr) -> bool {
        let may_start = self.tail() == Tail::Nowhere;
        if may_start {
            self.started = txg;
            self.grow(txg, bp);
        }
        may_start
    }

    /// Notes that the tail is being written, with records of groups up to `last_txg`, and what comes next,
    /// allocated in `txg`. Returns the number of what was the tail; `None` if the chain has ended.
    pub(crate) fn write(&mut self, last_txg: Txg, txg: Txg, next: BlkPtr) -> Option<u64> {
        let tail = self.blocks.back_mut().filter(|_| self.stage == ChainStage::Open)?;
        tail.last_txg = last_txg;
        tail.state = ChainBlockState::Writing;
        let number = tail.number;
        self.grow(txg, next);
        Some(number)
    }

    fn grow(&mut self, txg: Txg, bp: BlkPtr) {
        self.grown += 1;
        self.blocks.push_back(ChainBlock {
            bp,
            txg,
            last_txg: Txg::ZERO,
            number: self.grown,
            state: ChainBlockState::Empty,
        });
        self.mark(txg);
    }

    /// Blocks of these numbers, in their order, last, or do not count.
    pub(crate) fn written(&mut self, numbers: impl Iterator<Item = u64>) {
        for number in numbers {
            let at = self.blocks.binary_search_by_key(&number, |block| block.number);
            at.ok()
                .and_then(|at| self.blocks.get_mut(at))
                .into_iter()
                .for_each(|block| block.state = ChainBlockState::Written);
        }
    }

    /// Nothing more is written to this chain, but what is being written.
    pub(crate) fn end(&mut self) {
        self.blocks
            .iter_mut()
            .filter(|block| block.state == ChainBlockState::Empty)
            .for_each(|tail| tail.state = ChainBlockState::Written);
        if self.stage == ChainStage::Open && !self.blocks.is_empty() {
            self.stage = ChainStage::Ending;
        }
    }

    /// As [`Chain::end`], and there will be no other. Of an old one nothing changes.
    pub(crate) fn close(&mut self) {
        self.end();
        if self.stage != ChainStage::Old {
            self.stage = ChainStage::Closed;
        }
    }

    /// After [`Chain::close`], there may be another again.
    pub(crate) fn reopen(&mut self) {
        if self.stage == ChainStage::Closed {
            self.stage = if self.blocks.is_empty() { ChainStage::Open } else { ChainStage::Ending };
        }
    }

    /// Whether a block is being written, or waits to be flushed.
    pub(crate) fn is_writing(&self) -> bool {
        self.blocks.iter().any(|block| block.state == ChainBlockState::Writing)
    }

    /// Whether there is no block.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.stage != ChainStage::Old
    }

    /// All blocks, which the caller frees in the group that is being synced. Nothing is being written.
    pub(crate) fn take(&mut self) -> Vec<BlkPtr> {
        self.close();
        self.blocks.drain(..).map(|block| block.bp).collect()
    }

    /// Notes that record `seq` was replayed in `txg`.
    pub(crate) fn note_replayed(&mut self, txg: Txg, seq: u64) {
        self.replayed[txg.slot(2)] = seq;
        self.mark(txg);
    }

    /// All that was replayed is on disk; these blocks may go.
    pub(crate) fn doom(&mut self, blocks: Vec<BlkPtr>, data: Vec<BlkPtr>) {
        self.doomed = Some((blocks, data));
    }

    fn mark(&mut self, txg: Txg) {
        self.dirty[txg.slot(2)] = txg;
    }

    /// Whether the head of the set has to be written in `txg`.
    pub(crate) fn is_dirty(&self, txg: Txg) -> bool {
        let goes = matches!(self.stage, ChainStage::Ending | ChainStage::Closed) && !self.blocks.is_empty();
        self.dirty[txg.slot(2)] == txg || goes || self.doomed.is_some()
    }

    /// For the sync of `txg`: what changes.
    pub(crate) fn sync(&mut self, txg: Txg) -> Update {
        let slot = txg.slot(2);
        if self.dirty[slot] == txg {
            self.dirty[slot] = Txg::ZERO;
            let replayed = std::mem::take(&mut self.replayed[slot]);
            self.header.replay_seq = self.header.replay_seq.max(replayed);
        }
        let (mut blocks, mut data) = (Vec::new(), Vec::new());
        if let Some(doomed) = self.doomed.take() {
            (blocks, data) = doomed;
            *self = Chain {
                dirty: self.dirty,
                grown: self.grown,
                is_disabled: self.is_disabled,
                ..Chain::new(ZilHeader::EMPTY)
            };
        }
        if self.stage != ChainStage::Old {
            let is_done = |block: &ChainBlock| {
                block.state == ChainBlockState::Written && block.txg <= txg && block.last_txg <= txg
            };
            let done = self.blocks.iter().take_while(|block| is_done(block)).count();
            blocks.extend(self.blocks.drain(..done).map(|block| block.bp));
            self.header.first = self.blocks.front().map_or(BlkPtr::HOLE, |block| block.bp);
            if self.stage == ChainStage::Ending && self.blocks.is_empty() {
                self.stage = ChainStage::Open;
            }
        }
        Update { header: self.header.bytes(), blocks, data }
    }
}

#[cfg(test)]
mod tests {
    use format::blkptr::{BlkPtrBuilder, Dva};
    use format::ids::VdevNumber;

    use super::*;

    fn bp(n: u64) -> BlkPtr {
        let shape = format::blkptr::BlockShape {
            lsize: 4096,
            psize: 4096,
            compress: 2,
            checksum: 13,
            object_type: format::object_type::ObjectType::INTENT_LOG,
            level: 0,
        };
        BlkPtrBuilder::new(shape, Txg::new(n))
            .at(&[Dva::new(VdevNumber::new(0), n * 4096, 4096, false)])
            .checksum([1, 2, 3, n])
            .build()
    }

    fn first(update: &Update) -> BlkPtr {
        ZilHeader::parse(&update.header).unwrap().first
    }

    #[test]
    fn blocks_go_with_their_groups_and_the_tail_stays() {
        let mut chain = Chain::new(ZilHeader::EMPTY);
        assert_eq!(chain.tail(), Tail::Nowhere);
        assert!(chain.start(Txg::new(5), bp(1)));
        assert_eq!(chain.tail(), Tail::At(bp(1), Txg::new(5)));
        assert!(chain.is_dirty(Txg::new(5)) && !chain.is_dirty(Txg::new(6)));
        let update = chain.sync(Txg::new(5));
        assert_eq!((first(&update), update.blocks.len(), chain.is_dirty(Txg::new(5))), (bp(1), 0, false));
        // records of group 6, while the next block belongs to group 7
        assert_eq!(chain.write(Txg::new(6), Txg::new(7), bp(2)), Some(1));
        let update = chain.sync(Txg::new(6));
        assert_eq!((first(&update), update.blocks), (bp(1), vec![]), "it is being written");
        assert_eq!(chain.write(Txg::new(7), Txg::new(7), bp(3)), Some(2));
        chain.written([2].into_iter());
        assert_eq!(chain.sync(Txg::new(6)).blocks, [], "one that lasts does not go before the others");
        chain.written([1].into_iter());
        let update = chain.sync(Txg::new(6));
        assert_eq!((first(&update), update.blocks), (bp(2), vec![bp(1)]), "what group 7 allocated stays");
        let update = chain.sync(Txg::new(7));
        assert_eq!((first(&update), update.blocks), (bp(3), vec![bp(2)]));
    }

    #[test]
    fn a_chain_that_has_ended_goes_whole_and_in_time() {
        let mut chain = Chain::new(ZilHeader::EMPTY);
        chain.start(Txg::new(5), bp(1));
        chain.write(Txg::new(6), Txg::new(6), bp(2));
        chain.end();
        assert_eq!(chain.tail(), Tail::Refused);
        assert!(
            chain.write(Txg::new(6), Txg::new(6), bp(3)).is_none()
                && !chain.start(Txg::new(6), bp(4))
                && chain.is_dirty(Txg::new(9))
        );
        assert_eq!(chain.sync(Txg::new(6)).blocks, [], "one is being written");
        chain.written([1].into_iter());
        let update = chain.sync(Txg::new(5));
        assert_eq!((first(&update), update.blocks), (bp(1), vec![]), "group 6 may still be lost");
        let update = chain.sync(Txg::new(6));
        assert_eq!((first(&update), update.blocks), (BlkPtr::HOLE, vec![bp(1), bp(2)]));
        assert_eq!((chain.tail(), chain.is_dirty(Txg::new(7))), (Tail::Nowhere, false));
        chain.start(Txg::new(7), bp(5));
        chain.close();
        assert_eq!(chain.sync(Txg::new(7)).blocks, [bp(5)]);
        assert!(chain.is_empty() && chain.tail() == Tail::Refused);
        chain.reopen();
        assert_eq!(chain.tail(), Tail::Nowhere);
    }

    #[test]
    fn what_was_replayed_is_told_by_the_group_that_has_it() {
        let mut chain = Chain::new(ZilHeader { first: bp(1), claim_txg: Txg::new(4), ..ZilHeader::EMPTY });
        assert_eq!((chain.tail(), chain.old().is_some()), (Tail::Refused, true));
        chain.note_replayed(Txg::new(8), 20);
        chain.note_replayed(Txg::new(9), 21);
        chain.close();
        let seq = |update: &Update| ZilHeader::parse(&update.header).unwrap().replay_seq;
        let update = chain.sync(Txg::new(8));
        assert_eq!((seq(&update), first(&update)), (20, bp(1)));
        assert_eq!(seq(&chain.sync(Txg::new(9))), 21);
        chain.doom(vec![bp(1)], vec![bp(7)]);
        assert!(chain.is_dirty(Txg::new(10)));
        let update = chain.sync(Txg::new(10));
        assert_eq!((update.header, update.blocks, update.data), ([0; 192], vec![bp(1)], vec![bp(7)]));
        assert_eq!(chain.tail(), Tail::Nowhere);
    }
}
