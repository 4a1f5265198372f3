//! The text format of Prometheus, version 0.0.4: families of values, each with its help and type once.
//!
//! ```text
//!   # HELP cenote_pool_size_bytes Bytes of the pool's data devices.
//!   # TYPE cenote_pool_size_bytes gauge
//!   cenote_pool_size_bytes{pool="tank"} 268435456
//! ```

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

/// What the values of a family are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows, until its process ends. The name ends with `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// All families, by name.
#[derive(Default)]
pub struct MetricsPage(BTreeMap<String, Family>);

struct Family {
    kind: MetricKind,
    help: String,
    /// By labels, as they are written.
    values: BTreeMap<String, String>,
}

impl MetricsPage {
    /// Adds a value. The first of a family gives it type and help; of two with the same labels the first counts.
    pub fn add(&mut self, name: &str, kind: MetricKind, help: &str, labels: &[(&str, &str)], value: impl Display) {
        let suffix = if kind == MetricKind::Counter { "_total" } else { "" };
        let family = self.0.entry(format!("cenote_{}{suffix}", checked(name))).or_insert_with(|| Family {
            kind,
            help: escaped(help),
            values: BTreeMap::new(),
        });
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{}=\"{}\"", checked(name), escaped(value))).collect();
        family.values.entry(labels.join(",")).or_insert_with(|| value.to_string());
    }

    /// As it is sent.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, family) in &self.0 {
            let kind = if family.kind == MetricKind::Counter { "counter" } else { "gauge" };
            let mut line = |line: std::fmt::Arguments| text.write_fmt(line).expect("writing to a string does not fail");
            line(format_args!("# HELP {name} {}\n# TYPE {name} {kind}\n", family.help));
            for (labels, value) in &family.values {
                match labels.is_empty() {
                    true => line(format_args!("{name} {value}\n")),
                    false => line(format_args!("{name}{{{labels}}} {value}\n")),
                }
            }
        }
        text
    }
}

/// A name of letters, digits and `_`.
fn checked(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// A text between quotes; in a help, quotes need not be escaped, but may not be there here.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_written_together() {
        let mut page = MetricsPage::default();
        page.add("b", MetricKind::Gauge, "Second.", &[("pool", "a\\\"\n"), ("vdev", "é")], 0.25);
        page.add("a-x", MetricKind::Counter, "First.", &[("pool", "two")], 1u64);
        page.add("b", MetricKind::Gauge, "ignored", &[], 7);
        page.add("a-x", MetricKind::Counter, "ignored", &[("pool", "one")], u64::MAX);
        page.add("a-x", MetricKind::Counter, "ignored", &[("pool", "one")], 5);
        let expect = "# HELP cenote_a_x_total First.\n# TYPE cenote_a_x_total counter\n\
                      cenote_a_x_total{pool=\"one\"} 18446744073709551615\ncenote_a_x_total{pool=\"two\"} 1\n\
                      # HELP cenote_b Second.\n# TYPE cenote_b gauge\n\
                      cenote_b 7\ncenote_b{pool=\"a\\\\\\\"\\n\",vdev=\"é\"} 0.25\n";
        assert_eq!(page.text(), expect);
    }
}
