//! A hard disk: an arm that moves, a platter that turns, and a write cache that is volatile.
//!
//! ```text
//!   write ─▶ link ─▶ cache, answered ─ ─ ─ ▶ arm ─▶ platter      when the disk has nothing else to do,
//!   flush ─────────▶ until the cache is empty                    or is flushed: by offset, as an elevator
//!   read  ─▶ read ahead, or passed over a moment ago, or arm ─▶ platter
//! ```
//!
//! A byte's angle follows from its offset, as if tracks were skewed so that a sequential transfer never waits. So a write
//! that begins where the last one ended, but later, waits for almost a whole revolution.

use std::collections::BTreeMap;

use super::jitter::Jitter;

/// Bytes that the arm reaches without a seek.
const TRACK_REACH: u64 = 1 << 20;
/// Bytes behind the one that was read last that are in the cache still, if the platter was read there.
const HELD_BYTES: u64 = 8 << 20;
/// Bytes that are written from the cache at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// Of a revolution, what is rounding.
const ROUNDING: f64 = 1e-6;
/// How much seeks vary.
const SEEK_JITTER: f64 = 0.05;

/// What a disk is like; times in seconds, rates in bytes a second.
#[derive(Clone, Debug)]
pub(super) struct DiskParameters {
    pub(super) revolution_s: f64,
    /// A seek to the next track, and what the square root of the distance, as a part of all, adds to that.
    pub(super) seek_min_s: f64,
    pub(super) seek_span_s: f64,
    /// Of the platter, and of the link.
    pub(super) rate: f64,
    pub(super) link_rate: f64,
    /// What each command takes beside all else.
    pub(super) command_s: f64,
    pub(super) cache_bytes: u64,
    pub(super) read_ahead_bytes: u64,
}

/// See the top of the file.
#[derive(Clone, Debug)]
pub(super) struct SpinningDisk {
    disk: DiskParameters,
    size: u64,
    jitter: Jitter,
    /// Where the platter was at time 0, as a part of a revolution.
    phase: f64,
    /// When the arm has nothing to do, and the offset at which it is then.
    free_at: f64,
    head: u64,
    /// Offset and time at which the last read from the platter ended; the platter is read on from there.
    read_until: Option<(u64, f64)>,
    /// The offset at which it began to be read.
    read_from: u64,
    /// What the cache has that the platter has not: starts and ends.
    dirty: BTreeMap<u64, u64>,
    dirty_bytes: u64,
}

impl SpinningDisk {
    pub(super) fn new(disk: DiskParameters, size: u64, mut jitter: Jitter) -> SpinningDisk {
        let phase = jitter.part();
        SpinningDisk {
            disk,
            size: size.max(1),
            jitter,
            phase,
            free_at: 0.0,
            head: 0,
            read_until: None,
            read_from: 0,
            dirty: BTreeMap::new(),
            dirty_bytes: 0,
        }
    }

    pub(super) fn read(&mut self, offset: u64, len: u64, now: f64) -> f64 {
        self.write_back_until(now);
        let end = offset.saturating_add(len);
        let command_s = self.disk.command_s;
        if let Some((read_to, at)) = self.read_until
            && (self.read_from.max(read_to.saturating_sub(HELD_BYTES))..read_to).contains(&offset)
            && end <= read_to
        {
            // the platter passed there on its way to what was asked for before
            let read_at = at - (read_to - end) as f64 / self.disk.rate;
            return now.max(read_at) + command_s + len as f64 / self.disk.link_rate;
        }
        if let Some((read_to, at)) = self.read_until
            && (read_to..read_to.saturating_add(self.disk.read_ahead_bytes)).contains(&offset)
        {
            // the platter went on meanwhile
            let read_at = at + (end - read_to) as f64 / self.disk.rate;
            self.read_until = Some((end, read_at));
            (self.head, self.free_at) = (end, self.free_at.max(read_at));
            return now.max(read_at) + command_s + len as f64 / self.disk.link_rate;
        }
        let done = self.transfer(now, offset, len);
        (self.read_from, self.read_until) = (offset, Some((end, done)));
        done + command_s
    }

    pub(super) fn write(&mut self, offset: u64, len: u64, now: f64) -> f64 {
        self.write_back_until(now);
        let mut taken = now;
        while self.dirty_bytes.saturating_add(len) > self.disk.cache_bytes && !self.dirty.is_empty() {
            self.write_back_one();
            taken = taken.max(self.free_at);
        }
        if self.dirty.is_empty() {
            self.free_at = self.free_at.max(now);
        }
        self.keep(offset, offset.saturating_add(len));
        taken + self.disk.command_s + len as f64 / self.disk.link_rate
    }

    pub(super) fn flush(&mut self, now: f64) -> f64 {
        self.write_back_until(now);
        while !self.dirty.is_empty() {
            self.write_back_one();
        }
        // a transfer that is under way has to end as well
        now.max(self.free_at) + self.disk.command_s
    }

    /// Writes back what the disk has had time for.
    fn write_back_until(&mut self, now: f64) {
        while self.free_at < now && !self.dirty.is_empty() {
            self.write_back_one();
        }
    }

    /// Writes the next piece of the cache: the one at or behind the arm, or else the first.
    fn write_back_one(&mut self) {
        let next = self.dirty.range(self.head..).next().or_else(|| self.dirty.iter().next());
        let Some((start, end)) = next.map(|(start, end)| (*start, *end)) else { return };
        let len = (end - start).min(PIECE_BYTES);
        self.dirty.remove(&start);
        if start + len < end {
            self.dirty.insert(start + len, end);
        }
        self.dirty_bytes -= len;
        self.read_until = None;
        self.transfer(self.free_at, start, len);
    }

    /// Adds a range to what is dirty.
    fn keep(&mut self, mut start: u64, mut end: u64) {
        // those that overlap or touch it become one with it; it starts at or before all that begin in it
        while let Some((&other, &other_end)) = self.dirty.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            self.dirty.remove(&other);
            self.dirty_bytes -= other_end - other;
            (start, end) = (start.min(other), end.max(other_end));
        }
        if end > start {
            self.dirty.insert(start, end);
            self.dirty_bytes += end - start;
        }
    }

    /// Moves the arm, waits for the platter, and transfers: when that is done.
    fn transfer(&mut self, now: f64, offset: u64, len: u64) -> f64 {
        let distance = offset.abs_diff(self.head);
        let mut at = now.max(self.free_at);
        if distance > TRACK_REACH {
            let part = (distance as f64 / self.size as f64).min(1.0);
            let seek_s = self.disk.seek_min_s + self.disk.seek_span_s * part.sqrt();
            at += seek_s * self.jitter.factor(SEEK_JITTER);
        }
        at += self.turn_s(at, offset);
        at += len as f64 / self.disk.rate;
        (self.free_at, self.head) = (at, offset.saturating_add(len));
        at
    }

    /// How long it takes until an offset is under the head.
    fn turn_s(&self, at: f64, offset: u64) -> f64 {
        let track_bytes = self.disk.rate * self.disk.revolution_s;
        let angle = offset as f64 / track_bytes;
        let platter = at / self.disk.revolution_s + self.phase;
        let part = (angle - platter).rem_euclid(1.0);
        if part > 1.0 - ROUNDING { 0.0 } else { part * self.disk.revolution_s }
    }
}
