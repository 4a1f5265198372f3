//! An SSD judged as a log: a volume of a pool of it alone, with `sync=always`, by NBD; and ten disks without and with it.

use std::time::Duration;

use serde_json::Value;

use crate::advise::sizes::MIB;
use crate::lab::bed::{CellStop, LabBed, LabRecipe};
use crate::lab::loads::tool;
use crate::lab::plan::{CellRun, LabCell, LabScale, LabSetting};
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
const SHORT: [&str; 2] = ["RND4K Q32 write", "RND4K Q1 write"];
const TEN: &str = "disk-1 disk-2 disk-3 disk-4 disk-5 disk-6 disk-7 disk-8 disk-9 disk-10";
const TEN_LOG: &str = "disk-1 disk-2 disk-3 disk-4 disk-5 disk-6 disk-7 disk-8 disk-9 disk-10 log ssd-1";
const SYNC: &str = "SSD alone, sync=always";
const ASYNC: &str = "SSD alone, sync=disabled";
const DISKS: &str = "ten disks, sync=always";
const DISKS_LOG: &str = "ten disks with the SSD as log, sync=always";
const RND4K: &str = "RND4K Q1 write";
/// Bytes of the volume.
const VOLUME_BYTES: u64 = 256 << 20;
/// How long a socket may take to appear.
const SOCKET_TIME: Duration = Duration::from_secs(10);

pub(super) fn settings(scale: &LabScale) -> Vec<LabSetting> {
    let seconds = scale.pick(0.5, 5.0);
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
    let of = |name: &str, vdevs, sync: &str| LabSetting {
        name: name.to_owned(),
        recipe: LabRecipe::Volume {
            vdevs,
            properties: vec!["compression=off".to_owned(), format!("sync={sync}")],
            bytes: VOLUME_BYTES,
        },
        cells: cells(),
    };
    vec![
        of(SYNC, "ssd-1", "always"),
        of(ASYNC, "ssd-1", "disabled"),
        of(DISKS, TEN, "always"),
        of(DISKS_LOG, TEN_LOG, "always"),
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
        "--output-format=json".to_owned(),
    ];
    words.into()
}

fn pattern(bed: &LabBed<'_>, (rw, size, depth): (&str, &str, u32), seconds: f64) -> Result<CellRun, CellStop> {
    let uri = bed.volume_uri(SOCKET_TIME)?;
    let words = words_of(&uri, rw, size, depth, seconds);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let text = tool(bed, "fio", "fio", &words)?;
    let side = if rw.ends_with("write") { "write" } else { "read" };
    fio_run(&text, side).ok_or_else(|| CellStop::Failed("fio printed no rates".to_owned()))
}

/// What fio's JSON says of one side.
fn fio_run(text: &str, side: &str) -> Option<CellRun> {
    // warnings may stand before it
    let json: Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let side = &json["jobs"][0][side];
    let p99 = side["clat_ns"]["percentile"]["99.000000"].as_f64();
    let run = CellRun::of(side["bw_bytes"].as_f64()? / MIB).with("requests/s", side["iops"].as_f64()?);
    Some(p99.map_or(run.clone(), |ns| run.with("p99_ms", ns / 1e6)))
}

pub(super) fn chapter(told: &LabTold<'_>) -> Chapter {
    let mut chapter =
        Chapter::new(told.study, "An SSD judged as a log", "How fast are synchronous writes of a volume with it?");
    let cells: Vec<&str> = told
        .settings
        .first()
        .map_or_else(Vec::new, |setting| setting.cells.iter().map(|cell| cell.name.as_str()).collect());
    chapter.tables.push(told.by_setting("MiB a second of a volume by NBD", &cells));
    chapter.bars("MiB a second of 4K random writes, one at a time", told.bars(RND4K));
    chapter.words.extend(words(told));
    chapter.words.push(
        "By iSCSI nothing was measured: fio as Debian has it cannot speak it, and a second initiator is not driven here yet."
            .to_owned(),
    );
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fio_says_is_read() {
        let text = r#"fio: a warning
            {"jobs": [{"write": {"bw_bytes": 2097152, "iops": 512.0, "clat_ns": {"percentile": {"99.000000": 3000000}}}}]}"#;
        let run = fio_run(text, "write").unwrap();
        assert_eq!((run.value, run.also["requests/s"], run.also["p99_ms"]), (2.0, 512.0, 3.0));
        assert!(fio_run(text, "read").is_none() && fio_run("", "write").is_none());
    }
}
