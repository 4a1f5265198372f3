//! Random reads of a disk and an SSD, and how fast ARC and a cache device warm up.

use protocol::words::nicenum::nicenum;

use crate::advise::sizes::MIB;
use crate::bench::randread::climb_device;
use crate::chart::Curve;
use crate::lab::bed::{CellStop, LabBed};
use crate::lab::loads;
use crate::lab::plan::{CellRun, LabCell, LabScale, LabSetting};
use crate::lab::recipe::LabRecipe;
use crate::lab::report::{Chapter, LabTable};
use crate::lab::seeds;
use crate::lab::told::LabTold;

const DEVICES: [(&str, &str); 2] = [("disk", "disk-1"), ("SSD", "ssd-1")];
const THREADS: &str = "threads";
const BEST: &str = "best";
/// Reads a second in each part of a warm-up.
const WARM_PARTS: usize = 6;
const WARM: &str = "warm-up";
const WARM_SETTINGS: [(&str, &str); 2] = [("disk, no cache device", "disk-1"), ("disk, cache on SSD", CACHED)];
const CACHED: &str = "disk-1 cache ssd-1";
/// RAM for the cache of warm-ups: the least that counts.
const WARM_RAM_BYTES: u64 = 64 << 20;

fn sizes(scale: &LabScale) -> Vec<u64> {
    (9..=20).map(|power| 1 << power).filter(|size| !scale.is_short || [4 << 10, 128 << 10].contains(size)).collect()
}

fn reads(bed: &LabBed<'_>, size: u64, threads_max: u32, seconds: f64) -> Result<CellRun, CellStop> {
    let tried = climb_device(bed.path(), size, threads_max, bed.pace(seconds))?.ok_or(CellStop::Interrupted)?;
    let one = tried.first().ok_or_else(|| "nothing was measured".to_owned())?;
    let best = tried.iter().max_by(|a, b| a.rate().total_cmp(&b.rate())).unwrap_or(one);
    Ok(CellRun::of(one.bytes_rate() / MIB).with(BEST, best.bytes_rate() / MIB).with(THREADS, best.threads.into()))
}

pub(super) fn settings(scale: &LabScale) -> Vec<LabSetting> {
    let (seconds, threads_max) = scale.pick((0.3, 4), (1.0, 128));
    let cell = |size: u64| LabCell {
        name: nicenum(size),
        unit: "MiB/s",
        seconds: seconds * f64::from(threads_max).log2(),
        command: format!("cenote bench randread -j {threads_max} -t {seconds} DEVICE (size {size})"),
        work: Box::new(move |bed| reads(bed, size, threads_max, seconds)),
    };
    let devices = DEVICES.into_iter().map(|(name, device)| LabSetting {
        name: name.to_owned(),
        recipe: LabRecipe::Device(device),
        cells: sizes(scale).into_iter().map(cell).collect(),
    });
    let (bytes, seconds) = scale.pick((96 << 20, 0.4), (512 << 20, 10.0));
    let warm = |(name, vdevs): (&str, &'static str)| LabSetting {
        name: name.to_owned(),
        recipe: LabRecipe::pool(vdevs, "recordsize=8K compression=off direct=disabled"),
        cells: vec![LabCell {
            name: WARM.to_owned(),
            unit: "reads/s",
            seconds: 3.0 + bytes as f64 / 100e6 + seconds * WARM_PARTS as f64,
            command: format!(
                "zfs_arc_max={WARM_RAM_BYTES}; random reads of 8K of a file of {} MiB by three threads after an import",
                bytes >> 20
            ),
            work: Box::new(move |bed| warm_up(bed, vdevs == CACHED, bytes, seconds)),
        }],
    };
    devices.chain(WARM_SETTINGS.into_iter().map(warm)).collect()
}

fn warm_up(bed: &LabBed<'_>, has_cache: bool, bytes: usize, seconds: f64) -> Result<CellRun, CellStop> {
    loads::write_file(bed, bytes, 1.0)?;
    bed.cool_with(WARM_RAM_BYTES)?;
    if has_cache {
        // what is on it would be used after the import
        bed.empty_cache("ssd-1")?;
    }
    let mut run = CellRun::default();
    for part in 0..WARM_PARTS {
        let rate = loads::seek_file(bed, bytes, seconds, part as u64)?;
        run.value = rate;
        run = run.with(&part_name(part), rate);
    }
    Ok(run)
}

fn part_name(part: usize) -> String {
    format!("part {:02}", part + 1)
}

pub(super) fn chapter(told: &LabTold<'_>, scale: &LabScale) -> Chapter {
    let mut chapter =
        Chapter::new(told.study, "Random reads", "What do disks and SSDs give, and how fast do caches warm up?");
    let row = |size: u64| {
        let of_seed = |device: usize| seeds::RANDREAD[device][size.trailing_zeros() as usize - 9] / 1024.0;
        let figures = DEVICES.iter().enumerate().flat_map(|(device, (name, _))| {
            let cell = nicenum(size);
            [told.figure(name, &cell).beside_seed(of_seed(device)), told.beside(name, &cell, BEST)]
        });
        (nicenum(size), figures.collect())
    };
    chapter.tables.push(LabTable {
        caption: "MiB a second of random reads".to_owned(),
        corner: "bytes of a read".to_owned(),
        columns: DEVICES
            .iter()
            .flat_map(|(name, _)| [format!("{name}, 1 thread"), format!("{name}, best number of threads")])
            .collect(),
        rows: sizes(scale).into_iter().map(row).collect(),
    });
    let points = |name: &str| {
        sizes(scale).iter().filter_map(|size| Some((*size, told.median(name, &nicenum(*size))?))).collect()
    };
    let series = DEVICES.iter().map(|(name, _)| Curve { name: format!("{name}, 1 thread"), points: points(name) });
    chapter.lines("MiB a second of random reads", "bytes of a read", series.collect());
    chapter.tables.push(LabTable {
        caption: "Warm-up: reads a second of 8K, in each part of the time after an import".to_owned(),
        corner: "setting".to_owned(),
        columns: (0..WARM_PARTS).map(|part| format!("{}", part + 1)).collect(),
        rows: WARM_SETTINGS
            .iter()
            .map(|(name, _)| {
                ((*name).to_owned(), (0..WARM_PARTS).map(|part| told.beside(name, WARM, &part_name(part))).collect())
            })
            .collect(),
    });
    let points = |name: &str| {
        let rate = |part: usize| told.beside(name, WARM, &part_name(part)).median();
        (0..WARM_PARTS).filter_map(|part| Some((part as u64 + 1, rate(part)?))).collect()
    };
    let series =
        WARM_SETTINGS.iter().map(|(name, _)| Curve { name: (*name).to_owned(), points: points(name) }).collect();
    chapter.lines("Warm-up: reads of 8K a second", "part of the time after an import", series);
    let gain = told.median("SSD", "4K").zip(told.median("disk", "4K")).map(|(ssd, disk)| ssd / disk);
    chapter.words.extend(gain.map(|gain| {
        let seed = seeds::RANDREAD[1][3] / seeds::RANDREAD[0][3];
        format!("One thread reads 4K at random {gain:.0} times as fast from the SSD as from the disk (in the paper: {seed:.0} times).")
    }));
    chapter
}
