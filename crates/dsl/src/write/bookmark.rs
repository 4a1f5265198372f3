//! Bookmarks of a head: what is left of snapshots for incremental sends.
//!
//! ```text
//!   head ── "com.delphix:bookmarks" ──▶ table: name ─▶ words
//!   0 guid   1 txg   2 seconds   3 redaction list   4 flags   5..8 sizes of the snapshot
//!   8..11 of these, what was dead in the next snapshot   11 set of initialization vectors
//! ```
//!
//! Bookmarks without flags end behind word 5. One that tells what was dead in the next snapshot needs a part of its own
//! in dead lists, as if its snapshot were there still.

use base::{Error, Kind, Result};
use dmu::bpobj::Totals;
use dmu::zap::{Zap, ZapValue};
use format::blkptr::BlkPtr;
use format::feature::{BOOKMARK_V2, BOOKMARK_WRITTEN, BOOKMARKS, REDACTED_DATASETS};
use format::ids::{DatasetId, ObjectId, Txg};
use format::object_type::ObjectType;
use format::redaction::RedactionHead;

use super::deadlist::{Deadlist, OpenDeadlists};
use super::{Change, deadlist, feature, redaction_list};
use crate::key::IVSET_GUID;
use crate::name::split_bookmark;
use crate::{Dsl, Subject};

const FIELD: &str = "com.delphix:bookmarks";
/// It tells how much was freed before the next snapshot.
const FLAG_FREED_BEFORE_NEXT: u64 = 1;
/// Its snapshot is there still.
const FLAG_SNAPSHOT_EXISTS: u64 = 2;
/// Words of a bookmark without flags.
const WORDS_MIN: usize = 6;
const WORDS: usize = 12;
/// Names can be compared without case.
const TO_UPPER: u64 = 2;

/// The bookmarks of one head.
pub(super) struct Bookmarks<'a> {
    change: &'a Change<'a>,
    head: DatasetId,
    /// 0 is none.
    table: ObjectId,
}

/// One of them.
struct BookmarkRecord {
    name: String,
    words: Vec<u64>,
}

impl BookmarkRecord {
    fn txg(&self) -> Txg {
        Txg::new(self.words[1])
    }

    /// Whether it tells how much was freed before the next snapshot.
    fn tells_freed(&self) -> bool {
        self.words.len() >= WORDS - 1 && self.words[4] & FLAG_FREED_BEFORE_NEXT != 0
    }

    fn add_freed(&mut self, sum: Totals) {
        for (word, add) in self.words[8..11].iter_mut().zip([sum.used, sum.compressed, sum.uncompressed]) {
            *word = word.wrapping_add(add);
        }
    }
}

impl<'a> Bookmarks<'a> {
    pub(super) fn open(change: &'a Change<'a>, head: DatasetId) -> Result<Bookmarks<'a>> {
        let object = change.mos.object(head.object())?;
        let is_table = object.dnode().object_type == ObjectType::ZAP_METADATA;
        let table = if is_table { Zap::open(object)?.object_id(FIELD)?.unwrap_or_default() } else { ObjectId::NONE };
        Ok(Bookmarks { change, head, table })
    }

    /// The txgs after `txg` that need a part of their own in dead lists.
    pub(super) fn keys_after(&self, txg: Txg) -> Result<Vec<Txg>> {
        let telling = self.telling()?;
        let mut keys: Vec<Txg> = telling.iter().map(BookmarkRecord::txg).filter(|key| *key > txg).collect();
        keys.dedup();
        Ok(keys)
    }

    /// The txg of the latest bookmark; 0 if there is none.
    pub(super) fn latest_txg(&self) -> Result<Txg> {
        Ok(self.all()?.last().map_or(Txg::ZERO, BookmarkRecord::txg))
    }

    /// Blocks have died in the head, whose previous snapshot is of `prev_snap_txg`: its bookmarks, and later ones, know
    /// how much of theirs is among these.
    pub(super) fn tell_dead(&self, prev_snap_txg: Txg, dead: &[BlkPtr]) -> Result<()> {
        for mut one in self.telling()?.into_iter().filter(|one| one.txg() >= prev_snap_txg) {
            let old = dead.iter().filter(|bp| bp.reference_birth() <= one.txg());
            one.add_freed(old.fold(Totals::default(), |sum, bp| sum.plus(self.change.totals(bp))));
            self.put(&one)?;
        }
        Ok(())
    }

    /// The snapshot of `txg`, behind that of `prev_txg`, is being destroyed; `next` is the dead list of the dataset
    /// behind it. Bookmarks between the two come to have another next snapshot. Returns whether a bookmark still needs
    /// the snapshot's part of dead lists.
    pub(super) fn snapshot_destroyed(&self, prev_txg: Txg, txg: Txg, next: &Deadlist<'_>) -> Result<bool> {
        let mut is_needed = false;
        for mut one in self.telling()?.into_iter().filter(|one| one.txg() >= prev_txg && one.txg() <= txg) {
            if one.txg() < txg {
                one.add_freed(next.totals_born(Txg::ZERO, one.txg())?);
            } else {
                one.words[4] &= !FLAG_SNAPSHOT_EXISTS;
                is_needed = true;
            }
            self.put(&one)?;
        }
        Ok(is_needed)
    }

    /// The snapshot of `txg` has another dataset behind it now, with dead list `next`.
    pub(super) fn next_changed(&self, txg: Txg, next: &Deadlist<'_>) -> Result<()> {
        let freed = next.totals()?;
        for mut one in self.telling()?.into_iter().filter(|one| one.txg() == txg) {
            one.words[8..11].copy_from_slice(&[freed.used, freed.compressed, freed.uncompressed]);
            self.put(&one)?;
        }
        Ok(())
    }

    /// Names of the bookmarks of snapshots up to `txg`.
    pub(super) fn names_up_to(&self, txg: Txg) -> Result<Vec<String>> {
        Ok(self.all()?.into_iter().filter(|one| one.txg() <= txg).map(|one| one.name).collect())
    }

    /// Moves the bookmarks of snapshots up to `txg` to another head, none of whose has such a name.
    pub(super) fn move_up_to(&self, txg: Txg, to: &mut Bookmarks<'_>) -> Result<()> {
        for one in self.all()?.into_iter().filter(|one| one.txg() <= txg) {
            self.change.remove(self.table, &one.name)?;
            to.make_table()?;
            to.put(&one)?;
        }
        Ok(())
    }

    /// Frees all of them.
    pub(super) fn free(&self) -> Result<()> {
        if self.table.is_none() {
            return Ok(());
        }
        for one in self.all()? {
            self.forget(&one)?;
        }
        self.change.free_object(self.table)?;
        self.change.remove(self.head.object(), FIELD)?;
        feature::count(self.change, BOOKMARKS, -1).map(drop)
    }

    fn forget(&self, one: &BookmarkRecord) -> Result<()> {
        let change = self.change;
        let list = ObjectId::new(one.words[3]);
        if list.is_some() {
            redaction_list::free(change, list)?;
        }
        if one.words.len() > WORDS_MIN {
            feature::count(change, BOOKMARK_V2, -1)?;
        }
        if one.words[4] & FLAG_FREED_BEFORE_NEXT != 0 {
            feature::count(change, BOOKMARK_WRITTEN, -1)?;
        }
        Ok(())
    }

    /// All, by txg.
    fn all(&self) -> Result<Vec<BookmarkRecord>> {
        let mut all = Vec::new();
        if self.table.is_some() {
            for entry in Zap::open(self.change.mos.object(self.table)?)?.entries()? {
                let words = entry.value.u64s();
                if words.len() < WORDS_MIN {
                    return Err(Error::corrupt(format!("bookmark of {} words", words.len())));
                }
                all.push(BookmarkRecord { name: entry.name.to_string(), words });
            }
        }
        all.sort_by_key(BookmarkRecord::txg);
        Ok(all)
    }

    /// Those that tell how much was freed before the next snapshot.
    fn telling(&self) -> Result<Vec<BookmarkRecord>> {
        if self.table.is_none() || feature::uses(self.change, BOOKMARK_WRITTEN)?.is_none_or(|count| count == 0) {
            return Ok(Vec::new());
        }
        Ok(self.all()?.into_iter().filter(BookmarkRecord::tells_freed).collect())
    }

    fn put(&self, one: &BookmarkRecord) -> Result<()> {
        self.change.set(self.table, &one.name, &ZapValue::new(8, &one.words))
    }

    fn make_table(&mut self) -> Result<()> {
        if self.table.is_some() {
            return Ok(());
        }
        self.table =
            self.change.create_table_with(ObjectType::ZAP_METADATA, (ObjectType::NONE, Vec::new()), TO_UPPER)?;
        feature::count(self.change, BOOKMARKS, 1)?;
        feature::zapify(self.change, self.head.object())?;
        self.change.add(self.head.object(), FIELD, self.table.get())
    }

    /// Adds a bookmark, in as few words as it needs.
    fn add(&mut self, mut one: BookmarkRecord) -> Result<()> {
        self.make_table()?;
        let needs_all = one.words[WORDS_MIN..].iter().any(|word| *word != 0) || one.words[3..5] != [0, 0];
        if needs_all && feature::is_enabled(self.change, BOOKMARK_V2)? {
            feature::count(self.change, BOOKMARK_V2, 1)?;
        } else {
            one.words.truncate(WORDS_MIN);
        }
        if one.words[4] & FLAG_FREED_BEFORE_NEXT != 0 {
            feature::count(self.change, BOOKMARK_WRITTEN, 1)?;
        }
        self.put(&one)
    }
}

/// Makes a bookmark, `tank/home#name`, of a snapshot or of another bookmark. `dsl` is that of the MOS that is being
/// changed. Errors, as `zfs bookmark` words them: `NotFound`, `Exists`; `Invalid` for names, and for a snapshot that
/// the file system does not come from; `Unsupported` without the feature.
pub fn create_bookmark(change: &Change<'_>, dsl: &Dsl, new: &str, source: &str) -> Result<()> {
    create_with_list(change, dsl, new, source, ObjectId::NONE)
}

/// As [`create_bookmark`], with a list of what is to be redacted; 0 is none.
pub(super) fn create_with_list(change: &Change<'_>, dsl: &Dsl, new: &str, source: &str, list: ObjectId) -> Result<()> {
    let (fs, own) = split_bookmark(new)?;
    if !feature::is_enabled(change, BOOKMARKS)? {
        return Err(Error::new(Kind::Unsupported, "bookmark feature not enabled"));
    }
    let dir = dsl.find_dir(fs)?;
    let head = dsl.head(&dir)?;
    let mut bookmarks = Bookmarks::open(change, head.id)?;
    if bookmarks.all()?.iter().any(|one| one.name == own) {
        return Err(Error::new(Kind::Exists, "bookmark exists"));
    }
    let source = dsl.subject(source)?;
    let foreign = || Error::new(Kind::Invalid, "source is not an ancestor of the new bookmark's dataset");
    if !dsl.comes_before(&head, source.dir().id, source.creation_txg())? {
        return Err(foreign());
    }
    let mut words = words_of(change, &source)?;
    if list.is_some() {
        words[3] = list.get();
    }
    bookmarks.add(BookmarkRecord { name: own.to_owned(), words })
}

/// The object of the redaction list of a bookmark, 0 if it has none; `None` if there is no such bookmark. Errors: as from
/// [`create_bookmark`].
pub(super) fn list_of(change: &Change<'_>, dsl: &Dsl, name: &str) -> Result<Option<ObjectId>> {
    let (fs, own) = split_bookmark(name)?;
    let head = dsl.head(&dsl.find_dir(fs)?)?;
    let all = Bookmarks::open(change, head.id)?.all()?;
    Ok(all.into_iter().find(|one| one.name == own).map(|one| ObjectId::new(one.words[3])))
}

/// Destroys a bookmark. Errors: `NotFound`.
pub fn destroy_bookmark(change: &Change<'_>, dsl: &Dsl, name: &str) -> Result<()> {
    let (fs, own) = split_bookmark(name)?;
    let dir = dsl.find_dir(fs)?;
    let head = dsl.head(&dir)?;
    let bookmarks = Bookmarks::open(change, head.id)?;
    let all = bookmarks.all()?;
    let absent = || Error::new(Kind::NotFound, format!("bookmark '{name}' does not exist."));
    let one = all.iter().find(|one| one.name == own).ok_or_else(absent)?;
    bookmarks.forget(one)?;
    let is_key = one.tells_freed()
        && one.words[4] & FLAG_SNAPSHOT_EXISTS == 0
        && one.txg() < head.phys.prev_snap_txg
        && !all.iter().any(|other| other.name != one.name && other.tells_freed() && other.txg() == one.txg());
    if is_key {
        let mut lists = OpenDeadlists::new(change);
        deadlist::remove_key_of_clones(&mut lists, dir.id, one.txg())?;
        lists.get(head.phys.deadlist)?.remove_key(one.txg())?;
    }
    change.remove(bookmarks.table, own)?;
    if all.len() == 1 {
        change.free_object(bookmarks.table)?;
        change.remove(head.id.object(), FIELD)?;
        feature::count(change, BOOKMARKS, -1)?;
    }
    Ok(())
}

/// What a new bookmark of that snapshot or bookmark says.
fn words_of(change: &Change<'_>, source: &Subject) -> Result<Vec<u64>> {
    let mut words = vec![0; WORDS];
    let Some(snapshot) = source.dataset() else {
        let head = change.dir(source.dir().id)?.head_dataset;
        let own = source.name().split_once('#').map_or("", |(_, own)| own);
        let of = Bookmarks::open(change, head)?.all()?.into_iter().find(|one| one.name == own);
        let of = of.ok_or_else(|| Error::new(Kind::NotFound, "bookmark does not exist"))?;
        words[..of.words.len().min(WORDS)].copy_from_slice(&of.words[..of.words.len().min(WORDS)]);
        // a list of what was redacted belongs to one bookmark only
        words[3] = 0;
        return Ok(words);
    };
    let phys = &snapshot.phys;
    words[..3].copy_from_slice(&[phys.guid.get(), phys.creation_txg.get(), phys.creation_time_s]);
    let redacted = feature::used_by(change, snapshot.id)?.into_iter().find(|(guid, _)| guid == REDACTED_DATASETS);
    if let Some((_, guids)) = redacted {
        // what was left out of it is a hole: the list is empty, and says only for which snapshots
        let head = RedactionHead { last: RedactionHead::COMPLETE, ranges: 0, snapshots: guids.guids() };
        words[3] = redaction_list::create(change, &head)?.get();
    }
    if feature::is_zapified(change, snapshot.id.object())? && feature::is_enabled(change, BOOKMARK_V2)? {
        words[11] = change.number(snapshot.id.object(), IVSET_GUID)?.unwrap_or(0);
    }
    if feature::is_enabled(change, BOOKMARK_WRITTEN)? {
        let next = change.dataset(phys.next_snap)?;
        let freed = Deadlist::open(change, next.deadlist)?.totals()?;
        words[4] = FLAG_FREED_BEFORE_NEXT | FLAG_SNAPSHOT_EXISTS;
        words[5..8].copy_from_slice(&[phys.referenced_bytes, phys.compressed_bytes, phys.uncompressed_bytes]);
        words[8..11].copy_from_slice(&[freed.used, freed.compressed, freed.uncompressed]);
    }
    Ok(words)
}
