//! The machine that was measured on.

use std::fs::read_to_string;

use arc::Gauge;
use serde::Serialize;

/// See the top of the file.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub memory_bytes: u64,
    pub kernel: String,
    pub cenote: String,
}

impl Machine {
    /// This one.
    pub fn here() -> Machine {
        let about = read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = about.lines().find_map(|line| line.strip_prefix("model name")?.trim_start().strip_prefix(':'));
        Machine {
            processor: model.unwrap_or(std::env::consts::ARCH).trim().to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: Gauge::new("/").limit().unwrap_or(0),
            kernel: read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            cenote: crate::version::this(),
        }
    }
}

/// Seconds of processor time at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuSeconds {
    /// Of the pool's process, if there is one.
    pub pool: Option<f64>,
    /// Of all that this machine does.
    pub machine: Option<f64>,
}

impl CpuSeconds {
    /// Those between an earlier moment and this one.
    pub fn since(self, earlier: CpuSeconds) -> CpuSeconds {
        let between = |now: Option<f64>, then: Option<f64>| Some(now? - then?);
        CpuSeconds { pool: between(self.pool, earlier.pool), machine: between(self.machine, earlier.machine) }
    }
}
