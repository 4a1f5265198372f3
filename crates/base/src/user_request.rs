//! What users of a pool ask of files and volumes.

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserOp {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// What was written is to be on disk.
    Sync,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserRequest {
    /// When it came, in nanoseconds by [`crate::Env::ticks_ns`].
    pub time_ns: u64,
    /// Number of the dataset.
    pub dataset: u64,
    /// Number of the object: of a file its inode.
    pub object: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u32,
    /// What is asked.
    pub op: UserOp,
}
