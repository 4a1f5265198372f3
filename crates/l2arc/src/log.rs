//! Logs as they are on a cache device: compressed if that saves a sector, and summed.

use base::{AlignedBuf, Endian, Error, Kind, Result};
use codec::checksum::{self, Checksum};
use codec::compress::{self, Compress};
use format::l2arc::{L2LogBlock, LOG_BYTES, LogPtr};

/// The bytes of a log, a multiple of `sector`, and the pointer to them but for where they and the blocks are.
pub(crate) fn pack(log: &L2LogBlock, sector: usize) -> (AlignedBuf, LogPtr) {
    let raw = log.build();
    let mut packed = vec![0; LOG_BYTES.saturating_sub(sector)];
    let len = compress::compress(Compress::Lz4, 0, &raw, &mut packed);
    let (kind, bytes) = match len {
        Some(len) => {
            let mut bytes = AlignedBuf::zeroed(len.next_multiple_of(sector));
            bytes[..len].copy_from_slice(&packed[..len]);
            (Compress::Lz4, bytes)
        }
        None => (Compress::Off, AlignedBuf::from(&raw[..])),
    };
    let log = LogPtr {
        asize: bytes.len() as u64,
        lsize: LOG_BYTES as u64,
        compress: kind as u8,
        checksum_kind: Checksum::Fletcher4 as u8,
        checksum: sum(Endian::Little, &bytes),
        ..LogPtr::default()
    };
    (bytes, log)
}

/// The log in the bytes that a pointer leads to.
///
/// Errors: `Checksum` if they are others; `Corrupt` if they are no log.
pub(crate) fn unpack(log: &LogPtr, bytes: &[u8], entries: u64) -> Result<L2LogBlock> {
    if [Endian::Little, Endian::Big].iter().all(|endian| sum(*endian, bytes) != log.checksum) {
        return Err(Error::new(Kind::Checksum, "log of a cache device has another checksum").at_offset(log.at));
    }
    match Compress::from_u8(log.compress) {
        Some(Compress::Off) => L2LogBlock::parse(bytes, entries),
        Some(Compress::Lz4) => {
            let mut raw = vec![0; LOG_BYTES];
            compress::decompress(Compress::Lz4, bytes, &mut raw)?;
            L2LogBlock::parse(&raw, entries)
        }
        _ => Err(Error::corrupt(format!("log of a cache device with compression {}", log.compress))),
    }
    .map_err(|e| e.at_offset(log.at))
}

fn sum(endian: Endian, bytes: &[u8]) -> [u64; 4] {
    checksum::compute(Checksum::Fletcher4, endian, &[0; 32], bytes)
}

#[cfg(test)]
mod tests {
    use format::l2arc::LogEntry;

    use format::ids::Txg;

    use super::*;

    #[test]
    fn there_and_back() {
        let entry =
            |n: u64| LogEntry { dva: [n, n * 7], birth: Txg::new(n), lsize: 4096, psize: 512, ..LogEntry::default() };
        // numbers without order do not compress
        let noise = |n: u64| LogEntry { dva: [n.wrapping_mul(0x9e37_79b9_7f4a_7c15), !n], ..entry(n) };
        for log in [
            L2LogBlock { older: LogPtr::default(), entries: (0..1022).map(entry).collect() },
            L2LogBlock {
                older: LogPtr { at: 5120, asize: 512, lsize: 512, ..LogPtr::default() },
                entries: vec![noise(1)],
            },
        ] {
            for sector in [512, 4096] {
                let (bytes, ptr) = pack(&log, sector);
                assert!(bytes.len().is_multiple_of(sector) && bytes.len() < LOG_BYTES);
                assert_eq!(unpack(&ptr, &bytes, log.entries.len() as u64).unwrap(), log);
                let mut damaged = bytes.clone();
                damaged[100] ^= 1;
                assert_eq!(unpack(&ptr, &damaged, 1).unwrap_err().kind(), Kind::Checksum);
                let lies = LogPtr { compress: 9, ..ptr };
                assert_eq!(unpack(&lies, &bytes, 1).unwrap_err().kind(), Kind::Corrupt);
            }
        }
    }
}
