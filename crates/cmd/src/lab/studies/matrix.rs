//! Settings of a pool side by side: compression, dedup, checksums, record sizes and layouts, with data of several ratios;
//! and file systems of Linux on the same disk.

use crate::lab::bed::{CellStop, LabBed};
use crate::lab::loads::{self, tool};
use crate::lab::peer::{Peer, PeerKind};
use crate::lab::plan::{CPU, CellRun, LabCell, LabScale, LabSetting, MACHINE_CPU};
use crate::lab::recipe::LabRecipe;
use crate::lab::report::Chapter;
use crate::lab::told::LabTold;

/// Data that the lab makes: names of cells, and ratios.
const WRITES: [(&str, f64); 4] =
    [("write, ratio 1.0", 1.0), ("write, ratio 1.5", 1.5), ("write, ratio 2.0", 2.0), ("write, ratio 4.0", 4.0)];
const READ: &str = "read, ratio 4.0";
const SMALL: &str = "small files";
const BONNIE: &str = "bonnie++ write";
/// The disk of most settings.
const DISK: &str = "disk-1";

/// Properties of the paper's settings; then those of today.
const PROPERTIES: [&str; 28] = [
    "",
    "atime=off",
    "dedup=on",
    "compression=lz4",
    "compression=lzjb",
    "compression=gzip-1",
    "compression=gzip-2",
    "compression=gzip-3",
    "compression=gzip-4",
    "compression=gzip-5",
    "compression=gzip",
    "compression=gzip-7",
    "compression=gzip-8",
    "compression=gzip-9",
    "compression=on dedup=on",
    "compression=zstd-fast",
    "compression=zstd-1",
    "compression=zstd",
    "compression=zstd-9",
    "checksum=off",
    "checksum=fletcher2",
    "checksum=sha256",
    "checksum=sha512",
    "checksum=skein",
    "recordsize=4K",
    "recordsize=16K",
    "recordsize=512K",
    "recordsize=1M",
];
/// Those of the short form.
const SHORT: [&str; 3] = ["", "compression=lz4", "dedup=on"];
const LAYOUTS: [(&str, &str); 4] = [
    ("mirror of 2", "mirror disk-1 disk-2"),
    ("raidz1 of 3", "raidz1 disk-1 disk-2 disk-3"),
    ("raidz2 of 4", "raidz2 disk-1 disk-2 disk-3 disk-4"),
    ("raidz3 of 5", "raidz3 disk-1 disk-2 disk-3 disk-4 disk-5"),
];
const DEFAULT: &str = "default";
/// Other file systems, and options of their mounts.
const PEERS: [(&str, PeerKind, &str); 7] = [
    (EXT4, PeerKind::Ext4, ""),
    ("xfs", PeerKind::Xfs, ""),
    (BTRFS, PeerKind::Btrfs, ""),
    (BTRFS_ZSTD, PeerKind::Btrfs, ",compress=zstd"),
    ("btrfs, compress=lzo", PeerKind::Btrfs, ",compress=lzo"),
    ("btrfs, compress=zlib", PeerKind::Btrfs, ",compress=zlib"),
    ("zfs-fuse", PeerKind::ZfsFuse, ""),
];
const EXT4: &str = "ext4";
const BTRFS: &str = "btrfs";
const BTRFS_ZSTD: &str = "btrfs, compress=zstd";
/// Those of the short form.
const SHORT_PEERS: [&str; 2] = [EXT4, BTRFS_ZSTD];

pub(super) fn settings(scale: &LabScale) -> Vec<LabSetting> {
    let of = |name: &str, vdevs, properties: &str| LabSetting {
        name: if name.is_empty() { DEFAULT.to_owned() } else { name.to_owned() },
        // of what is said twice, the last counts
        recipe: LabRecipe::pool(vdevs, &format!("compression=off {properties}")),
        cells: cells(scale),
    };
    let properties = if scale.is_short { &SHORT[..] } else { &PROPERTIES };
    let mut settings: Vec<LabSetting> = properties.iter().map(|words| of(words, DISK, words)).collect();
    if !scale.is_short {
        settings.extend(LAYOUTS.iter().map(|(name, vdevs)| of(name, vdevs, "")));
    }
    let peers = PEERS.iter().filter(|(name, ..)| !scale.is_short || SHORT_PEERS.contains(name));
    settings.extend(peers.map(|(name, kind, options)| LabSetting {
        name: (*name).to_owned(),
        recipe: LabRecipe::Peer { device: DISK, peer: Peer { kind: *kind, options } },
        cells: cells(scale),
    }));
    settings
}

fn cells(scale: &LabScale) -> Vec<LabCell> {
    let bytes: usize = scale.pick(24 << 20, 512 << 20);
    let seconds = bytes as f64 / 120e6;
    let command = |ratio: f64| format!("dd bs=1M count={} conv=fsync of data of ratio {ratio:.1}", bytes >> 20);
    let mut cells: Vec<LabCell> = WRITES
        .iter()
        .filter(|(_, ratio)| !scale.is_short || [1.0, 4.0].contains(ratio))
        .map(|(name, ratio)| LabCell {
            name: (*name).to_owned(),
            unit: "MiB/s",
            seconds: seconds / ratio,
            command: command(*ratio),
            work: Box::new(move |bed| loads::write_file(bed, bytes, *ratio)),
        })
        .collect();
    cells.push(LabCell {
        name: READ.to_owned(),
        unit: "MiB/s",
        seconds: 1.0 + seconds / 4.0,
        command: format!("dd bs=1M count={} of that file after an import, or a new mount", bytes >> 20),
        work: Box::new(move |bed| loads::read_file(bed, bytes, 4.0)),
    });
    if !scale.is_short {
        cells.push(LabCell {
            name: SMALL.to_owned(),
            unit: "files/s",
            seconds: 5.0,
            command: "16384 empty files made, found and removed".to_owned(),
            work: Box::new(|bed| loads::small_files(bed, 16_384)),
        });
        cells.push(LabCell {
            name: BONNIE.to_owned(),
            unit: "MiB/s",
            seconds: 40.0,
            command: format!("bonnie++ {}", BONNIE_WORDS.join(" ").replace("DIR", "FOLDER")),
            work: Box::new(bonnie),
        });
    }
    cells
}

/// As the paper has them, but for the size, which was twice the memory.
const BONNIE_WORDS: [&str; 13] = ["-d", "DIR", "-u", "root", "-x", "1", "-z", "0", "-q", "-n", "16", "-s", "1024"];

/// Runs bonnie++: the rates of blocks written, rewritten and read, and seeks a second.
fn bonnie(bed: &LabBed<'_>) -> Result<CellRun, CellStop> {
    let folder = bed.path().to_string_lossy().into_owned();
    let words: Vec<&str> =
        BONNIE_WORDS.iter().map(|word| if *word == "DIR" { folder.as_str() } else { word }).collect();
    let words: Vec<&str> = words.into_iter().chain(["-r", "0"]).collect();
    let text = tool(bed, "bonnie++", "bonnie++", &words)?;
    bonnie_run(&text).ok_or_else(|| CellStop::Failed("bonnie++ printed no line with rates".to_owned()))
}

/// What bonnie++'s line of values separated by commas says.
fn bonnie_run(text: &str) -> Option<CellRun> {
    let line = text.lines().find(|line| line.starts_with("1.") || line.starts_with("2."))?;
    let fields: Vec<&str> = line.split(',').collect();
    let mib = |at: usize| Some(fields.get(at)?.parse::<f64>().ok()? / 1024.0);
    // columns 9, 11, 15 and 17 of bon_csv2txt(1): K a second, and seeks
    let run = CellRun::of(mib(11)?);
    let add = |run: CellRun, name: &str, value: Option<f64>| value.map_or(run.clone(), |value| run.with(name, value));
    let run = add(run, "rewrite", mib(13));
    let run = add(run, "read", mib(17));
    Some(add(run, "seeks", mib(19).map(|seeks| seeks * 1024.0)))
}

pub(super) fn chapter(told: &LabTold<'_>) -> Chapter {
    let mut chapter =
        Chapter::new(told.study, "Settings side by side", "What do compression, checksums, dedup and layouts cost?");
    let cells: Vec<&str> = WRITES.iter().map(|(name, _)| *name).chain([READ, SMALL, BONNIE]).collect();
    let measured = |cell: &&str| told.settings.iter().any(|setting| setting.cells.iter().any(|of| of.name == *cell));
    let cells: Vec<&str> = cells.into_iter().filter(measured).collect();
    chapter.tables.push(told.by_setting("MiB a second (small files: files a second)", &cells));
    for (caption, name) in [
        ("Processor seconds of the pool's process in these runs", CPU),
        ("Processor seconds of the whole machine in these runs, of all that it did", MACHINE_CPU),
    ] {
        chapter.tables.push(told.by_setting_beside(caption, &cells, name));
    }
    chapter.bars("MiB a second of writing data of ratio 4.0", told.bars("write, ratio 4.0"));
    chapter.words.extend(compression_words(told));
    chapter.words.extend(peer_words(told));
    chapter
}

/// Whether compression makes a disk faster.
fn compression_words(told: &LabTold<'_>) -> Option<String> {
    let cell = "write, ratio 4.0";
    let plain = told.median(DEFAULT, cell)?;
    let best = told.settings.iter().filter(|setting| setting.name.starts_with("compression"));
    let rates = best.filter_map(|setting| Some((told.median(&setting.name, cell)? / plain, setting.name.as_str())));
    let (gain, name) = rates.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!(
        "Data that compress to a quarter are written {gain:.1} times as fast with {name} as without compression; the papers \
         have it at 2 to 4 times on one disk."
    ))
}

/// How ours stands beside others.
fn peer_words(told: &LabTold<'_>) -> Option<String> {
    let rate = |setting: &str, cell: &str| told.median(setting, cell);
    let pairs: Vec<String> = PEERS
        .iter()
        .filter(|(.., options)| options.is_empty())
        .filter_map(|(name, ..)| {
            let [write, read] = [WRITES[0].0, READ].map(|cell| Some(rate(DEFAULT, cell)? / rate(name, cell)?));
            Some(format!("{:.2} and {:.2} times as fast as {name}", write?, read?))
        })
        .collect();
    (!pairs.is_empty()).then(|| format!("Without compression, this pool writes and reads {}.", pairs.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_bonnie_is_read() {
        let line = "1.98,2.00,host,1,1480430142,1G,,8192,5,,,102400,33,51200,22,,,204800,40,512.5,12,16,,,,,1000,30";
        let run = bonnie_run(&format!("Writing...\n{line}\n")).unwrap();
        assert_eq!((run.value, run.also["rewrite"], run.also["read"], run.also["seeks"]), (100.0, 50.0, 200.0, 512.5));
        assert!(bonnie_run("").is_none() && bonnie_run("1.98,2.00").is_none());
    }
}
