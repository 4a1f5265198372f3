//! Pure maths on bytes: checksums, compression, parity, ciphers. No I/O, no clock, no threads of its own.
//!
//! Above it: `zio` (which picks the algorithms a block pointer names), `vdev` (parity, labels) and
//! `dsl` (the running checksum of a send stream). Below it: only `base`.
//!
//! Everything that reads bytes of a disk returns [`base::Error`] on nonsense; nothing here panics,
//! loops or allocates by what those bytes say. Where a faster instruction set is worth having, it
//! is chosen at run time, and the portable code computes the same result.

mod numbered;

pub mod checksum;
pub mod compress;
pub mod parity;
pub mod seal;
