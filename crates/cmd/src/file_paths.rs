//! Paths of files by the numbers of their objects, asked of the process of their pool.

use base::Result;
use format::ids::{DatasetId, ObjectId};
use protocol::client::{self, Connection};
use protocol::wire::{PoolReply, Request};

/// The paths of at most [`PATHS_MAX`](protocol::wire::PATHS_MAX) objects of a dataset, in their order; `None` of what has none.
/// Errors: those of the process.
pub fn paths_of(connection: &mut Connection, dataset: u64, objects: &[u64]) -> Result<Vec<Option<String>>> {
    let objects = objects.iter().copied().map(ObjectId::new).collect();
    match connection.ask(&Request::Paths { dataset: DatasetId::new(dataset), objects })? {
        PoolReply::Paths(paths) => Ok(paths),
        _ => Err(client::off_topic()),
    }
}
