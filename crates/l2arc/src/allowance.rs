//! How much may be written to a cache device, for the sake of its life.

use crate::tunables::Tunables;

const DAY_NS: u64 = 86_400 * 1_000_000_000;

/// How much may be written, for the sake of the device's life: a day's worth at most, and it comes back in a day.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowance {
    spent: u64,
    looked_ns: u64,
}

impl Allowance {
    /// What a device of so many bytes may be given a day.
    pub fn a_day(capacity: u64, tunables: &Tunables) -> u64 {
        (u128::from(capacity) * u128::from(tunables.dwpd_limit) / 100).min(u128::from(u64::MAX)) as u64
    }

    /// What is left of so many bytes a day.
    pub fn left(&mut self, a_day: u64, now_ns: u64) -> u64 {
        let elapsed_ns = now_ns.saturating_sub(std::mem::replace(&mut self.looked_ns, now_ns));
        let back = u128::from(a_day) * u128::from(elapsed_ns) / u128::from(DAY_NS);
        self.spent = self.spent.saturating_sub(u64::try_from(back).unwrap_or(u64::MAX));
        a_day.saturating_sub(self.spent)
    }

    /// So many bytes were written.
    pub fn spend(&mut self, bytes: u64) {
        self.spent = self.spent.saturating_add(bytes);
    }
}
