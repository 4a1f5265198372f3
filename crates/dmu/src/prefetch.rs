//! Reading ahead of readers that go through an object in order, or by equal steps.
//!
//! Each object knows its last readers as streams. A stream remembers where its reader is and how far the
//! cache was filled ahead of it. While reads keep coming as expected, the distance doubles up to a limit.
//! Reads of one stream may arrive a little out of order, as several threads of the FUSE layer serve them.
//!
//! ```text
//!          reader          loaded             target
//!   ─────────┼───────────────┼───────────────────┼──────▶ offset      in order
//!            │◀────────── distance ─────────────▶│
//!
//!   ─■■────────■■────────□□────────□□────────□□────────▶ offset      by steps: ■ read, □ ahead
//!    │◀─step──▶│
//! ```
//!
//! A read that no stream expects begins a new one, or is the third of three at equal steps.

use std::ops::Range;

use arc::Ahead;

/// Bytes ahead of a reader that has just begun to read in order.
const DISTANCE_MIN: u64 = 1 << 20;
/// Bytes ahead of a reader that has read in order for long.
const DISTANCE_MAX: u64 = 32 << 20;
/// Bytes of one background task.
const CHUNK: u64 = 2 << 20;
/// Bytes that reads of one stream may be out of order, at most: as many as it has read, or as few reads are, or else
/// random reads of a small file would often seem to be in order.
const SLACK_MAX: u64 = 2 << 20;
const SLACK_READS: u64 = 4;
/// Readers of one object that are known.
const STREAMS_MAX: usize = 8;
/// Reads after which a stream must have read half of what it passed.
const SPARSE_READS: u64 = 4;
/// Steps ahead of a reader by steps: at first, and at most.
const STEPS_MIN: u64 = 4;
const STEPS_MAX: u64 = 256;
/// Steps that reads may be out of order.
const STEPS_SLACK: u64 = 8;

/// The readers of one object; the one that has read last is the last.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: Vec<Stream>,
    /// Where the last read began, and how far that was from the one before.
    last: Option<(u64, u64)>,
}

#[derive(Debug)]
enum Stream {
    InOrder(InOrder),
    BySteps(BySteps),
}

/// What a read is to a stream.
enum Fit {
    /// As expected; this is to be loaded now.
    Yes(Vec<Range<u64>>),
    No,
    /// Not this stream, nor will there be any.
    Over,
}

impl Streams {
    /// Notes a read, and returns what to load now; `end` is where the object ends.
    pub(crate) fn advance(&mut self, offset: u64, len: u64, end: u64, counts: &Ahead) -> Vec<Range<u64>> {
        let step = self.last.map_or(0, |(last, _)| offset.saturating_sub(last));
        let is_third = step > len && self.last.is_some_and(|(_, before)| before == step);
        self.last = Some((offset, step));
        for i in (0..self.streams.len()).rev() {
            let fit = match &mut self.streams[i] {
                Stream::InOrder(stream) => stream.advance(offset, len, end),
                Stream::BySteps(stream) => stream.advance(offset, end),
            };
            match fit {
                Fit::Yes(ranges) => {
                    counts.hit(matches!(self.streams[i], Stream::BySteps(_)));
                    self.streams[i..].rotate_left(1);
                    return ranges;
                }
                Fit::No => {}
                Fit::Over => drop(self.streams.remove(i)),
            }
        }
        counts.miss();
        if self.streams.len() == STREAMS_MAX {
            counts.no_room();
            self.streams.remove(0);
        }
        if is_third {
            let mut stream = BySteps::new(offset, len, step);
            let Fit::Yes(ranges) = stream.advance(offset, end) else { return Vec::new() };
            self.streams.push(Stream::BySteps(stream));
            return ranges;
        }
        let mut stream = InOrder::new(offset);
        // a reader that begins at the beginning will go on
        let ranges = match stream.advance(offset, len, end) {
            Fit::Yes(ranges) if offset == 0 => ranges,
            _ => {
                stream.forget();
                Vec::new()
            }
        };
        self.streams.push(Stream::InOrder(stream));
        ranges
    }
}

/// Reads one byte after the other.
#[derive(Debug)]
struct InOrder {
    start: u64,
    next: u64,
    loaded: u64,
    distance: u64,
    /// Reads, and their bytes.
    reads: u64,
    bytes: u64,
}

impl InOrder {
    fn new(offset: u64) -> InOrder {
        InOrder { start: offset, next: offset, loaded: offset, distance: 0, reads: 0, bytes: 0 }
    }

    /// Nothing is known to come.
    fn forget(&mut self) {
        (self.loaded, self.distance) = (self.next, 0);
    }

    fn advance(&mut self, offset: u64, len: u64, end: u64) -> Fit {
        let after = offset.saturating_add(len);
        let slack = len.saturating_mul(SLACK_READS).max(self.bytes).min(SLACK_MAX);
        if offset > self.next.saturating_add(slack) || after.saturating_add(slack) < self.next {
            return Fit::No;
        }
        self.reads += 1;
        self.bytes = self.bytes.saturating_add(len);
        self.next = self.next.max(after);
        if self.reads >= SPARSE_READS && self.bytes < (self.next - self.start) / 2 {
            return Fit::Over;
        }
        self.loaded = self.loaded.max(self.next);
        let target = self.next.saturating_add(self.distance).min(end);
        // let the gap grow to half the distance, so that tasks are of some size
        if self.distance > 0 && self.loaded - self.next > self.distance / 2 {
            return Fit::Yes(Vec::new());
        }
        self.distance = (self.distance * 2).clamp(DISTANCE_MIN, DISTANCE_MAX);
        let mut ranges = Vec::new();
        while self.loaded < target {
            let upto = self.loaded.saturating_add(CHUNK).min(target);
            ranges.push(self.loaded..upto);
            self.loaded = upto;
        }
        Fit::Yes(ranges)
    }
}

/// Reads pieces that are equally far from each other.
#[derive(Debug)]
struct BySteps {
    /// Where the next piece is expected.
    next: u64,
    len: u64,
    step: u64,
    /// The first piece that has not been loaded.
    loaded: u64,
    /// Pieces ahead.
    distance: u64,
}

impl BySteps {
    /// `step` is more than `len`.
    fn new(offset: u64, len: u64, step: u64) -> BySteps {
        BySteps { next: offset, len, step, loaded: offset, distance: STEPS_MIN }
    }

    fn advance(&mut self, offset: u64, end: u64) -> Fit {
        let apart = offset.abs_diff(self.next);
        if !apart.is_multiple_of(self.step) || apart / self.step > STEPS_SLACK {
            return Fit::No;
        }
        self.next = self.next.max(offset.saturating_add(self.step));
        self.loaded = self.loaded.max(self.next);
        let target = self.next.saturating_add(self.step.saturating_mul(self.distance)).min(end);
        if self.loaded - self.next > self.step.saturating_mul(self.distance / 2) {
            return Fit::Yes(Vec::new());
        }
        let most = (DISTANCE_MAX / self.len.max(1)).clamp(STEPS_MIN, STEPS_MAX);
        self.distance = (self.distance * 2).min(most);
        let mut ranges = Vec::new();
        while self.loaded < target {
            ranges.push(self.loaded..self.loaded.saturating_add(self.len).min(end));
            self.loaded = self.loaded.saturating_add(self.step);
        }
        Fit::Yes(ranges)
    }
}

/// Parts of `ranges` for one background task each.
pub(crate) fn lots(ranges: Vec<Range<u64>>) -> Vec<Vec<Range<u64>>> {
    let mut lots: Vec<Vec<Range<u64>>> = Vec::new();
    let mut bytes = CHUNK;
    for range in ranges {
        let len = range.end - range.start;
        if bytes + len > CHUNK {
            lots.push(Vec::new());
            bytes = 0;
        }
        bytes += len;
        lots.last_mut().expect("the first range begins a lot").push(range);
    }
    lots
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Streams, with their counters; the object is of 4 GiB.
    #[derive(Default)]
    struct Reader {
        streams: Streams,
        counts: Ahead,
    }

    impl Reader {
        fn read(&mut self, offset: u64, len: u64) -> Vec<Range<u64>> {
            self.streams.advance(offset, len, 4096 * MIB, &self.counts)
        }
    }

    #[test]
    fn a_sequential_reader_is_led_ever_further() {
        let mut reader = Reader::default();
        let mut loaded = 0;
        for i in 0..32_768u64 {
            for range in reader.read(i * 131_072, 131_072) {
                assert!(range.start >= loaded && range.end <= 4096 * MIB, "nothing is loaded twice");
                loaded = range.end;
            }
        }
        assert_eq!(loaded, 4096 * MIB);
        assert_eq!(reader.counts.values()[..3], [("hits", 32_767), ("misses", 1), ("stride", 0)]);
    }

    #[test]
    fn readers_of_one_object_do_not_disturb_each_other() {
        let mut reader = Reader::default();
        let starts = [0, 900 * MIB, 2000 * MIB];
        let mut loaded = [0; 3];
        for i in 0..400u64 {
            for (start, loaded) in starts.iter().zip(&mut loaded) {
                *loaded += reader.read(start + i * 131_072, 131_072).iter().map(|r| r.end - r.start).sum::<u64>();
            }
        }
        assert!(loaded.iter().all(|loaded| (49 * MIB..90 * MIB).contains(loaded)), "{loaded:?}");
    }

    #[test]
    fn reads_out_of_order_are_of_one_stream() {
        let mut reader = Reader::default();
        let mut loaded = 0;
        for pair in 0..400u64 {
            for i in [pair * 2 + 1, pair * 2] {
                loaded += reader.read(i * 131_072, 131_072).iter().map(|r| r.end - r.start).sum::<u64>();
            }
        }
        assert!(loaded >= 98 * MIB, "{loaded}");
    }

    #[test]
    fn a_random_reader_is_left_alone() {
        let mut reader = Reader::default();
        for i in 0..100u64 {
            assert!(reader.read((i * i * 7_919 % 499 + 1) * (8 << 20), 4096).is_empty());
        }
        assert_eq!(reader.counts.values()[..2], [("hits", 0), ("misses", 100)]);
        assert_eq!(reader.streams.streams.len(), STREAMS_MAX);

        // also one of a file that is not large
        let (mut reader, mut rng, mut loaded) = (Reader::default(), 1u64, 0);
        for _ in 0..10_000 {
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let ranges = reader.read((rng >> 33) % (256 * MIB / 4096) * 4096, 4096);
            loaded += ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        }
        assert!(loaded < 10_000 * 4096, "{loaded} bytes for {} that were read", 10_000 * 4096);
    }

    #[test]
    fn a_reader_by_steps_gets_its_pieces_and_nothing_else() {
        for step in [256 << 10, 3 * MIB + 4096] {
            let mut reader = Reader::default();
            let mut loaded = std::collections::BTreeSet::new();
            let mut missed = Vec::new();
            for i in 1..1000u64 {
                let at = i * step;
                missed.extend((!loaded.contains(&at)).then_some(i));
                for range in reader.read(at, 4096) {
                    let is_piece = range.start % step == 0 && range.end - range.start == 4096;
                    // the very first reads may be those of a reader in order
                    assert!(is_piece || i <= SPARSE_READS, "{step}: {range:?}");
                    assert!(loaded.insert(range.start), "{step}: twice: {range:?}");
                }
            }
            assert!(missed.len() < 10, "{step}: {missed:?}");
            assert!(reader.counts.values()[2].1 > 900, "{:?}", reader.counts.values());
        }
    }

    #[test]
    fn tasks_are_of_some_size() {
        let ranges: Vec<_> =
            (0..300).map(|i| i * MIB..i * MIB + 65_536).chain(std::iter::once(900 * MIB..902 * MIB)).collect();
        let lots = lots(ranges.clone());
        assert_eq!(lots.iter().map(Vec::len).collect::<Vec<_>>(), [vec![32; 9], vec![12, 1]].concat());
        assert_eq!(lots.concat(), ranges);
    }

    #[test]
    fn the_end_of_all_offsets() {
        let mut reader = Reader::default();
        for offset in [u64::MAX - 10, u64::MAX, u64::MAX - 10, 0, u64::MAX / 2, u64::MAX - 1] {
            reader.streams.advance(offset, 100, u64::MAX, &reader.counts);
            reader.streams.advance(offset, u64::MAX, u64::MAX, &reader.counts);
        }
        for i in 0..20 {
            reader.streams.advance(u64::MAX / 20 * i, 1 << 40, u64::MAX, &reader.counts);
        }
    }
}
