//! `zpool list`.

use std::ffi::OsString;

use protocol::pool_properties::{self, PoolPropertySource, Property};
use protocol::pool_report::*;
use protocol::words::nicenum::nicenum;
use protocol::words::one_line;
use serde_json::{Map, Value};

use super::command::{CommandResult, Stop};
use super::json;
use super::names::NameStyle;
use super::pools::{self, Repeat, Timestamp};
use crate::getopt::{self, Long, Opt};

const DEFAULT_COLUMNS: &str =
    "name,size,allocated,free,checkpoint,expandsize,fragmentation,capacity,dedupratio,health,altroot";

/// What is to be shown.
#[derive(Default)]
struct PoolListOptions {
    style: NameStyle,
    scripted: bool,
    literal: bool,
    verbose: bool,
    json: bool,
    json_int: bool,
    json_guid_keys: bool,
}

/// A column: a property of the table, a feature, or one that a user made up.
#[derive(Clone)]
pub enum PoolColumn {
    /// Of the table.
    Known(&'static Property),
    /// Its whole name.
    Other(String),
}

impl PoolColumn {
    /// The columns that a list names. Errors: the usage error of an unknown one.
    pub fn parse_list(list: &str) -> Result<Vec<PoolColumn>, Stop> {
        if list.is_empty() {
            return Err(Stop::usage("bad property list: no properties specified"));
        }
        list.split(',').map(PoolColumn::parse).collect()
    }

    fn parse(name: &str) -> Result<PoolColumn, Stop> {
        if let Some(property) = Property::find(name) {
            return Ok(PoolColumn::Known(property));
        }
        let is_other =
            pool_properties::is_user_name(name) || name.starts_with("feature@") || name.starts_with("unsupported@");
        match is_other {
            true => Ok(PoolColumn::Other(name.to_owned())),
            false => Err(Stop::usage(format!("bad property list: invalid property '{name}'"))),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            PoolColumn::Known(property) => property.name,
            PoolColumn::Other(name) => name,
        }
    }

    /// All properties but the name: those of the table, those that users made up, features, and
    /// features that are not known. Each once, whichever pool has it.
    pub fn all(pools: &[PoolReport]) -> Vec<PoolColumn> {
        let is_shown = |property: &&Property| !property.values.is_empty();
        let known = pool_properties::PROPERTIES.iter().filter(is_shown).map(PoolColumn::Known);
        let stored = pools.iter().flat_map(|pool| &pool.stored).map(|(name, _)| name.clone());
        let user = stored.filter(|name| pool_properties::is_user_name(name));
        let features = format::feature::FEATURES.iter().map(|feature| format!("feature@{}", feature.name));
        let unknown =
            pools.iter().flat_map(pool_properties::unknown_features).map(|guid| format!("unsupported@{guid}"));
        let mut others: Vec<String> = Vec::new();
        for name in user.chain(features).chain(unknown) {
            if !others.contains(&name) {
                others.push(name);
            }
        }
        known.chain(others.into_iter().map(PoolColumn::Other)).collect()
    }

    fn heading(&self) -> String {
        match self {
            PoolColumn::Known(property) => property.column.to_owned(),
            PoolColumn::Other(name) => name.to_ascii_uppercase(),
        }
    }

    fn is_right_aligned(&self) -> bool {
        matches!(self, PoolColumn::Known(property) if property.is_right_aligned())
    }

    /// The value for a pool; `None` if it has no such property.
    pub fn text(&self, pool: &PoolReport, literal: bool) -> Option<(String, PoolPropertySource)> {
        let local = |text: &str| (text.to_owned(), PoolPropertySource::Local);
        match self {
            PoolColumn::Known(property) => Some(property.text(pool, literal)),
            PoolColumn::Other(name) => {
                if let Some(feature) = name.strip_prefix("feature@") {
                    pool_properties::feature_text(pool, feature).map(local)
                } else if let Some(guid) = name.strip_prefix("unsupported@") {
                    pool_properties::unsupported_text(pool, guid).map(local)
                } else {
                    Some(
                        pool_properties::user_text(pool, name)
                            .map_or(("-".to_owned(), PoolPropertySource::Default), local),
                    )
                }
            }
        }
    }

    /// Width of the column with the values of all pools in it.
    pub fn width<'a>(&self, pools: impl IntoIterator<Item = &'a PoolReport>, literal: bool) -> usize {
        let widest = |text: Option<(String, PoolPropertySource)>| text.map_or(0, |(text, _)| text.len());
        let pools = pools.into_iter();
        match self {
            PoolColumn::Known(p) if p.is_flexible() || literal => {
                pools.map(|pool| widest(self.text(pool, literal))).fold(p.width(), usize::max)
            }
            PoolColumn::Known(property) => property.width(),
            PoolColumn::Other(name) if pool_properties::is_user_name(name) => {
                pools.map(|pool| widest(self.text(pool, literal))).fold(name.len(), usize::max)
            }
            PoolColumn::Other(name) => name.len(),
        }
    }
}

/// Runs the command.
pub fn run(args: &[OsString]) -> CommandResult {
    const LONG: [Long; 3] = [
        Long { name: "json", takes_value: false, code: 'j' },
        Long { name: "json-int", takes_value: false, code: '1' },
        Long { name: "json-pool-key-guid", takes_value: false, code: '3' },
    ];
    let parsed = getopt::parse(args, "gjHLo:pPT:v", &LONG);
    let mut options = PoolListOptions { style: NameStyle::from_env(), ..PoolListOptions::default() };
    let (mut timestamp, mut list) = (Timestamp::None, DEFAULT_COLUMNS.to_owned());
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('g') => options.style.guids = true,
            Opt::Flag('H') => options.scripted = true,
            Opt::Flag('L') => options.style.real_paths = true,
            Opt::Flag('P') => options.style.whole_paths = true,
            Opt::Flag('p') => options.literal = true,
            Opt::Flag('v') => options.verbose = true,
            Opt::Flag('j') => options.json = true,
            Opt::Flag('1') => (options.json_int, options.literal) = (true, true),
            Opt::Flag('3') => options.json_guid_keys = true,
            Opt::Value('o', columns) => list.clone_from(columns),
            Opt::Value('T', form) => timestamp = Timestamp::parse(form)?,
            other => return Err(Stop::bad_option(other)),
        }
    }
    if options.json_int && !options.json {
        return Err(Stop::usage("'--json-int' only works with '-j' option"));
    }
    if options.json_guid_keys && !options.json {
        return Err(Stop::usage("'json-pool-key-guid' only works with '-j' option"));
    }
    let (names, repeat) = Repeat::parse(parsed.operands)?;
    let columns = if list == "all" { None } else { Some(PoolColumn::parse_list(&list)?) };
    let mut is_first = true;
    repeat.run(|| {
        let with_heading = std::mem::take(&mut is_first) || options.verbose;
        once(&names, columns.as_deref(), &options, timestamp, with_heading)
    })
}

/// Shows the pools once; without `columns`, all properties.
fn once(
    names: &[String],
    columns: Option<&[PoolColumn]>,
    options: &PoolListOptions,
    timestamp: Timestamp,
    with_heading: bool,
) -> CommandResult {
    let mut failed = false;
    let reports = pools::ask_each(names, &mut failed, |mut pool| pool.report())?;
    if reports.is_empty() {
        if names.is_empty() && !failed && !options.scripted && !options.json {
            println!("no pools available");
        }
        return Ok(!failed);
    }
    let columns = columns.map_or_else(
        || Property::find("name").map(PoolColumn::Known).into_iter().chain(PoolColumn::all(&reports)).collect(),
        <[PoolColumn]>::to_vec,
    );
    if options.json {
        println!("{}", all_json(&reports, &columns, options, timestamp));
        return Ok(!failed);
    }
    print!("{}", timestamp.line());
    print!("{}", table(&reports, &columns, options, with_heading));
    Ok(!failed)
}

fn table(reports: &[PoolReport], columns: &[PoolColumn], options: &PoolListOptions, with_heading: bool) -> String {
    let mut widths: Vec<usize> = columns.iter().map(|column| column.width(reports, options.literal)).collect();
    let name_width = name_width(reports, options);
    if let Some(first) = widths.first_mut().filter(|_| options.verbose) {
        *first = name_width;
    }
    let mut text = String::new();
    if with_heading && !options.scripted {
        let cells: Vec<String> = columns.iter().map(PoolColumn::heading).collect();
        text += &line(columns, &widths, &cells, false);
    }
    for pool in reports {
        let cell = |column: &PoolColumn| column.text(pool, options.literal).map_or("-".to_owned(), |(text, _)| text);
        let cells = columns.iter().map(cell);
        let cells: Vec<String> =
            if options.scripted { cells.collect() } else { cells.map(|cell| one_line(&cell)).collect() };
        text += &line(columns, &widths, &cells, options.scripted);
        if options.verbose {
            text += &VdevLines { pool, options, width: name_width }.all();
        }
    }
    text
}

fn line(columns: &[PoolColumn], widths: &[usize], cells: &[String], scripted: bool) -> String {
    if scripted {
        return cells.join("\t") + "\n";
    }
    let last = columns.len() - 1;
    let aligned = cells.iter().enumerate().map(|(i, cell)| match columns[i].is_right_aligned() {
        true => format!("{cell:>0$}", widths[i]),
        false if i == last => cell.clone(),
        false => format!("{cell:0$}", widths[i]),
    });
    aligned.collect::<Vec<_>>().join("  ") + "\n"
}

/// Width of the first column if vdevs are in it, too.
fn name_width(reports: &[PoolReport], options: &PoolListOptions) -> usize {
    let of_pool = |pool: &PoolReport| {
        if !options.verbose {
            return pool.name.len();
        }
        let tree = options.style.width(&[&pool.root], &pool.name, 0);
        let aux: Vec<&VdevReport> = pool.spares.iter().chain(&pool.caches).collect();
        tree.max(options.style.width(&aux, &pool.name, 2))
    };
    reports.iter().map(of_pool).fold(9, usize::max)
}

/// The lines about vdevs.
struct VdevLines<'a> {
    pool: &'a PoolReport,
    options: &'a PoolListOptions,
    width: usize,
}

/// The numbers of a vdev, in the order of the columns; those that are not known are dashes.
struct Cells {
    cells: Vec<(&'static str, String)>,
}

impl VdevLines<'_> {
    fn all(&self) -> String {
        let mut text = String::new();
        let tops = &self.pool.root.children;
        tops.iter().filter(|top| top.is_normal()).for_each(|top| self.vdev(top, 2, false, &mut text));
        for class in ["dedup", "special", "logs"] {
            let is_of_class = |top: &&VdevReport| match class {
                "logs" => top.is_log,
                _ => !top.is_log && !top.is_indirect() && top.bias.as_deref() == Some(class),
            };
            self.group(class, tops.iter().filter(is_of_class), false, &mut text);
        }
        self.group("cache", self.pool.caches.iter(), false, &mut text);
        self.group("spare", self.pool.spares.iter(), true, &mut text);
        text
    }

    fn group<'v>(&self, heading: &str, vdevs: impl Iterator<Item = &'v VdevReport>, is_spare: bool, out: &mut String) {
        for (i, vdev) in vdevs.enumerate() {
            if i == 0 {
                let dashes = "      -      -      -        -         -      -      -      -         -";
                *out += &format!("{heading:0$}{dashes}\n", self.width);
            }
            self.vdev(vdev, 2, is_spare, out);
        }
    }

    fn vdev(&self, vdev: &VdevReport, depth: usize, is_spare: bool, out: &mut String) {
        let name = self.options.style.name(vdev, &self.pool.name);
        *out += &match self.options.scripted {
            true => format!("\t{name}"),
            false => format!("{:depth$}{name:width$}", "", width = self.width.saturating_sub(depth)),
        };
        for (property, cell) in Cells::of(vdev, is_spare, self.options.literal).cells {
            let width = if property == "health" { 8 } else { Property::find(property).map_or(0, Property::width) };
            *out += &if self.options.scripted { format!("\t{cell}") } else { format!("  {cell:>width$}") };
        }
        *out += "\n";
        vdev.children.iter().for_each(|child| self.vdev(child, depth + 2, is_spare, out));
    }
}

impl Cells {
    fn of(vdev: &VdevReport, is_spare: bool, literal: bool) -> Cells {
        let size = |bytes: u64| if literal { bytes.to_string() } else { nicenum(bytes) };
        let or_dash = |bytes: u64| if bytes == 0 { "-".to_owned() } else { size(bytes) };
        let top = vdev.space.as_ref().filter(|space| space.size_bytes != 0);
        let of_top = |text: &dyn Fn(&TopSpace) -> String| top.map_or("-".to_owned(), text);
        let state = match (is_spare, vdev.aux, vdev.state) {
            (true, Aux::Spared, _) => "INUSE",
            (true, _, VdevState::Healthy) => "AVAIL",
            _ => vdev.word(),
        };
        let device_bytes = if vdev.children.is_empty() { vdev.device_bytes } else { 0 };
        let cells = vec![
            ("size", if device_bytes != 0 { size(device_bytes) } else { of_top(&|top| or_dash(top.size_bytes)) }),
            ("allocated", of_top(&|top| size(top.allocated_bytes))),
            ("free", of_top(&|top| size(top.size_bytes.saturating_sub(top.allocated_bytes)))),
            ("checkpoint", of_top(&|top| or_dash(top.checkpoint_bytes))),
            ("expandsize", or_dash(vdev.space.as_ref().map_or(0, |space| space.expandable_bytes))),
            (
                "fragmentation",
                of_top(&|top| match top.fragmentation {
                    None => "-".to_owned(),
                    Some(percent) if literal => percent.to_string(),
                    Some(percent) => format!("{percent}%"),
                }),
            ),
            ("capacity", of_top(&|top| capacity(top, literal))),
            ("dedupratio", "-".to_owned()),
            ("health", state.to_owned()),
        ];
        Cells { cells }
    }
}

fn capacity(top: &TopSpace, literal: bool) -> String {
    let permyriad = u128::from(top.allocated_bytes) * 10_000 / u128::from(top.size_bytes.max(1));
    let percent = permyriad as f64 / 100.0;
    match permyriad {
        _ if literal => (permyriad / 100).to_string(),
        0..1000 => format!("{percent:.2}%"),
        1000..10_000 => format!("{percent:.1}%"),
        _ => format!("{percent:.0}%"),
    }
}

fn all_json(reports: &[PoolReport], columns: &[PoolColumn], options: &PoolListOptions, timestamp: Timestamp) -> Value {
    let mut out = json::head("list", timestamp, options.json_int);
    let mut pools = Map::new();
    for pool in reports {
        let mut map = json::pool(pool, true, options.json_int);
        let mut properties = Map::new();
        for column in columns.iter().filter(|column| column.name() != "name") {
            let (text, source) =
                column.text(pool, options.literal).unwrap_or(("-".to_owned(), PoolPropertySource::None));
            properties.insert(column.name().to_owned(), json::property(&text, source, options.json_int));
        }
        map.insert("properties".into(), properties.into());
        if options.verbose {
            map.insert("vdevs".into(), vdevs_json(pool, options));
        }
        pools.insert(json::pool_key(pool, options.json_guid_keys), map.into());
    }
    out.insert("pools".into(), pools.into());
    out.into()
}

fn vdevs_json(pool: &PoolReport, options: &PoolListOptions) -> Value {
    let mut out = Map::new();
    for top in pool.root.children.iter().filter(|top| top.is_normal()) {
        vdev_json(top, pool, options, json::class_of(top), &mut out);
    }
    let mut group = |key: &str, vdevs: Vec<(&VdevReport, &str)>| {
        let mut map = Map::new();
        vdevs.iter().for_each(|(vdev, class)| vdev_json(vdev, pool, options, class, &mut map));
        if !map.is_empty() {
            out.insert(key.into(), map.into());
        }
    };
    for (key, class) in [("dedup", "dedup"), ("special", "special"), ("logs", "log")] {
        let tops = pool.root.children.iter().filter(|top| json::class_of(top) == class && !top.is_indirect());
        group(key, tops.map(|top| (top, class)).collect());
    }
    group("l2cache", pool.caches.iter().map(|vdev| (vdev, "l2cache")).collect());
    group("spares", pool.spares.iter().map(|vdev| (vdev, "spare")).collect());
    out.into()
}

fn vdev_json(
    vdev: &VdevReport,
    pool: &PoolReport,
    options: &PoolListOptions,
    class: &str,
    out: &mut Map<String, Value>,
) {
    let mut map = json::vdev(vdev, &pool.name, options.style, class, options.json_int);
    let mut properties = Map::new();
    for (property, cell) in Cells::of(vdev, class == "spare", options.literal).cells {
        properties.insert(property.into(), json::property(&cell, PoolPropertySource::None, options.json_int));
    }
    map.insert("properties".into(), properties.into());
    let mut below = Map::new();
    vdev.children.iter().for_each(|child| vdev_json(child, pool, options, class, &mut below));
    if !below.is_empty() {
        map.insert("vdevs".into(), below.into());
    }
    out.insert(options.style.name(vdev, &pool.name), map.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str) -> PoolReport {
        let leaf = VdevReport {
            kind: "disk".into(),
            path: Some("/dev/sda".into()),
            state: VdevState::Healthy,
            device_bytes: 64 << 20,
            space: Some(TopSpace {
                size_bytes: 48 << 20,
                allocated_bytes: 1 << 20,
                fragmentation: Some(5),
                ..TopSpace::default()
            }),
            ..VdevReport::default()
        };
        let spare = VdevReport { path: Some("/dev/sdb".into()), space: None, ..leaf.clone() };
        PoolReport {
            name: name.into(),
            root: VdevReport {
                kind: "root".into(),
                state: VdevState::Healthy,
                children: vec![leaf],
                ..VdevReport::default()
            },
            spares: vec![spare],
            space: SpaceReport {
                size_bytes: 48 << 20,
                allocated_bytes: 1 << 20,
                fragmentation: Some(5),
                ..SpaceReport::default()
            },
            dedup_ratio_percent: 100,
            ..PoolReport::default()
        }
    }

    #[test]
    fn tables() {
        let columns = PoolColumn::parse_list(DEFAULT_COLUMNS).unwrap();
        let reports = [pool("a"), pool("longer-name")];
        let text = table(&reports, &columns, &PoolListOptions::default(), true);
        assert_eq!(
            text,
            "NAME          SIZE  ALLOC   FREE  CKPOINT  EXPANDSZ   FRAG    CAP  DEDUP    HEALTH  ALTROOT\n\
             a              48M     1M    47M        -         -     5%     2%  1.00x    ONLINE  -\n\
             longer-name    48M     1M    47M        -         -     5%     2%  1.00x    ONLINE  -\n"
        );
        let scripted = PoolListOptions { scripted: true, literal: true, ..PoolListOptions::default() };
        let text = table(&reports[..1], &columns, &scripted, true);
        assert_eq!(text, "a\t50331648\t1048576\t49283072\t-\t-\t5\t2\t1.00\tONLINE\t-\n");
    }

    #[test]
    fn vdevs() {
        let columns = PoolColumn::parse_list(DEFAULT_COLUMNS).unwrap();
        let verbose = PoolListOptions { verbose: true, ..PoolListOptions::default() };
        assert_eq!(
            table(&[pool("tank")], &columns, &verbose, true),
            "NAME        SIZE  ALLOC   FREE  CKPOINT  EXPANDSZ   FRAG    CAP  DEDUP    HEALTH  ALTROOT\n\
             tank         48M     1M    47M        -         -     5%     2%  1.00x    ONLINE  -\n  \
             sda        64M     1M    47M        -         -     5%  2.08%      -    ONLINE\n\
             spare          -      -      -        -         -      -      -      -         -\n  \
             sdb        64M      -      -        -         -      -      -      -     AVAIL\n"
        );
    }

    #[test]
    fn columns() {
        assert!(PoolColumn::parse_list("name,alloc,com.me:x,feature@lz4_compress").is_ok());
        let wrong = |list| PoolColumn::parse_list(list).err();
        assert_eq!(wrong("name,nope"), Some(Stop::usage("bad property list: invalid property 'nope'")));
        assert_eq!(wrong(""), Some(Stop::usage("bad property list: no properties specified")));
    }
}
