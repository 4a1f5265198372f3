//! What `zinject` tells.

use pool::inject::{InjectedEffect, InjectedRequests, Injection, InjectionTarget};
use protocol::injections::InjectionReport;

pub(super) const USAGE: &str = "\
usage:
\tzinject
\t\tlist all handlers
\tzinject -c id|all
\t\tend one, or all
\tzinject -a [pool ...]
\t\tkeep nothing in memory that is on disk
\tzinject -d device [-e io|nxio|noop|corrupt] [-L nvlist|uber|pad1|pad2]
\t    [-T read|write|flush|free|probe|all] [-f percent] [-aq] pool
\tzinject -d device -D milliseconds:lanes [-T ...] [-f percent] [-aq] pool
\tzinject -d device -A degrade|fault pool
\tzinject -t data|dnode [-e io|checksum|corrupt] [-C copies] [-l level]
\t    [-r start[,end]] [-f percent] [-amq] path
\tzinject -b objset:object:level:start[:end] [-e ...] [-f percent] [-amq] pool
\t\tnumbers are hexadecimal
";

fn effect_name(effect: InjectedEffect) -> &'static str {
    match effect {
        InjectedEffect::Io => "io",
        InjectedEffect::Gone => "nxio",
        InjectedEffect::Ignored => "noop",
        InjectedEffect::WrongBit => "corrupt",
        InjectedEffect::Checksum => "checksum",
        InjectedEffect::Slow { .. } => "delay",
    }
}

fn requests_name(requests: InjectedRequests) -> &'static str {
    match requests {
        InjectedRequests::Reads => "read",
        InjectedRequests::Writes => "write",
        InjectedRequests::Flushes => "flush",
        InjectedRequests::Discards => "free",
        InjectedRequests::Probes => "probe",
        InjectedRequests::All => "all",
    }
}

fn percent(per_million: u32) -> String {
    format!("{:.4}%", f64::from(per_million) / 10_000.0)
}

fn range_text((start, end): (u64, u64)) -> String {
    if (start, end) == (0, u64::MAX) { "all".to_owned() } else { format!("[{start}, {end}]") }
}

/// Numbers of copies, from a bit each.
fn copies_text(copies: u8) -> String {
    let numbers: Vec<String> =
        (0..3).filter(|number| copies >> number & 1 != 0).map(|number| number.to_string()).collect();
    if copies == u8::MAX { "all".to_owned() } else { numbers.join(",") }
}

/// All faults, a table for each kind.
pub(super) fn list(active: &[(String, InjectionReport)]) -> String {
    if active.is_empty() {
        return "No handlers registered.\nRun 'zinject -h' for usage information.\n".to_owned();
    }
    type IsOfKind = fn(&Injection) -> bool;
    let tables: [(&str, IsOfKind); 3] = [
        (
            " ID  POOL             GUID              TYPE   ERROR     FREQ       MATCH      INJECT   \n\
             ---  ---------------  ----------------  -----  --------  ---------  ---------  ---------\n",
            |of| matches!(of.target, InjectionTarget::Leaf { .. }) && !matches!(of.effect, InjectedEffect::Slow { .. }),
        ),
        (
            " ID  POOL             DELAY (ms)       LANES            GUID              FREQ       MATCH      INJECT   \n\
             ---  ---------------  ---------------  ---------------  ----------------  ---------  ---------  ---------\n",
            |of| matches!(of.effect, InjectedEffect::Slow { .. }),
        ),
        (
            " ID  POOL             OBJSET  OBJECT  TYPE      LVL  COPIES  RANGE            MATCH      INJECT   \n\
             ---  ---------------  ------  ------  --------  ---  ------  ---------------  ---------  ---------\n",
            |of| matches!(of.target, InjectionTarget::Blocks { .. }),
        ),
    ];
    let mut text = String::new();
    for (head, is_of_kind) in tables {
        let rows: String = active
            .iter()
            .filter(|(_, report)| is_of_kind(&report.injection))
            .map(|(pool, report)| row(pool, report))
            .collect();
        if !rows.is_empty() {
            text += &format!("{head}{rows}\n");
        }
    }
    text
}

fn row(pool: &str, report: &InjectionReport) -> String {
    let InjectionReport { number, injection, counts: [matched, injected] } = report;
    let (effect, requests) = (effect_name(injection.effect), requests_name(injection.requests));
    let freq = percent(injection.per_million);
    let about = match (&injection.target, injection.effect) {
        (InjectionTarget::Leaf { guid, .. }, InjectedEffect::Slow { ms, lanes }) => {
            format!("{ms:<15}  {lanes:<15}  {guid:<16x}  {freq:<9}")
        }
        (InjectionTarget::Leaf { guid, .. }, _) => format!("{guid:<16x}  {requests:<5}  {effect:<8}  {freq:<9}"),
        (InjectionTarget::Blocks { objset, object, level, blocks, copies }, _) => {
            let range = range_text(*blocks);
            let copies = copies_text(*copies);
            format!("{:<6}  {object:<6}  {effect:<8}  {level:>3}  {copies:<6}  {range:<15}", objset.get())
        }
    };
    format!("{number:>3}  {pool:<15}  {about}  {matched:>9}  {injected:>9}\n")
}

/// What is told of a new one.
pub(super) fn added(pool: &str, report: &InjectionReport) -> String {
    let mut text = format!("Added handler {} with the following properties:\n  pool: {pool}\n", report.number);
    match &report.injection.target {
        InjectionTarget::Leaf { guid, .. } => text += &format!("  vdev: {guid:x}\n"),
        InjectionTarget::Blocks { objset, object, level, blocks, .. } => {
            let range = range_text(*blocks);
            text += &format!("objset: {objset}\nobject: {object}\n level: {level}\n range: {range}\n");
        }
    }
    text
}
