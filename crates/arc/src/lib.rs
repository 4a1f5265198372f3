//! The read cache: blocks in RAM, as they are on disk and as they are after decompression, shared by all readers.
//!
//! A block is known by its address and the txg it was allocated in, so that an address that was freed
//! and used again is another block. Readers that want the same block at the same time wait for one
//! read.
//!
//! ```text
//!   get ──▶ shard by key ──▶ held ───────────────▶ block        cache   requests, reading for all
//!                        ├─▶ being read: wait ───▶ block        store   shards, budget, target
//!                        └─▶ absent: read ─ zio ─▶ block        shard   a policy under a lock
//!                                                               policy  which blocks stay
//!   worker: makes room, gives memory back (pressure)            budget  how many may
//! ```
//!
//! A hit takes a shard's lock to read, and marks: readers of one block do not wait for each other. A thread that keeps a
//! block makes room for it before, so that the budget is never exceeded; the worker makes room ahead of that.
//!
//! Blocks are held as they are on disk; of compressed ones the contents, too, while there is room, and of those that
//! are used when there is not: a hit costs a decompression only where that spares dearer reads (`price`).
//!
//! Beside them stands `miniature`: the policy and the feeder at other sizes, on a sample of the accesses, without blocks.
//! While the pool is in use, a command that asks for it gets such a sample by the `tap`.
//!
//! What leaves RAM may go on to cache devices (`l2arc`), if it is likely to be asked for again; and what is absent is
//! looked for there before the devices of the pool.
//!
//! Below are `zio` and `l2arc`, above is `dmu`.

mod ahead;
mod bell;
mod budget;
mod cache;
mod counters;
mod feed;
mod ghost;
mod held;
mod keep;
mod kept;
mod least;
mod list;
pub mod miniature;
mod nodes;
pub mod policy;
mod pressure;
mod price;
mod seal_id;
mod shard;
mod stats;
mod store;
mod tap;
mod worker;

pub use ahead::Ahead;
pub use base::Block;
pub use budget::Budget;
pub use cache::{Cache, CacheFootprint};
pub use keep::{Keep, Which};
pub use least::{MEMORY_MIN, check_memory};
pub use nodes::{KeptNodes, NODE_BYTES, NodeKeeper};
pub use pressure::{Gauge, MemoryUse};
pub use stats::ArcStats;
pub use tap::{TappedAccess, TappedAccesses};
pub use worker::ArcWorker;
