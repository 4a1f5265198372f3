//! Traces that are read: opened, and what is said of them.

use std::path::Path;

use protocol::words::nicenum::nicetime;
use trace::{TraceError, TraceFormat, TraceOp, TraceReader};

use crate::output;

/// The format of a name. Errors: there is none.
pub fn format_of(name: &str) -> Result<TraceFormat, String> {
    let names = || TraceFormat::ALL.map(TraceFormat::name).join(", ");
    TraceFormat::named(name).ok_or_else(|| format!("not one of {}", names()))
}

/// Opens a trace. Errors: in words, with the file's name.
pub fn open(file: &Path, format: Option<TraceFormat>) -> Result<TraceReader, String> {
    TraceReader::open(file, format).map_err(|error| said(file, &error))
}

/// An error of a trace in words.
pub fn said(file: &Path, error: &TraceError) -> String {
    format!("{}: {error}", file.display())
}

/// Says where a trace went backwards in time.
pub fn tell_backwards(command: &str, file: &Path, reader: &TraceReader) {
    if let Some(back) = reader.backwards() {
        let (first, most) = (back.first, nicetime(back.most_ns));
        let what = format!("{}: {first}: time goes backwards", file.display());
        output::complain(command, format_args!("{what}, by {most} at most, {} times in all", back.count));
    }
}

/// The word for an operation.
pub fn word(op: TraceOp) -> &'static str {
    match op {
        TraceOp::Read => "read",
        TraceOp::Write => "write",
        TraceOp::Sync => "sync",
        TraceOp::Other => "other",
    }
}
