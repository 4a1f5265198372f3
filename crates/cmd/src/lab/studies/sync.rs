//! Synchronous writes: of disks, of an SSD, of disks with a log on SSDs; and whether 15k disks are worth being a log.

use protocol::words::nicenum::nicenum;

use crate::bench::sync::{measure_device, measure_folder};
use crate::chart::Curve;
use crate::lab::bed::{CellStop, LabBed};
use crate::lab::loads;
use crate::lab::peer::{Peer, PeerKind};
use crate::lab::plan::{CellRun, LabCell, LabScale, LabSetting};
use crate::lab::recipe::LabRecipe;
use crate::lab::report::{Chapter, LabTable};
use crate::lab::seeds;
use crate::lab::told::LabTold;

const DISK: &str = "disk";
const SSD: &str = "SSD";
const LOG: &str = "disk, log on SSD";
const MIRRORED_LOG: &str = "mirror of disks, log mirrored on SSDs";
const SETTINGS: [(&str, &str); 4] = [
    (DISK, "disk-1"),
    (LOG, "disk-1 log ssd-1"),
    (MIRRORED_LOG, "mirror disk-1 disk-2 log mirror ssd-1 ssd-2"),
    (SSD, "ssd-1"),
];
/// Devices without any file system, and disks with others.
const BESIDE: [&str; 4] = ["disk itself", "SSD itself", "ext4 on the disk", "btrfs on the disk"];
const FAST: &str = "mirror of 10k disks";
const FAST_LOG: &str = "mirror of 10k disks, log on 15k disks";
const FAST_CELLS: [&str; 4] = ["write", "rewrite", "read", "seeks"];
/// Bytes of a write that all are compared by.
const SIZE_BESIDE: u64 = 4 << 10;
const FSYNCS: &str = "fsyncs of 4K";
/// What a log has to bring, at least, to be worth buying.
const GAIN_MIN: f64 = 1.2;

fn sizes(scale: &LabScale) -> Vec<u64> {
    let short = [4 << 10, 64 << 10];
    seeds::SYNC.iter().map(|(size, ..)| *size).filter(|size| !scale.is_short || short.contains(size)).collect()
}

fn threads(scale: &LabScale) -> Vec<u32> {
    scale.pick(vec![1], vec![1, 16])
}

fn cell_name(size: u64, threads: u32) -> String {
    match threads {
        1 => format!("{}, 1 thread", nicenum(size)),
        threads => format!("{}, {threads} threads", nicenum(size)),
    }
}

fn fsyncs(bed: &LabBed<'_>, size: u64, threads: u32, seconds: f64) -> Result<CellRun, CellStop> {
    let measure = if bed.path().is_dir() { measure_folder } else { measure_device };
    let measured = measure(bed.path(), size, threads, bed.pace(seconds))?.ok_or(CellStop::Interrupted)?;
    let [p50, p99, _] = measured.percentiles_ns.map(|ns| ns as f64 / 1e6);
    Ok(CellRun::of(measured.rate()).with("p50_ms", p50).with("p99_ms", p99))
}

fn fsync_cell(name: String, size: u64, threads: u32, seconds: f64) -> LabCell {
    LabCell {
        name,
        unit: "fsyncs/s",
        seconds,
        command: format!("cenote bench sync -j {threads} -t {seconds} FOLDER (size {size})"),
        work: Box::new(move |bed| fsyncs(bed, size, threads, seconds)),
    }
}

pub(super) fn settings(scale: &LabScale) -> Vec<LabSetting> {
    let seconds = scale.pick(0.5, 2.0);
    let cells = || {
        let pairs = sizes(scale).into_iter().flat_map(|size| threads(scale).into_iter().map(move |n| (size, n)));
        pairs.map(|(size, n)| fsync_cell(cell_name(size, n), size, n, seconds)).collect()
    };
    let of = |(name, vdevs): (&str, &'static str), cells| LabSetting {
        name: name.to_owned(),
        recipe: LabRecipe::pool(vdevs, "compression=off"),
        cells,
    };
    let mut settings: Vec<LabSetting> = SETTINGS.into_iter().map(|setting| of(setting, cells())).collect();
    for setting in
        [(FAST, "mirror disk10k-1 disk10k-2"), (FAST_LOG, "mirror disk10k-1 disk10k-2 log mirror disk15k-1 disk15k-2")]
    {
        settings.push(of(setting, fast_cells(scale)));
    }
    if !scale.is_short {
        let beside = BESIDE.into_iter().zip(recipes_beside());
        settings.extend(beside.map(|(name, recipe)| LabSetting {
            name: name.to_owned(),
            recipe,
            cells: cells_beside(scale),
        }));
    }
    settings
}

fn recipes_beside() -> [LabRecipe; 4] {
    let peer = |kind| LabRecipe::Peer { device: "disk-1", peer: Peer { kind, options: "" } };
    let device = LabRecipe::Device;
    [device("disk-1"), device("ssd-1"), peer(PeerKind::Ext4), peer(PeerKind::Btrfs)]
}

fn cells_beside(scale: &LabScale) -> Vec<LabCell> {
    threads(scale).into_iter().map(|n| fsync_cell(cell_name(SIZE_BESIDE, n), SIZE_BESIDE, n, 2.0)).collect()
}

/// The loads of bonnie++, and fsyncs beside.
fn fast_cells(scale: &LabScale) -> Vec<LabCell> {
    let bytes = scale.pick(32 << 20, 512 << 20);
    let (seconds, seek_seconds) = (bytes as f64 / 100e6, scale.pick(1.0, 2.0));
    let cell = |name: &str, unit, seconds, work| LabCell {
        name: name.to_owned(),
        unit,
        seconds,
        command: format!("bonnie++ -d FOLDER -u root -s {} -r 0 -n 0", bytes >> 20),
        work,
    };
    vec![
        cell("write", "MiB/s", seconds, Box::new(move |bed| loads::write_file(bed, bytes, 1.0))),
        cell("rewrite", "MiB/s", 3.0 * seconds, Box::new(move |bed| loads::rewrite_file(bed, bytes, 1.0))),
        cell("read", "MiB/s", seconds, Box::new(move |bed| loads::read_file(bed, bytes, 1.0))),
        cell(
            "seeks",
            "reads/s",
            1.0 + seek_seconds,
            Box::new(move |bed| loads::seek_cold_file(bed, bytes, 1.0, seek_seconds)),
        ),
        fsync_cell(FSYNCS.to_owned(), 4 << 10, 1, scale.pick(0.5, 2.0)),
    ]
}

pub(super) fn chapter(told: &LabTold<'_>, scale: &LabScale) -> Chapter {
    let mut chapter = Chapter::new(told.study, "Synchronous writes", "Does a log on an SSD pay, and do 15k disks?");
    for n in threads(scale) {
        let row = |size: u64| {
            let seed = seeds::SYNC.iter().find(|(of, ..)| *of == size);
            let figure = |name: &str| {
                let figure = told.figure(name, &cell_name(size, n));
                match (seed, n, name) {
                    (Some((_, disk, _)), 1, DISK) => figure.beside_seed(*disk),
                    (Some((.., log)), 1, MIRRORED_LOG) => figure.beside_seed(*log),
                    _ => figure,
                }
            };
            (nicenum(size), SETTINGS.iter().map(|(name, _)| figure(name)).collect())
        };
        chapter.tables.push(LabTable {
            caption: format!(
                "fsyncs a second, {}",
                if n == 1 { "1 thread".to_owned() } else { format!("{n} threads") }
            ),
            corner: "bytes of a write".to_owned(),
            columns: SETTINGS.iter().map(|(name, _)| (*name).to_owned()).collect(),
            rows: sizes(scale).into_iter().map(row).collect(),
        });
    }
    let series = SETTINGS.iter().map(|(name, _)| Curve {
        name: (*name).to_owned(),
        points: sizes(scale)
            .iter()
            .filter_map(|size| Some((*size, told.median(name, &cell_name(*size, 1))?)))
            .collect(),
    });
    chapter.lines("fsyncs a second by one thread", "bytes of a write", series.collect());
    if !scale.is_short {
        let columns: Vec<String> = threads(scale).into_iter().map(|n| cell_name(SIZE_BESIDE, n)).collect();
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        chapter
            .tables
            .push(told.by_setting("fsyncs a second beside those of devices and other file systems", &columns));
    }
    chapter.tables.push(fast_table(told));
    chapter.words.extend(log_words(told));
    chapter.words.extend(fast_words(told));
    chapter
}

fn fast_table(told: &LabTold<'_>) -> LabTable {
    let mut table = told.by_setting("15k disks as the log of 10k disks", &FAST_CELLS);
    table.columns.push(FSYNCS.to_owned());
    for ((name, figures), seeds) in table.rows.iter_mut().zip(seeds::FAST_DISKS) {
        // the first three are in K a second, and these in MiB
        for (at, seed) in seeds.into_iter().enumerate() {
            let seed = if at < 3 { seed / 1024.0 } else { seed };
            figures[at] = std::mem::take(&mut figures[at]).beside_seed(seed);
        }
        figures.push(told.figure(name, FSYNCS));
    }
    table
}

/// Whether a log on an SSD pays.
fn log_words(told: &LabTold<'_>) -> Option<String> {
    let cell = cell_name(4 << 10, 1);
    let gain = told.median(LOG, &cell)? / told.median(DISK, &cell)?;
    let seed = seeds::SYNC.iter().find(|(size, ..)| *size == 4 << 10).map(|(_, disk, log)| log / disk)?;
    let verdict = if gain >= GAIN_MIN { "pays for programs that call fsync" } else { "is not worth buying" };
    Some(format!(
        "A log on this SSD {verdict}: synchronous writes of 4K are {gain:.1} times as fast as without (in the paper: \
         {seed:.0} times, with mirrors)."
    ))
}

/// What 15k disks bring as a log.
fn fast_words(told: &LabTold<'_>) -> Option<String> {
    let gain = |cell: &str| Some(told.median(FAST_LOG, cell)? / told.median(FAST, cell)?);
    let gains: Vec<f64> = FAST_CELLS.iter().map(|cell| gain(cell)).collect::<Option<_>>()?;
    // their geometric mean: a single load of a busy machine may differ by more
    let gain_of_all = gains.iter().product::<f64>().powf(1.0 / gains.len() as f64);
    let verdict = if gain_of_all < GAIN_MIN {
        format!("bring nothing: the loads of bonnie++ are {gain_of_all:.2} times as fast, as in the paper")
    } else {
        format!(
            "make the loads of bonnie++ {gain_of_all:.2} times as fast, unlike in the paper, where they brought nothing"
        )
    };
    Some(format!(
        "15k disks as a log of 10k disks {verdict}. fsyncs of 4K alone are {:.2} times as fast: a faster turn, where an SSD \
         needs none.",
        gain(FSYNCS)?
    ))
}
