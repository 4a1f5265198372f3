//! Properties of vdevs: `zpool get PROPERTY POOL VDEV` and `zpool set PROPERTY=VALUE POOL VDEV`.

use std::ffi::OsString;

use protocol::pool_properties::is_user_name;
use protocol::pool_report::{PoolReport, VdevReport};
use protocol::vdev_properties::{self, VDEV_PROPERTIES, VdevProperty};
use protocol::wire::Request;

use super::command::{CommandResult, Stop, history_line};
use super::get_rows::{GetOptions, lines};
use super::leaves::{connect, find_any, report_of};
use super::names::NameStyle;

/// Stands for all vdevs of a pool.
const ALL_VDEVS: &str = "all-vdevs";

/// Shows properties of vdevs of a pool.
pub(super) fn run(pool: &str, words: &[String], list: &str, options: &GetOptions) -> CommandResult {
    if options.json {
        return Err(Stop::Failed("this version of Cenote has no JSON of properties of vdevs".to_owned()));
    }
    let Some(report) = report_of(pool)? else { return Ok(false) };
    let mut vdevs: Vec<&VdevReport> = Vec::new();
    for word in words {
        match find_any(&report, word) {
            _ if word == ALL_VDEVS => {
                vdevs.extend(report.root.all().into_iter().skip(1).filter(|vdev| !vdev.is_hole()))
            }
            Some(vdev) => vdevs.push(vdev),
            None => return Err(Stop::usage(format!("Expected a list of vdevs in \"{pool}\", but got:\n\t{word}\n"))),
        }
    }
    let style = NameStyle::from_env();
    let name = |vdev: &VdevReport| style.name(vdev, pool);
    let mut rows = Vec::new();
    for vdev in vdevs {
        for property in properties(list, vdev)? {
            let (value, source) = match VdevProperty::find(&property) {
                Some(known) => known.text(vdev, &report, &name, options.literal),
                None => vdev_properties::stored(vdev, &property),
            };
            rows.push([name(vdev), property, value, source.word().to_owned()]);
        }
    }
    print!("{}", lines(&rows, 0, options));
    Ok(true)
}

/// The names in a list; `all` are those of the table, and those that users made up for the vdev.
fn properties(list: &str, vdev: &VdevReport) -> Result<Vec<String>, Stop> {
    if list == "all" {
        let user = vdev.stored.iter().map(|(name, _)| name.clone()).filter(|name| is_user_name(name));
        return Ok(VDEV_PROPERTIES.iter().map(|property| property.name.to_owned()).chain(user).collect());
    }
    let known = |name: &str| match VdevProperty::find(name).is_some() || is_user_name(name) {
        true => Ok(name.to_owned()),
        false => Err(Stop::usage(format!("bad property list: invalid property '{name}'"))),
    };
    list.split(',').map(known).collect()
}

/// Sets a property of a vdev.
pub(super) fn set(pool: &str, word: &str, (property, text): (&str, &str), args: &[OsString]) -> CommandResult {
    let Some(report) = report_of(pool)? else { return Ok(false) };
    let failed = |why: &str| Stop::Failed(format!("cannot set property for '{pool}': {why}"));
    let vdev = vdev_called(&report, word).ok_or_else(|| failed("no such device in pool"))?;
    let value = vdev_properties::to_store(property, text).map_err(|why| failed(&why))?;
    let history = history_line("set", args);
    let request = Request::SetVdev { vdev: vdev.guid, name: property.to_owned(), value, history };
    connect(pool)?.ask(&request).map(|_| true).map_err(|e| failed(e.what()))
}

fn vdev_called<'a>(report: &'a PoolReport, word: &str) -> Option<&'a VdevReport> {
    let is_aux = |vdev: &&VdevReport| report.spares.iter().chain(&report.caches).any(|aux| aux.guid == vdev.guid);
    find_any(report, word).filter(|vdev| !is_aux(vdev))
}
