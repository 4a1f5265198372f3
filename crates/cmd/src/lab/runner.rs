//! Measures what is not finished, setting by setting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::HumanDuration;

use super::bed::{CellStop, LabBed};
use super::devices::LabDevices;
use super::figure::LabFigure;
use super::journal::{CellRecord, LabJournal, cell_name};
use super::place::LabPlace;
use super::plan::{CellRun, LabCell, LabScale, LabSetting, seconds_of};
use super::studies::Study;

/// A lab at work.
pub struct LabRun<'a> {
    pub place: &'a LabPlace,
    pub devices: &'a LabDevices,
    pub scale: &'a LabScale,
    pub is_interrupted: &'a AtomicBool,
}

impl LabRun<'_> {
    /// All cells of all studies that are not finished. Errors, for the user: interrupted; the journal cannot be written.
    pub fn all(&self, studies: &[Study], journal: &mut LabJournal) -> Result<(), String> {
        self.place.prepare()?;
        let mut planned: Vec<(Study, Vec<LabSetting>)> = Vec::new();
        for study in studies {
            let mut settings = study.settings(self.scale);
            settings.retain_mut(|setting| {
                let name = |cell: &LabCell| cell_name(study.name(), &setting.name, &cell.name);
                setting.cells.retain(|cell| journal.results().get(&name(cell)).is_none());
                !setting.cells.is_empty()
            });
            let time = Duration::from_secs_f64(seconds_of(&settings, self.scale.runs));
            println!("{}: about {}", study.name(), HumanDuration(time));
            planned.push((*study, settings));
        }
        for (study, settings) in planned {
            for setting in &settings {
                self.setting(study, setting, journal)?;
            }
        }
        Ok(())
    }

    fn setting(&self, study: Study, setting: &LabSetting, journal: &mut LabJournal) -> Result<(), String> {
        if setting.recipe.check(self.devices).is_err() {
            // the chapter says which are missing
            return Ok(());
        }
        let bed = LabBed::make(self.place, self.devices, self.is_interrupted, &setting.recipe);
        for cell in &setting.cells {
            let done = match &bed {
                Ok(bed) => self.cell(cell, bed),
                Err(why) => Err(CellStop::Failed(why.clone())),
            };
            let (runs, failed) = match done {
                Ok(runs) => (runs, None),
                // what failed then may have been interrupted, too
                Err(CellStop::Failed(why)) if !self.is_interrupted.load(Ordering::Relaxed) => (Vec::new(), Some(why)),
                Err(_) => return Err("interrupted; the same command goes on".to_owned()),
            };
            let record = CellRecord {
                cell: cell_name(study.name(), &setting.name, &cell.name),
                unit: cell.unit.to_owned(),
                command: cell.command.clone(),
                runs,
                failed,
            };
            println!("{}, {}, {}: {}", study.name(), setting.name, cell.name, LabFigure::of(Some(&record)).said());
            journal.add(record)?;
        }
        match bed {
            Ok(bed) => bed.end(),
            Err(_) => Ok(()),
        }
    }

    fn cell(&self, cell: &LabCell, bed: &LabBed<'_>) -> Result<Vec<CellRun>, CellStop> {
        (0..self.scale.runs).map(|_| bed.goes_on().and_then(|()| (cell.work)(bed))).collect()
    }
}
