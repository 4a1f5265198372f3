//! Whether the contents of a compressed block are worth the room that they take.
//!
//! Packed, blocks take a half or less of it, so that more of them are there; but each use after that costs a
//! decompression. So it depends on what a read costs that is spared: with disks far more, with a fast SSD less.
//! That is the time between two reads, also where many wait at once: by Little's law, how long one takes by how many
//! are under way.

use std::sync::atomic::{AtomicU64, Ordering};

use base::Env;

/// What unpacking costs about: nanoseconds, and for each two bytes one more.
const UNPACK_NS: u64 = 10_000;
/// So many uses of packed blocks spare one read at least.
const USES_A_READ: u64 = 8;
/// Reads after which an earlier one has hardly any weight.
const MEMORY: u64 = 16;

/// What reading a block costs, which is not in RAM.
#[derive(Default)]
pub(crate) struct Price {
    /// Nanoseconds, of late; 0 if that is not known.
    read_ns: AtomicU64,
    /// Blocks that are being read.
    under_way: AtomicU64,
}

impl Price {
    /// What comes of a read of so many blocks, and what it costs is remembered.
    pub(crate) fn learn<T>(&self, env: &Env, blocks: u64, read: impl FnOnce() -> T) -> T {
        if blocks == 0 {
            return read();
        }
        let (began_ns, under_way) = (env.ticks_ns(), self.reads(blocks));
        let done = read();
        self.read(blocks, env.ticks_ns().saturating_sub(began_ns), under_way);
        done
    }

    /// So many blocks are being read; to be told to [`Price::read`], with the blocks that are now.
    fn reads(&self, blocks: u64) -> u64 {
        self.under_way.fetch_add(blocks, Ordering::Relaxed) + blocks
    }

    /// So many blocks have been read in so long, with so many under way when that began.
    fn read(&self, blocks: u64, elapsed_ns: u64, under_way: u64) {
        self.under_way.fetch_sub(blocks, Ordering::Relaxed);
        let cost = elapsed_ns / under_way.max(1);
        let before = self.read_ns.load(Ordering::Relaxed);
        let now = if before == 0 { cost } else { before - before / MEMORY + cost / MEMORY };
        self.read_ns.store(now, Ordering::Relaxed);
    }

    /// Whether blocks with contents of so many bytes should be packed.
    pub(crate) fn is_worth_packing(&self, len: u64) -> bool {
        let read_ns = self.read_ns.load(Ordering::Relaxed);
        read_ns == 0 || read_ns > USES_A_READ * (UNPACK_NS + len / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dear_reads_are_worth_packing() {
        let price = Price::default();
        let reads = |blocks: u64, elapsed_ns: u64| {
            for _ in 0..100 {
                let under_way = price.reads(blocks);
                assert_eq!(under_way, blocks);
                price.read(blocks, elapsed_ns, under_way);
            }
        };
        assert!(price.is_worth_packing(128 << 10), "nothing is known");
        reads(1, 8_000_000);
        assert!(price.is_worth_packing(128 << 10));
        reads(1, 200_000);
        assert!(!price.is_worth_packing(128 << 10) && price.is_worth_packing(16 << 10));
        // the same with many at once
        reads(8, 8 * 8_000_000);
        assert!(price.is_worth_packing(128 << 10));
        reads(8, 8 * 200_000);
        assert!(!price.is_worth_packing(128 << 10));
        // readers that wait beside one another are one crowd
        let under_way = [price.reads(1), price.reads(1), price.reads(2)];
        assert_eq!(under_way, [1, 2, 4]);
    }
}
