//! Time of this machine's processors.

use std::fs::read_to_string;

/// Seconds that all processors together were busy: user, nice, system, irq and softirq of proc_stat(5); `None` if that cannot
/// be read.
///
/// Stolen time is left out: it is that in which a hypervisor let others run while this machine wanted to. Nothing was done
/// here then, and with it the same work would cost more beside a busy neighbour. Guests of this machine are in user and nice.
pub fn busy_seconds() -> Option<f64> {
    let ticks = busy_ticks(&read_to_string("/proc/stat").ok()?)?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64)
}

/// Ticks of the first line that were neither idle, nor waiting for devices, nor stolen.
fn busy_ticks(stat: &str) -> Option<u64> {
    let words = stat.lines().next()?.split_ascii_whitespace().skip(1);
    let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    [0, 1, 2, 5, 6].iter().map(|at| ticks.get(*at)).try_fold(0u64, |sum, ticks| sum.checked_add(*ticks?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_waiting_and_stolen_time_are_not_work() {
        assert_eq!(busy_ticks("cpu  10 20 30 1000 500 1 2 3 400 0\ncpu0 1 1\n"), Some(63));
        assert_eq!(busy_ticks("cpu  10 20 30 1000 500 1 2\n"), Some(63), "a kernel before stolen time");
        assert_eq!([busy_ticks(""), busy_ticks("cpu 1 2 3"), busy_ticks("cpu 1 x 3 4 5 6 7")], [None; 3]);
        assert_eq!(busy_ticks(&format!("cpu {} 1 1 1 1 1 1", u64::MAX)), None);
        assert!(busy_seconds().is_some_and(|seconds| seconds > 0.0));
    }
}
