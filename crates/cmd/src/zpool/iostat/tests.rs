//! The layout of OpenZFS, with numbers of our own.

use protocol::pool_report::{TopSpace, VdevState};

use super::*;

fn leaf(name: &str, guid: Guid) -> VdevReport {
    let path = Some(format!("/dev/{name}"));
    VdevReport { kind: "disk".into(), path, guid, state: VdevState::Healthy, ..VdevReport::default() }
}

fn space(allocated_bytes: u64, size_bytes: u64) -> Option<TopSpace> {
    Some(TopSpace { allocated_bytes, size_bytes, ..TopSpace::default() })
}

/// A mirror, a log and a cache device; the mirror has done this.
fn subject(open_ns: u64, operations: [u64; 2], bytes: [u64; 2]) -> PoolIo {
    let mirror = VdevReport {
        kind: "mirror".into(),
        guid: Guid::new(2),
        space: space(512 << 20, 2 << 30),
        children: vec![leaf("sda", Guid::new(3)), leaf("sdb", Guid::new(4))],
        ..VdevReport::default()
    };
    let log = VdevReport { is_log: true, space: space(0, 1 << 30), ..leaf("sdc", Guid::new(5)) };
    let root = VdevReport {
        kind: "root".into(),
        guid: Guid::new(1),
        space: space(512 << 20, 2 << 30),
        children: vec![mirror, log],
        ..VdevReport::default()
    };
    let pool = PoolReport {
        name: "tank".into(),
        guid: Guid::new(1),
        root,
        caches: vec![leaf("sdd", Guid::new(6))],
        ..PoolReport::default()
    };
    let mut times = vec![0; 37];
    (times[10], times[20]) = (operations[0], operations[1]);
    let mut sizes = vec![0; 25];
    sizes[12] = operations[1];
    let io = IoCounters {
        operations,
        bytes,
        pending: [0, 0, 0, 7, 0, 0, 3],
        active: [1, 0, 0, 2000, 4, 0, 0],
        total: [times.clone(), times.clone()],
        disk: [times.clone(), times],
        waits: [vec![0; 37], vec![0; 37], vec![0; 37], vec![1; 37], vec![0; 37], vec![0; 37], vec![0; 37]],
        sizes: [vec![0; 25], vec![0; 25], vec![0; 25], sizes, vec![0; 25], vec![9; 25], vec![0; 25]],
        joined_sizes: [vec![0; 25], vec![0; 25], vec![0; 25], vec![0; 25], vec![2; 25], vec![0; 25], vec![0; 25]],
    };
    let vdevs = [1, 2, 3].map(|guid| (Guid::new(guid), io.clone())).into();
    PoolIo { pool, io: IoReport { open_ns, vdevs } }
}

fn options(line: &str) -> IostatOptions {
    let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    let (mut options, _) = options_of(&getopt::parse(&args, "gLPT:vyhplqrwnH", &[]).opts).unwrap();
    if !options.groups.iter().any(|group| group.is_histogram()) {
        options.groups.insert(0, ColumnGroup::Usage);
    }
    options
}

fn shown(line: &str, subjects: &[PoolIo], before: &HashMap<Guid, IoReport>) -> String {
    let options = options(line);
    heading(subjects, &options) + &report(subjects, before, &options)
}

#[test]
fn usage_of_all_vdevs() {
    let first = subject(10_000_000_000, [20, 1000], [40960, 15 << 20]);
    let none = HashMap::new();
    let expect = "              capacity     operations     bandwidth 
pool        alloc   free   read  write   read  write
----------  -----  -----  -----  -----  -----  -----
tank         512M  1.50G      2    100     4K  1.50M
";
    let first = [first];
    assert_eq!(shown("", &first, &none), expect);
    let expect = "              capacity     operations     bandwidth 
pool        alloc   free   read  write   read  write
----------  -----  -----  -----  -----  -----  -----
tank         512M  1.50G      2    100     4K  1.50M
  mirror-0   512M  1.50G      2    100     4K  1.50M
    sda         -      -      2    100     4K  1.50M
    sdb         -      -      0      0      0      0
logs            -      -      -      -      -      -
  sdc           0     1G      0      0      0      0
cache           -      -      -      -      -      -
  sdd           -      -      0      0      0      0
----------  -----  -----  -----  -----  -----  -----
";
    assert_eq!(shown("-v", &first, &none), expect);
    // two seconds later
    let before = first.into_iter().map(|s| (s.pool.guid, s.io)).collect();
    let later = [subject(12_000_000_000, [20, 1010], [40960, (15 << 20) + 8192])];
    assert_eq!(shown("-H", &later, &before), "tank\t512M\t1.50G\t0\t5\t0\t4K\n");
    assert_eq!(shown("-Hp", &later, &before), "tank\t536870912\t1610612736\t0\t5\t0\t4096\n");
    // imported anew meanwhile
    assert_eq!(
        shown("-Hp", &[subject(1_000_000_000, [3, 4], [5, 6])], &before),
        "tank\t536870912\t1610612736\t3\t4\t5\t6\n"
    );
}

#[test]
fn times_and_queues() {
    let expect = "              capacity     operations     bandwidth    total_wait     disk_wait    syncq_wait    asyncq_wait  \
scrub   trim  rebuild
pool        alloc   free   read  write   read  write   read  write   read  write   read  write   read  write   wait   \
wait   wait
----------  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  \
-----  -----
tank         512M  1.50G      1      1      0      0  787us  787us  787us  787us      -      -      -     5s      -      \
-      -
";
    let now = [subject(1_000_000_000, [1, 1], [0, 0])];
    assert_eq!(shown("-l", &now, &HashMap::new()), expect);
    let queues = shown("-lqH", &now, &HashMap::new());
    let cells: Vec<&str> = queues.trim_end().split('\t').collect();
    assert_eq!(cells.len(), 1 + 6 + 11 + 14);
    assert_eq!(cells[18..], ["0", "1", "0", "0", "0", "0", "7", "1.95K", "0", "4", "0", "0", "3", "0"]);
    let head = shown("-q", &now, &HashMap::new());
    assert!(
        head.starts_with("              capacity     operations     bandwidth    syncq_read    syncq_write "),
        "{head}"
    );
}

#[test]
fn histograms() {
    let now = [subject(1_000_000_000, [1, 5], [0, 0])];
    let text = shown("-r", &now, &HashMap::new());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1 + 3 + 16 + 1);
    assert_eq!(
        lines[1],
        "tank          sync_read    sync_write    async_read    async_write      scrub         trim         rebuild  "
    );
    assert!(lines[2].starts_with("req_size      ind    agg    ind"));
    assert_eq!(
        lines[7],
        format!("{:10}{}", "4K", [0, 0, 0, 0, 0, 0, 5, 0, 0, 2, 9, 0, 0, 0].map(|n| format!("{n:7}")).concat())
    );
    assert_eq!((lines[4].split_whitespace().next(), lines[19].split_whitespace().next()), (Some("512"), Some("16M")));
    assert_eq!(lines[20], "-".repeat(10 + 14 * 7));
    let text = shown("-w", &now, &HashMap::new());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1 + 3 + 37 + 1);
    assert_eq!(lines[4], "1ns             0      0      0      0      0      0      0      1      0      0      0");
    assert_eq!(lines[14], "2us             1      1      1      1      0      0      0      1      0      0      0");
    assert_eq!(lines[40], "137s            0      0      0      0      0      0      0      1      0      0      0");
    let scripted = shown("-rH", &now, &HashMap::new());
    assert!(scripted.starts_with("\ntank\n512\t0\t0\t"), "{scripted}");
}

#[test]
fn pools_and_vdevs_are_told_apart() {
    let here = [subject(1, [0, 0], [0, 0])];
    let chosen = |line: &str| {
        let mut options = options("");
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        choose(words, &here, &mut options).map(|names| (names, options.only))
    };
    assert_eq!(chosen(""), Ok((vec![], vec![])));
    assert_eq!(chosen("tank"), Ok((vec!["tank".into()], vec![])));
    assert_eq!(chosen("sda /dev/sdd mirror-0 5"), Ok((vec![], [3, 6, 2, 5].map(Guid::new).to_vec())));
    assert_eq!(chosen("tank sdb"), Ok((vec!["tank".into()], vec![Guid::new(4)])));
    assert_eq!(chosen("nope"), Err(Stop::Failed("Unable to parse pools/vdevs list.\n".into())));
    let text = "Expected either a list of pools, or list of vdevs in \"tank\", but got:\n\
                \tsda (vdev in this pool)\n\ttank (pool)\n\tnope (unknown)\n";
    assert_eq!(chosen("tank sda tank nope"), Err(Stop::Usage(text.into())));
    // with -g, a number is a vdev first
    let split = |line: &str, guids| {
        let mut options = options("");
        options.style.guids = guids;
        let words = line.split_whitespace().map(str::to_owned).collect();
        interval(words, &options, &here).map(|(words, repeat)| (words, repeat.is_repeated()))
    };
    assert_eq!(split("3", true), Ok((vec!["3".into()], false)));
    assert_eq!(split("3 7", true), Ok((vec!["3".into()], true)));
    assert_eq!(split("3", false), Ok((vec![], true)));
    let mut only = options("");
    (only.only, only.verbose) = ([3, 5].map(Guid::new).to_vec(), true);
    let expect = "\nsda             -      -      0      0      0      0\n";
    let text = heading(&here, &only) + &report(&here, &HashMap::new(), &only);
    assert!(text.contains("\nvdev        alloc") && text.contains(expect), "{text}");
}
