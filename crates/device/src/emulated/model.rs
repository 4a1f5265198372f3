//! The kinds of devices that are emulated, what they say of themselves, and the model of each.

use std::fmt;

use super::disk::{DiskParameters, SpinningDisk};
use super::flash::{Cliff, FlashModel, FlashParameters, FlushRule};
use super::jitter::Jitter;
use crate::DeviceOp;

const KIB: f64 = 1024.0;
const MIB: f64 = KIB * KIB;
const GIB: f64 = KIB * MIB;
/// Bytes a second that a link of SATA at 6 Gbit/s carries beside its own overhead.
const SATA_LINK: f64 = 530e6;

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmulatedKind {
    /// A hard disk of 7200 revolutions a minute.
    Hdd7200,
    /// A hard disk of 10,000.
    Hdd10k,
    /// A hard disk of 15,000.
    Hdd15k,
    /// An SSD at SATA for desktops: its cache is volatile, and a flush programs flash memory.
    Ssd,
    /// An SSD at SATA with power-loss protection: its cache lasts, and a flush has nothing to do.
    SsdPlp,
    /// An SSD at SATA that becomes slow when what it keeps in fast cells is full.
    SsdCliff,
    /// An SSD at SATA whose cache is volatile, and whose flush does nothing.
    SsdLiar,
    /// An NVMe SSD for desktops: a fast link, and a volatile cache.
    Nvme,
}

/// All kinds.
pub const ALL_EMULATED: [EmulatedKind; 8] = [
    EmulatedKind::Hdd7200,
    EmulatedKind::Hdd10k,
    EmulatedKind::Hdd15k,
    EmulatedKind::Ssd,
    EmulatedKind::SsdPlp,
    EmulatedKind::SsdCliff,
    EmulatedKind::SsdLiar,
    EmulatedKind::Nvme,
];

/// What a device says of itself, where it says that.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceSays {
    /// It turns.
    pub is_rotational: Option<bool>,
    /// It has a write cache that has to be flushed.
    pub has_volatile_cache: Option<bool>,
    /// What is in its cache survives a power cut.
    pub is_protected: Option<bool>,
    /// Bytes that may be written to it in its life.
    pub rated_bytes: Option<u64>,
}

/// The words for each thing that a device says.
const ROTATIONAL: &str = "rotational";
const VOLATILE_CACHE: &str = "volatile_cache";
const PROTECTED: &str = "protected";
const RATED_BYTES: &str = "rated_bytes";

impl DeviceSays {
    /// Reads what [`fmt::Display`] writes. Words that are not known, and values that are none, count as nothing.
    pub fn parse(text: &str) -> DeviceSays {
        let value = |key: &str| text.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        let flag = |key: &str| match value(key)? {
            "1" => Some(true),
            "0" => Some(false),
            _ => None,
        };
        DeviceSays {
            is_rotational: flag(ROTATIONAL),
            has_volatile_cache: flag(VOLATILE_CACHE),
            is_protected: flag(PROTECTED),
            rated_bytes: value(RATED_BYTES).and_then(|text| text.parse().ok()),
        }
    }
}

impl fmt::Display for DeviceSays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = [
            (ROTATIONAL, self.is_rotational),
            (VOLATILE_CACHE, self.has_volatile_cache),
            (PROTECTED, self.is_protected),
        ];
        let numbers = flags.into_iter().filter_map(|(key, flag)| Some((key, u64::from(flag?))));
        let words = numbers.chain(self.rated_bytes.map(|bytes| (RATED_BYTES, bytes)));
        let words: Vec<String> = words.map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&words.join(" "))
    }
}

impl EmulatedKind {
    /// The name of the kind, as commands have it.
    pub fn name(self) -> &'static str {
        match self {
            EmulatedKind::Hdd7200 => "hdd7200",
            EmulatedKind::Hdd10k => "hdd10k",
            EmulatedKind::Hdd15k => "hdd15k",
            EmulatedKind::Ssd => "ssd",
            EmulatedKind::SsdPlp => "ssd-plp",
            EmulatedKind::SsdCliff => "ssd-cliff",
            EmulatedKind::SsdLiar => "ssd-liar",
            EmulatedKind::Nvme => "nvme",
        }
    }

    /// The kind of that name.
    pub fn of_name(name: &str) -> Option<EmulatedKind> {
        ALL_EMULATED.into_iter().find(|kind| kind.name() == name)
    }

    /// What such a device says of itself: the honest ones the truth.
    pub fn says(self) -> DeviceSays {
        let (protected, rated) = match self {
            EmulatedKind::Hdd7200 | EmulatedKind::Hdd10k | EmulatedKind::Hdd15k => (false, None),
            EmulatedKind::Ssd | EmulatedKind::SsdLiar => (false, Some(150e12)),
            EmulatedKind::SsdPlp => (true, Some(5000e12)),
            EmulatedKind::SsdCliff => (false, Some(100e12)),
            EmulatedKind::Nvme => (false, Some(600e12)),
        };
        DeviceSays {
            is_rotational: Some(self.disk().is_some()),
            has_volatile_cache: Some(true),
            is_protected: Some(protected),
            rated_bytes: rated.map(|bytes| bytes as u64),
        }
    }

    fn disk(self) -> Option<DiskParameters> {
        let disk = |rpm, seek_min_s, seek_span_s, rate| DiskParameters {
            revolution_s: 60.0 / rpm,
            seek_min_s,
            seek_span_s,
            rate,
            link_rate: 300e6,
            command_s: 50e-6,
            cache_bytes: 64 << 20,
            read_ahead_bytes: 2 << 20,
        };
        // a seek over a random distance takes the least and 8/15 of the span: 8.5, 4.5 and 3.4 ms
        match self {
            EmulatedKind::Hdd7200 => Some(disk(7200.0, 1.0e-3, 14.06e-3, 160e6)),
            EmulatedKind::Hdd10k => Some(disk(10_000.0, 0.4e-3, 7.69e-3, 180e6)),
            EmulatedKind::Hdd15k => Some(disk(15_000.0, 0.2e-3, 6.0e-3, 200e6)),
            _ => None,
        }
    }

    fn flash(self) -> FlashParameters {
        let desktop = FlashParameters {
            read_s: 90e-6,
            lanes: 32,
            link_rate: SATA_LINK,
            write_s: 45e-6,
            cache_bytes: 64.0 * MIB,
            program_rate: 430e6,
            flush: FlushRule::Programs { dirty_s: 2.5e-3 },
            clean_flush_s: 30e-6,
            cliff: None,
        };
        match self {
            EmulatedKind::SsdPlp => FlashParameters {
                cache_bytes: 256.0 * MIB,
                program_rate: 470e6,
                flush: FlushRule::HasNothingToDo,
                ..desktop
            },
            EmulatedKind::SsdCliff => FlashParameters {
                flush: FlushRule::Programs { dirty_s: 3e-3 },
                program_rate: 460e6,
                cliff: Some(Cliff { bytes: 2.0 * GIB, rate_after: 70e6 }),
                ..desktop
            },
            EmulatedKind::SsdLiar => FlashParameters { flush: FlushRule::HasNothingToDo, ..desktop },
            EmulatedKind::Nvme => FlashParameters {
                read_s: 70e-6,
                lanes: 64,
                link_rate: 3.2e9,
                write_s: 12e-6,
                cache_bytes: 256.0 * MIB,
                program_rate: 2.2e9,
                flush: FlushRule::Programs { dirty_s: 1.5e-3 },
                clean_flush_s: 10e-6,
                ..desktop
            },
            _ => desktop,
        }
    }
}

impl fmt::Display for EmulatedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a device of one kind has come to: where its arm stands, what is in its cache. It knows no bytes.
#[derive(Clone, Debug)]
pub struct DeviceModel(Mechanism);

#[derive(Clone, Debug)]
enum Mechanism {
    Disk(SpinningDisk),
    Flash(FlashModel),
}

impl DeviceModel {
    /// A device of that kind and size that was not used yet. The seed says where the platter is, and how times vary.
    pub fn new(kind: EmulatedKind, size: u64, seed: u64) -> DeviceModel {
        let jitter = Jitter::new(seed);
        DeviceModel(match kind.disk() {
            Some(disk) => Mechanism::Disk(SpinningDisk::new(disk, size, jitter)),
            None => Mechanism::Flash(FlashModel::new(kind.flash(), jitter)),
        })
    }

    /// A request comes at `now_ns`, no earlier than those before. The result is when it is done. Of what is neither read,
    /// written nor flushed, that is at once.
    pub fn submit(&mut self, op: DeviceOp, offset: u64, len: u64, now_ns: u64) -> u64 {
        let now = now_ns as f64 / 1e9;
        let done = match (&mut self.0, op) {
            (_, DeviceOp::Discard | DeviceOp::Probe) => now,
            (Mechanism::Disk(disk), DeviceOp::Read) => disk.read(offset, len, now),
            (Mechanism::Disk(disk), DeviceOp::Write) => disk.write(offset, len, now),
            (Mechanism::Disk(disk), DeviceOp::Flush) => disk.flush(now),
            (Mechanism::Flash(flash), DeviceOp::Read) => flash.read(len, now),
            (Mechanism::Flash(flash), DeviceOp::Write) => flash.write(len, now),
            (Mechanism::Flash(flash), DeviceOp::Flush) => flash.flush(now),
        };
        now_ns.max((done * 1e9).round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SIZE: u64 = 64 << 30;

    /// A device, and a clock that goes on to the end of each request.
    struct Tried {
        model: DeviceModel,
        now_ns: u64,
    }

    impl Tried {
        fn new(kind: EmulatedKind, seed: u64) -> Tried {
            Tried { model: DeviceModel::new(kind, SIZE, seed), now_ns: 1000 * MS }
        }

        /// One request, and how long it took.
        fn run(&mut self, op: DeviceOp, offset: u64, len: u64) -> u64 {
            let done = self.model.submit(op, offset, len, self.now_ns);
            let took = done - self.now_ns;
            self.now_ns = done;
            took
        }

        /// A write and a flush of 4 KiB, so many times, one behind the other: nanoseconds of the median.
        fn synced(&mut self, count: u64) -> u64 {
            let mut all: Vec<u64> = (0..count)
                .map(|n| self.run(DeviceOp::Write, n * 4096, 4096) + self.run(DeviceOp::Flush, 0, 0))
                .collect();
            all.sort_unstable();
            all[all.len() / 2]
        }

        /// Bytes a second of so many writes of 1 MiB.
        fn rate(&mut self, count: u64) -> f64 {
            let began = self.now_ns;
            for n in 0..count {
                self.run(DeviceOp::Write, (n << 20) % SIZE, 1 << 20);
            }
            (count << 20) as f64 / ((self.now_ns - began) as f64 / 1e9)
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_times() {
        let times = |kind, seed| {
            let mut tried = Tried::new(kind, seed);
            (0..200).map(|n| tried.run(DeviceOp::Read, n * 7_654_321_000 % SIZE, 4096)).collect::<Vec<u64>>()
        };
        for kind in ALL_EMULATED {
            assert_eq!(times(kind, 3), times(kind, 3));
            assert_ne!(times(kind, 3), times(kind, 4), "{kind}");
            assert_eq!(EmulatedKind::of_name(kind.name()), Some(kind));
        }
    }

    #[test]
    fn words_of_devices_are_read_back() {
        for kind in ALL_EMULATED {
            assert_eq!(DeviceSays::parse(&kind.says().to_string()), kind.says());
        }
        assert_eq!(DeviceSays::default().to_string(), "");
        let odd = DeviceSays::parse("protected=2 rated_bytes=-1 rotational=1 x=\0 volatile_cache");
        assert_eq!(odd, DeviceSays { is_rotational: Some(true), ..DeviceSays::default() });
    }

    #[test]
    fn a_disk_turns_once_for_each_flush() {
        for (kind, revolution_ns) in
            [(EmulatedKind::Hdd7200, 8_333_333), (EmulatedKind::Hdd10k, 6_000_000), (EmulatedKind::Hdd15k, 4_000_000)]
        {
            let median = Tried::new(kind, 5).synced(100);
            assert!(median.abs_diff(revolution_ns) < 100_000, "{kind}: {median}");
        }
    }

    #[test]
    fn random_reads_of_a_disk_seek_and_turn() {
        for (kind, mean_ms) in [(EmulatedKind::Hdd7200, 12.7), (EmulatedKind::Hdd10k, 7.5), (EmulatedKind::Hdd15k, 5.4)]
        {
            let mut tried = Tried::new(kind, 1);
            let mut places = Jitter::new(9);
            let mut place = || (places.part() * (SIZE - 4096) as f64) as u64;
            let total: u64 = (0..2000).map(|_| tried.run(DeviceOp::Read, place(), 4096)).sum();
            let ms = total as f64 / 2000.0 / 1e6;
            assert!((ms / mean_ms - 1.0).abs() < 0.1, "{kind}: {ms}");
        }
        let mut tried = Tried::new(EmulatedKind::Hdd7200, 1);
        let began = tried.now_ns;
        for n in 0..200 {
            tried.run(DeviceOp::Read, n << 20, 1 << 20);
        }
        let rate = (200 << 20) as f64 / ((tried.now_ns - began) as f64 / 1e9);
        assert!((140e6..161e6).contains(&rate), "a sequential reader has the rate of the platter: {rate}");
    }

    #[test]
    fn reads_of_a_queue_that_are_out_of_order_cost_no_revolution() {
        let mut model = DeviceModel::new(EmulatedKind::Hdd7200, SIZE, 1);
        let at = 1000 * MS;
        let first = model.submit(DeviceOp::Read, 0, 1 << 20, at);
        let third = model.submit(DeviceOp::Read, 2 << 20, 1 << 20, at);
        let second = model.submit(DeviceOp::Read, 1 << 20, 1 << 20, at);
        assert!(third - first < 20 * MS, "two MiB further: {}", third - first);
        assert!(second.abs_diff(third) < 8 * MS, "the platter passed there on its way: {first} {second} {third}");
        let back = model.submit(DeviceOp::Read, SIZE / 2, 4096, third);
        assert!(model.submit(DeviceOp::Read, 0, 4096, back) - back > 5 * MS, "another place");
    }

    #[test]
    fn flushes_of_ssds_differ() {
        let median = |kind| Tried::new(kind, 2).synced(100);
        assert!((2_000_000..4_000_000).contains(&median(EmulatedKind::Ssd)));
        assert!((1_000_000..2_000_000).contains(&median(EmulatedKind::Nvme)));
        let protected = median(EmulatedKind::SsdPlp);
        assert!(protected < 150_000, "{protected}");
        assert!(median(EmulatedKind::SsdLiar) < 150_000);
    }

    #[test]
    fn a_flush_writes_out_what_is_dirty() {
        let mut tried = Tried::new(EmulatedKind::Hdd7200, 2);
        for n in 0..64 {
            let took = tried.run(DeviceOp::Write, n * 997 << 20, 4096);
            assert!(took < MS, "the cache takes it: {took}");
        }
        let first = tried.run(DeviceOp::Flush, 0, 0);
        assert!(first > 100 * MS, "{first}");
        assert!(tried.run(DeviceOp::Flush, 0, 0) < MS, "nothing is dirty any more");
        let mut ssd = Tried::new(EmulatedKind::Ssd, 2);
        ssd.rate(32);
        let (full, clean) = (ssd.run(DeviceOp::Flush, 0, 0), ssd.run(DeviceOp::Flush, 0, 0));
        assert!(full > 8 * MS && clean < MS, "{full} {clean}");
        let mut liar = Tried::new(EmulatedKind::SsdLiar, 2);
        liar.rate(32);
        assert!(liar.run(DeviceOp::Flush, 0, 0) < MS, "a liar does not");
    }

    #[test]
    fn rates_once_the_cache_is_full() {
        let rates = |kind| {
            let mut tried = Tried::new(kind, 2);
            let begin = tried.rate(48);
            tried.rate(4096);
            [begin, tried.rate(512)].map(|rate| (rate / 1e6).round() as u64)
        };
        let [begin, end] = rates(EmulatedKind::Ssd);
        assert!((450..=530).contains(&begin) && (400..=431).contains(&end), "{begin} {end}");
        let [begin, end] = rates(EmulatedKind::SsdCliff);
        assert!((450..=530).contains(&begin) && (60..=80).contains(&end), "{begin} {end}");
        let [begin, end] = rates(EmulatedKind::Nvme);
        assert!(begin > 2000 && end > 1500, "{begin} {end}");
        let [begin, end] = rates(EmulatedKind::Hdd7200);
        assert!(begin > 200 && (130..=161).contains(&end), "{begin} {end}");
    }

    #[test]
    fn a_cliff_is_gone_after_a_rest() {
        let mut tried = Tried::new(EmulatedKind::SsdCliff, 2);
        tried.rate(4096);
        assert!(tried.rate(256) < 80e6);
        tried.now_ns += 120_000 * MS;
        assert!(tried.rate(1024) > 400e6);
    }

    #[test]
    fn one_flush_serves_those_that_wait() {
        let mut model = DeviceModel::new(EmulatedKind::Ssd, SIZE, 1);
        let at = 1000 * MS;
        for n in 0..8 {
            model.submit(DeviceOp::Write, n * 4096, 4096, at);
        }
        let all: Vec<u64> = (0..8).map(|_| model.submit(DeviceOp::Flush, 0, 0, at + MS)).collect();
        assert!(all.iter().all(|done| done.abs_diff(all[0]) < MS / 10), "{all:?}");
    }
}
