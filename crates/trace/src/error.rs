//! What is wrong with a trace, and where.

use std::borrow::Cow;
use std::fmt;

/// Where in a trace something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracePlace {
    /// A line, from 1.
    Line(u64),
    /// A record, from 1, and the byte that it begins at, of the trace as it is after decompression.
    Record(u64, u64),
}

impl fmt::Display for TracePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TracePlace::Line(number) => write!(f, "line {number}"),
            TracePlace::Record(number, at) => write!(f, "record {number} at byte {at}"),
        }
    }
}

/// Why a trace cannot be read, or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// Where that is, if it is anywhere.
    pub place: Option<TracePlace>,
    /// What is wrong there.
    pub what: Cow<'static, str>,
}

impl TraceError {
    /// An error without a place.
    pub fn new(what: impl Into<Cow<'static, str>>) -> TraceError {
        TraceError { place: None, what: what.into() }
    }

    /// The same error, at a place.
    pub fn at(self, place: TracePlace) -> TraceError {
        TraceError { place: Some(place), ..self }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some(place) => write!(f, "{place}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for TraceError {}

impl From<std::io::Error> for TraceError {
    fn from(error: std::io::Error) -> TraceError {
        TraceError::new(error.to_string())
    }
}
