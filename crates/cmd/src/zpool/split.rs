//! `zpool split`: one device of each mirror becomes a pool of its own.

use std::ffi::OsString;
use std::path::PathBuf;

use daemon::import::ImportOptions;
use format::ids::Guid;
use protocol::pool_names;
use protocol::pool_report::{PoolReport, VdevReport};
use protocol::startup;
use protocol::wire::Request;

use super::command::{CommandResult, Stop, history_line};
use super::import::ImportArgs;
use super::leaves::{connect, find, report_of};
use super::names::NameStyle;
use super::pools;
use crate::getopt::{self, Opt};

/// What a command line asks for.
#[derive(Default)]
struct SplitOptions {
    style: NameStyle,
    dry_run: bool,
    altroot: Option<String>,
    mount_options: Option<String>,
    properties: Vec<(String, String)>,
}

/// Runs the command.
pub fn run(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "gLR:lno:P", &[]);
    let mut asked = SplitOptions::default();
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('g') => asked.style.guids = true,
            Opt::Flag('L') => asked.style.real_paths = true,
            Opt::Flag('P') => asked.style.whole_paths = true,
            Opt::Flag('n') => asked.dry_run = true,
            Opt::Flag('l') => return Err(Stop::Failed("cannot load keys: this version of Cenote has none".into())),
            Opt::Value('R', root) => asked.altroot = Some((*root).to_owned()),
            Opt::Value('o', text) => match text.split_once('=') {
                Some((name, value)) => asked.properties.push((name.to_owned(), value.to_owned())),
                None => asked.mount_options = Some((*text).to_owned()),
            },
            other => return Err(Stop::bad_option(other)),
        }
    }
    if asked.altroot.is_none() && asked.mount_options.is_some() {
        return Err(Stop::usage("setting mntopts is only valid when importing the pool"));
    }
    let (name, new, devices) = match &parsed.operands[..] {
        [] => return Err(Stop::usage("Missing pool name")),
        [_] => return Err(Stop::usage("Missing new pool name")),
        [name, new, devices @ ..] => (name, new, devices),
    };
    let Some(report) = report_of(name)? else { return Ok(false) };
    let failed = |why: &str| Stop::Failed(format!("Unable to split {name}: {why}"));
    pool_names::check_new(new).map_err(|why| failed(&why.to_string()))?;
    if pools::imported()?.iter().any(|hello| hello.pool == *new) {
        return Err(failed("pool already exists"));
    }
    let chosen = choose(&report, devices).map_err(|why| failed(&why))?;
    // before anything is split
    let options = import_options(new, &chosen, &asked);
    let mut checked = options.clone();
    checked.props.extend(asked.properties.iter().filter(|(name, _)| name == "altroot").cloned());
    checked.check_properties().map_err(|why| failed(&why))?;
    if asked.dry_run {
        print!("{}", layout(&report, new, &chosen, asked.style));
        return Ok(true);
    }
    let is_stored = |(name, _): &&(String, String)| !["altroot", "cachefile"].contains(&name.as_str());
    let request = Request::Split {
        name: new.clone(),
        vdevs: chosen.iter().map(|leaf| leaf.guid).collect(),
        properties: asked.properties.iter().filter(is_stored).cloned().collect(),
        history: history_line("split", args),
    };
    connect(name)?.ask(&request).map_err(|e| failed(e.what()))?;
    if asked.altroot.is_none() {
        return Ok(true);
    }
    let args = ImportArgs { options, ..ImportArgs::default() };
    startup::start(&args.to_command_line()).map_err(|e| Stop::Failed(format!("cannot import '{new}': {e}")))
}

/// How the new pool is imported, if it is.
fn import_options(new: &str, chosen: &[&VdevReport], asked: &SplitOptions) -> ImportOptions {
    let is_for_import = |(name, _): &&(String, String)| name == "cachefile";
    let mut props: Vec<(String, String)> = asked.properties.iter().filter(is_for_import).cloned().collect();
    props.extend(asked.altroot.iter().map(|root| ("altroot".to_owned(), root.clone())));
    ImportOptions {
        search: chosen.iter().filter_map(|leaf| leaf.path.as_ref()).map(PathBuf::from).collect(),
        mount_options: asked.mount_options.clone(),
        props,
        pool: Some(new.to_owned()),
        ..ImportOptions::default()
    }
}

/// The devices of the new pool: of each mirror the one that is named, or the last.
fn choose<'a>(report: &'a PoolReport, devices: &[String]) -> Result<Vec<&'a VdevReport>, String> {
    let named: Vec<Guid> = devices.iter().map(|device| find(report, device)).collect::<Result<_, _>>()?;
    let mut chosen = Vec::new();
    for top in report.root.children.iter().filter(|top| !top.is_log && !top.is_hole() && !top.is_indirect()) {
        if top.kind != "mirror" {
            return Err("Source pool must be composed only of mirrors\n".to_owned());
        }
        let wanted = top.children.iter().find(|leaf| named.contains(&leaf.guid));
        chosen.extend(wanted.or(top.children.last()));
    }
    if named.iter().any(|guid| !chosen.iter().any(|leaf| leaf.guid == *guid)) {
        return Err("Device list must include at most one disk from each mirror".to_owned());
    }
    Ok(chosen)
}

/// What `-n` prints.
fn layout(report: &PoolReport, new: &str, chosen: &[&VdevReport], style: NameStyle) -> String {
    let mut text = format!("would create '{new}' with the following layout:\n\n");
    for (class, title) in [(None, new), (Some("dedup"), "dedup"), (Some("special"), "special")] {
        let is_in = |leaf: &&&VdevReport| {
            let top = report.root.children.iter().find(|top| top.children.iter().any(|side| side.guid == leaf.guid));
            top.and_then(|top| top.bias.as_deref()) == class
        };
        let leaves: Vec<&&VdevReport> = chosen.iter().filter(is_in).collect();
        if class.is_none() || !leaves.is_empty() {
            text += &format!("\t{title}\n");
        }
        leaves.iter().for_each(|leaf| text += &format!("\t  {}\n", style.name(leaf, &report.name)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_each_mirror() {
        let leaf = |guid: Guid| VdevReport {
            kind: "file".into(),
            guid,
            path: Some(format!("/disk{guid}")),
            ..VdevReport::default()
        };
        let mirror = |children| VdevReport { kind: "mirror".into(), children, ..VdevReport::default() };
        let special =
            VdevReport { bias: Some("special".into()), ..mirror(vec![leaf(Guid::new(5)), leaf(Guid::new(6))]) };
        let log = VdevReport { is_log: true, ..leaf(Guid::new(9)) };
        let tops = vec![
            mirror(vec![leaf(Guid::new(1)), leaf(Guid::new(2))]),
            mirror(vec![leaf(Guid::new(3)), leaf(Guid::new(4))]),
            special,
            log,
        ];
        let root = VdevReport { kind: "root".into(), children: tops, ..VdevReport::default() };
        let mut report = PoolReport { name: "tank".into(), root, ..PoolReport::default() };
        let guids = |report: &PoolReport, words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            choose(report, &words).map(|chosen| chosen.iter().map(|leaf| leaf.guid).collect::<Vec<_>>())
        };
        assert_eq!(guids(&report, &[]), Ok([2, 4, 6].map(Guid::new).to_vec()));
        assert_eq!(guids(&report, &["/disk3", "/disk5"]), Ok([2, 3, 5].map(Guid::new).to_vec()));
        let both = guids(&report, &["/disk1", "/disk2"]);
        assert_eq!(both, Err("Device list must include at most one disk from each mirror".to_owned()));
        let text = layout(
            &report,
            "new",
            &choose(&report, &[]).unwrap(),
            NameStyle { whole_paths: true, ..NameStyle::default() },
        );
        let expect =
            "would create 'new' with the following layout:\n\n\tnew\n\t  /disk2\n\t  /disk4\n\tspecial\n\t  /disk6\n";
        assert_eq!(text, expect);
        report.root.children.push(leaf(Guid::new(11)));
        assert_eq!(guids(&report, &[]), Err("Source pool must be composed only of mirrors\n".to_owned()));
    }
}
