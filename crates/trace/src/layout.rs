//! Records as bytes: their sizes, what they begin with, and their numbers.

/// Bytes of records.
pub(crate) const VSCSI1_BYTES: usize = 32;
pub(crate) const VSCSI2_BYTES: usize = 40;
pub(crate) const ORACLE_BYTES: usize = 24;
pub(crate) const BLKTRACE_BYTES: usize = 48;
pub(crate) const CENOTE_BYTES: usize = 40;
/// What each record of this program begins with; the last byte is the version.
pub(crate) const CENOTE_MAGIC: [u8; 3] = *b"CT1";
/// What each record of blktrace begins with, above its version.
pub(crate) const BLKTRACE_MAGIC: u32 = 0x0065_6174;

/// A number of 32 bits, little-endian; 0 beyond the end.
pub(crate) fn at32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word))
}

/// A number of 64 bits, little-endian; 0 beyond the end.
pub(crate) fn at64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}
