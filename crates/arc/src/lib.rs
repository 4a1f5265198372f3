//! The read cache: blocks in RAM, as they are after decompression, shared by all readers.
//!
//! A block is known by its address and the txg it was allocated in, so that an address that was freed
//! and used again is another block. Readers that want the same block at the same time wait for one
//! read. The cache is split into shards, each with a lock and a budget of its own; within a shard,
//! blocks leave in the order they came, but one that was used since is given a second round.
//!
//! ```text
//!             get ──▶ shard by key ──▶ ready ──────────────▶ block
//!                                  ├─▶ being read: wait ───▶ block
//!                                  └─▶ absent: read ─ zio ─▶ block
//! ```
//!
//! Below is `zio`, above is `dmu`. Invariant: a key in a shard's queue is ready in its map, and the
//! reverse; the sizes of these blocks sum to the shard's `bytes`.

mod cache;
mod ghost;
mod list;
pub mod policy;

pub use base::Block;
pub use cache::{Cache, Stats};
