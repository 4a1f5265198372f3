//! `zfs userspace`, `groupspace` and `projectspace`: how much of a file system each owner uses.

use std::cmp::Ordering;
use std::ffi::OsString;

use base::Shown;
use protocol::datasets::{DatasetRequest, Owner, OwnerUsage, Response, Types};
use protocol::owners;
use protocol::words::nicenum::{nicebytes, nicenum};

use super::client;
use super::client::Pools;
use super::command::{Outcome, Stopped, ZfsCommand, parse};
use crate::getopt::Opt;

/// A column: name, header.
const FIELDS: [(&str, &str); 6] = [
    ("type", "TYPE"),
    ("name", "NAME"),
    ("used", "USED"),
    ("quota", "QUOTA"),
    ("objused", "OBJUSED"),
    ("objquota", "OBJQUOTA"),
];

/// Types that can be chosen.
const TYPES: [(&str, &[OwnerKind]); 5] = [
    ("posixgroup", &[OwnerKind::PosixGroup]),
    ("posixuser", &[OwnerKind::PosixUser]),
    ("smbgroup", &[OwnerKind::SmbGroup]),
    ("smbuser", &[OwnerKind::SmbUser]),
    (
        "all",
        &[OwnerKind::PosixGroup, OwnerKind::PosixUser, OwnerKind::SmbGroup, OwnerKind::SmbUser, OwnerKind::Project],
    ),
];

/// What a line is about; in the order in which types are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum OwnerKind {
    PosixGroup,
    PosixUser,
    SmbGroup,
    SmbUser,
    Project,
}

/// Name of the owner: a number, if it has none or none is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OwnerName {
    Number(u64),
    Text(String),
}

struct OwnerLine {
    kind: OwnerKind,
    name: OwnerName,
    /// Used, quota, objects used, objects allowed; of a pair there are both or none.
    numbers: [Option<u64>; 4],
}

/// A command line.
struct UserspaceOptions {
    fields: Vec<usize>,
    /// Index of a field, and whether greatest comes first.
    keys: Vec<(usize, bool)>,
    kinds: Vec<OwnerKind>,
    numeric: bool,
    scripted: bool,
    literal: bool,
    dataset: String,
}

/// Runs the command.
pub(super) fn run(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    if args.is_empty() {
        return Err(Outcome { err: super::command::usage(command), code: crate::output::USAGE, ..Outcome::default() });
    }
    let options = options(command, args)?;
    let dataset = match &options.dataset {
        path if client::is_path(path) => match client::mounted_at(pools, path.as_ref())? {
            Ok(mounted) => mounted.dataset,
            Err(line) => return Ok(Outcome::failed(format!("{line}\n"))),
        },
        name => name.clone(),
    };
    if let Err(outcome) = check(pools, &dataset)? {
        return Ok(outcome);
    }
    let owners_of = |kind: &OwnerKind| match kind {
        OwnerKind::PosixUser | OwnerKind::SmbUser => Owner::User,
        OwnerKind::PosixGroup | OwnerKind::SmbGroup => Owner::Group,
        OwnerKind::Project => Owner::Project,
    };
    let pool = client::pool_of(&dataset);
    let mut lines = Vec::new();
    for owner in [Owner::User, Owner::Group, Owner::Project] {
        if !options.kinds.iter().any(|kind| owners_of(kind) == owner) {
            continue;
        }
        // projects are told only if nothing else is asked for
        if owner == Owner::Project && options.kinds != [OwnerKind::Project] {
            continue;
        }
        match pools.ask(pool, &DatasetRequest::Space { dataset: dataset.clone(), owner }) {
            Ok(Response::Space(usages)) => lines.extend(usages.iter().map(|usage| line(owner, usage, options.numeric))),
            Ok(_) => return Err(client::unexpected(pool).into()),
            Err(e) if e.kind() == base::Kind::Unsupported => {
                let line = format!("cannot get used/quota for {dataset}: unsupported version or feature\n");
                return Ok(Outcome::failed(line));
            }
            Err(e) => return Err(e.into()),
        }
    }
    lines.retain(|line| options.kinds.contains(&line.kind));
    if lines.is_empty() {
        return Ok(Outcome::default());
    }
    lines.sort_by(|a, b| compare(a, b, &options.keys));
    Ok(Outcome { out: table(&lines, &options), ..Outcome::default() })
}

fn options(command: &ZfsCommand, args: &[OsString]) -> Result<UserspaceOptions, Stopped> {
    let is_project = command.name == "projectspace";
    let parsed = parse(command, args, if is_project { "Hpo:s:S:" } else { "nHpo:s:S:t:i" }, &[])?;
    let mut options = UserspaceOptions {
        fields: (0..FIELDS.len()).collect(),
        keys: Vec::new(),
        kinds: match command.name {
            "userspace" => vec![OwnerKind::PosixUser, OwnerKind::SmbUser],
            "groupspace" => vec![OwnerKind::PosixGroup, OwnerKind::SmbGroup],
            _ => vec![OwnerKind::Project],
        },
        numeric: is_project,
        scripted: false,
        literal: false,
        dataset: String::new(),
    };
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('n') => options.numeric = true,
            Opt::Flag('H') => options.scripted = true,
            Opt::Flag('p') => options.literal = true,
            Opt::Value('o', list) => options.fields = chosen_fields(list)?,
            Opt::Value('t', list) => options.kinds = chosen_kinds(list)?,
            Opt::Value(c @ ('s' | 'S'), name) => match FIELDS.iter().position(|(field, _)| field == name) {
                Some(field) => options.keys.push((field, *c == 'S')),
                None => return Err(Outcome::misused(command, format_args!("invalid field '{name}'"))),
            },
            _ => {}
        }
    }
    options.keys.extend([(0, false), (1, false)]);
    match &parsed.operands[..] {
        [dataset] => options.dataset = dataset.clone(),
        [] => return Err(Outcome::misused(command, "missing dataset name")),
        _ => return Err(Outcome::misused(command, "too many arguments")),
    }
    Ok(options)
}

fn chosen_fields(list: &str) -> Result<Vec<usize>, Stopped> {
    let field = |name: &str| {
        let index = FIELDS.iter().position(|(field, _)| *field == name);
        index.ok_or_else(|| Outcome {
            code: u8::MAX,
            ..Outcome::failed(format!("invalid type '{name}' for -o option\n"))
        })
    };
    list.split(',').map(field).collect()
}

fn chosen_kinds(list: &str) -> Result<Vec<OwnerKind>, Stopped> {
    let mut kinds = Vec::new();
    for name in list.split(',') {
        match TYPES.iter().find(|(kind, _)| *kind == name) {
            Some((_, more)) => kinds.extend_from_slice(more),
            None => {
                let line = format!("invalid type '{name}' for -t option\n");
                return Err(Outcome { code: u8::MAX, ..Outcome::failed(line) });
            }
        }
    }
    Ok(kinds)
}

/// Whether there is such a file system or snapshot of one.
fn check(pools: &dyn Pools, dataset: &str) -> Result<Result<(), Outcome>, Stopped> {
    let types = Types { file_systems: true, ..Types::SNAPSHOTS };
    let cannot_open = |why: &str| Ok(Err(Outcome::failed(format!("cannot open '{dataset}': {why}\n"))));
    if let Err(why) = client::check_name(dataset, types) {
        return cannot_open(&why);
    }
    if let Some(why) = client::why_not_there(pools, dataset) {
        return cannot_open(&why);
    }
    let select = protocol::datasets::Select {
        roots: vec![dataset.to_owned()],
        root_types: types,
        depth: Some(0),
        types,
        ..protocol::datasets::Select::default()
    };
    let found = client::datasets(pools, &select)?;
    match found.failures.first() {
        Some(failure) => Ok(Err(Outcome::failed(format!("{}\n", failure.line)))),
        None => Ok(Ok(())),
    }
}

fn line(owner: Owner, usage: &OwnerUsage, numeric: bool) -> OwnerLine {
    let kind = match (owner, usage.domain.is_empty()) {
        (Owner::User, true) => OwnerKind::PosixUser,
        (Owner::User, false) => OwnerKind::SmbUser,
        (Owner::Group, true) => OwnerKind::PosixGroup,
        (Owner::Group, false) => OwnerKind::SmbGroup,
        (Owner::Project, _) => OwnerKind::Project,
    };
    let name = match kind {
        OwnerKind::SmbUser | OwnerKind::SmbGroup => Some(format!("{}-{}", usage.domain, usage.id)),
        _ if numeric => None,
        _ => owners::name_of(owner, usage.id),
    };
    let pair = |used: Option<u64>, quota: Option<u64>| match (used, quota) {
        (None, None) => [None, None],
        (used, quota) => [Some(used.unwrap_or(0)), Some(quota.unwrap_or(0))],
    };
    let [used, quota] = pair(usage.used_bytes, usage.quota_bytes);
    let [objects_used, objects_quota] = pair(usage.objects_used, usage.objects_quota);
    let numbers = [used, quota, objects_used, objects_quota];
    OwnerLine { kind, name: name.map_or(OwnerName::Number(usage.id), OwnerName::Text), numbers }
}

fn compare(a: &OwnerLine, b: &OwnerLine, keys: &[(usize, bool)]) -> Ordering {
    for (field, reverse) in keys {
        let order = match field {
            0 => a.kind.cmp(&b.kind),
            1 => match (&a.name, &b.name) {
                (OwnerName::Number(a), OwnerName::Number(b)) => a.cmp(b),
                (OwnerName::Text(a), OwnerName::Text(b)) => a.cmp(b),
                // names of which one is a number compare as numbers, and a text counts as 0
                (OwnerName::Number(number), OwnerName::Text(_)) => number.cmp(&0),
                (OwnerName::Text(_), OwnerName::Number(number)) => 0.cmp(number),
            },
            i => a.numbers[i - 2].cmp(&b.numbers[i - 2]),
        };
        if order != Ordering::Equal {
            return if *reverse { order.reverse() } else { order };
        }
    }
    Ordering::Equal
}

fn table(lines: &[OwnerLine], options: &UserspaceOptions) -> String {
    let texts: Vec<[String; 6]> = lines.iter().map(|line| texts(line, options.literal)).collect();
    if options.scripted {
        let row =
            |texts: &[String; 6]| options.fields.iter().map(|&i| texts[i].as_str()).collect::<Vec<_>>().join("\t");
        return texts.iter().map(|texts| format!("{}\n", row(texts))).collect();
    }
    let texts: Vec<[String; 6]> = texts.into_iter().map(|texts| texts.map(|text| Shown(text).to_string())).collect();
    let widths: Vec<usize> = (0..FIELDS.len())
        .map(|i| texts.iter().map(|texts| texts[i].chars().count()).fold(FIELDS[i].1.len(), usize::max))
        .collect();
    let row = |texts: &[String; 6]| {
        let cell = |&i: &usize| {
            let (text, width) = (&texts[i], widths[i]);
            if i < 2 { format!("{text:<width$}") } else { format!("{text:>width$}") }
        };
        options.fields.iter().map(cell).collect::<Vec<_>>().join("  ") + "\n"
    };
    let headers = FIELDS.map(|(_, header)| header.to_owned());
    std::iter::once(&headers).chain(&texts).map(row).collect()
}

fn texts(line: &OwnerLine, literal: bool) -> [String; 6] {
    let kind = match line.kind {
        OwnerKind::PosixUser => "POSIX User",
        OwnerKind::PosixGroup => "POSIX Group",
        OwnerKind::SmbUser => "SMB User",
        OwnerKind::SmbGroup => "SMB Group",
        OwnerKind::Project => "Project",
    };
    let name = match &line.name {
        OwnerName::Number(number) => number.to_string(),
        OwnerName::Text(text) => text.clone(),
    };
    let number = |i: usize, nice: fn(u64) -> String| match line.numbers[i] {
        None => "-".to_owned(),
        Some(number) if literal => number.to_string(),
        Some(0) if i % 2 == 1 => "none".to_owned(),
        Some(number) => nice(number),
    };
    [kind.to_owned(), name, number(0, nicebytes), number(1, nicebytes), number(2, nicenum), number(3, nicenum)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table() {
        let usage = |id, used: u64, domain: &str| OwnerUsage {
            domain: domain.to_owned(),
            id,
            used_bytes: Some(used),
            objects_used: Some(7),
            ..OwnerUsage::default()
        };
        let mut lines: Vec<OwnerLine> = [usage(4_000_000_001, 2048, ""), usage(0, 512, ""), usage(5, 1, "S-1-5-9")]
            .iter()
            .map(|usage| line(Owner::User, usage, false))
            .collect();
        let mut options = UserspaceOptions {
            fields: (0..6).collect(),
            keys: vec![(0, false), (1, false)],
            kinds: Vec::new(),
            numeric: false,
            scripted: false,
            literal: false,
            dataset: String::new(),
        };
        lines.sort_by(|a, b| compare(a, b, &options.keys));
        let expect = "TYPE        NAME        USED  QUOTA  OBJUSED  OBJQUOTA\n\
                      POSIX User  root        512B   none        7      none\n\
                      POSIX User  4000000001    2K   none        7      none\n\
                      SMB User    S-1-5-9-5     1B   none        7      none\n";
        assert_eq!(table(&lines, &options), expect);
        options.keys.insert(0, (2, true));
        lines.sort_by(|a, b| compare(a, b, &options.keys));
        (options.scripted, options.literal, options.fields) = (true, true, vec![1, 2, 3]);
        assert_eq!(table(&lines, &options), "4000000001\t2048\t0\nroot\t512\t0\nS-1-5-9-5\t1\t0\n");
    }
}
