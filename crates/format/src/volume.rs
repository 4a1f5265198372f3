//! The objects of a volume's object set.
//!
//! ```text
//!   1  data           blocks of volblocksize bytes, from byte 0 of the disk on
//!   2  properties     a ZAP ── "size" ──▶ bytes of the disk
//! ```
//!
//! Source: the behaviour of OpenZFS's zvol.c.

use crate::ids::ObjectId;

/// The object with the contents.
pub const DATA: ObjectId = ObjectId::new(1);
/// The ZAP of its properties.
pub const PROPERTIES: ObjectId = ObjectId::new(2);
/// In [`PROPERTIES`]: the size in bytes.
pub const SIZE: &str = "size";
