//! What loads of several processes print: figures over repetitions, and where they ran.

use std::path::Path;

/// Figures of one operation, a repetition each.
pub struct Spread {
    pub name: &'static str,
    /// Rates, and seconds.
    rates: Vec<f64>,
    seconds: Vec<f64>,
}

impl Spread {
    pub fn new(name: &'static str) -> Spread {
        Spread { name, rates: Vec::new(), seconds: Vec::new() }
    }

    pub fn add(&mut self, rate: f64, seconds: f64) {
        self.rates.push(rate);
        self.seconds.push(seconds);
    }

    pub fn is_empty(&self) -> bool {
        self.rates.is_empty()
    }

    pub fn most(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    pub fn least(&self) -> f64 {
        self.rates.iter().copied().reduce(f64::min).unwrap_or(0.0)
    }

    pub fn mean(&self) -> f64 {
        mean(&self.rates)
    }

    pub fn mean_seconds(&self) -> f64 {
        mean(&self.seconds)
    }

    /// The standard deviation of all.
    pub fn deviation(&self) -> f64 {
        let of_all = self.mean();
        mean(&self.rates.iter().map(|rate| (rate - of_all).powi(2)).collect::<Vec<f64>>()).sqrt()
    }
}

fn mean(numbers: &[f64]) -> f64 {
    if numbers.is_empty() { 0.0 } else { numbers.iter().sum::<f64>() / numbers.len() as f64 }
}

/// A number of bytes with its unit, as `1 MiB` or `1.50 GiB`.
pub fn binary_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    while unit + 1 < UNITS.len() && bytes >> (10 * (unit + 1)) > 0 {
        unit += 1;
    }
    match bytes.is_multiple_of(1 << (10 * unit)) {
        true => format!("{} {}", bytes >> (10 * unit), UNITS[unit]),
        false => format!("{:.2} {}", bytes as f64 / (1u64 << (10 * unit)) as f64, UNITS[unit]),
    }
}

/// Kernel and name of this host.
pub fn machine() -> String {
    let uname = rustix::system::uname();
    format!("{} {}", uname.sysname().to_string_lossy(), uname.nodename().to_string_lossy())
}

/// How full the file system of a path is; empty if that cannot be known.
pub fn free_line(path: &str) -> String {
    let folder = Path::new(path).ancestors().find(|above| above.is_dir()).unwrap_or(Path::new("."));
    let Ok(space) = rustix::fs::statvfs(folder) else { return String::new() };
    let part = |used: u64, all: u64| used as f64 * 100.0 / all.max(1) as f64;
    let used = part(space.f_blocks.saturating_sub(space.f_bfree), space.f_blocks);
    let used_inodes = part(space.f_files.saturating_sub(space.f_ffree), space.f_files);
    let gib = space.f_blocks as f64 * space.f_frsize as f64 / (1u64 << 30) as f64;
    let inodes = space.f_files as f64 / 1e6;
    format!("{gib:.1} GiB   Used FS: {used:.1}%   Inodes: {inodes:.1} Mi   Used Inodes: {used_inodes:.1}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_over_repetitions() {
        let mut spread = Spread::new("write");
        assert!(spread.is_empty());
        [(1.0, 4.0), (3.0, 2.0)].iter().for_each(|(rate, seconds)| spread.add(*rate, *seconds));
        let told = [spread.most(), spread.least(), spread.mean(), spread.deviation(), spread.mean_seconds()];
        assert_eq!(told, [3.0, 1.0, 2.0, 1.0, 3.0]);
        assert_eq!([1, 1 << 20, 3 << 29].map(binary_bytes), ["1 bytes", "1 MiB", "1.50 GiB"]);
    }
}
