//! An SSD: a link that all share, lanes that read side by side, a write cache in RAM, and cells that are programmed from it.
//!
//! ```text
//!   write ─▶ link ─▶ cache, answered ─▶ cells, at the rate of programming   until some GiB are full: then slower
//!   flush ─▶ honest: all of the cache and its tables are programmed          protected or a liar: nothing to do
//!   read  ─▶ a lane ─▶ link
//! ```

use super::jitter::Jitter;

/// How much times vary.
const TIME_JITTER: f64 = 0.15;
/// One of so many writes and reads takes so many times as long: the device tidies up.
const OUTLIER_PART: f64 = 0.001;
const OUTLIER_FACTOR: f64 = 8.0;

/// What a flush does.
#[derive(Clone, Debug)]
pub(super) enum FlushRule {
    /// What is in the cache is programmed, and then the tables, which takes so many seconds.
    Programs { dirty_s: f64 },
    /// The cache survives a power cut; or it does not, and nothing is done about that.
    HasNothingToDo,
}

/// FlashCells that are written fast, until there are no more.
#[derive(Clone, Debug)]
pub(super) struct Cliff {
    pub(super) bytes: f64,
    /// Bytes a second that are programmed afterwards, and that become free again while the device rests.
    pub(super) rate_after: f64,
}

/// What an SSD is like; times in seconds, rates in bytes a second.
#[derive(Clone, Debug)]
pub(super) struct FlashParameters {
    pub(super) read_s: f64,
    pub(super) lanes: usize,
    pub(super) link_rate: f64,
    /// Until a write is answered that the cache takes.
    pub(super) write_s: f64,
    pub(super) cache_bytes: f64,
    pub(super) program_rate: f64,
    pub(super) flush: FlushRule,
    /// A flush that has nothing to do.
    pub(super) clean_flush_s: f64,
    pub(super) cliff: Option<Cliff>,
}

/// See the top of the file.
#[derive(Clone, Debug)]
pub(super) struct FlashModel {
    flash: FlashParameters,
    jitter: Jitter,
    link_free: f64,
    /// When each lane has nothing to read.
    lanes: Vec<f64>,
    cells: FlashCells,
    /// Something was written since the last flush.
    is_dirty: bool,
    flush_free: f64,
}

/// What waits to be programmed, at a time, and the fast cells that are left.
#[derive(Clone, Debug)]
struct FlashCells {
    at: f64,
    waiting: f64,
    fast_left: f64,
}

impl FlashCells {
    /// Time passes.
    fn pass(&mut self, flash: &FlashParameters, now: f64) {
        let mut left_s = now - self.at;
        if left_s <= 0.0 {
            return;
        }
        left_s -= self.program(flash, self.waiting, left_s);
        if left_s > 0.0
            && let Some(cliff) = &flash.cliff
        {
            self.fast_left = (self.fast_left + left_s * cliff.rate_after).min(cliff.bytes);
        }
        self.at = now;
    }

    /// Programs so many bytes, within so many seconds: the seconds that it took.
    fn program(&mut self, flash: &FlashParameters, bytes: f64, within_s: f64) -> f64 {
        let (mut left, mut took) = (bytes, 0.0);
        while left > 0.0 && took < within_s {
            let is_fast = flash.cliff.is_none() || self.fast_left > 0.0;
            let rate = match &flash.cliff {
                Some(cliff) if !is_fast => cliff.rate_after,
                _ => flash.program_rate,
            };
            let room = if flash.cliff.is_some() && is_fast { self.fast_left } else { f64::INFINITY };
            let step = left.min(room);
            if step > (within_s - took) * rate {
                let done = (within_s - took) * rate;
                self.programmed(done, is_fast);
                return within_s;
            }
            self.programmed(step, is_fast);
            left -= step;
            took += step / rate;
        }
        took
    }

    fn programmed(&mut self, bytes: f64, is_fast: bool) {
        self.waiting = (self.waiting - bytes).max(0.0);
        if is_fast {
            self.fast_left = (self.fast_left - bytes).max(0.0);
        }
    }
}

impl FlashModel {
    pub(super) fn new(flash: FlashParameters, jitter: Jitter) -> FlashModel {
        let fast_left = flash.cliff.as_ref().map_or(0.0, |cliff| cliff.bytes);
        FlashModel {
            jitter,
            link_free: 0.0,
            lanes: vec![0.0; flash.lanes.max(1)],
            cells: FlashCells { at: 0.0, waiting: 0.0, fast_left },
            is_dirty: false,
            flush_free: 0.0,
            flash,
        }
    }

    pub(super) fn read(&mut self, len: u64, now: f64) -> f64 {
        let took = self.flash.read_s * self.varied();
        // the lane that is free first; there always is one
        let lane = self.lanes.iter_mut().min_by(|a, b| a.total_cmp(b));
        let read = lane.map_or(now, |lane| {
            *lane = lane.max(now) + took;
            *lane
        });
        self.carried(len, read)
    }

    pub(super) fn write(&mut self, len: u64, now: f64) -> f64 {
        self.cells.pass(&self.flash, now);
        let carried = self.carried(len, now) + self.flash.write_s * self.varied();
        self.is_dirty = true;
        self.cells.waiting += len as f64;
        let over = self.cells.waiting - self.flash.cache_bytes;
        if over <= 0.0 {
            return carried;
        }
        // time that is still to come: the state stays
        carried.max(now + self.cells.clone().program(&self.flash, over, f64::INFINITY))
    }

    pub(super) fn flush(&mut self, now: f64) -> f64 {
        let clean_s = self.flash.clean_flush_s * self.varied();
        let FlushRule::Programs { dirty_s } = self.flash.flush else { return now + clean_s };
        if !self.is_dirty {
            // another's flush may still be about it
            return self.flush_free.max(now + clean_s);
        }
        let begins = self.flush_free.max(now);
        let mut ahead = self.cells.clone();
        ahead.pass(&self.flash, begins);
        let waiting = ahead.waiting;
        let programmed_s = ahead.program(&self.flash, waiting, f64::INFINITY);
        self.is_dirty = false;
        self.flush_free = begins + programmed_s + dirty_s * self.jitter.factor(TIME_JITTER);
        self.flush_free
    }

    /// When bytes that are there at a time have gone over the link.
    fn carried(&mut self, len: u64, at: f64) -> f64 {
        self.link_free = self.link_free.max(at) + len as f64 / self.flash.link_rate;
        self.link_free
    }

    fn varied(&mut self) -> f64 {
        let is_outlier = self.jitter.part() < OUTLIER_PART;
        self.jitter.factor(TIME_JITTER) * if is_outlier { OUTLIER_FACTOR } else { 1.0 }
    }
}
