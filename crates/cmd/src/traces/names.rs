//! Names of the files that a recording meets, asked of the pool's process.

use std::collections::{BTreeMap, HashSet};

use protocol::client::{self, Connection};
use protocol::wire::PATHS_MAX;
use trace::TraceRequest;

use crate::file_paths::paths_of;

/// Files whose names are asked for.
const FILES_MAX: usize = 1 << 16;

/// A name, with the dataset and the object that it is of.
pub type TracedName = (u64, u64, String);

/// Asks for the name of each file once.
pub struct FileNamer {
    pool: String,
    connection: Connection,
    asked: HashSet<(u64, u64)>,
    /// Names that were found.
    pub found: u64,
    /// Whether there were more files than are asked for.
    pub is_full: bool,
}

impl FileNamer {
    /// One for a pool in use. Errors: for the user.
    pub fn new(pool: &str) -> Result<FileNamer, String> {
        let failed = |why: &str| format!("cannot open '{pool}': {why}");
        let connection = client::connect(pool).map_err(|error| failed(error.what()))?;
        let connection = connection.ok_or_else(|| failed("no such pool is in use"))?;
        let (pool, asked) = (pool.to_owned(), HashSet::new());
        Ok(FileNamer { pool, connection, asked, found: 0, is_full: false })
    }

    /// The names of files that these requests are the first of. What has no name any more has none. Errors: for the user.
    pub fn names_of(&mut self, requests: &[TraceRequest]) -> Result<Vec<TracedName>, String> {
        let mut new = BTreeMap::<u64, Vec<u64>>::new();
        for request in requests {
            let key = (request.stream, request.object);
            if request.object == 0 || self.asked.contains(&key) {
                continue;
            }
            if self.asked.len() >= FILES_MAX {
                self.is_full = true;
                break;
            }
            self.asked.insert(key);
            new.entry(request.stream).or_default().push(request.object);
        }
        let mut names = Vec::new();
        for (stream, objects) in new {
            for some in objects.chunks(PATHS_MAX) {
                let paths = self.ask(stream, some)?;
                let named = some.iter().zip(paths).filter_map(|(object, path)| Some((stream, *object, path?)));
                names.extend(named);
            }
        }
        self.found += names.len() as u64;
        Ok(names)
    }

    fn ask(&mut self, dataset: u64, objects: &[u64]) -> Result<Vec<Option<String>>, String> {
        let paths = paths_of(&mut self.connection, dataset, objects);
        paths.map_err(|error| format!("cannot open '{}': {}", self.pool, error.what()))
    }
}
