//! What was measured of a study, as its chapter wants it.

use super::figure::LabFigure;
use super::journal::{LabResults, cell_name};
use super::plan::LabSetting;
use super::report::LabTable;
use crate::chart::ChartBar;

/// See the top of the file.
pub struct LabTold<'a> {
    pub study: &'static str,
    pub results: &'a LabResults,
    pub settings: &'a [LabSetting],
}

impl LabTold<'_> {
    /// A figure; `None` in it if it was not measured.
    pub fn figure(&self, setting: &str, cell: &str) -> LabFigure {
        LabFigure::of(self.results.get(&cell_name(self.study, setting, cell)))
    }

    /// Another figure of the same runs.
    pub fn beside(&self, setting: &str, cell: &str, name: &str) -> LabFigure {
        LabFigure::beside(self.results.get(&cell_name(self.study, setting, cell)), name)
    }

    /// The median, if there is any.
    pub fn median(&self, setting: &str, cell: &str) -> Option<f64> {
        self.figure(setting, cell).median()
    }

    /// A bar for each setting that has this cell, if it was measured.
    pub fn bars(&self, cell: &str) -> Vec<ChartBar> {
        self.settings.iter().filter_map(|setting| self.figure(&setting.name, cell).bar(&setting.name)).collect()
    }

    /// A table with a row for each setting that has one of these cells, and a column for each cell.
    pub fn by_setting(&self, caption: &str, cells: &[&str]) -> LabTable {
        self.table(caption, cells, |setting, cell| self.figure(setting, cell))
    }

    /// The same of another figure of the same runs.
    pub fn by_setting_beside(&self, caption: &str, cells: &[&str], name: &str) -> LabTable {
        self.table(caption, cells, |setting, cell| self.beside(setting, cell, name))
    }

    fn table(&self, caption: &str, cells: &[&str], figure: impl Fn(&str, &str) -> LabFigure) -> LabTable {
        let has = |setting: &&LabSetting| setting.cells.iter().any(|cell| cells.contains(&cell.name.as_str()));
        let row = |setting: &LabSetting| {
            (setting.name.clone(), cells.iter().map(|cell| figure(&setting.name, cell)).collect())
        };
        LabTable {
            caption: caption.to_owned(),
            corner: "setting".to_owned(),
            columns: cells.iter().map(|cell| (*cell).to_owned()).collect(),
            rows: self.settings.iter().filter(has).map(row).collect(),
        }
    }
}
