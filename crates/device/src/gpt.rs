//! The partition table of a whole-disk image (GUID Partition Table), read-only.
//!
//! ```text
//!   sector 0        protective MBR: one entry of type 0xee
//!   sector 1        header: signature, crc of itself, where the entries are, crc of those
//!   sector 2 ...    entries of 128 bytes: type, id, first and last sector, attributes, name
//!   ...             the partitions
//!   last sector     the header again, with the entries before it
//! ```
//!
//! The sector size is nowhere recorded, so both usual ones are tried. Format: UEFI specification,
//! chapter "GUID Partition Table (GPT) Disk Layout".

use base::{Error, Kind, Result};

use crate::Device;

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, counted from 1, as in a device name.
    pub number: u32,
    /// Offset of its first byte on the disk.
    pub start: u64,
    /// Length in bytes.
    pub size: u64,
    /// Type id, in the order of the disk's bytes.
    pub kind: [u8; 16],
    /// Name, empty if it has none.
    pub name: String,
}

/// Type that OpenZFS gives the partition which holds the pool (Solaris /usr & Apple ZFS,
/// 6A898CC3-1DD2-11B2-99A6-080020736631).
pub const TYPE_ZFS: [u8; 16] =
    [0xc3, 0x8c, 0x89, 0x6a, 0xd2, 0x1d, 0xb2, 0x11, 0x99, 0xa6, 0x08, 0x00, 0x20, 0x73, 0x66, 0x31];

const ENTRY_SIZE_MIN: u32 = 128;
const ENTRIES_BYTES_MAX: u64 = 1 << 20;

/// The partitions of `device`, in the order of the table; `None` if it has no partition table.
///
/// If the first copy of the table is damaged, the one at the end of the disk is read. Errors: I/O,
/// and [`Kind::Corrupt`] if there is a table but neither copy is whole.
pub fn read(device: &dyn Device) -> Result<Option<Vec<Partition>>> {
    let mut damaged = None;
    for sector in [512, 4096] {
        let sectors = device.size() / sector;
        if sectors < 3 {
            continue;
        }
        for lba in [1, sectors - 1] {
            match read_table(device, sector, lba) {
                Ok(Some(table)) => return Ok(Some(table)),
                Ok(None) => {}
                Err(e) => damaged = damaged.or(Some(e)),
            }
        }
    }
    damaged.map_or(Ok(None), Err)
}

/// The table whose header is in sector `lba`; `None` if there is none.
fn read_table(device: &dyn Device, sector: u64, lba: u64) -> Result<Option<Vec<Partition>>> {
    let mut header = vec![0; sector as usize];
    device.read_at(lba * sector, &mut header)?;
    if !header.starts_with(b"EFI PART") {
        return Ok(None);
    }
    let bad = |what: &'static str| Error::new(Kind::Corrupt, what).at_vdev(device.path()).at_offset(lba * sector);
    let size = u32_at(&header, 12) as usize;
    if !(92..=header.len()).contains(&size) {
        return Err(bad("partition table header has an impossible size"));
    }
    let crc = u32_at(&header, 16);
    header[16..20].fill(0);
    if crc32(&header[..size]) != crc {
        return Err(bad("partition table header has a wrong checksum"));
    }
    if u64_at(&header, 24) != lba {
        return Err(bad("partition table header is not where it says it is"));
    }
    let (count, entry_size) = (u32_at(&header, 80), u32_at(&header, 84));
    let length = u64::from(count) * u64::from(entry_size);
    if entry_size < ENTRY_SIZE_MIN || !entry_size.is_multiple_of(8) || length > ENTRIES_BYTES_MAX {
        return Err(bad("partition table has an impossible size"));
    }
    let start = u64_at(&header, 72).checked_mul(sector).ok_or_else(|| bad("partition table is not on the disk"))?;
    let mut entries = vec![0; length as usize];
    device.read_at(start, &mut entries)?;
    if crc32(&entries) != u32_at(&header, 88) {
        return Err(bad("partition table has a wrong checksum"));
    }
    let entries = entries.chunks_exact(entry_size as usize);
    Ok(Some((1..).zip(entries).filter_map(|(n, entry)| partition(n, entry, sector, device.size())).collect()))
}

/// The partition of an entry, unless the entry is unused or is not on the disk.
fn partition(number: u32, entry: &[u8], sector: u64, disk_size: u64) -> Option<Partition> {
    let kind: [u8; 16] = *entry.first_chunk()?;
    if kind == [0; 16] {
        return None;
    }
    let start = u64_at(entry, 32).checked_mul(sector)?;
    let end = u64_at(entry, 40).checked_add(1)?.checked_mul(sector)?;
    if start >= end || end > disk_size {
        return None;
    }
    let units = entry[56..128].chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]]));
    let units: Vec<u16> = units.take_while(|&u| u != 0).collect();
    Some(Partition { number, start, size: end - start, kind, name: String::from_utf16_lossy(&units) })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("within a sector or an entry"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("within a sector or an entry"))
}

/// CRC-32 as of ISO 3309, bit by bit: a table is read once per disk.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDevice;

    /// A disk of 200 sectors with one partition in sectors 40 to 99.
    fn disk(sector: usize) -> Vec<u8> {
        let mut disk = vec![0; 200 * sector];
        let mut entries = vec![0; 128 * 4];
        entries[128..144].copy_from_slice(&TYPE_ZFS);
        entries[128 + 32..][..8].copy_from_slice(&40u64.to_le_bytes());
        entries[128 + 40..][..8].copy_from_slice(&99u64.to_le_bytes());
        for (i, c) in "zfs-é".encode_utf16().enumerate() {
            entries[128 + 56 + 2 * i..][..2].copy_from_slice(&c.to_le_bytes());
        }
        for (lba, entries_lba) in [(1u64, 2u64), (199, 198)] {
            let header = &mut disk[lba as usize * sector..];
            header[..8].copy_from_slice(b"EFI PART");
            header[12..16].copy_from_slice(&92u32.to_le_bytes());
            header[24..32].copy_from_slice(&lba.to_le_bytes());
            header[72..80].copy_from_slice(&entries_lba.to_le_bytes());
            header[80..84].copy_from_slice(&4u32.to_le_bytes());
            header[84..88].copy_from_slice(&128u32.to_le_bytes());
            header[88..92].copy_from_slice(&crc32(&entries).to_le_bytes());
            let crc = crc32(&header[..92]);
            header[16..20].copy_from_slice(&crc.to_le_bytes());
            disk[entries_lba as usize * sector..][..512].copy_from_slice(&entries);
        }
        disk
    }

    fn read_bytes(bytes: Vec<u8>) -> Result<Option<Vec<Partition>>> {
        read(&MemDevice::new("disk", bytes))
    }

    #[test]
    fn crc_of_the_standard_check_string() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn finds_the_partition_in_either_sector_size() {
        for sector in [512, 4096] {
            let found = read_bytes(disk(sector)).unwrap().unwrap();
            let wanted = Partition {
                number: 2,
                start: 40 * sector as u64,
                size: 60 * sector as u64,
                kind: TYPE_ZFS,
                name: "zfs-é".into(),
            };
            assert_eq!(found, [wanted]);
        }
    }

    #[test]
    fn the_backup_serves_when_the_first_copy_is_damaged() {
        let whole = read_bytes(disk(512)).unwrap();
        let mut one = disk(512);
        one[512 + 30] ^= 1;
        assert_eq!(read_bytes(one.clone()).unwrap(), whole);
        let last = one.len() - 512;
        one[last + 30] ^= 1;
        assert_eq!(read_bytes(one).unwrap_err().kind(), Kind::Corrupt);
        let mut entries = disk(512);
        entries[1024 + 128] ^= 1;
        assert_eq!(read_bytes(entries).unwrap(), whole);
        assert_eq!(read_bytes(vec![0; 100_000]).unwrap(), None);
        assert_eq!(read_bytes(Vec::new()).unwrap(), None);
    }

    #[test]
    fn any_header_byte_may_be_anything() {
        for at in (0..92).step_by(if cfg!(miri) { 8 } else { 1 }) {
            for value in [0, 1, 0x7f, 0xff] {
                let mut disk = disk(512);
                let backup = disk.len() - 512;
                disk[backup..].fill(0);
                disk[512 + at] = value;
                // the checksum is made right, so that what follows it is reached
                disk[512 + 16..][..4].fill(0);
                let size = u32_at(&disk, 512 + 12).clamp(92, 512) as usize;
                let crc = crc32(&disk[512..][..size]);
                disk[512 + 16..][..4].copy_from_slice(&crc.to_le_bytes());
                if let Ok(Some(found)) = read_bytes(disk) {
                    assert!(found.iter().all(|p| p.start + p.size <= 200 * 512));
                }
            }
        }
    }
}
