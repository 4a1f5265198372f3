use std::path::Path;

use super::figure::LabFigure;
use super::journal::{CellRecord, LabIdentity, LabJournal, LabResults};
use super::machine::Machine;
use super::plan::{CellRun, LabScale};
use super::report::{Chapter, LabReport, write};
use super::studies::Study;
use super::*;

fn identity() -> LabIdentity {
    LabIdentity::new(true, [&[], &[]], (true, 3), None).unwrap()
}

fn record(cell: &str, value: f64) -> CellRecord {
    let runs = vec![CellRun::of(value).with("p99_ms", 1.5); 3];
    CellRecord { cell: cell.into(), unit: "MiB/s".into(), command: "dd".into(), runs, failed: None }
}

fn opened(path: &Path) -> Result<LabJournal, String> {
    let mut journal = LabJournal::open(path, &identity())?;
    journal.begin(&identity())?;
    Ok(journal)
}

#[test]
fn a_journal_that_is_cut_anywhere_keeps_whole_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let mut journal = opened(&path).unwrap();
    assert!(LabJournal::open(&path, &identity()).err().is_some_and(|why| why.contains("another lab uses it")));
    for n in 0..3 {
        journal.add(record(&format!("sync/disk/{n}"), f64::from(n))).unwrap();
    }
    drop(journal);
    let whole = std::fs::read(&path).unwrap();
    let ends: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == b'\n').collect();
    for cut in 0..=whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let mut journal = opened(&path).unwrap();
        let kept = ends.iter().filter(|end| **end < cut).count().saturating_sub(1);
        assert_eq!(journal.results().iter().count(), kept, "cut at {cut}");
        journal.add(record("sync/disk/9", 9.0)).unwrap();
        drop(journal);
        assert_eq!(opened(&path).unwrap().results().iter().count(), kept + 1, "cut at {cut}");
    }
}

#[test]
fn other_files_are_no_journals() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    for text in ["hello\n", "{}\n", "[1]\n"] {
        std::fs::write(&path, text).unwrap();
        assert!(opened(&path).is_err(), "{text}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    std::fs::write(&path, "").unwrap();
    drop(opened(&path).unwrap());
    let other = LabIdentity::new(true, [&[], &[]], (false, 3), None).unwrap();
    assert!(LabJournal::open(&path, &other).err().is_some_and(|why| why.contains("other devices or options")));
}

#[test]
fn every_cell_has_its_own_name_and_all_devices_are_emulated() {
    for is_short in [true, false] {
        let scale = LabScale::new(is_short, 3, None);
        for study in Study::ALL {
            let settings = study.settings(&scale);
            let mut names: Vec<String> = settings
                .iter()
                .flat_map(|setting| {
                    setting.cells.iter().map(|cell| journal::cell_name(study.name(), &setting.name, &cell.name))
                })
                .collect();
            let all = names.len();
            names.sort();
            names.dedup();
            assert_eq!((names.len(), names.is_empty()), (all, false), "{}", study.name());
            for name in settings.iter().flat_map(|setting| setting.recipe.vdevs().split(' ')) {
                assert!(!name.contains('-') || devices::is_emulated_name(name), "{name}");
            }
        }
    }
}

#[test]
fn the_short_form_takes_four_minutes() {
    let scale = LabScale::new(true, 3, None);
    let seconds: f64 = Study::ALL.iter().map(|study| plan::seconds_of(&study.settings(&scale), scale.runs)).sum();
    assert!(seconds < 240.0, "{seconds}");
}

#[test]
fn names_never_reach_the_page_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let place = LabPlace::make(dir.path()).unwrap();
    let mut chapter = Chapter::new(Study::Matrix.name(), "title", "question");
    let bad = "<img src=x onerror=alert(1)>";
    chapter.words.push(bad.to_owned());
    chapter.bars(bad, vec![LabFigure::of(Some(&record("a", 1.0))).bar(bad).unwrap()]);
    chapter.tables.push(report::LabTable {
        caption: bad.to_owned(),
        corner: bad.to_owned(),
        columns: vec![bad.to_owned()],
        rows: vec![(
            bad.to_owned(),
            vec![LabFigure::of(Some(&CellRecord {
                failed: Some(bad.to_owned()),
                runs: Vec::new(),
                ..record(bad, 1.0)
            }))],
        )],
    });
    let results = LabResults::of(vec![record(bad, 1.0)]);
    write(
        &place,
        &LabReport::new(Machine { processor: bad.into(), ..Machine::here() }, &identity(), vec![chapter]),
        &results,
    )
    .unwrap();
    let page = std::fs::read_to_string(place.report()).unwrap();
    assert!(!page.contains("<img") && page.contains("&lt;img") || page.contains("&#60;img"), "{page}");
    assert!(!page.contains("<script") && !page.contains("<link"));
}
