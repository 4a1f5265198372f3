//! Command lines as `getopt_long` reads them, for the commands whose flags scripts already know.
//!
//! Short flags may be combined (`-Hp`), their values attached or not (`-oname`, `-o name`); long ones
//! may be cut short as long as they are unique (`--json-i`); operands may stand between flags, unless
//! `POSIXLY_CORRECT` is in the environment; `--` ends the flags. Errors are part of the result, in their
//! place, so that a command can report the first thing that is wrong in the words of the original.

use std::ffi::OsString;

/// A long flag.
pub struct Long {
    /// Its name, without dashes.
    pub name: &'static str,
    /// Whether a value belongs to it.
    pub takes_value: bool,
    /// What it is called in the result: the short flag that means the same, or any other character.
    pub code: char,
}

/// One flag of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opt {
    /// A flag.
    Flag(char),
    /// A flag and its value.
    Value(char, String),
    /// A flag whose value is missing.
    Missing(String),
    /// What is no flag of this command, without its dash.
    Unknown(String),
}

/// A command line, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// The flags, in order.
    pub opts: Vec<Opt>,
    /// What is left.
    pub operands: Vec<String>,
    /// The same as it was given: names of files need not be text.
    pub files: Vec<OsString>,
}

/// Short flags, and long ones with their codes.
#[cfg(test)]
type AskedFlags = (String, Vec<(&'static str, char)>);

#[cfg(test)]
thread_local! {
    /// The flags that were asked for last in this thread, short and long ones, for the test that compares them with usage
    /// messages.
    pub static ASKED: std::cell::RefCell<Option<AskedFlags>> = const { std::cell::RefCell::new(None) };
}

/// Takes `args` apart. `short` lists the short flags, each followed by `:` if it takes a value.
pub fn parse(args: &[OsString], short: &str, long: &[Long]) -> Parsed {
    #[cfg(test)]
    ASKED.set(Some((short.to_owned(), long.iter().map(|flag| (flag.name, flag.code)).collect())));
    parse_with(args, short, long, std::env::var_os("POSIXLY_CORRECT").is_some())
}

/// The same; with `flags_first`, all is an operand from the first one on.
fn parse_with(args: &[OsString], short: &str, long: &[Long], flags_first: bool) -> Parsed {
    let mut parsed = Parsed::default();
    let given = args;
    let mut args = given.iter().map(|arg| arg.to_string_lossy().into_owned());
    while let Some(arg) = args.next() {
        let rest = given.len() - args.len();
        if arg == "--" {
            parsed.files.extend_from_slice(&given[rest..]);
            parsed.operands.extend(args.by_ref());
        } else if let Some(name) = arg.strip_prefix("--") {
            parsed.opts.push(parse_long(name, long, &mut args));
        } else if arg.len() > 1 && arg.starts_with('-') {
            parse_short(&arg[1..], short, &mut args, &mut parsed.opts);
        } else {
            parsed.files.push(given[rest - 1].clone());
            parsed.operands.push(arg);
            if flags_first {
                parsed.files.extend_from_slice(&given[rest..]);
                parsed.operands.extend(args.by_ref());
            }
        }
    }
    parsed
}

fn parse_long(text: &str, long: &[Long], rest: &mut dyn Iterator<Item = String>) -> Opt {
    let (name, attached) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    let exact = long.iter().find(|flag| flag.name == name);
    let mut begun = long.iter().filter(|flag| flag.name.starts_with(name));
    let unique = begun.next().filter(|_| begun.next().is_none());
    match (exact.or(unique), attached) {
        (Some(flag), None) if !flag.takes_value => Opt::Flag(flag.code),
        (Some(flag), attached) if flag.takes_value => match attached.or_else(|| rest.next()) {
            Some(value) => Opt::Value(flag.code, value),
            None => Opt::Missing(flag.name.to_owned()),
        },
        _ => Opt::Unknown(format!("-{text}")),
    }
}

fn parse_short(text: &str, short: &str, rest: &mut dyn Iterator<Item = String>, opts: &mut Vec<Opt>) {
    for (at, c) in text.char_indices() {
        let known = short.find(c).filter(|_| c != ':').map(|i| &short[i + c.len_utf8()..]);
        match known {
            None => opts.push(Opt::Unknown(c.to_string())),
            Some(after) if !after.starts_with(':') => opts.push(Opt::Flag(c)),
            Some(_) => {
                let attached = &text[at + c.len_utf8()..];
                let value = if attached.is_empty() { rest.next() } else { Some(attached.to_owned()) };
                opts.push(value.map_or_else(|| Opt::Missing(c.to_string()), |value| Opt::Value(c, value)));
                return;
            }
        }
    }
}

/// Long flags that no message need show: one is refused by name, the others are of the program's own.
#[cfg(test)]
const HIDDEN: [&str; 3] = ["power", "history", "notify"];

/// Holds that a command's usage message shows the flags that it takes, and no others. `run` runs it with one argument.
#[cfg(test)]
pub fn check_usage(name: &str, usage: &str, run: impl FnOnce(&[OsString])) {
    use std::collections::BTreeSet;
    ASKED.set(None);
    // a flag that no command has ends it before it asks anybody
    run(&["-~".into()]);
    let Some((short, long)) = ASKED.take() else { return };
    let taken: BTreeSet<char> = short.chars().filter(|c| *c != ':').collect();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let flags = usage.match_indices('-').filter(|(at, _)| !usage[..*at].ends_with(is_word));
    let shown: BTreeSet<char> =
        flags.flat_map(|(at, _)| usage[at + 1..].chars().take_while(char::is_ascii_alphanumeric)).collect();
    assert_eq!(shown, taken, "{name}: flags that are shown, and that are taken");
    // another name of a short flag need not be shown
    let has_own_code = |flag: &(&str, char)| !taken.contains(&flag.1) && !HIDDEN.contains(&flag.0);
    let due: BTreeSet<&str> = long.iter().copied().filter(has_own_code).map(|flag| flag.0).collect();
    let known: BTreeSet<&str> = long.iter().map(|flag| flag.0).collect();
    let long = usage.match_indices("--").map(|(at, _)| &usage[at + 2..]);
    let shown: BTreeSet<&str> =
        long.map(|rest| &rest[..rest.find(|c: char| !is_word(c)).unwrap_or(rest.len())]).collect();
    assert!(due.is_subset(&shown) && shown.is_subset(&known), "{name}: long flags: {shown:?} are shown of {known:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, opts: &[Opt], operands: &[&str]) {
        const LONG: [Long; 3] = [
            Long { name: "json", takes_value: false, code: 'j' },
            Long { name: "json-int", takes_value: false, code: '1' },
            Long { name: "at-txg", takes_value: true, code: 'T' },
        ];
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let parsed = parse(&args, "Hpo:T:", &LONG);
        assert_eq!(
            (&parsed.opts[..], &parsed.operands[..]),
            (opts, &operands.iter().map(|s| s.to_string()).collect::<Vec<_>>()[..]),
            "{line}"
        );
        assert_eq!(parsed.files, operands.iter().map(OsString::from).collect::<Vec<_>>());
    }

    #[test]
    fn flags_come_first_if_that_is_asked() {
        let args = ["-H", "all", "-p", "tank"].map(OsString::from);
        let parsed = parse_with(&args, "Hp", &[], true);
        assert_eq!(
            parsed,
            Parsed {
                opts: vec![Opt::Flag('H')],
                operands: ["all", "-p", "tank"].map(String::from).into(),
                files: args[1..].to_vec(),
            }
        );
    }

    #[test]
    fn flags_values_and_operands() {
        let value = |c, text: &str| Opt::Value(c, text.to_owned());
        check("-Hp tank", &[Opt::Flag('H'), Opt::Flag('p')], &["tank"]);
        check("tank -Honame 5", &[Opt::Flag('H'), value('o', "name")], &["tank", "5"]);
        check("-o a=b -- -H", &[value('o', "a=b")], &["-H"]);
        check(
            "--json --json-i --at-txg 7 --at=8",
            &[Opt::Flag('j'), Opt::Flag('1'), value('T', "7"), value('T', "8")],
            &[],
        );
        check("- x", &[], &["-", "x"]);
    }

    #[test]
    fn what_is_wrong() {
        check("-Hxp", &[Opt::Flag('H'), Opt::Unknown("x".into()), Opt::Flag('p')], &[]);
        check("-Ho", &[Opt::Flag('H'), Opt::Missing("o".into())], &[]);
        check("--js --json=1 --no", &["-js", "-json=1", "-no"].map(|s| Opt::Unknown(s.into())), &[]);
        check("-:", &[Opt::Unknown(":".into())], &[]);
    }
}
