//! What every other crate stands on: the error type, aligned buffers, byte-order readers, the
//! injected environment, locks and counters.
//!
//! Below it is only the standard library; everything is above it.

mod abort;
mod buf;
mod bytes;
mod copies;
mod data;
mod env;
mod error;
mod fact_file;
mod lock_waits;
mod locks;
mod log_limit;
mod mix;
mod program;
mod range_tree;
mod record_file;
mod shown;
mod slab;
mod tap;
pub mod tunables;
mod user_request;

pub use abort::or_abort;
pub use buf::{AlignedBuf, Block};
pub use bytes::{Endian, Reader};
pub use copies::{CopyKind, copied_bytes, count_copy};
pub use data::{Data, Piece};
pub use env::{Env, WORK_THAT_WAITS, WorkKind};
pub use error::{Bookmark, Error, ErrorPlace, Kind, Result, ResultExt};
pub use fact_file::{Fact, FactFile, FactSlot, FoundFacts, NameFact, NameSlots};
pub use lock_waits::{LockWaits, lock_waits};
pub use locks::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use log_limit::{LogLimit, MessageFate};
pub use mix::{MIX_STRIDE, mixed, next_mixed, split_mix};
pub use program::give_program_back;
pub use range_tree::RangeTree;
pub use record_file::{RecordFile, RecordPlace, RecordSpot};
pub use shown::{Shower, Shown, ShownLines};
pub use slab::{free_bytes, give_memory_back, give_small_memory_back, keep_free_at_most};
pub use tap::{Tap, TapEntries};
pub use tunables::Tunable;
pub use user_request::{UserOp, UserRequest};
