//! A figure as it is shown: the median of several runs, their spread, and what a paper had.

use serde::Serialize;

use crate::chart::ChartBar;
use crate::lab::journal::CellRecord;

/// Runs that differ by more than this part of their median are noisy.
const NOISE: f64 = 0.1;

/// See the top of the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LabFigure {
    /// The least, the median and the greatest of the runs; nothing if it was not measured.
    runs: Option<[f64; 3]>,
    /// Why there is none.
    failed: Option<String>,
    /// What the paper had.
    seed: Option<f64>,
}

impl LabFigure {
    /// What a cell gave.
    pub fn of(record: Option<&CellRecord>) -> LabFigure {
        let values = record.iter().flat_map(|record| &record.runs).map(|run| run.value).collect();
        LabFigure { runs: of_runs(values), failed: record.and_then(|record| record.failed.clone()), seed: None }
    }

    /// Another figure of a cell's runs.
    pub fn beside(record: Option<&CellRecord>, name: &str) -> LabFigure {
        let runs = record.iter().flat_map(|record| &record.runs);
        let values = runs.filter_map(|run| run.also.get(name).copied()).collect();
        LabFigure { runs: of_runs(values), failed: record.and_then(|record| record.failed.clone()), seed: None }
    }

    /// The same beside a paper's.
    pub fn beside_seed(mut self, seed: f64) -> LabFigure {
        self.seed = Some(seed);
        self
    }

    pub fn median(&self) -> Option<f64> {
        self.runs.map(|runs| runs[1])
    }

    /// The least and the greatest.
    pub fn spread(&self) -> Option<[f64; 2]> {
        self.runs.map(|[least, _, greatest]| [least, greatest])
    }

    /// As a bar of a chart; `None` if it was not measured.
    pub fn bar(&self, name: &str) -> Option<ChartBar> {
        let [least, value, greatest] = self.runs?;
        Some(ChartBar { name: name.to_owned(), value, spread: [least, greatest], said: self.said() })
    }

    /// Whether the runs differ by more than a figure may mean.
    pub fn is_noisy(&self) -> bool {
        self.runs.is_some_and(|[least, median, greatest]| greatest - least > NOISE * median.abs())
    }

    /// Of people: `117`, or why there is none.
    pub fn said(&self) -> String {
        match (&self.runs, &self.failed) {
            (Some([_, median, _]), _) => short(*median),
            (None, Some(why)) => why.clone(),
            (None, None) => "–".to_owned(),
        }
    }

    /// The spread in words; empty if there is none.
    pub fn spread_said(&self) -> String {
        let Some([least, greatest]) = self.spread() else { return String::new() };
        let spread = format!("{} to {}", short(least), short(greatest));
        if self.is_noisy() { format!("{spread}, noisy") } else { spread }
    }

    /// The paper's in words.
    pub fn seed_said(&self) -> Option<String> {
        self.seed.map(short)
    }
}

fn of_runs(mut values: Vec<f64>) -> Option<[f64; 3]> {
    values.sort_by(f64::total_cmp);
    Some([*values.first()?, values[values.len() / 2], *values.last()?])
}

/// Three digits, or all before the point.
fn short(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::plan::CellRun;

    fn record(values: &[f64], failed: Option<&str>) -> CellRecord {
        CellRecord {
            cell: "a/b/c".into(),
            unit: "MiB/s".into(),
            command: String::new(),
            runs: values.iter().map(|value| CellRun::of(*value).with("twice", value * 2.0)).collect(),
            failed: failed.map(str::to_owned),
        }
    }

    #[test]
    fn figures_are_medians_with_their_spread() {
        let record_ = record(&[100.0, 98.0, 103.0], None);
        let figure = LabFigure::of(Some(&record_)).beside_seed(114.4);
        assert_eq!((figure.median(), figure.is_noisy()), (Some(100.0), false));
        assert_eq!((figure.said(), figure.spread_said()), ("100".into(), "98.0 to 103".into()));
        assert_eq!(figure.seed_said().unwrap(), "114");
        assert_eq!(LabFigure::beside(Some(&record_), "twice").median(), Some(200.0));
        let noisy = LabFigure::of(Some(&record(&[1.0, 2.0, 3.0], None)));
        assert_eq!(noisy.spread_said(), "1.00 to 3.00, noisy");
    }

    #[test]
    fn what_was_not_measured_says_why() {
        assert_eq!(LabFigure::of(None).said(), "–");
        let failed = LabFigure::of(Some(&record(&[], Some("fio is not installed"))));
        assert_eq!((failed.median(), failed.said()), (None, "fio is not installed".into()));
        assert_eq!([0.0, 0.0123, 5.0, 12.34, 1234.5].map(short), ["0", "0.012", "5.00", "12.3", "1234"]);
    }
}
