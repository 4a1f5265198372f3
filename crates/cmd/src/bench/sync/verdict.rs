//! Whether a device is worth being the log of another.

use std::fmt;

use super::survey::TargetSurvey;

/// Sizes that most synchronous writes have: those of databases and mail servers.
const SIZES: [u64; 2] = [4 << 10, 128 << 10];
/// What is not faster by this factor is not worth a device.
const WORTH: f64 = 2.0;
/// A flush that takes longer on what has no moving parts goes to flash memory, not to a protected cache.
const SLOW_NS: u64 = 1_000_000;
/// What takes longer is a disk that turns.
const DISK_NS: u64 = 4_000_000;

/// See the top of the file.
pub struct LogDeviceVerdict {
    device: String,
    other: String,
    /// How many times as fast the device is with one thread, and with many: geometric means over sizes.
    pub factors: Vec<(u32, f64)>,
}

/// Compares a device with what it is to make faster.
pub fn judge(device: &TargetSurvey, other: &TargetSurvey) -> LogDeviceVerdict {
    let mut threads: Vec<u32> = device.rows.iter().map(|row| row.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let factor = |threads: u32| {
        let is_usual = |size: u64| (SIZES[0]..=SIZES[1]).contains(&size);
        let rate = |survey: &TargetSurvey, size: u64| {
            let row = survey.rows.iter().find(|row| row.threads == threads && row.size == size);
            row.map(super::Measured::rate).filter(|rate| *rate > 0.0)
        };
        let usual = device.rows.iter().filter(|row| row.threads == threads && is_usual(row.size));
        let logs: Vec<f64> = usual.filter_map(|row| Some((row.rate() / rate(other, row.size)?).ln())).collect();
        (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
    };
    let factors = threads.into_iter().map(|threads| (threads, factor(threads))).collect();
    LogDeviceVerdict { device: device.path.clone(), other: other.path.clone(), factors }
}

impl LogDeviceVerdict {
    /// Whether it is worth it.
    pub fn is_worth_it(&self) -> bool {
        self.factors.iter().all(|(_, factor)| *factor >= WORTH)
    }
}

impl fmt::Display for LogDeviceVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let factors: Vec<String> = self
            .factors
            .iter()
            .map(|(threads, factor)| {
                format!("{factor:.1} with {threads} thread{}", if *threads == 1 { "" } else { "s" })
            })
            .collect();
        let (device, other, factors) = (&self.device, &self.other, factors.join(", "));
        match self.is_worth_it() {
            true => {
                write!(f, "{device} as log device makes synchronous writes of {other} faster by a factor of {factors}.")
            }
            false => write!(f, "{device} is not worth being the log device of {other}: a factor of {factors}."),
        }
    }
}

/// What is suspicious of a device.
pub fn warning(survey: &TargetSurvey) -> Option<String> {
    let row = survey.rows.iter().find(|row| survey.kind == "device" && row.threads == 1 && row.size == SIZES[0])?;
    let [median_ns, _, worst_ns] = row.percentiles_ns;
    let path = &survey.path;
    if (SLOW_NS..DISK_NS).contains(&median_ns) {
        let ms = median_ns as f64 / 1e6;
        return Some(format!(
            "{path} takes {ms:.1} ms for a write of 4K and a flush: it seems to have no power-loss protection, and is \
             a slow log."
        ));
    }
    (worst_ns > median_ns.saturating_mul(20)).then(|| {
        let [median, worst] = [median_ns, worst_ns].map(protocol::words::nicenum::nicetime);
        format!("{path} is uneven: half of its writes take {median}, but one in a thousand {worst} and more.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measure::Measured;

    fn survey(path: &str, kind: &'static str, rates: [u64; 2], took_ns: [u64; 3]) -> TargetSurvey {
        let row =
            |size: u64, threads: u32, count| Measured { size, threads, count, seconds: 1.0, percentiles_ns: took_ns };
        let sizes = [512, 4096, 65_536, 1 << 20];
        let rows = sizes.iter().flat_map(|size| [row(*size, 1, rates[0]), row(*size, 16, rates[1])]).collect();
        TargetSurvey { path: path.into(), kind, rows }
    }

    #[test]
    fn what_is_not_faster_is_not_worth_it() {
        let disk = survey("/pool", "folder", [100, 200], [8_000_000; 3]);
        let ssd = survey("/dev/ssd", "device", [2800, 16_000], [300_000; 3]);
        let verdict = judge(&ssd, &disk);
        assert!(verdict.is_worth_it());
        assert_eq!(
            verdict.factors.iter().map(|(n, factor)| (*n, factor.round())).collect::<Vec<_>>(),
            [(1, 28.0), (16, 80.0)]
        );
        assert!(verdict.to_string().contains("factor of 28.0 with 1 thread, 80.0 with 16 threads"), "{verdict}");
        let verdict = judge(&survey("/dev/15k", "device", [130, 260], [6_000_000; 3]), &disk);
        assert!(!verdict.is_worth_it() && verdict.to_string().contains("not worth"), "{verdict}");
    }

    #[test]
    fn consumer_drives_are_warned_of() {
        let of = |kind, took_ns| warning(&survey("/dev/x", kind, [1, 1], took_ns));
        assert!(of("device", [2_000_000; 3]).is_some_and(|text| text.contains("2.0 ms")));
        assert!(of("device", [100_000, 200_000, 9_000_000]).is_some_and(|text| text.contains("uneven")));
        assert_eq!(of("device", [100_000; 3]), None);
        assert_eq!(of("device", [8_000_000; 3]), None, "a disk is what it is");
        assert_eq!(of("folder", [2_000_000; 3]), None);
    }
}
