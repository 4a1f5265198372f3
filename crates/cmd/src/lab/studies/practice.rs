//! Files copied into pools of several settings: time, ratio, and the table of deduplication.

use crate::lab::bed::{CellStop, LabBed};
use crate::lab::figure::LabFigure;
use crate::lab::loads;
use crate::lab::plan::{CPU, CellRun, LabCell, LabScale, LabSetting};
use crate::lab::recipe::LabRecipe;
use crate::lab::report::{Chapter, LabTable};
use crate::lab::seeds;
use crate::lab::told::LabTold;
use crate::lab::tree;

const COPY: &str = "copy";
const DISK: &str = "disk-1";
const DEFAULT: &str = "default";
const SETTINGS: [&str; 7] = [
    "",
    "compression=lz4",
    "compression=gzip",
    "compression=zstd",
    "dedup=on",
    "dedup=on compression=lz4",
    "dedup=on compression=zstd",
];

/// Those of the short form.
const SHORT: [&str; 3] = ["", "compression=lz4", "dedup=on"];

fn copy(bed: &LabBed<'_>, user: Option<&std::path::Path>, bytes: usize) -> Result<CellRun, CellStop> {
    let made = bed.place().tree();
    if user.is_none() {
        tree::make(bed, &made, bytes)?;
    }
    let run = loads::copy_tree(bed, user.unwrap_or(&made))?;
    let run = run.with("compression ratio", bed.property("zfs", "compressratio")?);
    let run = run.with("dedup ratio", bed.property("zpool", "dedupratio")?);
    Ok(run.with("table MiB", bed.property("zpool", "dedup_table_size")? / f64::from(1 << 20)))
}

pub(super) fn settings(scale: &LabScale) -> Vec<LabSetting> {
    let bytes: usize = scale.pick(16 << 20, 1 << 30);
    let of = |words: &str| {
        let user = scale.tree.clone();
        LabSetting {
            name: if words.is_empty() { DEFAULT.to_owned() } else { words.to_owned() },
            recipe: LabRecipe::pool(DISK, &format!("compression=off {words}")),
            cells: vec![LabCell {
                name: COPY.to_owned(),
                unit: "MiB/s",
                seconds: 1.0 + bytes as f64 / 50e6,
                command: "cp -r FILES FOLDER; zpool sync".to_owned(),
                work: Box::new(move |bed| copy(bed, user.as_deref(), bytes)),
            }],
        }
    };
    SETTINGS.iter().filter(|words| !scale.is_short || SHORT.contains(words)).map(|words| of(words)).collect()
}

pub(super) fn chapter(told: &LabTold<'_>) -> Chapter {
    let mut chapter = Chapter::new(
        told.study,
        "In practice",
        "What do compression and dedup bring and cost when files are copied in?",
    );
    let columns = ["seconds", "compression ratio", "dedup ratio", "table MiB", CPU];
    let row = |name: &String| {
        let seed = seeds::PRACTICE.iter().find(|seed| seed.0 == name);
        let mut figures = vec![told.figure(name, COPY)];
        figures.extend(columns.iter().map(|column| told.beside(name, COPY, column)));
        if let Some((_, rate, ratio, dedup)) = seed {
            // MB a second there, MiB here
            for (at, seed) in [(0, rate * 1e6 / f64::from(1 << 20)), (2, *ratio), (3, *dedup)] {
                figures[at] = std::mem::take(&mut figures[at]).beside_seed(seed);
            }
        }
        (name.clone(), figures)
    };
    chapter.tables.push(LabTable {
        caption: "Files copied in, until all is on the disk".to_owned(),
        corner: "setting".to_owned(),
        columns: ["MiB/s", "seconds", "compression ratio", "dedup ratio", "table, MiB", "processor seconds"]
            .map(str::to_owned)
            .to_vec(),
        rows: told.settings.iter().map(|setting| row(&setting.name)).collect(),
    });
    chapter.bars("MiB a second of files copied in", told.bars(COPY));
    chapter.words.extend(dedup_words(told));
    chapter
}

/// Whether dedup was worth it.
fn dedup_words(told: &LabTold<'_>) -> Option<String> {
    let of = |name: &str, figure: &dyn Fn(&str) -> LabFigure| figure(name).median();
    let rate = |name: &str| of(name, &|name| told.figure(name, COPY));
    let saved = of("dedup=on", &|name| told.beside(name, COPY, "dedup ratio"))?;
    let packed = of("compression=lz4", &|name| told.beside(name, COPY, "compression ratio"))?;
    let slower = rate("dedup=on")? / rate(DEFAULT)?;
    let verdict =
        if saved >= packed { "dedup saves more than lz4 here" } else { "lz4 saves more than dedup, for less" };
    Some(format!(
        "Of these files, {verdict}: {saved:.2} times by dedup at {slower:.2} of the rate, {packed:.2} times by lz4 (in the \
         paper: {:.2} times at {:.2} of the rate, and {:.2} times).",
        seeds::PRACTICE[3].3,
        seeds::PRACTICE[3].1 / seeds::PRACTICE[0].1,
        seeds::PRACTICE[1].2
    ))
}
