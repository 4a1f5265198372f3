//! Reading ahead of a sequential reader.
//!
//! A stream remembers where the reader is and how far the cache was filled ahead of it. While reads
//! keep coming in order the distance doubles up to a limit; the first jump ends it. Reads of one
//! stream may arrive a little out of order, as several threads of the FUSE layer serve them.
//!
//! ```text
//!          reader          loaded             target
//!   ─────────┼───────────────┼───────────────────┼──────▶ offset
//!            │◀────────── distance ─────────────▶│
//! ```

use std::ops::Range;

/// Bytes ahead of a reader that has just begun to read in order.
const DISTANCE_MIN: u64 = 1 << 20;
/// Bytes ahead of a reader that has read in order for long.
const DISTANCE_MAX: u64 = 32 << 20;
/// Bytes of one background task.
const CHUNK: u64 = 2 << 20;
/// Bytes that reads of one stream may be out of order.
const SLACK: u64 = 2 << 20;

/// The state of one reader.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    next: u64,
    loaded: u64,
    distance: u64,
}

impl Stream {
    /// Notes a read, and returns what to load now; `end` is where the object ends.
    pub(crate) fn advance(&mut self, offset: u64, len: u64, end: u64) -> Vec<Range<u64>> {
        let after = offset.saturating_add(len);
        let in_order = offset <= self.next.saturating_add(SLACK) && after.saturating_add(SLACK) >= self.next;
        // the very first read is in order only if it starts the file
        if !in_order || self.next == 0 && offset > 0 {
            *self = Stream { next: after, loaded: after, distance: 0 };
            return Vec::new();
        }
        self.next = self.next.max(after);
        self.loaded = self.loaded.max(self.next);
        let target = self.next.saturating_add(self.distance).min(end);
        // let the gap grow to half the distance, so that tasks are of some size
        if self.distance > 0 && self.loaded.saturating_sub(self.next) > self.distance / 2 {
            return Vec::new();
        }
        self.distance = (self.distance * 2).clamp(DISTANCE_MIN, DISTANCE_MAX);
        let mut ranges = Vec::new();
        while self.loaded < target {
            let upto = self.loaded.saturating_add(CHUNK).min(target);
            ranges.push(self.loaded..upto);
            self.loaded = upto;
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequential_reader_is_led_ever_further() {
        let mut stream = Stream::default();
        let end = 100 << 20;
        let mut loaded = 0;
        for i in 0..800u64 {
            for range in stream.advance(i * 131_072, 131_072, end) {
                assert!(range.start >= loaded && range.end <= end, "nothing is loaded twice");
                loaded = range.end;
            }
        }
        assert_eq!(loaded, end);
    }

    #[test]
    fn a_random_reader_is_left_alone() {
        let mut stream = Stream::default();
        for i in 0..100u64 {
            assert!(stream.advance((i * 7_919 % 100 + 1) * (8 << 20), 4096, 1 << 40).is_empty());
        }
    }

    #[test]
    fn the_end_of_all_offsets() {
        let mut stream = Stream { next: u64::MAX - 10, loaded: u64::MAX - 10, distance: DISTANCE_MAX };
        stream.advance(u64::MAX - 10, 100, u64::MAX);
    }
}
