//! What all measurements can be told, and how they answer to it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::measure::MeasureTime;
use crate::chart::Chart;

#[derive(clap::Args)]
pub struct BenchOptions {
    /// Seconds for each size and number of threads
    #[arg(short = 't', long, default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Draw rates over sizes into a file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Seconds that a measurement may take. Errors: the words are no such number.
pub fn seconds(text: &str) -> Result<f64, String> {
    let parsed = text.parse().ok().filter(|seconds| (0.01..=3600.0).contains(seconds));
    parsed.ok_or_else(|| "not a number of seconds from 0.01 to 3600".to_owned())
}

impl BenchOptions {
    /// How long is measured.
    pub fn pace<'a>(&self, is_interrupted: &'a AtomicBool) -> MeasureTime<'a> {
        MeasureTime { seconds: self.seconds, is_interrupted }
    }

    /// Prints what people read, unless JSON is wanted.
    pub fn say(&self, text: impl std::fmt::Display) {
        if !self.json {
            print!("{text}");
        }
    }

    /// The end: JSON and the chart, if they are wanted; and an error if there could have been more.
    pub fn finish(&self, json: Value, chart: &Chart, is_interrupted: &AtomicBool) -> Result<(), String> {
        if self.json {
            println!("{json}");
        }
        if let Some(path) = &self.svg {
            std::fs::write(path, chart.svg()).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        if is_interrupted.load(Ordering::Relaxed) { Err("interrupted".to_owned()) } else { Ok(()) }
    }
}

/// A rate in a column.
pub fn rate_text(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

/// The last part of a path, as charts name lines.
pub fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Options of tests: as quick as can be.
    pub fn quick(svg: Option<PathBuf>) -> BenchOptions {
        BenchOptions { seconds: 0.01, json: true, svg }
    }

    #[test]
    fn seconds_are_checked() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        assert!(["0", "-1", "x", "nan", "1e9"].iter().all(|text| seconds(text).is_err()));
    }

    #[test]
    fn what_was_cut_short_is_drawn_and_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chart.svg");
        let label = String::new;
        let names = crate::chart::CurveNames::Beside;
        let chart = Chart { title: "title".into(), x_label: label(), y_label: label(), lines: Vec::new(), names };
        let finish = |flag: bool| quick(Some(path.clone())).finish(Value::Null, &chart, &AtomicBool::new(flag));
        assert_eq!(finish(true), Err("interrupted".to_owned()));
        assert!(std::fs::read_to_string(&path).unwrap().contains("title"));
        assert_eq!(finish(false), Ok(()));
    }
}
