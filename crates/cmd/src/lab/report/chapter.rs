//! What the report shows: for each study a chapter with verdicts, tables and charts.

use serde::Serialize;

use crate::chart::{Bars, Chart, ChartBar, Curve, CurveNames};
use crate::lab::devices::LabDevices;
use crate::lab::figure::LabFigure;
use crate::lab::journal::LabIdentity;
use crate::lab::machine::Machine;
use crate::lab::plan::LabSetting;

/// As IANA has it.
const ISCSI_PORT: u16 = 3260;

/// Everything that the pages show.
#[derive(Serialize)]
pub struct LabReport {
    pub machine: Machine,
    pub lab: LabIdentity,
    pub chapters: Vec<Chapter>,
}

/// What a study says.
#[derive(Serialize)]
pub struct Chapter {
    pub study: &'static str,
    pub title: &'static str,
    pub question: &'static str,
    /// Verdicts, and what is missing.
    pub words: Vec<String>,
    pub tables: Vec<LabTable>,
    /// How each setting is made.
    pub settings: Vec<SettingWords>,
    /// Pictures as SVG.
    #[serde(skip)]
    pub charts: Vec<String>,
}

/// Figures by rows and columns.
#[derive(Serialize)]
pub struct LabTable {
    pub caption: String,
    /// Of the names of rows.
    pub corner: String,
    pub columns: Vec<String>,
    pub rows: Vec<(String, Vec<LabFigure>)>,
}

/// How a setting is made, and how its cells are had by hand.
#[derive(Serialize)]
pub struct SettingWords {
    pub name: String,
    pub commands: Vec<String>,
}

impl LabReport {
    pub fn new(machine: Machine, lab: &LabIdentity, chapters: Vec<Chapter>) -> LabReport {
        LabReport { machine, lab: lab.clone(), chapters }
    }
}

impl Chapter {
    pub fn new(study: &'static str, title: &'static str, question: &'static str) -> Chapter {
        let (words, tables, settings, charts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Chapter { study, title, question, words, tables, settings, charts }
    }

    /// A chart of lines over sizes.
    pub fn lines(&mut self, title: &str, x_label: &str, lines: Vec<Curve>) {
        let chart = Chart {
            title: title.to_owned(),
            x_label: x_label.to_owned(),
            y_label: String::new(),
            lines,
            names: CurveNames::Below,
        };
        self.charts.push(chart.svg());
    }

    /// A chart of bars, if there is any.
    pub fn bars(&mut self, title: &str, bars: Vec<ChartBar>) {
        if !bars.is_empty() {
            self.charts.push(Bars { title: title.to_owned(), bars }.svg());
        }
    }

    /// How settings are made, and their cells had by hand.
    pub fn add_settings(&mut self, settings: &[LabSetting], devices: &LabDevices) {
        for setting in settings {
            let Ok(made) = setting.recipe.commands(devices, "FOLDER".as_ref(), ISCSI_PORT) else { continue };
            let made = made.into_iter().map(|words| words.join(" "));
            let cells = setting.cells.iter().map(|cell| format!("{}: {}", cell.name, cell.command));
            let commands = made.chain(cells).collect();
            self.settings.push(SettingWords { name: setting.name.clone(), commands });
        }
    }
}
