//! `zpool upgrade`: which pools lack features that Cenote can write, and what there is.

use std::ffi::OsString;

use super::compat::{self, Allowed};
use super::props::VERSION;
use super::report::PoolReport;
use super::{Done, Stop, pools};
use crate::getopt::{self, Opt};

const HEAD: &str = "This system supports ZFS pool feature flags.\n\n";

/// Runs the command.
pub fn run(args: &[OsString]) -> Done {
    let parsed = getopt::parse(args, "avV:", &[]);
    let (mut all, mut versions) = (false, false);
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('a') => all = true,
            Opt::Flag('v') => versions = true,
            Opt::Value('V', version) => return Err(Stop::usage(format!("invalid version '{version}'"))),
            other => return Err(Stop::bad_option(other)),
        }
    }
    let names = &parsed.operands;
    if versions && (all || !names.is_empty()) {
        return Err(Stop::usage("-v option is incompatible with other arguments"));
    }
    if all && !names.is_empty() {
        return Err(Stop::usage("-a option should not be used along with a pool name"));
    }
    print!("{HEAD}");
    if versions {
        print!("{}", features());
        return Ok(true);
    }
    let mut failed = false;
    let mut reports = Vec::new();
    for mut pool in pools::open(names, &mut failed)? {
        reports.push(pool.report()?);
    }
    if !all && names.is_empty() {
        print!("{}{}", older(&reports), lacking(&reports));
        return Ok(!failed);
    }
    for report in &reports {
        let name = &report.name;
        if report.version < VERSION || !missing(report).is_empty() {
            eprintln!("cannot upgrade '{name}': this version of Cenote cannot add features to a pool");
            failed = true;
        } else if !all {
            println!("Pool '{name}' already has all supported and requested features enabled.");
        }
    }
    if all && !failed {
        println!(
            "All pools are already formatted using feature flags.\n\n\
             Every feature flags pool already has all supported and requested features enabled."
        );
    }
    Ok(!failed)
}

/// The features that can be written.
fn features() -> String {
    let mut text = "The following features are supported:\n\nFEAT DESCRIPTION\n".to_owned();
    text += &format!("{}\n", "-".repeat(61));
    for feature in compat::given() {
        let note = if feature.readonly_compatible { " (read-only compatible)" } else { "" };
        text += &format!("{:<37}{note}\n", feature.name);
    }
    text + "\n"
}

fn older(reports: &[PoolReport]) -> String {
    let old: Vec<&PoolReport> = reports.iter().filter(|report| report.version < VERSION).collect();
    if old.is_empty() {
        return "All pools are formatted using feature flags.\n\n".to_owned();
    }
    let rows = old.iter().map(|report| format!("{:2}   {}\n", report.version, report.name));
    format!(
        "The following pools are formatted with legacy version numbers and can\n\
         be upgraded to use feature flags.  After being upgraded, these pools\n\
         will no longer be accessible by software that does not support feature\nflags.\n\n\
         Note that setting a pool's 'compatibility' feature to 'legacy' will\ninhibit upgrades.\n\n\
         VER  POOL\n---  ------------\n{}\nUse 'zpool upgrade -v' for a list of available legacy versions.\n",
        rows.collect::<String>()
    )
}

/// The features that a pool could have, and does not.
fn missing(report: &PoolReport) -> Vec<&'static str> {
    let allowed = Allowed::load(report.compatibility.as_deref().unwrap_or_default()).unwrap_or_default();
    let lacks = |guid: &str| !report.features.iter().any(|(listed, _)| listed == guid);
    let wanted = compat::given().filter(|feature| allowed.has(feature.name) && lacks(feature.guid));
    wanted.map(|feature| feature.name).collect()
}

fn lacking(reports: &[PoolReport]) -> String {
    let mut rows = String::new();
    for report in reports.iter().filter(|report| report.version >= VERSION) {
        let missing = missing(report);
        if !missing.is_empty() {
            rows += &format!("{}\n", report.name);
            missing.iter().for_each(|name| rows += &format!("      {name}\n"));
        }
    }
    if rows.is_empty() {
        return "Every feature flags pool has all supported and requested features enabled.\n".to_owned();
    }
    format!(
        "\nSome supported features are not enabled on the following pools. Once a\n\
         feature is enabled the pool may become incompatible with software\n\
         that does not support the feature. See zpool-features(7) for details.\n\n\
         Note that the pool 'compatibility' feature can be used to inhibit\nfeature upgrades.\n\n\
         POOL  FEATURE\n---------------\n{rows}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing() {
        let full = compat::given().map(|feature| (feature.guid.to_owned(), false)).collect();
        let full = PoolReport { name: "full".into(), version: VERSION, features: full, ..PoolReport::default() };
        let mut some = PoolReport { name: "some".into(), ..full.clone() };
        some.features.retain(|(guid, _)| !guid.ends_with("skein"));
        let old = PoolReport { name: "old".into(), version: 28, ..PoolReport::default() };
        assert!(older(std::slice::from_ref(&full)).starts_with("All pools are formatted"));
        assert!(older(std::slice::from_ref(&old)).contains("---  ------------\n28   old\n"));
        assert!(lacking(&[full.clone(), old]).starts_with("Every feature flags pool has all"));
        assert!(lacking(&[full, some.clone()]).ends_with("POOL  FEATURE\n---------------\nsome\n      skein\n\n"));
        some.compatibility = Some("legacy".into());
        assert!(missing(&some).is_empty());
        assert!(features().contains("\nlz4_compress                         \n"));
    }
}
