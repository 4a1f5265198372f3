//! What every checksum function comes to.

/// The words of a checksum, as numbers.
pub type Sum = [u64; 4];
