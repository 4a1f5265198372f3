//! The log in memory, from process to process.

use super::*;

const SET: DatasetId = DatasetId::new(54);
const OTHER: DatasetId = DatasetId::new(60);

fn details(generation: u64, data: &[u8]) -> OperationDetails<'_> {
    OperationDetails { generation, data: data.into(), ..OperationDetails::of_names([7, 9]) }
}

fn tell(log: &MemoryLog, dataset: DatasetId, txg: u64, entry: &Itx, details: OperationDetails<'_>) -> u64 {
    let mut told = ToldOperation::of(dataset, Txg::new(txg), entry, Some(details)).unwrap();
    let Some(place) = log.reserve(&mut told) else { return 0 };
    log.complete(&place, &told);
    place.number()
}

fn write(log: &MemoryLog, dataset: DatasetId, txg: u64, object: u64, data: &[u8]) -> u64 {
    let object = ObjectId::new(object);
    let body = ItxBody::Write { object, generation: 3, offset: 0, len: data.len() as u64, data: None };
    tell(log, dataset, txg, &Itx { scope: Scope::Object(object), body }, details(3, data))
}

fn name(log: &MemoryLog, txg: u64, name: &[u8], made: u64) -> u64 {
    let intent = Intent::Remove { dir: ObjectId::new(34), name, is_rmdir: false };
    let body = ItxBody::Record { kind: intent.kind(), bytes: intent.bytes() };
    let made = OperationDetails { made: ObjectId::new(made), ..details(0, b"") };
    tell(log, SET, txg, &Itx { scope: Scope::Names, body }, made)
}

/// The process dies: what the next one has, of a pool with that group on disk.
fn next(log: &MemoryLog, synced: u64) -> MemoryLog {
    MemoryLog::take_over(log.as_fd().try_clone_to_owned().unwrap(), Txg::new(synced)).unwrap()
}

/// What is to be done again, as text.
fn left(log: &MemoryLog, dataset: DatasetId) -> Vec<String> {
    let mut all = Vec::new();
    for left in log.left_of(dataset) {
        let mut apply = |left: &LeftOperation<'_>| {
            assert_eq!(left.time, [7, 9]);
            all.push(match left.record.intent().unwrap() {
                Intent::Write { object, data: WrittenData::Here(data), .. } => {
                    assert_eq!(left.generation, Some(3));
                    format!("{object} {}", String::from_utf8_lossy(data))
                }
                Intent::Remove { name, .. } => String::from_utf8_lossy(name).into_owned(),
                other => panic!("{other:?}"),
            });
            Ok(())
        };
        log.apply(&left, &mut apply).unwrap();
    }
    all
}

fn filled() -> MemoryLog {
    let log = MemoryLog::new(1 << 20).unwrap();
    write(&log, SET, 5, 8, b"old");
    name(&log, 6, b"a", 0);
    write(&log, SET, 6, 8, b"first");
    write(&log, OTHER, 6, 8, b"others");
    write(&log, SET, 7, 9, b"second");
    name(&log, 7, b"b", 0);
    log
}

#[test]
fn what_no_group_has_is_left() {
    let log = filled();
    let second = next(&log, 5);
    assert_eq!(second.left(), [SET, OTHER]);
    assert_eq!(left(&second, SET), ["a", "8 first", "9 second", "b"]);
    assert_eq!(left(&second, OTHER), ["8 others"]);
    assert!(!second.is_whole(SET), "it is not done again yet");
    // some is done again, in groups whose numbers were used before, and the process dies again
    let all = second.left_of(SET);
    second.redone(&all[0].place, Txg::new(6));
    second.redone(&all[1].place, Txg::new(7));
    assert_eq!(left(&next(&log, 6), SET), ["8 first", "9 second", "b"]);
    let third = next(&log, 6);
    assert_eq!(left(&third, OTHER), ["8 others"]);
    third.done_again(SET, true).unwrap();
    third.done_again(OTHER, true).unwrap();
    assert!(third.is_whole(SET) && third.is_whole(DatasetId::new(77)));
}

#[test]
fn groups_on_disk_make_room() {
    let log = MemoryLog::new(1 << 16).unwrap();
    for txg in 10..1000 {
        assert_ne!(write(&log, SET, txg, 8, &[b'x'; 9000]), 0, "group {txg}");
        assert_eq!(log.is_due(), txg % 2 == 1 && log.file.taken().0 > 1 << 15);
        log.synced(Txg::new(txg - 1));
    }
    assert_eq!(left(&next(&log, 998), SET).len(), 1);
    log.synced(Txg::new(999));
    assert!(next(&log, 999).left().is_empty());
}

#[test]
fn where_something_cannot_be_told_nothing_is_done_again() {
    let log = filled();
    log.gap(SET, Txg::new(7));
    assert!(!log.covers(SET) && log.covers(OTHER));
    assert_eq!(write(&log, SET, 7, 8, b"in vain"), 0);
    assert_ne!(write(&log, SET, 8, 8, b"third"), 0);
    let second = next(&log, 6);
    assert_eq!((left(&second, SET).len(), second.is_whole(SET)), (0, false));
    assert_eq!(left(&second, OTHER).len(), 0, "group 6 is on disk");
    assert!(second.is_whole(OTHER));
    // nothing is found again in the third process, which knows of the gap until somebody has been told
    assert!(!next(&log, 6).is_whole(SET));
    second.taken_over().unwrap();
    assert!(next(&log, 6).is_whole(SET));

    let log = filled();
    log.gap(SET, Txg::new(7));
    write(&log, SET, 8, 8, b"third");
    let second = next(&log, 7);
    assert_eq!(left(&second, SET), ["8 third"], "the group of the gap is on disk");
    log.synced(Txg::new(7));
    assert!(log.covers(SET));
}

#[test]
fn a_full_log_is_of_no_use_until_its_group_is_on_disk() {
    let log = MemoryLog::new(1 << 16).unwrap();
    let mut count = 0;
    while write(&log, SET, 5, 8, &[1; 1000]) != 0 {
        count += 1;
    }
    assert!(count > 50 && !log.covers(SET) && !log.covers(OTHER));
    assert_ne!(write(&log, OTHER, 6, 8, b"next"), 0);
    assert_eq!(left(&next(&log, 5), OTHER), ["8 next"]);
    let second = next(&log, 4);
    assert!(second.left().is_empty() && !second.is_whole(SET) && !second.is_whole(OTHER));
    second.taken_over().unwrap();
    assert!(next(&log, 4).is_whole(SET));
}

/// The intent log is about to get these records of a set, of all that it has.
fn logged(log: &MemoryLog, dataset: DatasetId, seqs: &[(usize, u64)]) {
    let (_, places) = RecordFile::open(log.as_fd().try_clone_to_owned().unwrap()).unwrap();
    let all = places.into_iter().map(|place| LeftRecord::read(&log.file, place).unwrap().unwrap());
    let own: Vec<RecordPlace> = all.filter(|found| found.dataset == dataset).map(|found| found.left.place).collect();
    log.logged(&seqs.iter().map(|(at, seq)| (own[*at], *seq)).collect::<Vec<_>>());
}

#[test]
fn what_the_intent_log_has_is_not_done_again() {
    let told = || {
        let log = filled();
        write(&log, SET, 7, 9, b"joined");
        write(&log, SET, 7, 9, b"third");
        // a commit of object 9 has the names, too; the second write goes on where the first ended
        logged(&log, SET, &[(1, 38), (3, 39), (4, 40), (6, 43)]);
        write(&log, SET, 7, 9, b"fourth");
        name(&log, 7, b"c", 0);
        log
    };
    let all = ["a", "8 first", "9 second", "b", "9 joined", "9 third", "9 fourth", "c"];
    let cases = [
        (0, &all[..]),
        (38, &all[1..]),
        (39, &["8 first", "b", "9 joined", "9 third", "9 fourth", "c"]),
        (42, &["8 first", "9 joined", "9 third", "9 fourth", "c"]),
        (50, &["8 first", "9 fourth", "c"]),
    ];
    for (last, expected) in cases {
        let second = next(&told(), 5);
        second.settle_logged(SET, last);
        assert_eq!(left(&second, SET), expected, "{last}");
        assert_eq!(left(&second, OTHER), ["8 others"]);
        assert_eq!(second.time_of(SET, 41), (last == 50).then_some([7, 9]), "of a part of the write");
        // the third process finds the log replayed
        let third = next(&second, 5);
        third.settle_logged(SET, 77);
        assert_eq!(left(&third, SET), expected, "{last}");
    }
}

#[test]
fn an_object_that_the_intent_log_makes_is_not_the_one_before() {
    let log = MemoryLog::new(1 << 20).unwrap();
    write(&log, SET, 6, 8, b"of the one before");
    name(&log, 6, b"removed", 0);
    name(&log, 6, b"made", 8);
    write(&log, SET, 6, 8, b"of this one");
    logged(&log, SET, &[(1, 11), (2, 12)]);
    let second = next(&log, 5);
    second.settle_logged(SET, 12);
    assert_eq!(left(&second, SET), ["8 of this one"]);
}

#[test]
fn a_record_that_cannot_be_done_again_is_a_loss() {
    let log = filled();
    let second = next(&log, 5);
    second.done_again(SET, false).unwrap();
    assert!(!second.is_whole(SET));
    let third = next(&log, 5);
    assert!(!third.is_whole(SET), "nobody was told yet");
    assert_eq!(left(&third, OTHER), ["8 others"]);
    second.taken_over().unwrap();
    assert!(next(&log, 5).is_whole(SET));
}
