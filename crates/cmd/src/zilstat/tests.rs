use protocol::log_report::GroupEnd;

use super::*;

fn sums(n: u64) -> LogSums {
    LogSums { used_bytes: n * 3000, block_bytes: n * 4096, blocks: n, by_size: [n, 0, 0], in_place_bytes: 0 }
}

fn end(txg: Txg, seconds: u64, n: u64) -> GroupEnd {
    GroupEnd { txg, at_ns: seconds * 1_000_000_000, sums: sums(n) }
}

fn report(seconds: u64, n: u64, groups: &[GroupEnd]) -> LogReport {
    LogReport { now_ns: seconds * 1_000_000_000, sums: sums(n), groups: groups.to_vec(), commits: Vec::new() }
}

#[test]
fn each_group_has_a_line_with_its_busiest_second() {
    let ends = [end(Txg::new(7), 10, 100), end(Txg::new(8), 15, 150), end(Txg::new(9), 20, 1150)];
    let mut follower = LogFollower::new(&report(12, 110, &ends[..1]));
    assert!(follower.follow(&report(13, 120, &ends[..1])).is_empty());
    assert!(follower.follow(&report(14, 125, &ends[..1])).is_empty());
    let rows = follower.follow(&report(15, 150, &ends[..2]));
    let (txg, row) = rows[0];
    assert_eq!((rows.len(), txg, row.seconds, row.sums), (1, Txg::new(8), 5.0, sums(50)));
    assert_eq!(row.most, [25.0 * 3000.0, 25.0 * 4096.0], "the second before the end");
    for (second, n) in [(16, 150), (17, 1050), (18, 1060)] {
        assert!(follower.follow(&report(second, n, &ends[..2])).is_empty());
    }
    let rows = follower.follow(&report(21, 1160, &ends));
    assert_eq!((rows.len(), rows[0].0, rows[0].1.most[1]), (1, Txg::new(9), 900.0 * 4096.0));
}

#[test]
fn lines_stand_below_their_headings() {
    let mut row = LogRow { sums: sums(10), seconds: 2.0, most: [0.0; 2] };
    row.note(&sums(9), 1.0);
    assert_eq!(
        row.text(),
        "     30000      15000      27000      40960      20480      36864     10     10      0      0"
    );
    assert_eq!(row.text().len(), heading().len());
    assert!(LogRow::default().text().split_whitespace().all(|word| word == "0"));
}

#[test]
fn a_log_device_bears_two_to_three_groups() {
    assert_eq!(report(1, 1, &[]).heaviest_group(), None);
    let ends = [end(Txg::new(1), 1, 0), end(Txg::new(2), 2, 4096), end(Txg::new(3), 3, 4100)];
    assert_eq!(report(4, 4100, &ends).heaviest_group(), Some(16 << 20));
    assert_eq!(report(4, 4100 + 5000, &ends).heaviest_group(), Some(5000 * 4096), "the open one");
    let mut with_pointers = report(4, 4100, &ends);
    with_pointers.sums.in_place_bytes = 1 << 30;
    assert_eq!(with_pointers.heaviest_group(), Some(1 << 30));
    assert!(advice(Some(16 << 20)).contains("needs 32M to 48M (the smallest that can be used has 64M)"));
    assert!(advice(Some(1 << 30)).ends_with("needs 2G to 3G."));
    assert!(advice(Some(0)).contains("Nothing was logged") && advice(None).contains("yet"));
    // a dataset that was destroyed
    assert_eq!(sums(3).since(&sums(5)), LogSums::default());
}
