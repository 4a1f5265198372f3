//! Which devices may be written to: blank ones, and others if their serial number is typed.

use std::path::Path;

use device::{FileDevice, OpenMode};

use super::live::{is_blank, is_regular};
use super::says::Identity;
use crate::zpool::create;

/// What was said about overwriting.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overwrite<'a> {
    pub force: bool,
    pub serial: Option<&'a str>,
}

/// Opens a device that may be overwritten, and tells whether it is a file. Errors, for the user: why it may not; nothing
/// was written then.
pub fn open(path: &Path, identity: &Identity, overwrite: Overwrite<'_>) -> Result<(FileDevice, bool), String> {
    let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let real = path.canonicalize().map_err(|e| failed(&e))?;
    let text = real.to_str().ok_or_else(|| failed(&"the path is not UTF-8"))?;
    if real.is_dir() {
        return Err(failed(&"a folder; `cenote bench sync` measures file systems"));
    }
    let is_file = is_regular(&real).map_err(|e| failed(&e))?;
    let may_lose = may_lose(identity, overwrite).map_err(|why| failed(&why))?;
    let complaints = create::device_complaints(text, may_lose)?;
    if !complaints.is_empty() {
        return Err(refusal(path, &complaints.join("; "), identity, may_lose));
    }
    let device = FileDevice::open(text, OpenMode::ReadWrite).map_err(|e| failed(&e))?;
    device.lock(true).map_err(|e| failed(&e))?;
    if !may_lose && !is_blank(&device).map_err(|e| failed(&e))? {
        return Err(refusal(path, "there are data on it", identity, may_lose));
    }
    Ok((device, is_file))
}

/// Whether what is on it may be lost: its serial number was typed. Errors: another one was.
fn may_lose(identity: &Identity, overwrite: Overwrite<'_>) -> Result<bool, String> {
    match (overwrite, &identity.serial) {
        (Overwrite { serial: None, .. }, _) => Ok(false),
        (Overwrite { serial: Some(_), .. }, None) => Err("it has no serial number that could be typed".to_owned()),
        (Overwrite { serial: Some(typed), .. }, Some(serial)) if typed != serial => {
            Err(format!("its serial number is not '{typed}'"))
        }
        (Overwrite { force, .. }, _) => Ok(force),
    }
}

fn refusal(path: &Path, why: &str, identity: &Identity, may_lose: bool) -> String {
    let path = path.display();
    let way = match (&identity.serial, may_lose) {
        (_, true) => "",
        (Some(_), false) => "; to overwrite it, type its serial number (lsblk -o NAME,SERIAL): -f --serial NUMBER",
        (None, false) => "; a file or disk without a serial number has to be blank: `blkdiscard`, or a new file",
    };
    format!("{path} is not touched: {why}{way}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_serial(serial: Option<&str>) -> Identity {
        Identity { serial: serial.map(str::to_owned), ..Identity::default() }
    }

    #[test]
    fn only_the_serial_number_overwrites() {
        let of = |own: Option<&str>, force, serial| may_lose(&with_serial(own), Overwrite { force, serial });
        assert_eq!(of(Some("S1"), true, None), Ok(false), "-f alone is not enough");
        assert_eq!(of(Some("S1"), false, Some("S1")), Ok(false));
        assert_eq!(of(Some("S1"), true, Some("S1")), Ok(true));
        assert!(of(Some("S1"), true, Some("S2")).is_err() && of(None, true, Some("")).is_err());
    }

    #[test]
    fn what_is_not_blank_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let why = |force| {
            let outcome = open(&path, &Identity::default(), Overwrite { force, serial: None });
            outcome.err().unwrap_or_default()
        };
        for (at, mark, word) in [
            (510, &[0x55, 0xaa][..], "partition table"),
            (1080, &[0x53, 0xef], "ext"),
            (0, b"XFSB", "xfs"),
            (0, b"LUKS\xba\xbe\0\x02", "crypto_LUKS"),
            (70_000, b"somebody's data", "data"),
            ((8 << 20) - 5, b"e", "data"),
        ] {
            let mut bytes = vec![0; 8 << 20];
            bytes[at..at + mark.len()].copy_from_slice(mark);
            // all of it, so that a draw finds it
            if word == "data" && at == 70_000 {
                bytes[65_536..6 << 20].fill(7);
            }
            std::fs::write(&path, &bytes).unwrap();
            for force in [false, true] {
                let why = why(force);
                assert!(why.contains("not touched") && why.contains(word), "{word}: {why}");
            }
            assert!(std::fs::read(&path).unwrap() == bytes);
        }
        std::fs::write(&path, vec![0; 8 << 20]).unwrap();
        assert_eq!(why(false), "");
        let other = FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap();
        other.lock(true).unwrap();
        assert!(why(true).contains("in use"));
        drop(other);
        let folder = open(dir.path(), &Identity::default(), Overwrite::default());
        assert!(folder.err().is_some_and(|why| why.contains("folder")));
    }
}
