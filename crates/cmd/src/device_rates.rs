//! What vdevs of pools in use do, a second.

use format::ids::Guid;
use protocol::io_report::{IoCounters, IoReport};

/// Rates of a vdev, a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceRates {
    /// Reads and writes.
    pub operations: [f64; 2],
    /// Their bytes.
    pub bytes: [f64; 2],
}

/// How much a counter grew in a second, of two looks that were so many seconds apart; one that came anew counts from 0.
pub fn rate(before: u64, now: u64, seconds: f64) -> f64 {
    let grown = if now < before { now } else { now - before };
    if seconds > 0.0 { grown as f64 / seconds } else { 0.0 }
}

impl DeviceRates {
    /// Of a vdev between two looks at its pool; zeros of one that was not there at both.
    pub fn of(before: &IoReport, now: &IoReport, vdev: Guid) -> DeviceRates {
        let seconds = now.open_ns.saturating_sub(before.open_ns) as f64 / 1e9;
        let both = before.vdevs.get(&vdev).zip(now.vdevs.get(&vdev));
        both.map_or(DeviceRates::default(), |(before, now)| DeviceRates::between(before, now, seconds))
    }

    /// Of two looks that were so many seconds apart.
    fn between(before: &IoCounters, now: &IoCounters, seconds: f64) -> DeviceRates {
        let rates = |before: &[u64; 2], now: &[u64; 2]| [0, 1].map(|side| rate(before[side], now[side], seconds));
        DeviceRates { operations: rates(&before.operations, &now.operations), bytes: rates(&before.bytes, &now.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_devices() {
        let counters = |n: u64| IoCounters { operations: [n, 2 * n], bytes: [n << 10, 0], ..IoCounters::default() };
        let rates = DeviceRates::between(&counters(10), &counters(30), 2.0);
        assert_eq!(rates, DeviceRates { operations: [10.0, 20.0], bytes: [10240.0, 0.0] });
        assert_eq!(DeviceRates::between(&counters(30), &counters(10), 1.0).operations, [10.0, 20.0], "it counts anew");
        assert_eq!(DeviceRates::between(&counters(0), &counters(10), 0.0), DeviceRates::default());
    }
}
