//! What a device holds that is no pool: file systems, swap, encrypted volumes, parts of RAID and LVM, partition tables.
//!
//! libblkid knows all of them; its program `blkid` is asked, so that its bugs are not those of this process. The few marks
//! that are looked for beside it count even where a checksum of theirs is wrong, and stand in for it where it is not
//! installed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::time::Duration;

use crate::tools;

/// How long a device may take to be looked at.
const PROBE_TIME: Duration = Duration::from_secs(20);
/// Exit code of `blkid`: it recognizes nothing.
const NOTHING: i32 = 2;
/// Exit code of `blkid`: it recognizes several things, and cannot tell which of them counts.
const AMBIVALENT: i32 = 8;

/// What a device holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signature {
    /// A file system, or what else has a type of its own: swap, LUKS, a physical volume of LVM, a part of md.
    FileSystem(String),
    /// A partition table.
    Partitions(String),
    /// The answer of `blkid` is not one of those that it is known to give.
    Unclear(&'static str),
}

impl Signature {
    /// What stands in the way of using the device at `path`, for the user.
    pub fn line(&self, path: &str) -> String {
        match self {
            Signature::FileSystem(kind) => format!("{path} contains a filesystem of type '{kind}'"),
            Signature::Partitions(kind) => format!("{path} contains a partition table of type '{kind}'"),
            Signature::Unclear(why) => format!("{path} {why}"),
        }
    }
}

/// What a device was found to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// The first thing that was found.
    pub found: Option<Signature>,
    /// Whether `blkid` could not be asked, as it is not installed.
    pub lacks_blkid: bool,
}

/// Looks at a file or disk. Labels of pools are passed over: they are judged elsewhere.
pub fn look(path: &str) -> Looked {
    let asked = probe(path, PROBE_TIME);
    let lacks_blkid = asked.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    let found = match asked {
        Ok(found) => found,
        Err(_) if lacks_blkid => None,
        Err(e) if e.kind() == io::ErrorKind::TimedOut => Some(Signature::Unclear("does not answer when it is read")),
        Err(_) => Some(Signature::Unclear("may be in use: 'blkid' cannot be run")),
    };
    Looked { found: found.or_else(|| marked(path)), lacks_blkid }
}

/// Asks `blkid`. Errors: it cannot be run, or does not end in time.
fn probe(path: &str, time: Duration) -> io::Result<Option<Signature>> {
    let answer = tools::ask("blkid", &["-p", "-o", "export", "--", path], time)?;
    Ok(signature_of(answer.code, &answer.text))
}

/// What an exit code and an answer of `blkid -p -o export` mean.
fn signature_of(code: Option<i32>, answer: &str) -> Option<Signature> {
    let value_of = |key: &str| {
        let value = answer.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        value.filter(|value| !value.is_empty()).map(str::to_owned)
    };
    match code {
        Some(NOTHING) => None,
        Some(AMBIVALENT) => Some(Signature::Unclear("contains signatures of several file systems or partition tables")),
        Some(0) => match (value_of("TYPE"), value_of("PTTYPE")) {
            (Some(kind), _) if kind != "zfs_member" => Some(Signature::FileSystem(kind)),
            (_, kind) => kind.map(Signature::Partitions),
        },
        _ => Some(Signature::Unclear("may be in use: 'blkid' cannot look at it")),
    }
}

/// What a device holds by the marks of the most usual things.
fn marked(path: &str) -> Option<Signature> {
    const MARKS: [(u64, &[u8], &str); 12] = [
        (0, b"XFSB", "xfs"),
        (0, b"LUKS\xba\xbe", "crypto_LUKS"),
        (512, b"LABELONE", "LVM2_member"),
        (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "linux_raid_member"),
        (0, &[0xfc, 0x4e, 0x2b, 0xa9], "linux_raid_member"),
        (1080, &[0x53, 0xef], "ext4"),
        (65_600, b"_BHRfS_M", "btrfs"),
        (4086, b"SWAPSPACE2", "swap"),
        (3, b"NTFS    ", "ntfs"),
        (3, b"EXFAT   ", "exfat"),
        (54, b"FAT16   ", "vfat"),
        (82, b"FAT32   ", "vfat"),
    ];
    const TABLES: [(u64, &[u8], &str); 3] =
        [(512, b"EFI PART", "gpt"), (4096, b"EFI PART", "gpt"), (510, &[0x55, 0xaa], "dos")];
    let mut file = File::open(path).ok()?;
    let mut has = |offset: u64, mark: &[u8]| {
        let mut bytes = vec![0; mark.len()];
        let read = file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(&mut bytes));
        read.is_ok() && bytes == mark
    };
    if let Some((_, _, kind)) = MARKS.iter().find(|(offset, mark, _)| has(*offset, mark)) {
        return Some(Signature::FileSystem((*kind).to_owned()));
    }
    let table = TABLES.iter().find(|(offset, mark, _)| has(*offset, mark));
    table.map(|(_, _, kind)| Signature::Partitions((*kind).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_blkid() {
        let system = |kind: &str| Some(Signature::FileSystem(kind.to_owned()));
        let of = |code: i32, answer: &str| signature_of(Some(code), answer);
        assert_eq!(of(0, "DEVNAME=/dev/x\nVERSION=2\nTYPE=crypto_LUKS\nUSAGE=crypto\n"), system("crypto_LUKS"));
        assert_eq!(of(0, "TYPE=ext4\nPTTYPE=dos\n"), system("ext4"));
        assert_eq!(of(0, "PTUUID=f2\nPTTYPE=gpt\n"), Some(Signature::Partitions("gpt".into())));
        assert_eq!(of(0, "DEVNAME=/dev/x1\nPART_ENTRY_TYPE=0x83\n"), None, "a partition that is empty");
        assert_eq!(of(0, "TYPE=zfs_member\nSUB_TYPE=ext4\n"), None, "labels of pools are judged elsewhere");
        assert_eq!(of(2, ""), None);
        for (code, answer) in [(Some(8), ""), (Some(4), ""), (None, "")] {
            assert!(matches!(signature_of(code, answer), Some(Signature::Unclear(_))), "{code:?}");
        }
    }

    #[test]
    fn marks_on_a_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let shown = path.to_str().unwrap();
        for (offset, mark, line) in [
            (0, &b"LUKS\xba\xbe\0\x02"[..], "contains a filesystem of type 'crypto_LUKS'"),
            (512, b"LABELONE\x01\0\0\0", "contains a filesystem of type 'LVM2_member'"),
            (4096, &[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0], "contains a filesystem of type 'linux_raid_member'"),
            (512, b"EFI PART", "contains a partition table of type 'gpt'"),
            (510, &[0x55, 0xaa], "contains a partition table of type 'dos'"),
        ] {
            let mut bytes = vec![0; 1 << 20];
            bytes[offset..offset + mark.len()].copy_from_slice(mark);
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(marked(shown).unwrap().line("x"), format!("x {line}"));
            assert!(look(shown).found.is_some(), "{line}");
        }
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        assert_eq!(look(shown).found, None);
    }
}
