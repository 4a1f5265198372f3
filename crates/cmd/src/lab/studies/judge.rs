//! An SSD judged as a log: a volume of a pool of it alone, with `sync=always`, by NBD and iSCSI; and ten disks without and
//! with it.

use crate::lab::bed::{CellStop, LabBed};
use crate::lab::fio::{FioSaid, FioSide};
use crate::lab::plan::{CellRun, LabCell, LabScale, LabSetting};
use crate::lab::recipe::{LabRecipe, LabVolume, VolumeDoor};
use crate::lab::report::Chapter;
use crate::lab::seeds;
use crate::lab::told::LabTold;

/// CrystalDiskMark's patterns, with the old one of 512K: names, and what fio calls them.
const PATTERNS: [(&str, &str, &str, u32); 10] = [
    ("SEQ1M Q8 write", "write", "1M", 8),
    ("SEQ1M Q8 read", "read", "1M", 8),
    ("SEQ1M Q1 write", "write", "1M", 1),
    ("SEQ1M Q1 read", "read", "1M", 1),
    ("512K write", "randwrite", "512k", 1),
    ("512K read", "randread", "512k", 1),
    ("RND4K Q32 write", "randwrite", "4k", 32),
    ("RND4K Q32 read", "randread", "4k", 32),
    ("RND4K Q1 write", "randwrite", "4k", 1),
    ("RND4K Q1 read", "randread", "4k", 1),
];
const SHORT: [&str; 1] = [RND4K];
const TEN: &str = "disk-1 disk-2 disk-3 disk-4 disk-5 disk-6 disk-7 disk-8 disk-9 disk-10";
const TEN_LOG: &str = "disk-1 disk-2 disk-3 disk-4 disk-5 disk-6 disk-7 disk-8 disk-9 disk-10 log ssd-1";
const SYNC: &str = "SSD alone, sync=always";
const ASYNC: &str = "SSD alone, sync=disabled";
const ISCSI_SYNC: &str = "SSD alone by iSCSI, sync=always";
const ISCSI_ASYNC: &str = "SSD alone by iSCSI, sync=disabled";
const DISKS: &str = "ten disks, sync=always";
const DISKS_LOG: &str = "ten disks with the SSD as log, sync=always";
const RND4K: &str = "RND4K Q1 write";
/// Bytes of the volume.
const VOLUME_BYTES: u64 = 256 << 20;

pub(super) fn settings(scale: &LabScale) -> Vec<LabSetting> {
    let seconds = scale.pick(0.4, 5.0);
    let cells = || {
        let patterns = PATTERNS.iter().filter(|pattern| !scale.is_short || SHORT.contains(&pattern.0));
        patterns
            .map(|(name, rw, size, depth)| LabCell {
                name: (*name).to_owned(),
                unit: "MiB/s",
                // fio takes its time to begin and to end
                seconds: seconds + 1.0,
                command: format!("fio {}", words_of("URI", rw, size, *depth, seconds).join(" ")),
                work: Box::new(move |bed| pattern(bed, (rw, size, *depth), seconds)),
            })
            .collect()
    };
    let of = |name: &str, vdevs, sync: &str, door| LabSetting {
        name: name.to_owned(),
        recipe: LabRecipe::Volume {
            vdevs,
            properties: vec!["compression=off".to_owned(), format!("sync={sync}")],
            volume: LabVolume { bytes: VOLUME_BYTES, block: "4K", door },
        },
        cells: cells(),
    };
    vec![
        of(SYNC, "ssd-1", "always", VolumeDoor::Nbd),
        of(ASYNC, "ssd-1", "disabled", VolumeDoor::Nbd),
        of(ISCSI_SYNC, "ssd-1", "always", VolumeDoor::Iscsi),
        of(ISCSI_ASYNC, "ssd-1", "disabled", VolumeDoor::Iscsi),
        of(DISKS, TEN, "always", VolumeDoor::Nbd),
        of(DISKS_LOG, TEN_LOG, "always", VolumeDoor::Nbd),
    ]
}

fn words_of(uri: &str, rw: &str, size: &str, depth: u32, seconds: f64) -> Vec<String> {
    let words = [
        "--name=cenote-lab".to_owned(),
        "--ioengine=nbd".to_owned(),
        format!("--uri={uri}"),
        format!("--rw={rw}"),
        format!("--bs={size}"),
        format!("--iodepth={depth}"),
        format!("--size={VOLUME_BYTES}"),
        "--time_based".to_owned(),
        format!("--runtime={}ms", seconds * 1e3),
    ];
    words.into()
}

fn pattern(bed: &LabBed<'_>, (rw, size, depth): (&str, &str, u32), seconds: f64) -> Result<CellRun, CellStop> {
    let said = FioSaid::of(bed, &words_of(&bed.volume_uri()?, rw, size, depth, seconds))?;
    let side = if rw.ends_with("write") { FioSide::Write } else { FioSide::Read };
    said.run(side).ok_or_else(|| CellStop::Failed("fio printed no rates".to_owned()))
}

pub(super) fn chapter(told: &LabTold<'_>) -> Chapter {
    let mut chapter =
        Chapter::new(told.study, "An SSD judged as a log", "How fast are synchronous writes of a volume with it?");
    let cells: Vec<&str> = told
        .settings
        .first()
        .map_or_else(Vec::new, |setting| setting.cells.iter().map(|cell| cell.name.as_str()).collect());
    chapter.tables.push(told.by_setting("MiB a second of a volume, by NBD where nothing else is said", &cells));
    chapter.bars("MiB a second of 4K random writes, one at a time", told.bars(RND4K));
    chapter.words.extend(words(told));
    chapter.words.extend(iscsi_words(told));
    chapter
}

fn words(told: &LabTold<'_>) -> Option<String> {
    let gain = told.median(DISKS_LOG, RND4K)? / told.median(DISKS, RND4K)?;
    let lost = told.median(ASYNC, RND4K)? / told.median(SYNC, RND4K)?;
    let verdict = if gain >= 2.0 { "is a log" } else { "is no log worth buying" };
    Some(format!(
        "This SSD {verdict}: synchronous writes of ten disks are {gain:.1} times as fast with it (in the paper: about \
         {:.0} times). On the SSD alone, writes that nobody waits for are {lost:.1} times as fast as synchronous ones.",
        seeds::JUDGE_GAIN
    ))
}

/// What iSCSI costs beside NBD.
fn iscsi_words(told: &LabTold<'_>) -> Option<String> {
    let of = |name: &str| told.median(name, RND4K);
    Some(format!(
        "By iSCSI (QEMU's storage daemon is the initiator, and gives the volume to fio by NBD), 4K writes have {:.2} of the \
         rate by NBD, and with sync=disabled {:.2} of it.",
        of(ISCSI_SYNC)? / of(SYNC)?,
        of(ISCSI_ASYNC)? / of(ASYNC)?
    ))
}
