//! Uberblocks: the roots of the pool, one for each of the latest transaction groups.
//!
//! ```text
//!   0  magic u64 (0x00bab10c) | version u64 | txg u64 | guid sum u64 | time u64 (seconds)
//!  40  root block pointer (128 bytes)
//! 168  software version u64 | MMP magic u64 (0xa11cea11) | MMP delay u64 | MMP config u64 |
//!      checkpoint txg u64 | raidz reflow u64
//! ```
//!
//! Words are in the writer's byte order, which the magic tells. The one in force has the highest
//! txg, then time, then MMP sequence number.

use base::{Endian, Error, Reader, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::blkptr::BlkPtr;
use crate::ids::Txg;

/// `magic` of an uberblock.
pub const MAGIC: u64 = 0x00ba_b10c;
/// `mmp_magic` of an uberblock whose writer knew of multihost protection.
pub const MMP_MAGIC: u64 = 0xa11c_ea11;

/// The most milliseconds between heartbeats that fit into the field.
const INTERVAL_MS_MAX: u64 = 0xff_ffff;
/// The highest number of a heartbeat.
pub const SEQ_MAX: u64 = 0xffff;
/// The most intervals without a heartbeat.
const FAIL_INTERVALS_MAX: u64 = 0xffff;

/// A checked uberblock.
#[derive(Clone, Debug, PartialEq)]
pub struct Uberblock {
    /// Byte order of its writer.
    pub endian: Endian,
    /// Pool version: 1 to 28, or 5000.
    pub version: u64,
    /// Transaction group.
    pub txg: Txg,
    /// Sum of the guids of all vdevs.
    pub guid_sum: u64,
    /// Seconds since 1970.
    pub timestamp_s: u64,
    /// Pointer to the MOS.
    pub rootbp: BlkPtr,
    /// Highest version that the writing software knew.
    pub software_version: u64,
    /// Multihost protection, if the writer knew of it.
    pub mmp: Option<Mmp>,
    /// On a checkpoint: its txg.
    pub checkpoint_txg: Txg,
    /// State of a raidz expansion; 0 if none.
    pub raidz_reflow: u64,
}

/// The multihost fields of an uberblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mmp {
    /// Nanoseconds since the last multihost write; 0: multihost is off.
    pub delay_ns: u64,
    /// Interval between writes, milliseconds.
    pub interval_ms: Option<u64>,
    /// Sequence number within the txg.
    pub seq: Option<u64>,
    /// Failed intervals until the pool suspends.
    pub fail_intervals: Option<u64>,
}

impl Uberblock {
    /// From a slot of the ring; `None` if there is none in it.
    pub fn parse(slot: &[u8]) -> Result<Option<Uberblock>> {
        let endian = match Endian::Little.u64(slot) {
            Some(MAGIC) => Endian::Little,
            Some(magic) if magic == MAGIC.swap_bytes() => Endian::Big,
            _ => return Ok(None),
        };
        let mut r = Reader::new(slot, endian);
        r.u64()?;
        let (version, txg, guid_sum, timestamp_s) = (r.u64()?, Txg::new(r.u64()?), r.u64()?, r.u64()?);
        let mut words = [0; 16];
        for word in &mut words {
            *word = r.u64()?.to_le();
        }
        let rootbp = BlkPtr::read_from_bytes(zerocopy::IntoBytes::as_bytes(&words)).expect("16 words are 128 bytes");
        let (software_version, mmp_magic, delay_ns, config) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
        let (checkpoint_txg, raidz_reflow) = (Txg::new(r.u64()?), r.u64()?);
        if !(1..=28).contains(&version) && version != 5000 {
            return Err(Error::corrupt(format!("uberblock of unknown version {version}")));
        }
        if txg > Txg::BELIEVED_MAX {
            return Err(Error::corrupt(format!("uberblock of txg {txg:#x}")));
        }
        let mmp = (mmp_magic == MMP_MAGIC).then(|| Mmp {
            delay_ns,
            interval_ms: (config & 1 != 0).then_some(config >> 8 & 0xff_ffff),
            seq: (config & 2 != 0).then_some(config >> 32 & 0xffff),
            fail_intervals: (config & 4 != 0).then_some(config >> 48),
        });
        Ok(Some(Uberblock {
            endian,
            version,
            txg,
            guid_sum,
            timestamp_s,
            rootbp,
            software_version,
            mmp,
            checkpoint_txg,
            raidz_reflow,
        }))
    }

    /// Writes it to a slot of the ring, in its byte order, as software that knows of multihost protection;
    /// the checksum in the slot's last 40 bytes is for `codec`. Panics if the slot is shorter than 1 KiB.
    pub fn write(&self, slot: &mut [u8]) {
        let mut words = vec![MAGIC, self.version, self.txg.get(), self.guid_sum, self.timestamp_s];
        let (native, _) = self.rootbp.as_bytes().as_chunks();
        words.extend(native.iter().map(|word| u64::from_le_bytes(*word)));
        let mmp = self.mmp.unwrap_or_default();
        let field = |value: Option<u64>, bit: u64, shift: u32, max: u64| {
            value.map_or(0, |value| 1 << bit | value.min(max) << shift)
        };
        let config = field(mmp.interval_ms, 0, 8, INTERVAL_MS_MAX)
            | field(mmp.seq, 1, 32, SEQ_MAX)
            | field(mmp.fail_intervals, 2, 48, FAIL_INTERVALS_MAX);
        let tail =
            [self.software_version, MMP_MAGIC, mmp.delay_ns, config, self.checkpoint_txg.get(), self.raidz_reflow];
        words.extend(tail);
        slot[..1024].fill(0);
        for (word, out) in words.iter().zip(slot.chunks_exact_mut(8)) {
            out.copy_from_slice(&match self.endian {
                Endian::Little => word.to_le_bytes(),
                Endian::Big => word.to_be_bytes(),
            });
        }
    }

    /// Words of an uberblock before raidz could be expanded.
    pub const WORDS_BEFORE_EXPANSION: usize = 26;

    /// It as numbers, as a checkpoint is kept.
    pub fn words(&self) -> Vec<u64> {
        let mut slot = [0; 1024];
        Uberblock { endian: Endian::Little, ..self.clone() }.write(&mut slot);
        let words = slot.chunks_exact(8).take(Uberblock::WORDS_BEFORE_EXPANSION + 1);
        words.map(|word| u64::from_le_bytes(*word.first_chunk().expect("chunks of 8"))).collect()
    }

    /// From numbers; those that are missing are 0. Errors: as from [`Uberblock::parse`].
    pub fn of_words(words: &[u64]) -> Result<Uberblock> {
        let mut slot = [0; 1024];
        for (word, out) in words.iter().zip(slot.chunks_exact_mut(8)) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        Uberblock::parse(&slot)?.ok_or_else(|| Error::corrupt("what should be an uberblock is none"))
    }

    /// Whether its writer guards the pool against other hosts.
    pub fn is_guarded(&self) -> bool {
        self.mmp.is_some_and(|mmp| mmp.delay_ns != 0)
    }

    /// The same as the heartbeat of that number.
    pub fn with_seq(&self, seq: u64) -> Uberblock {
        let mmp = self.mmp.map(|mmp| Mmp { seq: Some(seq), ..mmp });
        Uberblock { mmp, ..self.clone() }
    }

    /// Sorts the one in force last.
    pub fn rank(&self) -> (Txg, u64, u64) {
        (self.txg, self.timestamp_s, self.mmp.and_then(|mmp| mmp.seq).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_byte_orders() {
        let words: Vec<u64> = [MAGIC, 5000, 42, 7, 1000]
            .into_iter()
            .chain(100..116)
            .chain([5000, MMP_MAGIC, 9, 3 << 32 | 500 << 8 | 3, 0, 0])
            .collect();
        let le: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let be: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        let one = Uberblock::parse(&le).unwrap().unwrap();
        let two = Uberblock::parse(&be).unwrap().unwrap();
        assert_eq!((one.txg, one.timestamp_s, one.rootbp.birth()), (Txg::new(42), 1000, Txg::new(110)));
        assert_eq!(one.mmp.unwrap(), Mmp { delay_ns: 9, interval_ms: Some(500), seq: Some(3), fail_intervals: None });
        let mut slot = vec![0xee; 1024];
        for (uberblock, bytes) in [(&one, &le), (&two, &be)] {
            uberblock.write(&mut slot);
            assert_eq!(slot[..bytes.len()], bytes[..]);
        }
        let wide = Mmp { interval_ms: Some(u64::MAX), seq: Some(1), ..one.mmp.unwrap() };
        Uberblock { mmp: Some(wide), ..one.clone() }.write(&mut slot);
        assert_eq!(Uberblock::parse(&slot).unwrap().unwrap().mmp.unwrap().seq, Some(1), "no field spills over");
        assert_eq!(two, Uberblock { endian: Endian::Big, ..one });
        assert!(Uberblock::parse(&[0; 1024]).unwrap().is_none());
        assert!(Uberblock::parse(&le[..100]).is_err());
    }
}
