//! The eight kinds of devices in virtual time, judged as a live one is.

use device::DeviceOp;
use device::emulated::{ALL_EMULATED, DeviceModel, DeviceSays, EmulatedKind};
use testkit::rng::Rng;

use super::class::{DeviceClass, FlushFinding, Medium, classify};
use super::course::{FillLimit, SlogBench, SlogLoad, SlogMeasures, measure_all};
use super::demand::{COMMIT_LOADS, LoadDemand, LogDemand};
use super::show::SlogReport;
use super::verdict::{Purchase, SlogVerdict, judge};
use super::*;
use crate::bench::measure::{Measured, percentile};

const SIZE: u64 = 64 << 30;
const SEEDS: u64 = 20;
const LIMIT: FillLimit = FillLimit { bytes: FILL_BYTES, seconds: Some(FILL_S) };

/// A model, with hands that wait for it in virtual time, each for a moment longer than it takes.
struct VirtualDevice {
    model: DeviceModel,
    now_ns: u64,
    rng: Rng,
}

impl VirtualDevice {
    fn new(kind: EmulatedKind, seed: u64) -> VirtualDevice {
        VirtualDevice { model: DeviceModel::new(kind, SIZE, seed), now_ns: 0, rng: Rng::new(seed) }
    }

    /// Time between an answer and what the hand does next, as a busy machine needs.
    fn latency_ns(&mut self) -> u64 {
        20_000 + self.rng.number() % 60_000
    }
}

impl SlogBench for VirtualDevice {
    fn load(&mut self, load: SlogLoad, queue: u32, seconds: f64) -> Result<Measured, String> {
        let (began, size) = (self.now_ns, load.bytes());
        let end = began + (seconds * 1e9) as u64;
        // when each hand began its request, and when it goes on with it, if a flush is left to be done
        let mut hands: Vec<(u64, u64, bool)> = vec![(began, began, false); queue as usize];
        let (mut took, mut n, mut last) = (Vec::new(), 0, began);
        loop {
            let at = (0..hands.len()).min_by_key(|hand| hands[*hand].1).unwrap();
            let (start, now, flushes) = hands[at];
            if now >= end && !took.is_empty() {
                break;
            }
            let done = if flushes {
                self.model.submit(DeviceOp::Flush, 0, 0, now)
            } else {
                n += 1;
                let random = self.rng.number() % (SIZE / size) * size;
                match load {
                    SlogLoad::Reads(_) => self.model.submit(DeviceOp::Read, random, size, now),
                    _ => self.model.submit(DeviceOp::Write, n * size % live::AREA_BYTES, size, now),
                }
            } + self.latency_ns();
            hands[at] = match (load, flushes) {
                (SlogLoad::Syncs(_), false) => (start, done, true),
                _ => {
                    took.push(done - start);
                    last = last.max(done);
                    (done, done, false)
                }
            };
        }
        self.now_ns = hands.iter().map(|hand| hand.1).max().unwrap();
        took.sort_unstable();
        Ok(Measured {
            size,
            threads: queue,
            count: took.len() as u64,
            seconds: (last - began) as f64 / 1e9,
            percentiles_ns: [500, 990, 999].map(|per_mille| percentile(&took, per_mille)),
        })
    }

    fn burst(&mut self, bytes: u64) -> Result<f64, String> {
        for at in (0..bytes).step_by(1 << 20) {
            self.now_ns = self.model.submit(DeviceOp::Write, at, 1 << 20, self.now_ns) + self.latency_ns();
        }
        let written = self.now_ns;
        self.now_ns = self.model.submit(DeviceOp::Flush, 0, 0, written);
        Ok((self.now_ns - written) as f64 / 1e9)
    }
}

fn measures(kind: EmulatedKind, seed: u64) -> SlogMeasures {
    measure_all(&mut VirtualDevice::new(kind, seed), LIMIT, &mut |_| {}).unwrap()
}

fn verdict_of(kind: EmulatedKind, demand: Option<&LogDemand>) -> (SlogMeasures, DeviceClass, SlogVerdict) {
    let measures = measures(kind, 1);
    let class = classify(&measures, &kind.says());
    let verdict = judge(class, &measures, kind.says().rated_bytes, demand, 5);
    (measures, class, verdict)
}

#[test]
fn the_eight_kinds_are_told_apart() {
    for kind in ALL_EMULATED {
        for seed in 0..SEEDS {
            let measures = measures(kind, seed);
            let class = classify(&measures, &kind.says());
            assert_eq!(class.name(), kind.name(), "seed {seed}: {measures:?}");
        }
    }
}

#[test]
fn a_fast_flush_needs_a_reason() {
    let plp = measures(EmulatedKind::SsdPlp, 3);
    let says = |cache, protected| DeviceSays {
        has_volatile_cache: cache,
        is_protected: protected,
        ..EmulatedKind::SsdPlp.says()
    };
    for (cache, protected, expect) in [
        (Some(true), Some(true), FlushFinding::Protected),
        (Some(false), None, FlushFinding::Protected),
        (Some(true), Some(false), FlushFinding::Lies),
        (Some(true), None, FlushFinding::Untold),
        (None, None, FlushFinding::Untold),
    ] {
        assert_eq!(classify(&plp, &says(cache, protected)).flush, expect, "{cache:?} {protected:?}");
    }
    // to say something false does not make a flush faster
    let honest = classify(&measures(EmulatedKind::Ssd, 3), &says(Some(false), Some(true)));
    assert_eq!(honest.flush, FlushFinding::Honest);
}

#[test]
fn only_what_is_protected_is_bought() {
    for kind in ALL_EMULATED {
        let (_, _, verdict) = verdict_of(kind, None);
        let expect = if kind == EmulatedKind::SsdPlp { Purchase::Buy } else { Purchase::DoNotBuy };
        assert_eq!(verdict.purchase, expect, "{kind}: {:?}", verdict.lines);
        let begins = if expect == Purchase::Buy { "It makes a good log" } else { "Do not buy" };
        assert!(verdict.lines[0].starts_with(begins), "{kind}: {}", verdict.lines[0]);
    }
    let untold = classify(&measures(EmulatedKind::SsdPlp, 1), &DeviceSays::default());
    let verdict = judge(untold, &measures(EmulatedKind::SsdPlp, 1), None, None, 5);
    assert_eq!(verdict.purchase, Purchase::Unclear);
}

#[test]
fn a_pool_decides_too() {
    let demand = |commits: f64, bytes_a_day: f64| LogDemand {
        pool: "tank".into(),
        bytes_a_day,
        seconds: 100_000.0,
        heaviest_group: Some(100 << 20),
        folder: None,
        loads: vec![LoadDemand { load: COMMIT_LOADS[0], now_per_s: commits, rehearsed_per_s: None }],
    };
    let (_, _, verdict) = verdict_of(EmulatedKind::SsdPlp, Some(&demand(118.0, 1e9)));
    assert_eq!((verdict.purchase, verdict.log_bytes), (Purchase::Buy, 300 << 20));
    assert!(verdict.loads[0].with_per_s > 118.0 * 20.0 && verdict.years.is_some_and(|years| years > 1000.0));
    let (_, _, verdict) = verdict_of(EmulatedKind::SsdPlp, Some(&demand(4000.0, 1e9)));
    assert_eq!(verdict.purchase, Purchase::DoNotBuy, "the pool is as fast: {:?}", verdict.lines);
    let (_, _, verdict) = verdict_of(EmulatedKind::SsdPlp, Some(&demand(118.0, 1e13)));
    assert_eq!(verdict.purchase, Purchase::DoNotBuy, "worn out: {:?}", verdict.lines);
    let short = LogDemand { seconds: 1000.0, ..demand(118.0, 1e13) };
    let (_, _, verdict) = verdict_of(EmulatedKind::SsdPlp, Some(&short));
    assert!(verdict.purchase == Purchase::Buy && verdict.lines[3].contains("00:16:40"), "{:?}", verdict.lines);
    // as the seed found: a faster disk as the log of disks
    let (_, _, verdict) = verdict_of(EmulatedKind::Hdd15k, Some(&demand(160.0, 1e9)));
    assert!(verdict.purchase == Purchase::DoNotBuy && verdict.lines[1].contains("not worth"), "{:?}", verdict.lines);
}

#[test]
fn loads_are_foretold_by_the_device_and_by_what_was_rehearsed() {
    let of = |kind, rehearsed: [Option<f64>; 3]| {
        let loads =
            [0, 1, 2].map(|at| LoadDemand { load: COMMIT_LOADS[at], now_per_s: 100.0, rehearsed_per_s: rehearsed[at] });
        let demand = LogDemand {
            pool: "tank".into(),
            bytes_a_day: 0.0,
            seconds: 1000.0,
            heaviest_group: None,
            folder: None,
            loads: loads.to_vec(),
        };
        let (measures, _, verdict) = verdict_of(kind, Some(&demand));
        (measures, verdict.loads.iter().map(|load| load.with_per_s).collect::<Vec<_>>(), verdict.lines)
    };
    // a disk: one thread waits for a revolution each time; of eight, four share one, and the others wait for it
    let (measures, rates, lines) = of(EmulatedKind::Hdd15k, [None; 3]);
    let alone = measures.sync(8 << 10, 1).unwrap().rate();
    assert!((rates[0] / alone - 1.0).abs() < 0.05 && (3.5..4.1).contains(&(rates[1] / rates[0])), "{rates:?} {alone}");
    assert!(rates[2] < rates[0], "{rates:?}");
    assert!(lines[2].starts_with("Of 4K by 8 threads: about ") && lines[2].contains("; of 64K by one"), "{lines:?}");
    let (_, rates, lines) = of(EmulatedKind::Hdd15k, [Some(150.0), None, Some(77.0)]);
    assert!((rates[0], rates[2]) == (150.0, 77.0) && rates[1] > 300.0, "{rates:?}");
    assert!(lines[1].contains("about 150 times a second") && lines[2].contains("about 77 times"), "{lines:?}");
}

#[test]
fn times_between_sizes_are_between_theirs() {
    let measures = measures(EmulatedKind::Ssd, 1);
    let took = |bytes: u64| 1.0 / measures.sync(bytes, 1).unwrap().rate();
    let [low, high] = [took(16 << 10), took(32 << 10)];
    let middle = measures.sync_s(24 << 10);
    assert!((middle - (low + high) / 2.0).abs() < 1e-9, "{low} {middle} {high}");
    assert_eq!((measures.sync_s(1), measures.sync_s(1 << 30)), (took(4 << 10), took(128 << 10)));
}

#[test]
fn a_cliff_is_found_where_it_is() {
    for seed in 0..5 {
        let fill = measures(EmulatedKind::SsdCliff, seed).fill.unwrap();
        let at = fill.cliff_at.unwrap();
        // bursts and small writes before it count
        assert!((1 << 30..9 << 28).contains(&at), "{at}");
        assert!((60e6..80e6).contains(&fill.late) && fill.early > 400e6, "{fill:?}");
        assert!(fill.seconds < 15.0, "it stops when it is known: {fill:?}");
        let without = measures(EmulatedKind::Ssd, seed).fill.unwrap();
        assert!(without.cliff_at.is_none() && without.bytes >= FILL_BYTES, "{without:?}");
    }
}

#[test]
fn reports_are_complete() {
    let identity = Identity {
        says: EmulatedKind::SsdPlp.says(),
        missing: vec!["smartctl (package smartmontools)"],
        ..Identity::default()
    };
    let (measures, class, verdict) = verdict_of(EmulatedKind::SsdPlp, None);
    let report = SlogReport {
        device: "/dev/x".as_ref(),
        size: SIZE,
        is_direct: true,
        identity: &identity,
        rated_bytes: Some(5 << 50),
        measures: &measures,
        class,
        demand: None,
        verdict: &verdict,
        seconds: 12.3,
    };
    let json = report.json();
    assert_eq!((&json["class"], &json["verdict"]), (&"ssd-plp".into(), &"buy".into()));
    assert_eq!(json["syncs"].as_array().map(Vec::len), Some(12));
    for key in ["device", "size_bytes", "verdict_text", "says", "missing", "burst", "fill", "log_bytes", "seconds"] {
        assert!(!json[key].is_null(), "{key}: {json}");
    }
    assert!(json["pool"].is_null() && json["commits_per_s_with"].as_f64().is_some_and(|rate| rate > 1000.0));
    let text = report.text();
    for words in ["Verdict: buy", "smartctl (package smartmontools) is not installed", "power-loss protection", "128K"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn classes_have_names() {
    let class = |medium, flush| DeviceClass { medium, flush, has_cliff: false };
    for (class, name) in [
        (class(Medium::Disk(Some(5400)), FlushFinding::Honest), "hdd5400"),
        (class(Medium::Disk(Some(10_000)), FlushFinding::Honest), "hdd10k"),
        (class(Medium::Disk(None), FlushFinding::Lies), "hdd-liar"),
        (class(Medium::Flash { is_beyond_sata: true }, FlushFinding::Protected), "nvme-plp"),
        (class(Medium::Flash { is_beyond_sata: false }, FlushFinding::Untold), "ssd-untold"),
    ] {
        assert_eq!(class.name(), name);
        assert!(!class.words().is_empty());
    }
}
