//! Receiving: the records of a stream, checked, and what they do to an object set.
//!
//! ```text
//!   bytes ─▶ StreamReader: byte order, fields, sums ─▶ Applier: objects, blocks, frees ─▶ an object set that grows
//! ```
//!
//! A stream comes from anybody. A wrong one is an error, and what it has done is in a dataset that nothing shows before
//! the end has come with the right sum.

mod apply;
mod corrective;
mod owners;
mod reader;

pub use apply::{Applier, ApplyHost};
pub use corrective::physical_bytes;
pub use owners::owners_by_place;
pub use reader::{StreamPart, StreamReader};
