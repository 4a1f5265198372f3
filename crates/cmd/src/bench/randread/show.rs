//! What was measured, as a table, as JSON, and as a chart.

use protocol::words::nicenum::nicebytes;
use serde_json::{Value, json};

use super::super::options::{last_part, rate_text};
use super::climb::{Climb, SizeRow};
use super::target::ReadTarget;
use crate::bench::measure::Measured;
use crate::chart::{Chart, Curve, CurveNames};

/// Characters of a target's columns.
const WIDTH: usize = 47;

/// Above the rows.
pub fn heading(targets: &[ReadTarget]) -> String {
    let name = |target: &ReadTarget| {
        let (path, short) = (target.path(), last_part(target.path()));
        format!("{:>WIDTH$}", if path.chars().count() < WIDTH { path } else { short })
    };
    let has_factor = targets.len() == 2;
    let or_none = |text: &'static str| if has_factor { text } else { "" };
    let abouts: String = targets.iter().map(|target| target.describe() + "\n").collect();
    let names: String = targets.iter().map(name).collect();
    let groups = format!("{:>19}{:>28}", "1 thread", "best").repeat(targets.len());
    let columns = format!("{:>9}{:>10}{:>9}{:>10}{:>9}", "reads/s", "KB/s", "threads", "reads/s", "KB/s");
    format!(
        "{abouts}\n{:>6}{names}{}\n{:>6}{groups}{}\n{:>6}{}{}\n",
        "",
        or_none("            factor"),
        "",
        or_none("                  "),
        "size",
        columns.repeat(targets.len()),
        or_none(" 1 thread     best"),
    )
}

/// A size.
pub fn row(row: &SizeRow) -> String {
    let mut line = format!("{:>6}", nicebytes(row.size));
    for climb in &row.climbs {
        line += &match climb.as_ref().and_then(|climb| climb.alone().zip(climb.best())) {
            None => format!("{:>9}{:>10}{:>9}{:>10}{:>9}", "-", "-", "-", "-", "-"),
            Some((alone, best)) => {
                let [one, many] =
                    [alone, best].map(|measured| [measured.rate(), measured.bytes_rate() / 1024.0].map(rate_text));
                format!("{:>9}{:>10}{:>9}{:>10}{:>9}", one[0], one[1], best.threads, many[0], many[1])
            }
        };
    }
    for factor in factors(row).iter().flatten() {
        line += &format!("{:>9}", if *factor < 100.0 { format!("{factor:.2}") } else { rate_text(*factor) });
    }
    line + "\n"
}

/// How many times as fast the second target is as the first: alone, and at their best.
fn factors(row: &SizeRow) -> Option<[f64; 2]> {
    let [Some(one), Some(other)] = row.climbs.as_slice() else { return None };
    let [one, other] =
        [one, other].map(|climb| [climb.alone(), climb.best()].map(|row| row.map_or(0.0, Measured::rate)));
    Some([other[0] / one[0], other[1] / one[1]]).filter(|factors| factors.iter().all(|factor| factor.is_finite()))
}

/// What is to be known of each target, to read its figures rightly.
pub fn notes(targets: &[ReadTarget], rows: &[SizeRow]) -> Vec<String> {
    targets.iter().enumerate().flat_map(|(number, target)| notes_on(target, number, rows)).collect()
}

fn notes_on(target: &ReadTarget, number: usize, rows: &[SizeRow]) -> Vec<String> {
    let sizes = |is_meant: &dyn Fn(&SizeRow) -> bool| {
        let meant: Vec<String> = rows.iter().filter(|row| is_meant(row)).map(|row| nicebytes(row.size)).collect();
        (!meant.is_empty()).then(|| meant.join(", "))
    };
    let has_repeated = |row: &SizeRow| row.climbs[number].as_ref().is_some_and(|climb| climb.has_repeated);
    let found = [
        sizes(&|row| row.size < target.unit())
            .map(|sizes| format!("{sizes}: less than the {} that are read at least", nicebytes(target.unit()))),
        sizes(&|row| row.size > target.size()).map(|sizes| format!("{sizes}: more than it has")),
        sizes(&has_repeated)
            .map(|sizes| format!("{sizes}: all places were read, and some again, which a cache may have answered")),
    ];
    let doubts = target.doubts().iter().map(|doubt| (*doubt).to_owned());
    doubts.chain(found.into_iter().flatten()).map(|note| format!("{}: {note}.", target.path())).collect()
}

/// Everything.
pub fn json(targets: &[ReadTarget], rows: &[SizeRow], is_interrupted: bool) -> Value {
    let tried = |number: usize| {
        let of = move |climb: &Climb| climb.tried.iter().map(|measured| measured.json("reads")).collect::<Vec<_>>();
        rows.iter().filter_map(|row| row.climbs[number].as_ref()).flat_map(of).collect::<Vec<_>>()
    };
    let best = |number: usize| {
        let of = |row: &SizeRow| {
            let best = row.climbs[number].as_ref()?.best()?;
            Some(json!({ "size": row.size, "threads": best.threads, "reads_per_s": best.rate() }))
        };
        rows.iter().filter_map(of).collect::<Vec<_>>()
    };
    let target = |(number, target): (usize, &ReadTarget)| {
        json!({
            "path": target.path(), "bytes": target.size(), "direct": target.is_direct(), "unit": target.unit(),
            "notes": notes_on(target, number, rows), "best": best(number), "results": tried(number),
        })
    };
    let mut all = json!({ "targets": targets.iter().enumerate().map(target).collect::<Vec<_>>() });
    if targets.len() == 2 {
        let of = |row: &SizeRow| {
            let [alone, best] = factors(row)?;
            Some(json!({ "size": row.size, "one_thread": alone, "best": best }))
        };
        all["factors"] = rows.iter().filter_map(of).collect();
    }
    all["is_interrupted"] = is_interrupted.into();
    all
}

/// Kilobytes a second over sizes: two lines for each target.
pub fn chart(targets: &[ReadTarget], rows: &[SizeRow]) -> Chart {
    type Pick = fn(&Climb) -> Option<&Measured>;
    let line = |number: usize, name: &str, pick: Pick| {
        let point = |row: &SizeRow| Some((row.size, pick(row.climbs[number].as_ref()?)?.bytes_rate() / 1024.0));
        let name = format!("{}, {name}", last_part(targets[number].path()));
        Curve { name, points: rows.iter().filter_map(point).collect() }
    };
    Chart {
        title: "Random reads, by device and threads".into(),
        x_label: "bytes of a read".into(),
        y_label: "KB/s".into(),
        lines: (0..targets.len()).flat_map(|n| [line(n, "1", Climb::alone), line(n, "best", Climb::best)]).collect(),
        names: CurveNames::Beside,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    fn climb(rates: &[u64], has_repeated: bool) -> Option<Climb> {
        let measured = |(n, rate): (u32, &u64)| Measured {
            size: 4096,
            threads: 1 << n,
            count: rate * 2,
            seconds: 2.0,
            percentiles_ns: [1; 3],
        };
        Some(Climb { tried: (0..).zip(rates).map(measured).collect(), has_repeated })
    }

    fn rows() -> Vec<SizeRow> {
        vec![
            SizeRow { size: 256, climbs: vec![None, None] },
            SizeRow { size: 4096, climbs: vec![climb(&[100, 250, 200], false), climb(&[8000, 16_000, 75_000], true)] },
            SizeRow { size: 8192, climbs: vec![climb(&[99], false), None] },
        ]
    }

    fn targets(dir: &std::path::Path) -> Vec<ReadTarget> {
        let names = ["disk", "ssd"].map(|name| dir.join(name));
        names.iter().for_each(|path| file(path, 1 << 20));
        names.iter().map(|path| ReadTarget::open(path).unwrap()).collect()
    }

    #[test]
    fn rows_stand_below_their_heading() {
        let (dir, rows) = (tempfile::tempdir().unwrap(), rows());
        let targets = targets(dir.path());
        let heading = heading(&targets);
        let names = heading.lines().last().unwrap();
        let line = row(&rows[1]);
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>().join(" "),
            "4K 100 400 2 250 1000 8000 32000 4 75000 300000 80.00 300"
        );
        assert_eq!(names.len(), line.trim_end().len(), "{names}\n{line}");
        assert_eq!(row(&rows[2]).split_whitespace().nth(6), Some("-"));
        assert!(heading.lines().skip(3).all(|line| line.len() == names.len()), "{heading}");
    }

    #[test]
    fn what_is_left_out_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let notes = notes(&targets(dir.path()), &rows()).join("\n");
        assert!(notes.contains("disk: 256B: less than"), "{notes}");
        assert!(notes.contains("ssd: 4K: all places were read") && !notes.contains("disk: 4K"), "{notes}");
    }

    #[test]
    fn json_and_chart_have_all() {
        let (dir, rows) = (tempfile::tempdir().unwrap(), rows());
        let targets = targets(dir.path());
        let json = json(&targets, &rows, false);
        assert_eq!(json["targets"][0]["results"].as_array().unwrap().len(), 4);
        assert_eq!(json["targets"][0]["results"][1]["reads_per_s"], 250.0);
        assert_eq!(json["targets"][1]["best"][0]["threads"], 4);
        assert_eq!(json["factors"], serde_json::json!([{ "size": 4096, "one_thread": 80.0, "best": 300.0 }]));
        let chart = chart(&targets, &rows);
        let lines: Vec<(&str, &[(u64, f64)])> = chart.lines.iter().map(|line| (&*line.name, &*line.points)).collect();
        assert_eq!(lines[0], ("disk, 1", &[(4096, 400.0), (8192, 396.0)][..]));
        assert_eq!(lines[3], ("ssd, best", &[(4096, 300_000.0)][..]));
    }
}
