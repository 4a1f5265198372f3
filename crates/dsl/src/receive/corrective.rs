//! The bytes that a block has on disk, made again from what a stream has of it.
//!
//! ```text
//!   compressed in the stream as on disk ─────────────────────────▶ these bytes
//!   else: contents ─▶ in either byte order ─▶ compressed, at each level ─▶ those that the pointer's sum is of
//! ```
//!
//! A pointer tells the compression of its block, and not the level. Another version of a compressor can make other
//! bytes of the same contents; a stream of compressed blocks (`zfs send -c`) always has the right ones.

use base::{AlignedBuf, Endian, Error, Kind, Result};
use codec::compress::{Compress, compress, decompress, zstd};
use format::blkptr::BlkPtr;
use format::stream::StreamWrite;
use format::swap;

/// Makes the bytes on disk of the block that `bp` leads to, `psize` of them, from a record of a stream in that byte
/// order; `is_right` says whether they are those. `None` if none are. Errors: `Unsupported` if the block has another
/// size than in the stream; `Corrupt` if the record's data cannot be decompressed.
pub fn physical_bytes(
    bp: &BlkPtr,
    (record, payload, endian): (&StreamWrite, AlignedBuf, Endian),
    is_right: &dyn Fn(&[u8]) -> bool,
) -> Result<Option<AlignedBuf>> {
    if record.len != bp.lsize() {
        return Err(Error::new(Kind::Unsupported, "stream is not compatible with the data in the pool."));
    }
    let unknown = || Error::corrupt("invalid stream: data of unknown compression");
    let contents = match record.compress {
        0 => payload,
        _ if is_right(&payload) => return Ok(Some(payload)),
        kind => {
            let kind = Compress::from_u8(kind).filter(|kind| kind.is_concrete()).ok_or_else(unknown)?;
            let mut contents = AlignedBuf::for_overwrite(record.len as usize);
            decompress(kind, &payload, &mut contents)?;
            contents
        }
    };
    let kind = Compress::from_u8(bp.compress()).filter(|kind| kind.is_concrete());
    let Some(kind) = kind else { return Ok(None) };
    let swapped = (endian == Endian::Big).then(|| {
        let mut swapped = contents.clone();
        swap::block(record.object_type, &mut swapped);
        swapped
    });
    let all = [Some(contents), swapped];
    Ok(all.into_iter().flatten().find_map(|contents| packed_as(kind, contents, bp.psize() as usize, is_right)))
}

/// Contents as they are compressed on disk, at the level that makes the right bytes of them.
fn packed_as(
    kind: Compress,
    contents: AlignedBuf,
    psize: usize,
    is_right: &dyn Fn(&[u8]) -> bool,
) -> Option<AlignedBuf> {
    if kind == Compress::Off {
        return is_right(&contents).then_some(contents);
    }
    let levels = std::iter::once(zstd::LEVEL_DEFAULT).chain((0..=u8::MAX).filter_map(zstd::level_from_phys));
    let count = if kind == Compress::Zstd { usize::MAX } else { 1 };
    levels.take(count).find_map(|level| {
        let mut packed = AlignedBuf::zeroed(psize);
        let len = compress(kind, level, &contents, &mut packed)?;
        packed[len..].fill(0);
        is_right(&packed).then_some(packed)
    })
}

#[cfg(test)]
mod tests {
    use format::blkptr::{BlkPtrBuilder, BlockShape};
    use format::object_type::ObjectType;

    use format::ids::Txg;

    use super::*;

    const LEN: usize = 16 << 10;

    fn contents() -> AlignedBuf {
        let text: Vec<u8> = (0..LEN as u32).flat_map(|n| (n / 7 * 31).to_be_bytes()).take(LEN).collect();
        AlignedBuf::from(&text[..])
    }

    /// A block on disk.
    fn stored(kind: Compress, level: i32) -> (BlkPtr, AlignedBuf) {
        let mut packed = AlignedBuf::zeroed(LEN);
        let psize = compress(kind, level, &contents(), &mut packed).unwrap().next_multiple_of(512);
        let (object_type, compress) = (ObjectType::PLAIN_FILE_CONTENTS, kind as u8);
        let shape = BlockShape { lsize: LEN as u64, psize: psize as u64, compress, checksum: 7, object_type, level: 0 };
        (BlkPtrBuilder::new(shape, Txg::new(5)).build(), AlignedBuf::from(&packed[..psize]))
    }

    #[test]
    fn the_bytes_on_disk_are_made_again() {
        let record = |compress: Compress| {
            let compress = if compress == Compress::Off { 0 } else { compress as u8 };
            StreamWrite {
                len: LEN as u64,
                compress,
                object_type: ObjectType::PLAIN_FILE_CONTENTS,
                ..Default::default()
            }
        };
        for (kind, level) in
            [(Compress::Off, 0), (Compress::Lz4, 0), (Compress::Gzip7, 0), (Compress::Zstd, 11), (Compress::Zstd, -5)]
        {
            let (bp, right) = stored(kind, level);
            let is_right = |bytes: &[u8]| *bytes == *right;
            let made = |record: &StreamWrite, payload: &[u8]| {
                physical_bytes(&bp, (record, AlignedBuf::from(payload), Endian::Little), &is_right)
            };
            let same = |made: Result<Option<AlignedBuf>>| made.unwrap().is_some_and(|made| *made == *right);
            assert!(same(made(&record(Compress::Off), &contents())), "{kind:?} {level}");
            assert!(same(made(&record(kind), &right)), "{kind:?} {level}");
            // compressed otherwise by the sender
            let other = stored(Compress::Lzjb, 0).1;
            assert!(same(made(&record(Compress::Lzjb), &other)), "{kind:?} {level}");
            // other contents
            assert!(made(&record(Compress::Off), &[1; LEN]).unwrap().is_none());
            let short = StreamWrite { len: 512, ..record(Compress::Off) };
            assert_eq!(made(&short, &[1; 512]).unwrap_err().kind(), Kind::Unsupported);
        }
    }
}
