//! One request of a trace, and the blocks that it is about.

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceOp {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// What was written is to be on disk.
    Sync,
    /// It does something else: it discards, or flushes.
    Other,
}

impl TraceOp {
    /// All of them, in the order of their numbers.
    pub const ALL: [TraceOp; 4] = [TraceOp::Read, TraceOp::Write, TraceOp::Sync, TraceOp::Other];

    /// Whether it reads or writes bytes.
    pub fn has_bytes(self) -> bool {
        matches!(self, TraceOp::Read | TraceOp::Write)
    }
}

/// A request with its time as the trace has it.
pub(crate) struct RawRequest {
    pub(crate) time_ns: Option<u64>,
    pub(crate) op: TraceOp,
    pub(crate) stream: u64,
    pub(crate) object: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// Nanoseconds since the first request; `None` if the format has no times.
    pub time_ns: Option<u64>,
    /// What it does.
    pub op: TraceOp,
    /// The volume, device or disk that it is for.
    pub stream: u64,
    /// The file of that dataset, or 0: most formats know disks only.
    pub object: u64,
    /// The byte that it begins at; in a format of keys, the key.
    pub offset: u64,
    /// Its bytes, of which the last one is below 2^64.
    pub bytes: u64,
}

impl TraceRequest {
    /// The blocks of `block_bytes` that it touches, at least one, each by a number that differs between streams.
    /// `block_bytes` of 0 means that the request is about one object, whose key is its offset.
    pub fn blocks(&self, block_bytes: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let salt = self.stream.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)
            ^ self.object.wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(29);
        let (first, last, bytes) = match block_bytes {
            0 => (self.offset, self.offset, self.bytes.max(1)),
            _ => {
                let last_byte = self.offset.saturating_add(self.bytes.saturating_sub(1));
                (self.offset / block_bytes, last_byte / block_bytes, block_bytes)
            }
        };
        (first..=last).map(move |block| (block ^ salt, bytes))
    }
}
