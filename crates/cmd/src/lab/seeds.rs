//! Figures of the papers that asked these questions first. The machines are those of 2010 to 2016, so that ratios count, and
//! not figures.
//!
//! - "Hybrid pool" (2012): Solaris 10, a mirror of 7200 rpm disks, two SSDs of 40 GB
//! - "ZFS on Linux evaluated" (2016): an ocean model's files of 900 GB, by 1 GbE, 12 GB of memory
//! - "15k disks as a log" (2013): SmartOS, a mirror of 10k disks of 146 GB, a mirror of 15k disks of 73 GB as its log
//! - "An SSD judged as a log" (2014): ten disks without and with a protected SSD as their log
//! - "dm-cache below btrfs" (2013): images of virtual machines on a 5400 rpm disk, a cache of 5 GiB on an SSD

/// Bytes of each synchronous write, and transactions a second of a mirror of disks, and of it with a log mirrored on SSDs.
pub const SYNC: [(u64, f64, f64); 13] = [
    (1, 114.4, 4329.8),
    (16, 98.7, 3951.8),
    (256, 114.6, 4255.5),
    (1 << 10, 105.2, 3755.2),
    (4 << 10, 116.9, 2969.5),
    (8 << 10, 97.6, 2351.5),
    (16 << 10, 113.2, 1467.7),
    (32 << 10, 113.2, 624.8),
    (64 << 10, 44.5, 171.6),
    (128 << 10, 51.9, 133.0),
    (256 << 10, 37.9, 83.8),
    (512 << 10, 31.4, 48.4),
    (1 << 20, 26.7, 24.5),
];

/// KiB a second of random reads of 512 bytes to 1 MiB by one thread: a disk, and an SSD.
pub const RANDREAD: [[f64; 12]; 2] = [
    [32.0, 65.0, 128.0, 261.0, 526.0, 1001.0, 1986.0, 3867.0, 7209.0, 13029.0, 22073.0, 32506.0],
    [3907.0, 7800.0, 15606.0, 30818.0, 61095.0, 67066.0, 67777.0, 76454.0, 89129.0, 98382.0, 102813.0, 104858.0],
];

/// K a second of bonnie++'s blocks written, rewritten and read, and seeks a second: without the log, and with it.
pub const FAST_DISKS: [[f64; 4]; 2] = [[68_951.0, 26_294.0, 55_544.0, 1_362.0], [67_928.0, 26_515.0, 55_534.0, 908.3]];

/// Settings, MB a second and ratios of an ocean model's files: of compression, and of dedup.
pub const PRACTICE: [(&str, f64, f64, f64); 5] = [
    ("default", 74.88, 1.0, 1.0),
    ("compression=lz4", 71.70, 1.56, 1.0),
    ("compression=gzip", 72.72, 2.08, 1.0),
    ("dedup=on", 33.14, 1.0, 1.04),
    ("dedup=on compression=lz4", 29.57, 1.54, 1.26),
];

/// How many times as fast synchronous writes of ten disks are with a protected SSD as their log.
pub const JUDGE_GAIN: f64 = 10.0;

/// Parts in a hundred of reads and of writes that dm-cache had on the SSD, below btrfs with images of machines.
pub const DM_CACHE_HITS: [f64; 2] = [0.12, 4.0];
