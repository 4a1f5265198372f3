//! What is measured: settings, each a pool or a device, and the cells of each.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::bed::{CellStop, LabBed};
use super::machine::CpuSeconds;
use super::recipe::LabRecipe;

/// Seconds of processor time of the pool's process.
pub const CPU: &str = "cpu_s";
/// And of the whole machine.
pub const MACHINE_CPU: &str = "machine_cpu_s";
/// Seconds that making a pool and destroying it takes.
const SETTING_S: f64 = 2.0;

/// How much is measured.
pub struct LabScale {
    pub is_short: bool,
    /// Of each cell.
    pub runs: u32,
    /// The user's files.
    pub tree: Option<PathBuf>,
}

impl LabScale {
    pub fn new(is_short: bool, runs: u32, tree: Option<PathBuf>) -> LabScale {
        LabScale { is_short, runs, tree }
    }

    /// One of two, for the short form and the whole one.
    pub fn pick<T>(&self, short: T, whole: T) -> T {
        if self.is_short { short } else { whole }
    }
}

/// A pool, or a device, and all that is measured there.
pub struct LabSetting {
    /// As the report has it.
    pub name: String,
    pub recipe: LabRecipe,
    pub cells: Vec<LabCell>,
}

/// One figure.
pub struct LabCell {
    /// Within the setting.
    pub name: String,
    pub unit: &'static str,
    /// How long one run takes, about.
    pub seconds: f64,
    /// How it is had by hand, in the setting.
    pub command: String,
    pub work: Box<CellWork>,
}

/// Does one run.
pub type CellWork = dyn Fn(&LabBed<'_>) -> Result<CellRun, CellStop>;

/// What one run gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CellRun {
    pub value: f64,
    /// Other figures of the same run, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub also: BTreeMap<String, f64>,
}

impl CellRun {
    pub fn of(value: f64) -> CellRun {
        CellRun { value, also: BTreeMap::new() }
    }

    pub fn with(mut self, name: &str, value: f64) -> CellRun {
        self.also.insert(name.to_owned(), value);
        self
    }

    /// With the seconds of processor time that it took.
    pub fn with_cpu(mut self, cpu: CpuSeconds) -> CellRun {
        let found = [(CPU, cpu.pool), (MACHINE_CPU, cpu.machine)];
        self.also.extend(found.into_iter().filter_map(|(name, seconds)| Some((name.to_owned(), seconds?))));
        self
    }
}

/// How long some settings take, about.
pub fn seconds_of(settings: &[LabSetting], runs: u32) -> f64 {
    let of_cells = |setting: &LabSetting| setting.cells.iter().map(|cell| cell.seconds * f64::from(runs)).sum::<f64>();
    settings.iter().map(|setting| SETTING_S + of_cells(setting)).sum()
}
