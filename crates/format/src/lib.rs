//! Every on-disk structure of ZFS, and nothing else: pure parsing, no I/O.
//!
//! Below is `base`; above is everything that reads or writes a pool. Structures from a block of
//! foreign byte order are swapped once, right after the block was read ([`swap`]), so that what
//! the parsers see is little-endian.

pub mod acl;
pub mod blkptr;
pub mod ddt;
pub mod dnode;
pub mod dsl;
pub mod feature;
pub mod ids;
pub mod l2arc;
pub mod nvlist;
pub mod object_type;
pub mod objset;
pub mod rebuild;
pub mod redaction;
pub mod removal;
pub mod sa;
pub mod scan;
pub mod sealing;
pub mod space_map;
pub mod stream;
pub mod swap;
pub mod txg_times;
pub mod uberblock;
pub mod volume;
pub mod xattr;
pub mod zap;
pub mod znode;
