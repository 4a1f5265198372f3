use super::view::{Size, lines};
use super::watch::Watch;
use super::*;

/// A table that was written after so many seconds.
fn table(seconds: u64, values: &[(&str, u64)]) -> KstatTable {
    let values = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    KstatTable { at_ns: seconds * 1_000_000_000, values, ..KstatTable::default() }
}

fn dataset(seconds: u64, name: &str, [reads, read, writes, written]: [u64; 4]) -> KstatTable {
    let values =
        [("reads", reads), ("nread", read), ("writes", writes), ("nwritten", written), ("page_cache_fill", read)];
    KstatTable { dataset: Some(name.to_owned()), ..table(seconds, &values) }
}

/// A pool that has done `n` of everything.
fn pool(seconds: u64, n: u64) -> Vec<KstatTable> {
    let arcstats = [
        ("hits", 900 * n),
        ("misses", 100 * n),
        ("mru_hits", 300 * n),
        ("mfu_hits", 600 * n),
        ("demand_data_hits", 500 * n),
        ("demand_metadata_hits", 400 * n),
        ("prefetch_data_misses", 100 * n),
        ("l2_hits", 40 * n),
        ("l2_misses", 60 * n),
        ("l2_size", 2 << 30),
        ("l2_asize", 1 << 30),
        ("l2_write_bytes", n << 20),
        ("size", 300 << 20),
        ("c", 500 << 20),
        ("c_max", 1 << 30),
        ("mru_size", 100 << 20),
        ("mfu_size", 190 << 20),
        ("metadata_size", 10 << 20),
        ("mru_ghost_size", 7 << 20),
        ("mru_ghost_hits", 2 * n),
    ];
    let zil = [("zil_commit_count", 5 * n), ("zil_itx_metaslab_slog_write", n << 12)];
    let io = [("reads", 60 * n), ("nread", n << 21), ("writes", 3 * n)];
    let home = [10 * n, n << 16, n, n << 12];
    [
        ("arcstats", table(seconds, &arcstats)),
        ("zil", table(seconds, &zil)),
        ("io", table(seconds, &io)),
        ("objset-0x36", dataset(seconds, "tank", [0; 4])),
        ("objset-0x99", dataset(seconds, "tank/home", home)),
    ]
    .map(|(name, table)| named(name, table))
    .into()
}

fn named(name: impl Into<String>, table: KstatTable) -> KstatTable {
    KstatTable { name: name.into(), ..table }
}

fn see(watch: &mut Watch, pools: &[(&str, Vec<KstatTable>)]) {
    watch.see(pools.iter().map(|(name, tables)| ((*name).to_owned(), tables.clone())).collect());
}

fn text(watch: &Watch, screen: Option<Size>) -> String {
    lines(watch, &[], "12:00:01", screen).iter().map(|line| line.text.trim_end().to_owned() + "\n").collect()
}

#[test]
fn two_looks_at_a_pool() {
    let mut watch = Watch::default();
    see(&mut watch, &[("tank", pool(10, 10))]);
    see(&mut watch, &[("tank", pool(12, 14))]);
    assert_eq!(text(&watch, None), SHOWN);
    // it was not written since
    see(&mut watch, &[("tank", pool(12, 14))]);
    assert_eq!(text(&watch, None), SHOWN);
}

#[test]
fn pools_come_and_go() {
    let mut watch = Watch::default();
    assert_eq!(text(&watch, None), "cenote top  12:00:01  no pool is in use\n");
    let absent = lines(&watch, &["tank".to_owned()], "12:00:01", None);
    assert_eq!(absent[0].text, "cenote top  12:00:01    not in use: tank");
    see(&mut watch, &[("tank", pool(10, 10))]);
    assert_eq!(watch.count("arcstats", "hits").per_s, 900.0, "since its process began");
    see(&mut watch, &[("tank", pool(11, 10)), ("data", pool(2, 1))]);
    let hits = watch.count("arcstats", "hits");
    assert_eq!((hits.per_s, hits.all), (450.0, 9900));
    assert!(text(&watch, None).starts_with("cenote top  12:00:01  data, tank  last 2.0 s\n"));
    // exported, and imported again
    see(&mut watch, &[("tank", pool(1, 3))]);
    assert_eq!(watch.count("arcstats", "hits").per_s, 2700.0);
    see(&mut watch, &[]);
    assert_eq!(text(&watch, None), "cenote top  12:00:01  no pool is in use\n");
}

#[test]
fn what_is_mounted_anew_counts_from_zero() {
    let mut watch = Watch::default();
    let of = |table: KstatTable| vec![named("objset-0x36", table)];
    see(&mut watch, &[("tank", of(dataset(5, "tank", [100; 4])))]);
    see(&mut watch, &[("tank", of(dataset(6, "tank", [30; 4])))]);
    assert_eq!(watch.datasets()[0].reads.per_s, 30.0);
}

#[test]
fn the_busiest_comes_first() {
    let mut watch = Watch::default();
    let sets = [("b", [1, 10, 0, 0]), ("c", [1, 5, 1, 500]), ("a", [1, 10, 0, 0]), ("d", [9, 10, 0, 0])];
    let tables = sets.map(|(name, counts)| named(format!("objset-{name}"), dataset(1, name, counts)));
    see(&mut watch, &[("tank", tables.into())]);
    let names: Vec<String> = watch.datasets().into_iter().map(|dataset| dataset.name).collect();
    assert_eq!(names, ["c", "d", "a", "b"]);
}

#[test]
fn nothing_is_wider_or_longer_than_the_screen() {
    let mut watch = Watch::default();
    let mut tables = pool(10, 10);
    for n in 0..30 {
        let name = format!("tank/{}/\x1b{n}", "x".repeat(40));
        tables.push(named(format!("objset-{n}"), dataset(10, &name, [n; 4])));
    }
    see(&mut watch, &[("tank", tables)]);
    for (columns, rows) in [(80, 24), (200, 100), (41, 30), (10, 3), (1, 1), (0, 0)] {
        let lines = lines(&watch, &[], "12:00:01", Some(Size { columns, rows }));
        assert!(lines.len() <= rows, "{columns} {rows}");
        let fits = |line: &ScreenLine| line.text.chars().count() <= columns && !line.text.contains(char::is_control);
        assert!(lines.iter().all(fits), "{lines:?}");
    }
    let shown = text(&watch, Some(Size { columns: 80, rows: 24 }));
    let last: Vec<&str> = shown.lines().rev().take(2).collect();
    assert_eq!(last[0], "and 29 more");
    let name = format!("+{}/\\03328", "x".repeat(32));
    assert_eq!(last[1], format!("{name:<40}       2.8        3B       2.8        3B"));
}

const SHOWN: &str = "\
cenote top  12:00:01  tank  last 2.0 s
READS FROM      blocks/s     share    in all     share
  page cache          not known; took 128K/s, 896K in all
  ARC, MRU           600     30.0%     4.10K     30.0%
  ARC, MFU         1.17K     60.0%     8.20K     60.0%
  L2ARC               80      4.0%       560      4.0%
  disks              120      6.0%       840      6.0%
HIT RATIO            ARC      data  metadata  prefetch     L2ARC
  last             90.0%    100.0%    100.0%      0.0%     40.0%
  in all           90.0%    100.0%    100.0%      0.0%     40.0%
ARC                 size    target      most       MRU       MFU  metadata
  held              300M      500M        1G      100M      190M       10M
  ghosts                                            7M        0B
  ghost hits/s                                     4.0         0
  in all                                            28         0
L2ARC     holds 2G, stored as 1G; fed 2M/s, read 0B/s, 80 hits/s
PREFETCH  0 hits/s, 0 misses/s; 0 blocks/s read ahead, 0/s used
LOG       10 commits/s; to log vdevs 8K/s, pool 0B/s, in place 0B/s
DISKS     120 reads/s, 4M/s; 6.0 writes/s, 0B/s
DATASET        reads/s   bytes/s  writes/s   bytes/s
tank/home           20      128K       2.0        8K
tank                 0        0B         0        0B
";
