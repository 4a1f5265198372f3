//! The log in memory: all that operations told since the last group on disk, with its bytes, where the death of the process
//! does not reach it. So the next process loses nothing that programs were told is done; a power cut does.
//!
//! ```text
//!   push ─▶ record: dataset | object, its generation | new object | time | 0 | record as of the intent log
//!   commit ─▶ in the place of the 0: its sequence number in the intent log, before that is written
//!   group on disk ─▶ its records are let go
//!
//!   the next process:
//!     before it writes ─▶ records of groups on disk are none any more           MemoryLog::take_over
//!     dataset opened   ─▶ those in the intent log are none ─▶ the intent log is replayed ─▶ the others are, in order
//! ```
//!
//! Between the records of the intent log and those that it lacks order does not matter, as it does not between its own: names
//! are in it up to a commit, and what it lacks of an object is behind what it has of it.
//!
//! An operation that no record can tell, and one that there is no room for, leaves a gap: of that dataset, or of all, nothing
//! is done again unless the group of the gap is on disk. Then it is as without such a log ([`crate::Unsettled`]).
//!
//! A record that was done again belongs to the group of that, which is written into it; so a process that dies meanwhile has
//! the next one go on there.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use base::{CopyKind, Data, Endian, Mutex, Reader, RecordFile, RecordPlace, RecordSpot, Result, count_copy};
use format::ids::{DatasetId, ObjectId, Txg};

use crate::Intent;
use crate::entry::{Itx, ItxBody, Scope};
use crate::intent::WrittenData;
use crate::record::{HEAD_SIZE, Record};

/// Words before a record: dataset, object (0: names), its generation, an object that is made, seconds, nanoseconds, and its
/// sequence number in the intent log, or 0.
const PLACE_BYTES: usize = 56;
/// Where that number stands.
const SEQ_AT: u64 = 48;
/// Bytes of all that stands before what a record says.
const FRONT_BYTES: usize = PLACE_BYTES + HEAD_SIZE;
/// Where its number in this log stands.
const NUMBER_AT: usize = PLACE_BYTES + 24;
/// Where the group of a record stands.
const TXG_AT: u64 = PLACE_BYTES as u64 + 16;
/// The type of a record that tells of a gap.
const GAP: u64 = 1 << 60;
/// The dataset of a gap that is everybody's; it is noted in the head of the file, where there is always room.
const ALL: DatasetId = DatasetId::MOS;
/// So many records, and a group should come to disk.
const RECORDS_MAX: u64 = 1 << 15;
/// The group of a record that is needed no more, and of one that is to be done again.
const SETTLED: Txg = Txg::ZERO;
const TO_DO: Txg = Txg::new(u64::MAX);

/// The log in memory of one pool.
pub struct MemoryLog {
    file: RecordFile,
    state: Mutex<MemoryState>,
}

#[derive(Default)]
struct MemoryState {
    /// Up to which group each dataset has gaps.
    gaps: HashMap<DatasetId, Txg>,
    /// Where the records of each group end.
    groups: VecDeque<(Txg, RecordSpot)>,
    /// What the process before left of each dataset, in order, until it is done again.
    left: HashMap<DatasetId, Vec<LeftRecord>>,
    /// Datasets of which it did not leave all, or of which that cannot be done again; `None`: it left no such log.
    broken: Option<HashSet<DatasetId>>,
    /// When operations were done that intent logs have, by their sequence numbers there.
    times: HashMap<DatasetId, BTreeMap<u64, [u64; 2]>>,
    /// Gaps that it left.
    left_gaps: Vec<RecordPlace>,
    /// What it left may still be needed, so nothing is let go.
    is_taking_over: bool,
    /// All is of no use: to be let go when this group is closed, and no record of it is being written any more.
    useless_to: Option<Txg>,
}

/// A record that the process before left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeftRecord {
    pub(crate) place: RecordPlace,
    /// The generation of its object, if it is about one.
    generation: u64,
    kind: u64,
    scope: ObjectId,
    made: ObjectId,
    time: [u64; 2],
    /// Its sequence number in the intent log, or 0.
    seq: u64,
}

/// What of an operation only the log in memory needs.
#[derive(Clone, Copy, Debug)]
pub struct OperationDetails<'a> {
    /// The generation of the object that it changes, if that is one.
    pub generation: u64,
    /// The object that it makes.
    pub made: ObjectId,
    /// Seconds since 1970, nanoseconds.
    pub time: [u64; 2],
    /// The bytes that it writes.
    pub data: Data<'a>,
    /// What it did, where that is not what the entry says.
    pub intent: Option<&'a Intent<'a>>,
}

impl OperationDetails<'_> {
    /// Of an operation on names, at that time.
    pub fn of_names(time: [u64; 2]) -> OperationDetails<'static> {
        OperationDetails { generation: 0, made: ObjectId::NONE, time, data: Data::from(&[]), intent: None }
    }
}

/// An operation, as it is told.
pub(crate) struct ToldOperation<'a> {
    dataset: DatasetId,
    txg: Txg,
    /// The object that it changes; none: names.
    scope: ObjectId,
    details: OperationDetails<'a>,
    /// The type of its record.
    kind: u64,
    /// All but the data.
    head: Vec<u8>,
}

impl<'a> ToldOperation<'a> {
    /// The operation that an entry tells of. `None` if no record can tell it.
    pub(crate) fn of(
        dataset: DatasetId,
        txg: Txg,
        entry: &Itx,
        details: Option<OperationDetails<'a>>,
    ) -> Option<ToldOperation<'a>> {
        let details = details?;
        let (kind, body) = match (details.intent, &entry.body) {
            (Some(intent), _) => (intent.kind(), Cow::Owned(intent.bytes())),
            (None, ItxBody::Record { kind, bytes }) => (*kind, Cow::Borrowed(&bytes[..])),
            (None, ItxBody::Write { object, offset, len, .. }) if *len == details.data.len() as u64 => {
                let data = WrittenData::Here(&[]);
                let intent = Intent::Write { object: *object, offset: *offset, len: *len, data };
                (intent.kind(), Cow::Owned(intent.bytes()))
            }
            (None, _) => return None,
        };
        let scope = match entry.scope {
            Scope::Names => ObjectId::NONE,
            Scope::Object(object) => object,
        };
        let head = [&[0; FRONT_BYTES], &body[..]].concat();
        Some(ToldOperation { dataset, txg, scope, details, kind, head })
    }

    fn of_gap(dataset: DatasetId, txg: Txg) -> ToldOperation<'static> {
        let details = OperationDetails::of_names([0; 2]);
        ToldOperation { dataset, txg, scope: ObjectId::NONE, details, kind: GAP, head: vec![0; FRONT_BYTES] }
    }

    fn len(&self) -> usize {
        self.head.len() + self.details.data.len()
    }

    /// Completes how its record begins, but for its number.
    fn begin(&mut self) {
        let OperationDetails { generation, made, time: [secs, nanos], .. } = self.details;
        let place = [self.dataset.get(), self.scope.get(), generation, made.get(), secs, nanos, 0];
        let record = [self.kind, (self.len() - PLACE_BYTES) as u64, self.txg.get()];
        for (at, word) in place.into_iter().chain(record).enumerate() {
            self.head[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
    }
}

impl MemoryLog {
    /// An empty one with room for so many bytes. Errors: those of making a file in memory.
    pub fn new(room: u64) -> Result<MemoryLog> {
        Ok(MemoryLog { file: RecordFile::new(room)?, state: Mutex::default() })
    }

    /// That of the process before, in a pool whose newest group on disk is `synced`, before anything is written to it. Errors:
    /// it cannot be read.
    pub fn take_over(file: OwnedFd, synced: Txg) -> Result<MemoryLog> {
        let (file, places) = RecordFile::open(file)?;
        let mut left: HashMap<DatasetId, Vec<LeftRecord>> = HashMap::new();
        let (mut gaps, mut left_gaps) = (HashSet::new(), Vec::new());
        if Txg::new(file.note()?) > synced {
            file.set_note(TO_DO.get())?;
            gaps.insert(ALL);
        }
        for place in places {
            // one that is not whole was never answered
            let Some(record) = LeftRecord::read(&file, place)? else { continue };
            if record.txg <= synced {
                file.patch(&place, TXG_AT, SETTLED.get());
                continue;
            }
            file.patch(&place, TXG_AT, TO_DO.get());
            match record.left.kind {
                GAP => {
                    gaps.insert(record.dataset);
                    left_gaps.push(place);
                }
                _ => left.entry(record.dataset).or_default().push(record.left),
            }
        }
        let has_gap = |dataset: &DatasetId| gaps.contains(dataset) || gaps.contains(&ALL);
        for (_, records) in left.extract_if(|dataset, _| has_gap(dataset)) {
            for record in records {
                file.patch(&record.place, TXG_AT, SETTLED.get());
            }
        }
        let state = MemoryState { left, broken: Some(gaps), left_gaps, is_taking_over: true, ..MemoryState::default() };
        Ok(MemoryLog { file, state: Mutex::new(state) })
    }

    /// The datasets of which something is to be done again.
    pub fn left(&self) -> Vec<DatasetId> {
        let mut left: Vec<DatasetId> = self.state.lock().left.keys().copied().collect();
        left.sort_unstable();
        left
    }

    /// Whether nothing was lost of a dataset with the process before: it left all, and all is done again.
    pub fn is_whole(&self, dataset: DatasetId) -> bool {
        let state = self.state.lock();
        let has_all = |broken: &HashSet<DatasetId>| !broken.contains(&dataset) && !broken.contains(&ALL);
        state.broken.as_ref().is_some_and(has_all) && !state.left.contains_key(&dataset)
    }

    /// Whether the changes that a dataset is told of now are in it.
    pub fn covers(&self, dataset: DatasetId) -> bool {
        let state = self.state.lock();
        !state.gaps.contains_key(&dataset) && !state.gaps.contains_key(&ALL)
    }

    /// What was left is done again, and on disk, or will not be. Errors: those of writing it.
    pub fn taken_over(&self) -> Result<()> {
        let mut state = self.state.lock();
        let left = std::mem::take(&mut state.left).into_values().flatten().map(|left| left.place);
        for place in left.chain(std::mem::take(&mut state.left_gaps)) {
            self.file.patch(&place, TXG_AT, SETTLED.get());
        }
        if !state.gaps.contains_key(&ALL) {
            self.file.set_note(SETTLED.get())?;
        }
        state.is_taking_over = false;
        state.times.clear();
        if state.groups.is_empty() {
            self.file.clear();
        }
        Ok(())
    }

    /// A record for an operation, which is complete but for its data; `None` if it is not in the log.
    pub(crate) fn reserve(&self, told: &mut ToldOperation<'_>) -> Option<RecordPlace> {
        let mut state = self.state.lock();
        let is_in_gap = |gap: Option<&Txg>| gap.is_some_and(|gap| told.txg <= *gap);
        if is_in_gap(state.gaps.get(&told.dataset)) || is_in_gap(state.gaps.get(&ALL)) {
            return None;
        }
        if state.useless_to.take_if(|group| told.txg > *group).is_some() {
            state.groups.clear();
            self.file.clear();
        }
        told.begin();
        let Some(place) = self.file.reserve(&mut told.head, NUMBER_AT, told.details.data.len()) else {
            self.lose(&mut state, ALL, told.txg);
            return None;
        };
        state.note_group(told.txg, place.end());
        Some(place)
    }

    /// Completes a record that was reserved.
    pub(crate) fn complete(&self, place: &RecordPlace, told: &ToldOperation<'_>) {
        let data = told.details.data;
        count_copy(CopyKind::IntoLog, data.len());
        if !data.is_empty() {
            self.file.complete(place, data);
        }
    }

    /// A dataset is changed in that group by what is not in the log.
    pub fn gap(&self, dataset: DatasetId, txg: Txg) {
        self.lose(&mut self.state.lock(), dataset, txg);
    }

    /// The intent log is about to get these records, with these sequence numbers.
    pub(crate) fn logged(&self, records: &[(RecordPlace, u64)]) {
        for (place, seq) in records {
            self.file.patch(place, SEQ_AT, *seq);
        }
    }

    /// Group `txg` is on disk.
    pub(crate) fn synced(&self, txg: Txg) {
        let mut state = self.state.lock();
        state.gaps.retain(|_, gap| *gap > txg);
        if state.is_taking_over {
            return;
        }
        let mut spot = None;
        while let Some((_, end)) = state.groups.front().copied().filter(|(group, _)| *group <= txg) {
            state.groups.pop_front();
            spot = Some(end);
        }
        if let Some(spot) = spot {
            self.file.release(spot);
        }
    }

    /// Gives back memory that was not needed for a while.
    pub fn trim(&self) {
        self.file.trim();
    }

    /// Whether so much is in it that a group should come to disk: half of what there is room for, or as much as the next process
    /// would be busy with for longer than programs should wait.
    pub(crate) fn is_due(&self) -> bool {
        let (bytes, records) = self.file.taken();
        bytes > self.file.room() / 2 || records > RECORDS_MAX
    }

    /// Whether it is nearly full, so that what begins should wait for a group.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.file.taken().0 > self.file.room() / 8 * 7
    }

    /// The intent log of a dataset has records up to `last`: what of its own is in there is settled. To be called before that is
    /// replayed.
    pub(crate) fn settle_logged(&self, dataset: DatasetId, last: u64) {
        let state = &mut *self.state.lock();
        let Some(left) = state.left.get_mut(&dataset) else { return };
        let is_in_log = |left: &LeftRecord| 0 < left.seq && left.seq <= last;
        // of names, and of an object, it has all up to the last one that it has; writes that were joined are known by the first.
        // And an object that it makes is another one than that which had its number before
        let mut settled_to: HashMap<ObjectId, u64> = HashMap::new();
        for logged in left.iter().filter(|left| is_in_log(left)) {
            let number = logged.place.number();
            settled_to.insert(logged.scope, number);
            if !logged.made.is_none() {
                settled_to.insert(logged.made, number);
            }
        }
        let is_settled =
            |left: &LeftRecord| settled_to.get(&left.scope).is_some_and(|last| left.place.number() <= *last);
        for settled in left.iter().filter(|left| is_settled(left)) {
            self.file.patch(&settled.place, TXG_AT, SETTLED.get());
        }
        let times = left.iter().filter(|left| is_in_log(left)).map(|left| (left.seq, left.time));
        state.times.entry(dataset).or_default().extend(times);
        left.retain(|left| !is_settled(left));
        // the next process has other numbers
        left.iter().filter(|left| left.seq != 0).for_each(|left| self.file.patch(&left.place, SEQ_AT, 0));
    }

    /// When the operation was done of which the intent log of a dataset has this record.
    pub(crate) fn time_of(&self, dataset: DatasetId, seq: u64) -> Option<[u64; 2]> {
        // a long write has several records, of which the last is known
        self.state.lock().times.get(&dataset)?.range(seq..).next().map(|(_, time)| *time)
    }

    /// What is to be done again of a dataset.
    pub(crate) fn left_of(&self, dataset: DatasetId) -> Vec<LeftRecord> {
        self.state.lock().left.get(&dataset).cloned().unwrap_or_default()
    }

    /// All of a dataset is done again, or (`false`) the rest of it cannot be. Errors: those of noting that.
    pub(crate) fn done_again(&self, dataset: DatasetId, is_whole: bool) -> Result<()> {
        let mut state = self.state.lock();
        let left = state.left.remove(&dataset).unwrap_or_default();
        if is_whole {
            return Ok(());
        }
        state.broken.get_or_insert_default().insert(dataset);
        // first: the process after this one is to know it, too
        match self.put_gap(dataset, TO_DO) {
            Some(place) => state.left_gaps.push(place),
            None => self.file.set_note(TO_DO.get())?,
        }
        left.iter().for_each(|left| self.file.patch(&left.place, TXG_AT, SETTLED.get()));
        Ok(())
    }

    /// Has `apply` do a record again, which is told its generation and time. Errors: those of it; of reading it.
    pub(crate) fn apply(&self, left: &LeftRecord, apply: &mut Apply<'_>) -> Result<()> {
        let Some(bytes) = self.file.read(&left.place, usize::MAX)? else { return Ok(()) };
        let mut words = Reader::new(&bytes, Endian::Little);
        words.take(PLACE_BYTES)?;
        let record = Record::take(&mut words.rest(), Endian::Little)?;
        let generation = (!left.scope.is_none()).then_some(left.generation);
        apply(&LeftOperation { record, generation, time: left.time })
    }

    /// A record is being done again in that group.
    pub(crate) fn redone(&self, place: &RecordPlace, txg: Txg) {
        let mut state = self.state.lock();
        state.note_group(txg, place.end());
        self.file.patch(place, TXG_AT, txg.get());
    }

    /// A record was done again. If nothing was to be done, as what it is about is gone, that is so from now on: the number of an
    /// object may be another's. Errors: those of reading it.
    pub(crate) fn was_applied(&self, left: &LeftRecord) -> Result<()> {
        if self.file.word(&left.place, TXG_AT)? == TO_DO.get() {
            self.file.patch(&left.place, TXG_AT, SETTLED.get());
        }
        Ok(())
    }

    fn lose(&self, state: &mut MemoryState, dataset: DatasetId, txg: Txg) {
        let gap = state.gaps.entry(dataset).or_insert(Txg::ZERO);
        if *gap >= txg {
            return;
        }
        *gap = txg;
        if dataset == ALL {
            // where not even this can be written, there is no memory at all
            let _ = self.file.set_note(txg.get());
            if !state.is_taking_over {
                // it would be needed only once that group is on disk, and is not then
                state.useless_to = Some(txg);
            }
            return;
        }
        match self.put_gap(dataset, txg) {
            Some(place) => state.note_group(txg, place.end()),
            None => self.lose(state, ALL, txg),
        }
    }

    /// Writes that a dataset has a gap. `None` if there is no room.
    fn put_gap(&self, dataset: DatasetId, txg: Txg) -> Option<RecordPlace> {
        let mut told = ToldOperation::of_gap(dataset, txg);
        told.begin();
        self.file.reserve(&mut told.head, NUMBER_AT, 0)
    }
}

/// Does what a record says.
pub(crate) type Apply<'a> = dyn FnMut(&LeftOperation<'_>) -> Result<()> + 'a;

/// An operation that is to be done again.
pub struct LeftOperation<'a> {
    /// What it did.
    pub record: Record<'a>,
    /// The generation of the object that it changed, if it changed nothing else: another one's of that number is let be.
    pub generation: Option<u64>,
    /// When: seconds since 1970, nanoseconds.
    pub time: [u64; 2],
}

/// A record as it is found.
struct FoundRecord {
    dataset: DatasetId,
    txg: Txg,
    left: LeftRecord,
}

impl LeftRecord {
    /// `None` if it is not whole. Errors: those of reading.
    fn read(file: &RecordFile, place: RecordPlace) -> Result<Option<FoundRecord>> {
        let Some(bytes) = file.read(&place, FRONT_BYTES)? else { return Ok(None) };
        let mut words = Reader::new(&bytes, Endian::Little);
        let (dataset, scope) = (DatasetId::new(words.u64()?), ObjectId::new(words.u64()?));
        let (generation, made) = (words.u64()?, ObjectId::new(words.u64()?));
        let (time, seq) = ([words.u64()?, words.u64()?], words.u64()?);
        let (kind, _, txg, _) = (words.u64()?, words.u64()?, Txg::new(words.u64()?), words.u64()?);
        Ok(Some(FoundRecord { dataset, txg, left: LeftRecord { place, generation, kind, scope, made, time, seq } }))
    }
}

impl MemoryState {
    /// A record of that group ends there.
    fn note_group(&mut self, txg: Txg, end: RecordSpot) {
        match self.groups.back_mut() {
            Some((last, spot)) if *last >= txg => *spot = end.max(*spot),
            _ => self.groups.push_back((txg, end)),
        }
    }
}

impl AsFd for MemoryLog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests;
