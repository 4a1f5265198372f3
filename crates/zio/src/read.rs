//! Reading blocks, one or a batch of them.

use std::cell::Cell;

use base::{AlignedBuf, Bookmark, Endian, Error, Kind, Result, ResultExt};
use codec::checksum::Checksum;
use codec::compress::Compress;
use format::blkptr::{BlkPtr, Dva, Embedded};
use format::sealing::StoredBytes;
use vdev::Extent;

use crate::contents::{BlockContents, Physical, ReadRequest};
use crate::effort;
use crate::keys::SetKeys;
use crate::on_failure::OnFailure;
use crate::pointer::{
    check_shape, checksum_kind, compress_kind, decompress, extent, is_verifiable, log_block_sums, turn,
};
use crate::zio::Zio;

/// A batched read on its way to the device.
struct PendingRead {
    index: usize,
    extent: Extent,
    buf: AlignedBuf,
}

impl Zio {
    /// The contents of a block: `lsize` bytes, little-endian.
    ///
    /// Errors: `Encrypted`; `Checksum` if no copy has the right bytes; `Io` or `Missing` if none could
    /// be read; `Corrupt` for a pointer that makes no sense.
    pub fn read(&self, request: ReadRequest) -> Result<AlignedBuf> {
        self.read_batch(&[request]).pop().expect("one result a request")
    }

    /// The contents of many blocks, each as from [`Zio::read`], in the order of `requests`.
    pub fn read_batch(&self, requests: &[ReadRequest]) -> Vec<Result<AlignedBuf>> {
        self.read_whole(requests, &SetKeys::Plain, OnFailure::Fail)
            .into_iter()
            .map(|result| result.map(|contents| contents.data))
            .collect()
    }

    /// As [`Zio::read_batch`], of a set with those keys, and the bytes on disk too.
    pub fn read_whole(
        &self,
        requests: &[ReadRequest],
        keys: &SetKeys,
        on_failure: OnFailure,
    ) -> Vec<Result<BlockContents>> {
        let mut results = self.read_once(requests, keys);
        for (request, result) in requests.iter().zip(&mut results) {
            while let Err(error) = result
                && self.waiting().is_worth_another(error, on_failure)
            {
                *result = self.read_once(std::slice::from_ref(request), keys).pop().expect("one result a request");
            }
            if let Err(error) = result
                && matches!(error.kind(), Kind::Checksum | Kind::Io)
            {
                self.damage().note_lost(request.bookmark, &request.bp);
            }
        }
        results
    }

    /// The contents of a block whose bytes came from elsewhere; `None` if they are not those of this block, or if
    /// nothing can tell.
    pub fn contents_of(&self, request: &ReadRequest, keys: &SetKeys, physical: AlignedBuf) -> Option<BlockContents> {
        let is_it = is_verifiable(&request.bp) && self.sums().is_good(&request.bp, &physical);
        if is_it && keys.admits(request) { self.decode(request, keys, physical).ok() } else { None }
    }

    /// The contents of a block from its bytes on disk, which are compressed and known to be good.
    pub fn unpack(&self, request: &ReadRequest, keys: &SetKeys, stored: &StoredBytes) -> Result<AlignedBuf> {
        match keys.keys() {
            Some(keys) if request.bp.is_encrypted() => self.open(&request.bp, keys, stored.block()),
            _ => self.unpack_plain(&request.bp, stored.block()),
        }
    }

    pub(crate) fn unpack_plain(&self, bp: &BlkPtr, physical: &[u8]) -> Result<AlignedBuf> {
        let mut data = AlignedBuf::for_overwrite(bp.lsize() as usize);
        decompress(bp, physical, &mut data)?;
        turn(bp, &mut data);
        Ok(data)
    }

    fn read_once(&self, requests: &[ReadRequest], keys: &SetKeys) -> Vec<Result<BlockContents>> {
        let alone = |data| BlockContents { data, physical: Physical::Nowhere };
        let mut results: Vec<Option<Result<BlockContents>>> =
            requests.iter().map(|r| self.without_io(r, keys).map(|result| result.map(alone))).collect();
        let mut pending: Vec<PendingRead> = Vec::new();
        for (index, request) in requests.iter().enumerate().filter(|(index, _)| results[*index].is_none()) {
            let bp = request.bp;
            let dva = bp.copies().next().copied();
            match dva {
                Some(dva) if !dva.is_gang() => {
                    let buf = AlignedBuf::for_overwrite(bp.psize() as usize);
                    pending.push(PendingRead { index, extent: extent(&bp, &dva), buf });
                }
                // a gang block is a tree of its own; one without address is refused there
                _ => {}
            }
        }
        let first_choice = {
            let extents: Vec<Extent> = pending.iter().map(|p| p.extent).collect();
            let mut bufs: Vec<&mut [u8]> = pending.iter_mut().map(|p| &mut *p.buf).collect();
            self.tree().read_batch(&extents, &mut bufs)
        };
        let work_ns = pending.iter().map(|p| effort::of_read(&requests[p.index].bp)).sum();
        let work: Vec<_> = pending.into_iter().zip(first_choice).collect();
        let finished = self.env().map(work, work_ns, |(p, read)| {
            let request = &requests[p.index];
            let physical = self.finish(request, p.buf, read.is_ok());
            (p.index, physical.and_then(|physical| self.decode(request, keys, physical)))
        });
        finished.into_iter().for_each(|(index, result)| results[index] = Some(result));
        let finished = requests.iter().zip(results).map(|(request, result)| {
            let result = result.unwrap_or_else(|| {
                self.recover_noting(request).and_then(|physical| self.decode(request, keys, physical))
            });
            result.at_block(request.bookmark)
        });
        finished.collect()
    }

    /// The bytes of a block as they are on disk, checksum verified, `psize` of them.
    pub fn read_physical(&self, bp: &BlkPtr, bookmark: Bookmark) -> Result<AlignedBuf> {
        check_shape(bp).and_then(|()| self.recover(bp, &Cell::default())).at_block(bookmark)
    }

    /// A log block: `psize` bytes with their embedded checksum verified, and their byte order.
    pub fn read_log_block(&self, bp: &BlkPtr, bookmark: Bookmark) -> Result<(AlignedBuf, Endian)> {
        let read = || {
            check_shape(bp)?;
            let kind = checksum_kind(bp)?;
            if !matches!(kind, Checksum::Zilog | Checksum::Zilog2) {
                return Err(Error::corrupt(format!("log block with checksum {}", kind.name())));
            }
            let physical = self.probe(bp)?;
            let endian = log_block_sums(kind, bp, &physical).map(|sums| sums.endian)?;
            Ok((physical, endian))
        };
        read().at_block(bookmark)
    }

    /// What needs no device: holes, embedded blocks, and what is refused.
    fn without_io(&self, request: &ReadRequest, keys: &SetKeys) -> Option<Result<AlignedBuf>> {
        let bp = &request.bp;
        if bp.is_hole() {
            return Some(check_shape(bp).map(|()| AlignedBuf::zeroed(bp.lsize() as usize)).at_block(request.bookmark));
        }
        let refused = check_shape(bp).and_then(|()| keys.check(request));
        match refused {
            Err(e) => Some(Err(e.at_block(request.bookmark))),
            Ok(()) if bp.is_embedded() => Some(self.read_embedded(bp).at_block(request.bookmark)),
            Ok(()) => None,
        }
    }

    fn read_embedded(&self, bp: &BlkPtr) -> Result<AlignedBuf> {
        match bp.embedded() {
            Embedded::Data => {}
            Embedded::Redacted => return Err(Error::new(Kind::Unsupported, "block was redacted by its sender")),
            Embedded::Unknown(n) => return Err(Error::corrupt(format!("embedded block pointer of unknown type {n}"))),
        }
        let payload = bp.payload();
        let mut contents = AlignedBuf::zeroed(bp.lsize() as usize);
        decompress(bp, &payload, &mut contents)?;
        turn(bp, &mut contents);
        Ok(contents)
    }

    /// Verifies what the first choice brought, and looks elsewhere if it is not right.
    fn finish(&self, request: &ReadRequest, physical: AlignedBuf, was_read: bool) -> Result<AlignedBuf> {
        if was_read && self.sums().is_good(&request.bp, &physical) {
            Ok(physical)
        } else {
            self.recover_noting(request)
        }
    }

    /// Reads a block by all means, and notes if some of it can be mended.
    fn recover_noting(&self, request: &ReadRequest) -> Result<AlignedBuf> {
        let wounded = Cell::default();
        let physical = self.recover(&request.bp, &wounded)?;
        if wounded.get() {
            self.damage().note_wounded(request.bookmark, &request.bp);
        }
        Ok(physical)
    }

    /// Reads a block by all means: every copy, every side of a mirror, parity, the members of a gang.
    /// `wounded` is set if some of them is wrong.
    pub(crate) fn recover(&self, bp: &BlkPtr, wounded: &Cell<bool>) -> Result<AlignedBuf> {
        first_good(bp.copies(), |dva| {
            if dva.is_gang() {
                return self.read_gang(bp, dva, wounded);
            }
            // one that failed to be written is here still
            let unwritten = self.queue().failed_at(dva);
            if let Some(bytes) = unwritten.filter(|bytes| self.sums().is_good(bp, bytes)) {
                return Ok(bytes);
            }
            let mut buf = AlignedBuf::for_overwrite(bp.psize() as usize);
            self.read_noting(extent(bp, dva), &mut buf, &mut |bytes| self.sums().is_good(bp, bytes), wounded)?;
            Ok(buf)
        })
    }

    /// Reads an extent by all means, and notes if some leaf has other bytes.
    pub(crate) fn read_noting(
        &self,
        extent: Extent,
        buf: &mut [u8],
        good: &mut dyn FnMut(&[u8]) -> bool,
        wounded: &Cell<bool>,
    ) -> Result<()> {
        let read = self.tree().read_verified(extent, buf, good);
        let is_wrong = |error: &Error| matches!(error.kind(), Kind::Checksum | Kind::Io);
        wounded.set(wounded.get() | read.as_ref().map_or_else(is_wrong, |is_wounded| *is_wounded));
        read.map(drop)
    }

    /// A block that may rightly not be there, as the one behind the last of a log.
    fn probe(&self, bp: &BlkPtr) -> Result<AlignedBuf> {
        first_good(bp.copies().filter(|dva| !dva.is_gang()), |dva| {
            let mut buf = AlignedBuf::for_overwrite(bp.psize() as usize);
            self.tree().probe(extent(bp, dva), &mut buf, &mut |bytes| self.sums().is_good(bp, bytes)).map(|()| buf)
        })
    }

    fn decode(&self, request: &ReadRequest, keys: &SetKeys, physical: AlignedBuf) -> Result<BlockContents> {
        match request.bp.uses_crypt() {
            false => self.decode_plain(&request.bp, physical),
            true => self.decode_of_set(request, keys, physical),
        }
    }

    /// The contents of a block that is not sealed, from its bytes on disk.
    pub(crate) fn decode_plain(&self, bp: &BlkPtr, physical: AlignedBuf) -> Result<BlockContents> {
        if compress_kind(bp)? == Compress::Off {
            if bp.lsize() != bp.psize() {
                return Err(Error::corrupt(format!("block of {} bytes in {}, not compressed", bp.lsize(), bp.psize())));
            }
            let mut data = physical;
            let physical = match (bp.endian(), is_verifiable(bp), bp.unsealed()) {
                (Endian::Little, true, Some(unsealed)) => Physical::Same(unsealed),
                _ => Physical::Nowhere,
            };
            turn(bp, &mut data);
            return Ok(BlockContents { data, physical });
        }
        let data = self.unpack_plain(bp, &physical)?;
        let physical = match is_verifiable(bp) {
            true => Physical::Apart(StoredBytes::of_device(physical)),
            false => Physical::Nowhere,
        };
        Ok(BlockContents { data, physical })
    }
}

/// The first copy that can be read, or the error of the last.
fn first_good<'a>(
    copies: impl Iterator<Item = &'a Dva>,
    read: impl Fn(&Dva) -> Result<AlignedBuf>,
) -> Result<AlignedBuf> {
    let mut error = Error::corrupt("block pointer without address");
    for dva in copies {
        match read(dva) {
            Ok(buf) => return Ok(buf),
            Err(e) => error = e,
        }
    }
    Err(error)
}
