//! `zpool upgrade`: which pools lack features that Cenote gives, and giving them.

use std::ffi::OsString;

use daemon::compat::{self, Allowed};
use protocol::pool_properties::VERSION;
use protocol::pool_report::PoolReport;
use protocol::wire::Request;

use super::command::{CommandResult, Stop, history_line};
use super::pools::{self, OpenPool};
use crate::getopt::{self, Opt};

const HEAD: &str = "This system supports ZFS pool feature flags.\n\n";

/// Runs the command.
pub fn run(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "avV:", &[]);
    let (mut all, mut versions, mut version) = (false, false, None);
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('a') => all = true,
            Opt::Flag('v') => versions = true,
            Opt::Value('V', text) => version = Some(known_version(text)?),
            other => return Err(Stop::bad_option(other)),
        }
    }
    let names = &parsed.operands;
    if version.is_some() && !all && names.is_empty() {
        return Err(Stop::usage("-V option is incompatible with other arguments"));
    }
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
    let mut pools = pools::ask_each(names, &mut failed, |mut pool| {
        let report = pool.report()?;
        Ok((pool, report))
    })?;
    if !all && names.is_empty() {
        let reports: Vec<PoolReport> = pools.into_iter().map(|(_, report)| report).collect();
        print!("{}{}", older(&reports, !failed), lacking(&reports, !failed));
        return Ok(!failed);
    }
    let version = version.unwrap_or(VERSION);
    let mut is_unchanged = true;
    for (pool, report) in &mut pools {
        match upgrade(pool, report, version, &history_line("upgrade", args)) {
            Ok(Upgraded::Yes(text)) => {
                print!("{text}");
                is_unchanged = false;
            }
            Ok(Upgraded::No(text)) if !all => print!("{text}"),
            Ok(Upgraded::No(_)) => {}
            Err(why) => {
                eprintln!("{why}");
                failed = true;
            }
        }
    }
    if all && is_unchanged && !failed {
        print!("{}", nothing_to_do(version));
    }
    Ok(!failed)
}

fn known_version(text: &str) -> Result<u64, Stop> {
    let version = text.parse().ok().filter(|version| (1..=28).contains(version) || *version == VERSION);
    version.ok_or_else(|| Stop::usage(format!("invalid version '{text}'")))
}

/// What has become of a pool, in lines for the user.
#[derive(Debug, PartialEq, Eq)]
enum Upgraded {
    Yes(String),
    No(String),
}

/// Brings a pool to a version, and gives it all features. Errors: why not, for the user.
fn upgrade(pool: &mut OpenPool, report: &PoolReport, version: u64, history: &str) -> Result<Upgraded, String> {
    let name = &report.name;
    if report.version > version {
        let line = format!("Pool '{name}' is already formatted using more current version '{}'.\n\n", report.version);
        return Ok(Upgraded::No(line));
    }
    let mut done = String::new();
    if report.version < VERSION {
        match older_version(report, version)? {
            Upgraded::Yes(text) => done = text,
            no => return Ok(no),
        }
        let set = Request::Set { name: "version".into(), value: version.to_string(), history: history.to_owned() };
        pool.ask(&set).map_err(|stop| refused(name, stop))?;
        if version < VERSION {
            return Ok(Upgraded::Yes(done + "\n"));
        }
    }
    let allowed = Allowed::load(report.compatibility.as_deref().unwrap_or_default());
    allowed.map_err(|why| format!("Error: {why}"))?;
    let features: Vec<String> = missing(report).into_iter().map(str::to_owned).collect();
    if features.is_empty() && !done.is_empty() {
        return Ok(Upgraded::Yes(done + "\n"));
    }
    if features.is_empty() {
        let line = format!("Pool '{name}' already has all supported and requested features enabled.\n");
        return Ok(Upgraded::No(line));
    }
    if !report.is_writable {
        return Err(format!("cannot set property for '{name}': pool is read-only"));
    }
    let mut text = format!("{done}Enabled the following features on '{name}':\n");
    features.iter().for_each(|feature| text += &format!("  {feature}\n"));
    match pool.ask(&Request::Enable { features, history: history.to_owned() }) {
        Ok(_) => Ok(Upgraded::Yes(text + "\n")),
        Err(stop) => Err(refused(name, stop)),
    }
}

fn refused(name: &str, stop: Stop) -> String {
    let (Stop::Failed(why) | Stop::Usage(why)) = stop;
    let why = why.split_once(": ").map_or(why.as_str(), |(_, why)| why);
    format!("cannot set property for '{name}': {why}")
}

/// What becomes of a pool without feature flags.
fn older_version(report: &PoolReport, version: u64) -> Result<Upgraded, String> {
    let name = &report.name;
    if report.version == version {
        return Ok(Upgraded::No(format!("Pool '{name}' is already formatted using version {version}.\n\n")));
    }
    if report.compatibility.as_deref() == Some("legacy") {
        return Err("Upgrade not performed because 'compatibility' property set to 'legacy'.".to_owned());
    }
    if !report.is_writable {
        return Err(format!("cannot upgrade '{name}': pool is read-only"));
    }
    let to = if version < VERSION { format!("version {version}") } else { "feature flags".to_owned() };
    Ok(Upgraded::Yes(format!("Successfully upgraded '{name}' from version {} to {to}.\n", report.version)))
}

fn nothing_to_do(version: u64) -> String {
    match version {
        VERSION => "All pools are already formatted using feature flags.\n\n\
                    Every feature flags pool already has all supported and requested features enabled.\n"
            .to_owned(),
        _ => format!("All pools are already formatted with version {version} or higher.\n"),
    }
}

/// The features that can be written.
fn features() -> String {
    let mut text = "The following features are supported:\n\nFEAT DESCRIPTION\n".to_owned();
    text += &format!("{}\n", "-".repeat(61));
    for feature in compat::given() {
        let note = if feature.readonly_compatible { " (read-only compatible)" } else { "" };
        text += &format!("{:<37}{note}\n", feature.name);
    }
    text += "\nThe following legacy versions are also supported:\n\nVER  DESCRIPTION\n";
    text += &format!("---  {}\n", "-".repeat(56));
    for (number, what) in (1..).zip(LEGACY) {
        text += &format!("{number:2}   {what}\n");
    }
    text + "\n"
}

/// What came with each version before there were features.
const LEGACY: [&str; 28] = [
    "The first version",
    "Copies of metadata (ditto blocks)",
    "Hot spares, and raidz2",
    "zpool history",
    "Compression by gzip",
    "Property bootfs",
    "Devices for the intent log",
    "Rights of users on datasets",
    "refquota and refreservation",
    "Cache devices",
    "Faster scrubs",
    "Properties of snapshots",
    "Property snapused",
    "aclinherit=passthrough-x",
    "Space accounting for users and groups",
    "Property stmf of volumes",
    "raidz3",
    "Holds of snapshots",
    "Removal of devices for the log",
    "Compression by zle",
    "Dedup",
    "Received properties",
    "Small symbolic links in the attributes",
    "System attributes",
    "Statistics of scrubs",
    "Faster destroys of snapshots",
    "Faster creation of snapshots",
    "Several changes of the vdev tree at once",
];

/// The pools of an older version; `are_all`: no others are there.
fn older(reports: &[PoolReport], are_all: bool) -> String {
    let old: Vec<&PoolReport> = reports.iter().filter(|report| report.version < VERSION).collect();
    if old.is_empty() {
        let all = "All pools are formatted using feature flags.\n\n";
        return if are_all { all.to_owned() } else { String::new() };
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

/// The features that pools could have, and do not; `are_all`: no others are there.
fn lacking(reports: &[PoolReport], are_all: bool) -> String {
    let mut rows = String::new();
    for report in reports.iter().filter(|report| report.version >= VERSION) {
        let missing = missing(report);
        if !missing.is_empty() {
            rows += &format!("{}\n", report.name);
            missing.iter().for_each(|name| rows += &format!("      {name}\n"));
        }
    }
    if rows.is_empty() {
        let all = "Every feature flags pool has all supported and requested features enabled.\n";
        return if are_all { all.to_owned() } else { String::new() };
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
        assert!(older(std::slice::from_ref(&full), true).starts_with("All pools are formatted"));
        assert!(older(std::slice::from_ref(&old), true).contains("---  ------------\n28   old\n"));
        assert!(lacking(&[full.clone(), old], true).starts_with("Every feature flags pool has all"));
        assert!(
            lacking(&[full, some.clone()], false).ends_with("POOL  FEATURE\n---------------\nsome\n      skein\n\n")
        );
        assert_eq!(known_version("28"), Ok(28));
        assert_eq!(known_version("29"), Err(Stop::usage("invalid version '29'")));
        let old = PoolReport { name: "old".into(), version: 28, ..PoolReport::default() };
        let same = "Pool 'old' is already formatted using version 28.\n\n".to_owned();
        assert_eq!(older_version(&old, 28), Ok(Upgraded::No(same)));
        assert_eq!(older_version(&old, VERSION), Err("cannot upgrade 'old': pool is read-only".into()));
        some.compatibility = Some("legacy".into());
        assert!(missing(&some).is_empty());
        assert!(features().contains("\nlz4_compress                         \n"));
    }
}
