//! Answers that come in parts, as they may be long.

use crate::datasets::{FoundDatasets, Response};

impl Response {
    /// The first part of an answer, and what comes behind it. Only [`Response::Datasets`] and [`Response::Holds`] come
    /// in parts; of others the later one stays.
    pub fn followed_by(self, next: Response) -> Response {
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
