//! Whether a thread that takes requests alone looks for the next one for a moment before it sleeps.
//!
//! To wake a thread on a core that idles takes long: in a virtual machine whose cores halt at once 25 to 50 µs, and
//! elsewhere the deeper a core sleeps. What looking may cost: nobody looks while nobody asks, nor where it did not pay the
//! last few times, nor for a while after another program took the core.

use base::Env;

use crate::turns::Seat;

/// How long a thread looks for the next request, in nanoseconds.
const LOOK_NS: u64 = 50_000;
/// Somebody else had the core if so long went by between two looks.
const GAP_NS: u64 = 300_000;
/// Requests without looking after it did not pay, and after somebody else wanted the core.
const PAUSE: u32 = 256;
const PAUSE_BUSY: u32 = 4096;
/// Looks in vain are twice as bad as those that found one are good; no more than that is saved up.
const CREDIT_MAX: u32 = 8;

/// Whether it pays for a thread to look for its next request before it sleeps.
#[derive(Debug, Default)]
pub struct Looks {
    credit: u32,
    pause: u32,
    began_ns: u64,
    last_ns: u64,
}

impl Looks {
    /// Looks by `look` while the thread in that seat is alone: once, and then for a moment if it is `eager` and that pays.
    /// What was found, and whether it was there at once.
    pub fn find<T>(
        &mut self,
        env: &Env,
        seat: &Seat<'_>,
        eager: bool,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<(T, bool)> {
        let mut at_once = true;
        while seat.is_alone() {
            if let Some(found) = look() {
                if !at_once {
                    self.paid();
                }
                return Some((found, at_once));
            }
            if !eager || !self.go_on(at_once, env.ticks_ns()) {
                break;
            }
            at_once = false;
        }
        None
    }

    /// May it look once more, at this time? The first time is after a look in vain.
    fn go_on(&mut self, is_first: bool, now_ns: u64) -> bool {
        if is_first {
            if self.pause > 0 {
                self.pause -= 1;
                return false;
            }
            (self.began_ns, self.last_ns) = (now_ns, now_ns);
            return true;
        }
        let last_ns = std::mem::replace(&mut self.last_ns, now_ns);
        if now_ns.saturating_sub(last_ns) > GAP_NS {
            (self.credit, self.pause) = (0, PAUSE_BUSY);
            return false;
        }
        if now_ns.saturating_sub(self.began_ns) < LOOK_NS {
            return true;
        }
        match self.credit.checked_sub(2) {
            Some(credit) => self.credit = credit,
            None => (self.credit, self.pause) = (0, PAUSE),
        }
        false
    }

    /// It found one.
    fn paid(&mut self) {
        self.credit = (self.credit + 1).min(CREDIT_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_stops_where_it_does_not_pay() {
        let mut looks = Looks::default();
        let vain = |looks: &mut Looks, gap_ns: u64| {
            let mut rounds = 0;
            while looks.go_on(rounds == 0, rounds * gap_ns) {
                rounds += 1;
            }
            rounds
        };
        looks.paid();
        looks.paid();
        assert_eq!((vain(&mut looks, 1000), vain(&mut looks, 1000)), (50, 50));
        assert!((0..PAUSE).all(|_| vain(&mut looks, 1000) == 0), "twice in vain");
        assert_eq!(vain(&mut looks, GAP_NS + 1), 1);
        assert!((0..PAUSE_BUSY).all(|_| vain(&mut looks, 1000) == 0), "somebody else had the core");
    }
}
