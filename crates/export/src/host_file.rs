//! Files of the host whose paths may come from others.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

const WAITING_FOR_NOBODY: i32 = OFlags::NONBLOCK.union(OFlags::NOCTTY).bits().cast_signed();

/// What nobody else may do with a file: others than root, and the user of this process, whose files these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRights {
    /// Read it, or write it.
    Secret,
    /// Write it.
    Public,
}

/// All of a regular file, without waiting for anybody, and without doing anything to what is none. Errors: those of open(2);
/// `InvalidInput` if it is no regular file, belongs to another user, or others have more rights than these; `FileTooLarge`
/// if it has more than `bytes_max` bytes.
pub fn read_host_file(path: &Path, rights: FileRights, bytes_max: u64) -> Result<Vec<u8>> {
    let wrong = |what: &str| Error::new(ErrorKind::InvalidInput, what);
    // what does something when it is opened, as a watchdog or a tape, is let alone
    if !std::fs::metadata(path)?.is_file() {
        return Err(wrong("no regular file"));
    }
    // it may have become a named pipe that nobody writes
    let file = File::options().read(true).custom_flags(WAITING_FOR_NOBODY).open(path)?;
    let about = file.metadata()?;
    let user = geteuid().as_raw();
    if !about.is_file() {
        return Err(wrong("no regular file"));
    }
    if ![0, user].contains(&about.uid()) {
        return Err(wrong("it belongs to another user than root, or that of the pool's process"));
    }
    match rights {
        FileRights::Secret if about.mode() & 0o077 != 0 => {
            return Err(wrong("a secret is for its owner only, and others have rights to it (chmod 600)"));
        }
        FileRights::Public if about.mode() & 0o022 != 0 => return Err(wrong("others may write it (chmod 644)")),
        _ => {}
    }
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(Error::new(ErrorKind::FileTooLarge, format!("it has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_plain_files_of_the_right_people() {
        let dir = std::env::temp_dir().join(format!("cenote-host-file-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let file = dir.join("file");
        write(&file, "text").unwrap();
        let read = |rights, max| read_host_file(&file, rights, max).map_err(|error| error.kind());
        let set = |mode| set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        for (mode, secret, public) in [
            (0o600, true, true),
            (0o400, true, true),
            (0o640, false, true),
            (0o604, false, true),
            (0o620, false, false),
            (0o602, false, false),
        ] {
            set(mode);
            let found = (read(FileRights::Secret, 9).is_ok(), read(FileRights::Public, 9).is_ok());
            assert_eq!(found, (secret, public), "{mode:o}");
        }
        set(0o600);
        assert_eq!(read(FileRights::Secret, 4), Ok(b"text".to_vec()));
        assert_eq!(read(FileRights::Secret, 3), Err(ErrorKind::FileTooLarge));
        // a named pipe hangs nobody, nor does a device
        let pipe = dir.join("pipe");
        assert!(std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&pipe).status().unwrap().success());
        for other in [pipe.as_path(), &dir, Path::new("/dev/zero"), Path::new("/dev/tty")] {
            let error = read_host_file(other, FileRights::Public, 9).unwrap_err();
            assert!([ErrorKind::InvalidInput, ErrorKind::NotFound].contains(&error.kind()), "{error}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
