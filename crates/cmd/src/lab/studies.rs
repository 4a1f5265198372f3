//! The studies: each has its settings, and makes a chapter of the report of what was measured.
//!
//! - [`sync`]: synchronous writes, and 15k disks as a log; [`judge`]: an SSD judged as a log; [`randread`]: random reads;
//!   [`matrix`]: settings of a pool side by side; [`practice`]: files copied in; [`vmcache`]: a cache device below a
//!   machine's image

mod judge;
mod matrix;
mod practice;
mod randread;
mod sync;
mod vmcache;

use super::devices::LabDevices;
use super::journal::{LabResults, cell_name};
use super::plan::{LabCell, LabScale, LabSetting};
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
    Vmcache,
}

impl Study {
    /// In the order of the report.
    pub const ALL: [Study; 6] =
        [Study::Sync, Study::Judge, Study::Randread, Study::Matrix, Study::Practice, Study::Vmcache];

    /// As it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Study::Sync => "sync",
            Study::Judge => "judge",
            Study::Randread => "randread",
            Study::Matrix => "matrix",
            Study::Practice => "practice",
            Study::Vmcache => "vmcache",
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
            Study::Vmcache => vmcache::settings(scale),
        }
    }

    /// What it says of that.
    pub fn chapter(self, scale: &LabScale, results: &LabResults, devices: &LabDevices) -> Chapter {
        let mut settings = self.settings(scale);
        let left_out = self.leave_out(&mut settings, results, devices);
        let told = LabTold { study: self.name(), results, settings: &settings };
        let mut chapter = match self {
            Study::Sync => sync::chapter(&told, scale),
            Study::Judge => judge::chapter(&told),
            Study::Randread => randread::chapter(&told, scale),
            Study::Matrix => matrix::chapter(&told),
            Study::Practice => practice::chapter(&told),
            Study::Vmcache => vmcache::chapter(&told),
        };
        chapter.words.extend(left_out);
        chapter.add_settings(&settings, devices);
        chapter
    }

    /// Takes out settings that could not be measured here, and tells why.
    fn leave_out(self, settings: &mut Vec<LabSetting>, results: &LabResults, devices: &LabDevices) -> Vec<String> {
        let mut words = Vec::new();
        settings.retain(|setting| {
            let is_measured =
                |cell: &LabCell| results.get(&cell_name(self.name(), &setting.name, &cell.name)).is_some();
            let why = setting.recipe.check(devices).err().filter(|_| !setting.cells.iter().any(is_measured));
            words.extend(why.iter().map(|why| format!("Left out: {}, because {why}.", setting.name)));
            why.is_none()
        });
        words
    }
}
