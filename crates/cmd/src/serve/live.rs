//! The pool of a pool process: open for reading only, or for writing.
//!
//! All that reads asks for a view, which is the pool as of one transaction group. A pool that is open for
//! reading has one view for as long as it is open.

use std::sync::Arc;

use pool::Pool;

/// The pool of a pool process.
pub enum ServedPool {
    /// Nothing changes in it.
    ReadOnly(Arc<Pool>),
}

impl ServedPool {
    /// The pool as of the last transaction group.
    pub fn view(&self) -> Arc<Pool> {
        match self {
            ServedPool::ReadOnly(pool) => pool.clone(),
        }
    }
}
