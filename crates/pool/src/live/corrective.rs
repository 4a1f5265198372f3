//! Healing receives (`zfs receive -c`): blocks of a snapshot that cannot be read are mended from a stream of it.
//!
//! ```text
//!   record ─▶ the block here: is it read? ─▶ yes: nothing to do
//!                │ no copy is right
//!                ▼
//!   the bytes on disk, made from the record (dsl), by the pointer's sum ─▶ a task: still there? ─▶ Zio::heal_with
//!                                                                              └─▶ out of the error log
//! ```
//!
//! Nothing is written but what the pointer's checksum is of: a stream that has other contents does no harm.

use std::sync::Arc;

use base::{AlignedBuf, Bookmark, Error, Kind, Result};
use dmu::{Mode, Objset};
use dsl::receive::{StreamReader, physical_bytes};
use dsl::resume::RECEIVE_CHILD;
use format::blkptr::BlkPtr;
use format::ids::Guid;
use format::stream::{RecordFields, StreamWrite};

use super::{LivePool, SyncContext};
use crate::errlog::PointerFinder;

/// Bytes of blocks that are mended in one group.
const MEND_BYTES: usize = 32 << 20;

/// What a healing receive has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealedSnapshot {
    /// Blocks that were damaged, and are right again.
    pub healed: u64,
    /// Blocks that are damaged still: the stream's data are not what they had.
    pub left: u64,
}

/// A damaged block, and the bytes that it should have.
struct Remedy {
    place: Bookmark,
    bp: BlkPtr,
    bytes: AlignedBuf,
}

impl LivePool {
    /// Mends what is damaged of a snapshot with the data of a stream of it, whose BEGIN has been read. Errors: `Busy` if
    /// its dataset is being received; `Unsupported` if the stream's blocks are others; of reading the stream, and of
    /// reading metadata, which no stream has; `Suspended`.
    pub fn heal_snapshot(&self, name: &str, to_guid: Guid, reader: &mut StreamReader<'_>) -> Result<HealedSnapshot> {
        let id = self.view().dsl().find(name)?.id;
        let _kept = self.keep_snapshots(&[id], &[])?;
        let view = self.view();
        let dsl = view.dsl();
        let snapshot = dsl.dataset(id, name)?;
        let fs = name.split('@').next().unwrap_or_default();
        let head = dsl.find(fs)?;
        let is_received = self.receives().is_active(head.id)
            || dsl.find_dir(&format!("{fs}/{RECEIVE_CHILD}")).is_ok()
            || dsl.dataset_field(&head, "com.delphix:resume_toguid")?.is_some();
        if is_received {
            return Err(Error::new(Kind::Busy, "dataset is busy"));
        }
        if snapshot.phys.guid != to_guid {
            return Err(Error::new(Kind::Invalid, "local snapshot doesn't match the snapshot in the provided stream"));
        }
        let set = dsl.objset(&snapshot, Mode::Raw)?;
        let (mut done, mut remedies, mut bytes) = (HealedSnapshot::default(), Vec::new(), 0);
        loop {
            let part = reader.record()?;
            match part.record.fields {
                RecordFields::End { .. } => break,
                RecordFields::Write(write) => match self.remedy(&set, &write, part.payload, reader)? {
                    Diagnosis::Sound => {}
                    Diagnosis::Lost => done.left += 1,
                    Diagnosis::Remedy(remedy) => {
                        bytes += remedy.bytes.len();
                        remedies.push(remedy);
                    }
                },
                _ => {}
            }
            if bytes >= MEND_BYTES {
                self.apply_remedies(std::mem::take(&mut remedies), &mut done)?;
                bytes = 0;
            }
        }
        self.apply_remedies(remedies, &mut done)?;
        let event = format!("snap={}", name.split_once('@').map_or("", |(_, own)| own));
        let (fs, id) = (fs.to_owned(), head.id);
        self.run(move |context| {
            context.log_dataset_event((&fs, id), "finish receiving", &event);
            Ok(())
        })?;
        Ok(done)
    }

    /// Looks at the block that a record is of, on its devices.
    fn remedy(
        &self,
        set: &Arc<Objset>,
        write: &StreamWrite,
        payload: AlignedBuf,
        reader: &StreamReader<'_>,
    ) -> Result<Diagnosis> {
        let object = set.object(write.object)?;
        let blkid = write.offset / object.dnode().block_size.max(1);
        let bp = object.pointer_on_disk(0, blkid)?;
        if bp.is_hole() || bp.is_embedded() {
            return Ok(Diagnosis::Sound);
        }
        let (zio, place) = (self.cache().zio(), object.bookmark(0, blkid));
        match zio.read_physical(&bp, place) {
            Ok(_) => return Ok(Diagnosis::Sound),
            Err(error) if error.kind() == Kind::Checksum => {}
            Err(error) => return Err(error),
        }
        let is_right = |bytes: &[u8]| zio.is_right_for(&bp, bytes);
        let bytes = physical_bytes(&bp, (write, payload, reader.endian()), &is_right)?;
        Ok(bytes.map_or(Diagnosis::Lost, |bytes| Diagnosis::Remedy(Remedy { place, bp, bytes })))
    }

    fn apply_remedies(&self, remedies: Vec<Remedy>, done: &mut HealedSnapshot) -> Result<()> {
        if remedies.is_empty() {
            return Ok(());
        }
        let of_group = self.run(move |context| context.apply_remedies(&remedies))?;
        done.healed += of_group.healed;
        done.left += of_group.left;
        Ok(())
    }
}

/// What a look at a block says.
enum Diagnosis {
    /// It can be read.
    Sound,
    /// It is damaged, and the stream does not have its data.
    Lost,
    /// It can be mended.
    Remedy(Remedy),
}

impl SyncContext<'_> {
    fn apply_remedies(&self, remedies: &[Remedy]) -> Result<HealedSnapshot> {
        let zio = self.pool.cache().zio();
        let view = self.pool.view();
        let mut places = PointerFinder::of(&view);
        let mut done = HealedSnapshot::default();
        for Remedy { place, bp, bytes } in remedies {
            if !places.has(place, bp) {
                continue;
            }
            let mended = zio.heal_with(bp, bytes).and_then(|_| zio.read_physical(bp, *place));
            match mended {
                Ok(_) => {
                    self.unlog(&view, place, bp)?;
                    done.healed += 1;
                }
                Err(error) => {
                    tracing::warn!(pool = self.pool.name(), %place, "a damaged block was not mended: {error}");
                    done.left += 1;
                }
            }
        }
        Ok(done)
    }
}
