//! Kinds of files, as the type bits of their modes say.

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are the documentation
pub enum FileKind {
    Fifo,
    CharDevice,
    Directory,
    BlockDevice,
    File,
    Symlink,
    Socket,
}

impl FileKind {
    /// From the four type bits of `st_mode`; `None` for those that Linux does not have.
    pub fn from_type_bits(bits: u8) -> Option<FileKind> {
        Some(match bits {
            1 => FileKind::Fifo,
            2 => FileKind::CharDevice,
            4 => FileKind::Directory,
            6 => FileKind::BlockDevice,
            8 => FileKind::File,
            10 => FileKind::Symlink,
            12 => FileKind::Socket,
            _ => return None,
        })
    }

    /// The type bits of `st_mode`, in their place.
    pub fn mode_bits(self) -> u32 {
        let bits = match self {
            FileKind::Fifo => 1,
            FileKind::CharDevice => 2,
            FileKind::Directory => 4,
            FileKind::BlockDevice => 6,
            FileKind::File => 8,
            FileKind::Symlink => 10,
            FileKind::Socket => 12,
        };
        bits << 12
    }

    /// Can a file of this kind be of a project?
    pub(crate) fn has_project(self) -> bool {
        matches!(self, FileKind::File | FileKind::Directory)
    }

    /// As Linux does, takes what it does not know (Solaris's doors and event ports) as a regular file.
    pub(crate) fn of_mode(mode: u64) -> FileKind {
        FileKind::from_type_bits((mode >> 12 & 0xf) as u8).unwrap_or(FileKind::File)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_the_bits_of_the_mode() {
        for bits in 0..16 {
            match FileKind::from_type_bits(bits) {
                Some(kind) => assert_eq!(kind.mode_bits(), u32::from(bits) << 12),
                None => assert_eq!(FileKind::of_mode(u64::from(bits) << 12), FileKind::File),
            }
        }
        assert_eq!(FileKind::of_mode(0o120777), FileKind::Symlink);
    }
}
