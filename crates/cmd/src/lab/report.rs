//! The report: a page in one file, without script and network; and the same as JSON and CSV.

mod chapter;
mod page;

use serde_json::json;

use super::journal::LabResults;
use super::place::LabPlace;

pub use chapter::{Chapter, LabReport, LabTable};

/// Writes all three. Errors, for the user: one cannot be written.
pub fn write(place: &LabPlace, report: &LabReport, results: &LabResults) -> Result<(), String> {
    let all: Vec<_> = results.iter().collect();
    let json = json!({ "machine": report.machine, "lab": report.lab, "chapters": report.chapters, "cells": all });
    let json = serde_json::to_string_pretty(&json).map_err(|e| e.to_string())?;
    for (path, text) in [
        (place.file("cells.csv"), csv(results)),
        (place.file("report.json"), json),
        (place.report(), page::html(report)?),
    ] {
        // a reader sees the old one or the new one
        let new = path.with_extension("new");
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

/// A line for each run, and one for each cell that failed.
fn csv(results: &LabResults) -> String {
    let mut text = "cell,unit,run,value,failed\n".to_owned();
    for record in results.iter() {
        let head = format!("{},{}", field(&record.cell), field(&record.unit));
        for (n, run) in record.runs.iter().enumerate() {
            text += &format!("{head},{},{},\n", n + 1, run.value);
        }
        text.extend(record.failed.iter().map(|why| format!("{head},,,{}\n", field(why))));
    }
    text
}

/// As RFC 4180 has it.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must() {
        assert_eq!([field("a"), field("a,b"), field("say \"a\"")], ["a", "\"a,b\"", "\"say \"\"a\"\"\""]);
    }
}
