//! What a special vdev would hold, as tables, as JSON, and in words.

use protocol::words::nicenum::{nicebytes, nicenum};
use serde_json::{Value, json};

use super::{BlockSum, MetadataKind, SpecialAnswer, THRESHOLDS};
use crate::advise::verdict::AdviceVerdict;

/// The part of a special vdev that data may fill; the last quarter is for metadata.
const FOR_DATA: f64 = 0.75;
/// The part of memory that the cache may have.
const CACHE_PART: f64 = 0.5;
/// The part of the data that a special vdev may hold beside metadata, for it to be worth its price.
const DATA_PART: f64 = 0.1;

fn bytes(amount: f64) -> String {
    nicebytes(amount.max(0.0) as u64)
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

impl SpecialAnswer {
    /// Bytes that a vdev needs for metadata and small blocks up to the threshold of that number; `None`: metadata alone.
    pub fn vdev_bytes(&self, at: Option<usize>) -> f64 {
        let metadata = self.metadata_bytes();
        let small = at.map_or(0.0, |at| self.small[at].bytes);
        // metadata may have all of it
        metadata.max(if small > 0.0 { (metadata + small) / FOR_DATA } else { metadata })
    }

    /// The largest threshold up to which small blocks are a small part of the data, but something.
    fn threshold(&self) -> Option<usize> {
        let fits = |sum: &BlockSum| sum.count >= 1.0 && sum.bytes <= DATA_PART * self.data.bytes;
        self.small.iter().rposition(fits)
    }

    pub(super) fn text(&self) -> String {
        let metadata = self.metadata_bytes();
        let about = if self.is_estimate { "estimated " } else { "" };
        let mut text = format!(
            "{} blocks of data, {}; {about}metadata of {}, {} of that\n\n{:20} {:>9} {:>8}\n",
            nicenum(self.data.count as u64),
            bytes(self.data.bytes),
            bytes(metadata),
            percent(metadata / self.data.bytes.max(1.0)),
            "METADATA",
            "BLOCKS",
            "BYTES"
        );
        for (kind, sum) in MetadataKind::ALL.iter().zip(&self.metadata).filter(|(_, sum)| sum.count > 0.0) {
            text += &format!("{:20} {:>9} {:>8}\n", kind.name(), nicenum(sum.count as u64), bytes(sum.bytes));
        }
        text += &format!(
            "\n{:20} {:>9} {:>8} {:>9} {:>9} {:>8} {:>9}\n",
            "SPECIAL_SMALL_BLOCKS", "BLOCKS", "BYTES", "OF BLOCKS", "OF BYTES", "VDEV", "WHEN FULL"
        );
        let rows = std::iter::once(None).chain((0..THRESHOLDS.len()).map(Some));
        for at in rows {
            let sum = at.map(|at| self.small[at]).unwrap_or_default();
            let full = match self.growth {
                1.0 => "-".to_owned(),
                growth => bytes(self.vdev_bytes(at) * growth),
            };
            text += &format!(
                "{:20} {:>9} {:>8} {:>9} {:>9} {:>8} {:>9}\n",
                at.map_or_else(|| "0".to_owned(), |at| nicebytes(THRESHOLDS[at])),
                nicenum(sum.count as u64),
                bytes(sum.bytes),
                percent(sum.count / self.data.count.max(1.0)),
                percent(sum.bytes / self.data.bytes.max(1.0)),
                bytes(self.vdev_bytes(at)),
                full
            );
        }
        text
    }

    pub(super) fn json(&self, words: &str) -> Value {
        let kinds = MetadataKind::ALL.iter().zip(&self.metadata);
        let kind = |(kind, sum): (&MetadataKind, &BlockSum)| json!({"kind": kind.name(), "blocks": sum.count as u64, "bytes": sum.bytes as u64});
        let small = |at: usize| {
            let sum = self.small[at];
            json!({
                "special_small_blocks": THRESHOLDS[at],
                "blocks": sum.count as u64,
                "bytes": sum.bytes as u64,
                "vdev_bytes": self.vdev_bytes(Some(at)) as u64,
            })
        };
        json!({
            "is_estimate": self.is_estimate,
            "data_blocks": self.data.count as u64,
            "data_bytes": self.data.bytes as u64,
            "metadata_bytes": self.metadata_bytes() as u64,
            "metadata_once_bytes": self.once_bytes as u64,
            "metadata": kinds.map(kind).collect::<Vec<_>>(),
            "small": (0..THRESHOLDS.len()).map(small).collect::<Vec<_>>(),
            "on_special_bytes": self.there_bytes as u64,
            "growth_until_full": self.growth,
            "left_out": self.failures,
            "verdict": words,
        })
    }

    /// How much so many bytes become until the pool is full, if that is known.
    fn when_full(&self, amount: f64) -> String {
        match self.growth {
            1.0 => String::new(),
            growth => format!(", {} when the pool is full,", bytes(amount * growth)),
        }
    }

    /// What to do, in words; `memory`: bytes that this machine has.
    pub fn verdict(&self, memory: Option<u64>) -> AdviceVerdict {
        let metadata = self.metadata_bytes();
        if metadata + self.data.bytes < 1.0 {
            return AdviceVerdict::no("There is nothing yet: nothing can be said.\n".to_owned());
        }
        if self.there_bytes > 0.0 {
            return AdviceVerdict::no(format!(
                "There is a special vdev, which holds {}. What was written before it came stays where it is until it is \
                 written again.\n",
                bytes(self.there_bytes)
            ));
        }
        let care = "The pool is lost with it: mirror it as often as the data is. Only what is written from then on goes \
                    there, and if its disks do not turn, it brings nothing.\n";
        let small = match self.threshold() {
            Some(at) => format!(
                "With special_small_blocks={}, {} of the blocks, which are {} of the bytes, would be there, too: {} at least.\n",
                nicebytes(THRESHOLDS[at]),
                percent(self.small[at].count / self.data.count.max(1.0)),
                percent(self.small[at].bytes / self.data.bytes.max(1.0)),
                bytes(self.vdev_bytes(Some(at)))
            ),
            None => {
                "Leave special_small_blocks alone: small blocks are more than a tenth of the data, or none at all.\n"
                    .to_owned()
            }
        };
        let cache = memory.map(|memory| memory as f64 * CACHE_PART);
        if cache.is_some_and(|cache| self.once_bytes * self.growth <= cache) {
            return AdviceVerdict::no(format!(
                "Do not buy a special vdev for the metadata: {}{} fit into the cache of this machine. The first walk after \
                 an import, scrubs and random writes would gain, nothing else.\n{small}",
                bytes(self.once_bytes),
                self.when_full(self.once_bytes)
            ));
        }
        AdviceVerdict::yes(format!(
            "A special vdev of {} at least{} would hold all metadata, which the cache of this \
             machine cannot: walks through folders, and random reads of large data, would wait for the disks once less \
             each.\n{small}{care}",
            bytes(self.vdev_bytes(None)),
            self.when_full(self.vdev_bytes(None))
        ))
    }
}
