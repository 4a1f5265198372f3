//! Answers that come in parts, as they may be long.

use base::Result;

use crate::datasets::{FoundDatasets, Response};

impl Response {
    /// The whole of an answer, of which `make` gives all parts but the last one to the function that it gets. Errors: those
    /// of `make`.
    pub fn joined(make: impl FnOnce(&mut dyn FnMut(Response) -> Result<()>) -> Result<Response>) -> Result<Response> {
        let mut before = None;
        let last = make(&mut |part| {
            before = Some(join(before.take(), part));
            Ok(())
        })?;
        Ok(join(before, last))
    }

    /// The first part of an answer, and what comes behind it. Only [`Response::Datasets`] and [`Response::Holds`] come
    /// in parts; of others the later one stays.
    fn followed_by(self, next: Response) -> Response {
        match (self, next) {
            (Response::Datasets(mut all), Response::Datasets(FoundDatasets { rows, failures })) => {
                all.rows.extend(rows);
                all.failures.extend(failures);
                Response::Datasets(all)
            }
            (Response::Holds(mut all, mut failed), Response::Holds(holds, failures)) => {
                all.extend(holds);
                failed.extend(failures);
                Response::Holds(all, failed)
            }
            (_, next) => next,
        }
    }
}

/// What has come of an answer, and its next part.
fn join(before: Option<Response>, next: Response) -> Response {
    match before {
        Some(before) => before.followed_by(next),
        None => next,
    }
}
