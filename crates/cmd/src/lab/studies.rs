//! The studies: each has its settings, and makes a chapter of the report of what was measured.
//!
//! - [`sync`]: synchronous writes, and 15k disks as a log; [`judge`]: an SSD judged as a log; [`randread`]: random reads;
//!   [`matrix`]: settings of a pool side by side; [`practice`]: files copied in

mod judge;
mod matrix;
mod practice;
mod randread;
mod sync;

use super::devices::LabDevices;
use super::journal::LabResults;
use super::plan::{LabScale, LabSetting};
use super::report::Chapter;
use super::told::LabTold;

/// See the top of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Study {
    Sync,
    Judge,
    Randread,
    Matrix,
    Practice,
}

impl Study {
    /// In the order of the report.
    pub const ALL: [Study; 5] = [Study::Sync, Study::Judge, Study::Randread, Study::Matrix, Study::Practice];

    /// As it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Study::Sync => "sync",
            Study::Judge => "judge",
            Study::Randread => "randread",
            Study::Matrix => "matrix",
            Study::Practice => "practice",
        }
    }

    /// What it measures.
    pub fn settings(self, scale: &LabScale) -> Vec<LabSetting> {
        match self {
            Study::Sync => sync::settings(scale),
            Study::Judge => judge::settings(scale),
            Study::Randread => randread::settings(scale),
            Study::Matrix => matrix::settings(scale),
            Study::Practice => practice::settings(scale),
        }
    }

    /// What it says of that.
    pub fn chapter(self, scale: &LabScale, results: &LabResults, devices: &LabDevices) -> Chapter {
        let settings = self.settings(scale);
        let told = LabTold { study: self.name(), results, settings: &settings };
        let mut chapter = match self {
            Study::Sync => sync::chapter(&told, scale),
            Study::Judge => judge::chapter(&told),
            Study::Randread => randread::chapter(&told, scale),
            Study::Matrix => matrix::chapter(&told),
            Study::Practice => practice::chapter(&told),
        };
        chapter.add_settings(&settings, devices);
        chapter
    }
}
