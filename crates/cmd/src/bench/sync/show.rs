//! What was measured, as a table, as JSON, and as a chart.

use protocol::words::nicenum::{nicebytes, nicenum, nicetime};
use serde_json::{Value, json};

use super::super::options::{last_part, rate_text};
use super::survey::TargetSurvey;
use super::target::WriteTarget;
use super::verdict::LogDeviceVerdict;
use crate::bench::measure::Measured;
use crate::chart::{Chart, Curve, CurveNames};

/// Above the rows of a target.
pub fn heading(target: &WriteTarget, threads: u32) -> String {
    let how = match target.kind() {
        "device" => "write past caches, flush",
        _ => "write, fsync",
    };
    let counts = if threads == 1 { vec![1] } else { vec![1, threads] };
    columns(&format!("{}: {how}", target.path()), &counts)
}

/// Names of the columns of [`row`], below a line.
pub fn columns(line: &str, threads: &[u32]) -> String {
    let group = |n: u32| format!("  {:^43}", format!("{n} thread{}", if n == 1 { "" } else { "s" }));
    let names = "  writes/s  bytes/s       p50     p99   p99.9";
    let groups: String = threads.iter().map(|n| group(*n)).collect();
    format!("{line}\n{:>6}{groups}\n{:>6}{}\n", "", "size", names.repeat(threads.len()))
}

/// A size, with each number of threads.
pub fn row(measured: &[Measured]) -> String {
    let mut line = format!("{:>6}", measured.first().map_or(String::new(), |row| nicebytes(row.size)));
    for row in measured {
        let [p50, p99, p999] = row.percentiles_ns.map(nicetime);
        let bytes = nicebytes(row.bytes_rate() as u64);
        line += &format!("{:>10}{bytes:>9}{p50:>10}{p99:>8}{p999:>8}", rate_text(row.rate()));
    }
    line.trim_end().to_owned() + "\n"
}

/// Everything.
pub fn json(surveys: &[TargetSurvey], verdict: Option<&LogDeviceVerdict>) -> Value {
    let survey = |survey: &TargetSurvey| json!({ "path": survey.path, "kind": survey.kind, "results": survey.rows.iter().map(|row| row.json("writes")).collect::<Vec<_>>() });
    let mut all = json!({ "targets": surveys.iter().map(survey).collect::<Vec<_>>() });
    if let Some(verdict) = verdict {
        let factor = |(threads, factor): &(u32, f64)| json!({ "threads": threads, "factor": factor });
        all["verdict"] = json!({
            "is_worth_it": verdict.is_worth_it(),
            "factors": verdict.factors.iter().map(factor).collect::<Vec<_>>(),
            "text": verdict.to_string(),
        });
    }
    all
}

/// Writes a second over sizes: a line for each target and number of threads.
pub fn chart(surveys: &[TargetSurvey]) -> Chart {
    let mut lines = Vec::new();
    for survey in surveys {
        let mut threads: Vec<u32> = survey.rows.iter().map(|row| row.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        let of = |n: u32| survey.rows.iter().filter(move |row| row.threads == n).map(|row| (row.size, row.rate()));
        let name = last_part(&survey.path);
        lines.extend(
            threads
                .into_iter()
                .map(|n| Curve { name: format!("{name}, {}", nicenum(n.into())), points: of(n).collect() }),
        );
    }
    Chart {
        title: "Synchronous writes, by path and threads".into(),
        x_label: "bytes of a write".into(),
        y_label: "writes/s".into(),
        lines,
        names: CurveNames::Beside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surveys() -> Vec<TargetSurvey> {
        let measured = |size, threads| Measured {
            size,
            threads,
            count: 100 * u64::from(threads),
            seconds: 2.0,
            percentiles_ns: [1_000_000, 2_000_000, 30_000_000],
        };
        let rows = [1, 2, 4].iter().flat_map(|size| [measured(*size, 1), measured(*size, 16)]).collect();
        vec![TargetSurvey { path: "/mnt/pool".into(), kind: "folder", rows }]
    }

    #[test]
    fn rows_stand_below_their_heading() {
        let surveys = surveys();
        let dir = tempfile::tempdir().unwrap();
        let target = WriteTarget::open(dir.path(), false, false).unwrap();
        let heading = heading(&target, 16);
        let names = heading.lines().last().unwrap();
        let line = row(&surveys[0].rows[..2]);
        assert_eq!(
            line,
            "    1B        50      50B       1ms     2ms    30ms       800     800B       1ms     2ms    30ms\n"
        );
        assert_eq!(names.len(), line.trim_end().len(), "{names}\n{line}");
    }

    #[test]
    fn json_and_chart_have_all() {
        let surveys = surveys();
        let json = json(&surveys, None);
        assert_eq!(json["targets"][0]["results"][1]["writes_per_s"], 800.0);
        assert_eq!(json["targets"][0]["results"][5]["size"], 4);
        assert!(json.get("verdict").is_none());
        let chart = chart(&surveys);
        let lines: Vec<(&str, usize)> = chart.lines.iter().map(|line| (&*line.name, line.points.len())).collect();
        assert_eq!(lines, [("pool, 1", 3), ("pool, 16", 3)]);
    }
}
