//! The machine that was measured on.

use std::fs::read_to_string;

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
        let of = |path: &str, key: &str| {
            let text = read_to_string(path).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.trim_start_matches([' ', '\t', ':']).trim().to_owned())
        };
        let memory_kib = of("/proc/meminfo", "MemTotal").and_then(|text| text.strip_suffix(" kB")?.parse::<u64>().ok());
        Machine {
            processor: of("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_kib.unwrap_or(0) << 10,
            kernel: read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            cenote: crate::version::this(),
        }
    }
}

/// Seconds of processor time that a process has used.
pub fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // the name of the program may have spaces and brackets
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let per_second = rustix::param::clock_ticks_per_second();
    Some((ticks(11)? + ticks(12)?) as f64 / per_second as f64)
}
