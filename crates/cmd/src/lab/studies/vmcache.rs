//! A cache device below a machine's image: reads and writes of few places most of the time, on a volume whose pool has it or
//! not, and on images on other file systems.

use std::path::{Path, PathBuf};

use crate::lab::bed::{CellStop, LabBed};
use crate::lab::counters::CacheCounters;
use crate::lab::figure::LabFigure;
use crate::lab::fio::{FioSaid, FioSide};
use crate::lab::peer::{Peer, PeerKind};
use crate::lab::plan::{CellRun, CellWork, LabCell, LabScale, LabSetting};
use crate::lab::recipe::{LabRecipe, LabVolume, VolumeDoor};
use crate::lab::report::{Chapter, LabTable};
use crate::lab::seeds;
use crate::lab::told::LabTold;

const PLAIN: &str = "volume, no cache device";
const CACHED: &str = "volume, cache on SSD";
const CACHED_VDEVS: &str = "disk-1 cache ssd-1";
const DISK: &str = "disk-1";
const PEERS: [(&str, PeerKind); 3] =
    [("image on ext4", PeerKind::Ext4), ("image on xfs", PeerKind::Xfs), ("image on btrfs", PeerKind::Btrfs)];
const LOAD: &str = "load";
/// Figures of one load: reads and writes a second, parts in a hundred from ARC, and of the rest from the cache device.
const COLUMNS: [&str; 4] = ["reads/s", "writes/s", "from RAM, %", "of the rest from SSD, %"];
/// When the load is measured with a cache device.
const TIMES: [&str; 3] = ["empty", "after use", "after an import"];

/// How much there is of it.
#[derive(Clone, Copy)]
struct ImageScale {
    bytes: u64,
    ram_bytes: u64,
    /// Of each load that is measured, and of the use before the second one.
    seconds: f64,
    use_seconds: f64,
}

impl ImageScale {
    fn new(scale: &LabScale) -> ImageScale {
        scale.pick(
            ImageScale { bytes: 128 << 20, ram_bytes: 64 << 20, seconds: 0.5, use_seconds: 1.0 },
            ImageScale { bytes: 3 << 30, ram_bytes: 256 << 20, seconds: 20.0, use_seconds: 300.0 },
        )
    }
}

/// Where the image is.
enum VmImage {
    Volume(String),
    File(PathBuf),
}

impl VmImage {
    fn words(&self, bytes: u64) -> Vec<String> {
        let place = match self {
            VmImage::Volume(uri) => ["--ioengine=nbd".to_owned(), format!("--uri={uri}"), "--thread".to_owned()],
            VmImage::File(path) => {
                ["--ioengine=libaio".to_owned(), format!("--filename={}", path.display()), "--direct=1".to_owned()]
            }
        };
        let words = ["--name=cenote-lab", "--iodepth=4", "--buffer_compress_percentage=50"].map(str::to_owned);
        words.into_iter().chain(place).chain([format!("--size={bytes}")]).collect()
    }
}

/// Few places get most of it, and one request of four is a write.
const LOAD_WORDS: [&str; 6] = [
    "--rw=randrw",
    "--rwmixread=75",
    "--bsrange=4k-64k",
    "--random_distribution=zipf:1.1",
    "--randrepeat=0",
    "--norandommap",
];

fn fill(bed: &LabBed<'_>, image: &VmImage, bytes: u64) -> Result<(), CellStop> {
    let is_there = match image {
        VmImage::Volume(_) => bed.volume_bytes()? >= bytes / 2,
        VmImage::File(path) => std::fs::metadata(path).is_ok_and(|found| found.len() == bytes),
    };
    if is_there {
        return Ok(());
    }
    let words = ["--rw=write", "--bs=1m", "--end_fsync=1"].map(str::to_owned);
    FioSaid::of(bed, &[image.words(bytes), words.to_vec()].concat()).map(drop)
}

/// Figures of [`COLUMNS`] but for the last two.
fn load(bed: &LabBed<'_>, image: &VmImage, bytes: u64, seconds: f64) -> Result<[f64; 2], CellStop> {
    let time = ["--time_based".to_owned(), format!("--runtime={}ms", seconds * 1e3)];
    let words: Vec<String> = LOAD_WORDS.iter().map(|word| (*word).to_owned()).chain(time).collect();
    let said = FioSaid::of(bed, &[image.words(bytes), words].concat())?;
    let rates = [FioSide::Read, FioSide::Write].map(|side| said.rate(side));
    let [Some(reads), Some(writes)] = rates else { return Err(CellStop::Failed("fio printed no rates".to_owned())) };
    Ok([reads, writes])
}

/// All figures of a load of the volume.
fn volume_load(bed: &LabBed<'_>, scale: ImageScale) -> Result<[f64; 4], CellStop> {
    let image = VmImage::Volume(bed.volume_uri()?);
    let before: CacheCounters = bed.cache_counters()?;
    let [reads, writes] = load(bed, &image, scale.bytes, scale.seconds)?;
    let [ram, device] = bed.cache_counters()?.hits_since(before);
    Ok([reads, writes, ram, device])
}

fn with(run: CellRun, time: &str, figures: &[f64]) -> CellRun {
    let named = COLUMNS.iter().zip(figures);
    named.fold(run, |run, (column, figure)| run.with(&format!("{time}: {column}"), *figure))
}

/// The volume, with a cache device or without.
fn volume(bed: &LabBed<'_>, scale: ImageScale, has_cache: bool) -> Result<CellRun, CellStop> {
    fill(bed, &VmImage::Volume(bed.volume_uri()?), scale.bytes)?;
    bed.cool_with(scale.ram_bytes)?;
    if has_cache {
        // what is on it would be used after the import
        bed.empty_cache("ssd-1")?;
    }
    let first = volume_load(bed, scale)?;
    let run = with(CellRun::of(first[0]), TIMES[0], &first);
    if !has_cache {
        return Ok(run);
    }
    load(bed, &VmImage::Volume(bed.volume_uri()?), scale.bytes, scale.use_seconds)?;
    let used = volume_load(bed, scale)?;
    bed.cool()?;
    let imported = volume_load(bed, scale)?;
    let run = CellRun { value: used[0], ..with(run, TIMES[1], &used) };
    Ok(with(run, TIMES[2], &imported))
}

/// A file on another file system, without the page cache.
fn file(bed: &LabBed<'_>, scale: ImageScale) -> Result<CellRun, CellStop> {
    let image = VmImage::File(bed.path().join("image"));
    fill(bed, &image, scale.bytes)?;
    bed.cool()?;
    let figures = load(bed, &image, scale.bytes, scale.seconds)?;
    Ok(with(CellRun::of(figures[0]), TIMES[0], &figures))
}

pub(super) fn settings(scale: &LabScale) -> Vec<LabSetting> {
    let image = ImageScale::new(scale);
    // fio takes its time to begin and to end
    let load_seconds = image.seconds + 1.0;
    let fill_seconds = image.bytes as f64 / 100e6 / f64::from(scale.runs);
    let cell = |on: &VmImage, seconds: f64, work: Box<CellWork>| LabCell {
        name: LOAD.to_owned(),
        unit: "reads/s",
        seconds: fill_seconds + seconds,
        command: format!("fio {} {}", on.words(image.bytes).join(" "), LOAD_WORDS.join(" ")),
        work,
    };
    let pool = |name: &str, vdevs: &'static str| {
        let has_cache = vdevs == CACHED_VDEVS;
        let seconds = if has_cache { 3.0 * load_seconds + image.use_seconds + 3.0 } else { load_seconds + 1.0 };
        LabSetting {
            name: name.to_owned(),
            recipe: LabRecipe::Volume {
                vdevs,
                properties: vec!["compression=lz4".to_owned()],
                volume: LabVolume { bytes: image.bytes, block: "16K", door: VolumeDoor::Nbd },
            },
            cells: vec![cell(
                &VmImage::Volume("URI".to_owned()),
                seconds,
                Box::new(move |bed: &LabBed<'_>| volume(bed, image, has_cache)),
            )],
        }
    };
    let peers = PEERS.iter().filter(|(_, kind)| !scale.is_short || *kind == PeerKind::Btrfs);
    let peers = peers.map(|(name, kind)| LabSetting {
        name: (*name).to_owned(),
        recipe: LabRecipe::Peer { device: DISK, peer: Peer { kind: *kind, options: "" } },
        cells: vec![cell(
            &VmImage::File(Path::new("FOLDER/image").to_owned()),
            load_seconds,
            Box::new(move |bed: &LabBed<'_>| file(bed, image)),
        )],
    });
    [pool(PLAIN, DISK), pool(CACHED, CACHED_VDEVS)].into_iter().chain(peers).collect()
}

pub(super) fn chapter(told: &LabTold<'_>) -> Chapter {
    let mut chapter =
        Chapter::new(told.study, "A cache below a machine's image", "What does a cache device bring virtual machines?");
    let beside = |name: &str, time: &str, column: &str| told.beside(name, LOAD, &format!("{time}: {column}"));
    let row = |setting: &LabSetting| {
        let times = if setting.name == CACHED { &TIMES[..] } else { &TIMES[..1] };
        let rows = times.iter().map(|time| {
            let name = if times.len() > 1 { format!("{}, {time}", setting.name) } else { setting.name.clone() };
            (name, COLUMNS.iter().map(|column| beside(&setting.name, time, column)).collect())
        });
        rows.collect::<Vec<_>>()
    };
    let mut rows: Vec<(String, Vec<LabFigure>)> = told.settings.iter().flat_map(row).collect();
    let published = [0, 1, 2].map(|_| LabFigure::default()).into_iter();
    let published = published.chain([LabFigure::default().beside_seed(seeds::DM_CACHE_HITS[0])]);
    rows.push(("images on btrfs over dm-cache, published, not measured".to_owned(), published.collect()));
    chapter.tables.push(LabTable {
        caption: "A machine's load on its image".to_owned(),
        corner: "setting".to_owned(),
        columns: COLUMNS.map(str::to_owned).to_vec(),
        rows,
    });
    chapter.bars("Reads a second (with a cache device: after use)", told.bars(LOAD));
    let rate = |name: &str| told.median(name, LOAD);
    let gain = rate(CACHED).zip(rate(PLAIN)).map(|(cached, plain)| cached / plain);
    let hits = |time: &str| beside(CACHED, time, COLUMNS[3]).median();
    let hits = hits(TIMES[1]).zip(hits(TIMES[2]));
    chapter.words.extend(gain.zip(hits).map(|(gain, (used, imported))| {
        let [reads, writes] = seeds::DM_CACHE_HITS;
        format!(
            "With a cache device the volume has {gain:.1} times as many reads a second, and of those that RAM does not serve \
             {used:.1} % come from it after use, {imported:.1} % after an import. dm-cache below btrfs was published with \
             {reads} % of reads and {writes:.0} % of writes: copy on write never writes the same place again, and a cache of \
             places keeps what nobody will read."
        )
    }));
    chapter.words.push(
        "Images on other file systems are read and written without their page cache, as virtual machines are wont to. No \
         cache is below them: dm-cache and bcache are not driven by the lab."
            .to_owned(),
    );
    chapter
}
