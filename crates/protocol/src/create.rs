//! A pool to be made, as `zpool create` hands it to the process that makes it: one JSON text on its standard input.

use pool::NewPool;
use serde::{Deserialize, Serialize};

/// A pool to be made, and how it is to be used at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CreateRequest {
    /// The pool.
    pub pool: NewPool,
    /// The folder that all mountpoints are below.
    pub altroot: Option<String>,
}
