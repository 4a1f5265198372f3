//! fio: what it is asked, and what its JSON says.

use serde_json::Value;

use super::bed::{CellStop, LabBed};
use super::loads::tool;
use crate::advise::sizes::MIB;
use crate::lab::plan::CellRun;

/// Reads, or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FioSide {
    Read,
    Write,
}

impl FioSide {
    fn name(self) -> &'static str {
        match self {
            FioSide::Read => "read",
            FioSide::Write => "write",
        }
    }
}

/// What one run of fio said.
pub struct FioSaid(Value);

impl FioSaid {
    /// Runs it with these words. Errors: it is not installed, or it failed.
    pub fn of(bed: &LabBed<'_>, words: &[String]) -> Result<FioSaid, CellStop> {
        let words: Vec<&str> = words.iter().map(String::as_str).chain(["--output-format=json"]).collect();
        let text = tool(bed, "fio", "fio", &words)?;
        FioSaid::parse(&text).ok_or_else(|| CellStop::Failed("fio printed no rates".to_owned()))
    }

    fn parse(text: &str) -> Option<FioSaid> {
        // warnings may stand before it
        let json: Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
        json["jobs"][0].is_object().then_some(FioSaid(json))
    }

    fn side(&self, side: FioSide) -> &Value {
        &self.0["jobs"][0][side.name()]
    }

    /// Requests a second.
    pub fn rate(&self, side: FioSide) -> Option<f64> {
        self.side(side)["iops"].as_f64()
    }

    /// MiB a second, and beside them requests a second and the 99th percentile of their times.
    pub fn run(&self, side: FioSide) -> Option<CellRun> {
        let of = self.side(side);
        let p99 = of["clat_ns"]["percentile"]["99.000000"].as_f64();
        let run = CellRun::of(of["bw_bytes"].as_f64()? / MIB).with("requests/s", self.rate(side)?);
        Some(p99.map_or(run.clone(), |ns| run.with("p99_ms", ns / 1e6)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fio_says_is_read() {
        let text = r#"fio: a warning
            {"jobs": [{"write": {"bw_bytes": 2097152, "iops": 512.0, "clat_ns": {"percentile": {"99.000000": 3000000}}}}]}"#;
        let said = FioSaid::parse(text).unwrap();
        let run = said.run(FioSide::Write).unwrap();
        assert_eq!((run.value, run.also["requests/s"], run.also["p99_ms"]), (2.0, 512.0, 3.0));
        assert!(said.run(FioSide::Read).is_none() && FioSaid::parse("").is_none() && FioSaid::parse("{}").is_none());
    }
}
