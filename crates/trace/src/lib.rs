//! Traces: requests of reading and writing as others and this program have recorded them, in the formats that public traces come in.
//!
//! ```text
//!   file ─▶ zstd? ─▶ lines (text) │ records (binary) ─▶ TraceReader: requests ─▶ blocks of each request
//!                                                             └▶ TraceWriter: another format
//! ```
//!
//! A trace is read from its beginning to its end, one request at a time: memory does not depend on its length. Bytes that
//! make no sense end the reading with an error that has their place.
//!
//! | format | a line or record has | place | time |
//! |---|---|---|---|
//! | `arc` | first block, number of blocks, two more fields | blocks of 4 KiB | none |
//! | `lines` | a key, perhaps its bytes | keys | none |
//! | `u32` | a key of 32 bits | keys | none |
//! | `blktrace` | Linux's `blk_io_trace`, as blkparse reads it; the requests as they were queued | sectors | ns |
//! | `msr` | timestamp, host, disk, `Read` or `Write`, offset, size, response time | bytes | 100 ns |
//! | `vscsi` | CloudPhysics' records of 32 or 40 bytes | sectors | µs |
//! | `vscsi-csv` | version, time, operation, bytes, sector | sectors | µs |
//! | `alibaba` | device, `R` or `W`, offset, length, timestamp | bytes | µs |
//! | `tencent` | timestamp, offset, size, 0 or 1, volume | sectors | s |
//! | `oracleGeneral` | libCacheSim's records of 24 bytes: time, object, size, next access | keys | s |
//! | `cenote` | records of 40 bytes by `cenote trace record`: reads, writes and syncs of files and volumes, and names of files if they were asked for | bytes | ns |

mod binary;
mod error;
mod footprint;
mod format;
mod layout;
mod names;
mod reader;
mod recorder;
mod request;
#[cfg(test)]
mod tests;
mod text;
mod writer;

pub use error::{TraceError, TracePlace};
pub use footprint::Footprint;
pub use format::TraceFormat;
pub use names::TraceNames;
pub use reader::{Backwards, TraceReader, ZSTD_MAGIC};
pub use recorder::TraceRecorder;
pub use request::{TraceOp, TraceRequest};
pub use writer::TraceWriter;
