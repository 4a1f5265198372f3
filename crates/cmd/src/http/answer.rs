//! Answers that are no more than a few words.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

/// A few words.
pub fn words(status: StatusCode, words: impl Into<String>) -> Response {
    (status, [(CONTENT_TYPE, "text/plain; charset=utf-8")], words.into()).into_response()
}
