//! The command line of `zpool import` and `cenote serve`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use daemon::import::ImportOptions;
use format::ids::Txg;
use protocol::pool_properties::Property;

use super::super::command::Stop;
use crate::getopt::{self, Long, Opt};

/// What the command line says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportArgs {
    /// Which pool, and how; without one, all of them, or none.
    pub options: ImportOptions,
    /// `-a`: all pools.
    pub all: bool,
    /// Whether `zpool import` started the process, and listens to it.
    pub notify: bool,
}

const LONG: [Long; 5] = [
    Long { name: "adopt", takes_value: false, code: '5' },
    Long { name: "at-txg", takes_value: true, code: '1' },
    Long { name: "notify", takes_value: false, code: '2' },
    Long { name: "history", takes_value: true, code: '4' },
    Long { name: "rewind-to-checkpoint", takes_value: false, code: '3' },
];

impl ImportArgs {
    /// Reads a command line.
    pub fn parse(args: &[OsString]) -> Result<ImportArgs, Stop> {
        let parsed = getopt::parse(args, "ac:d:DfFmnNo:R:stT:X", &LONG);
        let mut args = ImportArgs::default();
        for opt in &parsed.opts {
            match opt {
                Opt::Flag('a') => args.all = true,
                Opt::Value('c', file) => args.options.cachefile = Some(absolute(file)?),
                Opt::Value('d', path) => args.options.search.push(absolute(path)?),
                Opt::Flag('D') => args.options.destroyed = true,
                Opt::Flag('f') => args.options.force = true,
                Opt::Flag('F') => args.options.rewind = true,
                Opt::Flag('m') => args.options.missing_log = true,
                Opt::Flag('n') => args.options.dry_run = true,
                Opt::Flag('N') => args.options.no_mount = true,
                Opt::Value('o', text) => args.add_option(text)?,
                Opt::Value('R', root) => args.add_prop("altroot", root)?,
                Opt::Value('T', txg) => args.options.txg_max = Some(Txg::new(number(txg)?)),
                Opt::Value('1', txg) => args.options.txg = Some(Txg::new(number(txg)?)),
                Opt::Flag('2') => args.notify = true,
                Opt::Flag('3') => args.options.checkpoint = true,
                Opt::Value('4', line) => args.options.history = Some(line.clone()),
                Opt::Flag('5') => args.options.adopt = true,
                Opt::Flag('t') => args.options.temporary = true,
                // -F looks at all states that there are, and so goes as far back as -X
                Opt::Flag('X') => args.options.extreme = true,
                // devices are searched anyway: nothing is known of them from before
                Opt::Flag('s') => {}
                other => return Err(Stop::bad_option(other)),
            }
        }
        let mut operands = parsed.operands.into_iter();
        (args.options.pool, args.options.new_name) = (operands.next(), operands.next());
        if operands.next().is_some() || args.all && args.options.pool.is_some() {
            return Err(Stop::usage("too many arguments"));
        }
        Ok(args)
    }

    /// Refuses flags that do not go together.
    pub fn check_combination(&self) -> Result<(), Stop> {
        if self.options.cachefile.is_some() && !self.options.search.is_empty() {
            return Err(Stop::usage("-c is incompatible with -d"));
        }
        if (self.options.dry_run || self.options.extreme) && !self.options.rewind {
            return Err(Stop::usage("-n or -X only meaningful with -F"));
        }
        if self.options.txg.is_some() && (self.options.txg_max.is_some() || self.options.rewind) {
            return Err(Stop::usage("--at-txg is incompatible with -T and -F"));
        }
        Ok(())
    }

    /// The same as a command line, wherever it is read.
    pub fn to_command_line(&self) -> Vec<OsString> {
        let mut line: Vec<OsString> = Vec::new();
        let mut add = |flag: &str, value: &dyn AsRef<std::ffi::OsStr>| {
            line.push(flag.into());
            line.push(value.as_ref().into());
        };
        self.options.search.iter().for_each(|path| add("-d", path));
        self.options.cachefile.iter().for_each(|path| add("-c", path));
        self.options.mount_options.iter().for_each(|options| add("-o", options));
        self.options.props.iter().for_each(|(name, value)| add("-o", &format!("{name}={value}")));
        self.options.txg_max.iter().for_each(|txg| add("-T", &txg.to_string()));
        self.options.txg.iter().for_each(|txg| add("--at-txg", &txg.to_string()));
        self.options.history.iter().for_each(|line| add("--history", line));
        for (flag, is_on) in [
            ("-D", self.options.destroyed),
            ("-f", self.options.force),
            ("-F", self.options.rewind),
            ("-n", self.options.dry_run),
            ("-X", self.options.extreme),
            ("-m", self.options.missing_log),
            ("-N", self.options.no_mount),
            ("-t", self.options.temporary),
            ("--adopt", self.options.adopt),
            ("--rewind-to-checkpoint", self.options.checkpoint),
        ] {
            if is_on {
                line.push(flag.into());
            }
        }
        line.push("--".into());
        line.extend(self.options.pool.iter().chain(&self.options.new_name).map(OsString::from));
        line
    }

    fn add_option(&mut self, text: &str) -> Result<(), Stop> {
        match text.split_once('=') {
            Some((name, value)) => self.add_prop(name, value),
            None => {
                self.options.mount_options = Some(text.to_owned());
                Ok(())
            }
        }
    }

    fn add_prop(&mut self, name: &str, value: &str) -> Result<(), Stop> {
        let known = Property::find(name);
        if known.is_none() && !name.starts_with("feature@") {
            return Err(Stop::Failed(format!("property '{name}' is not a valid pool or vdev property")));
        }
        let name = known.map_or(name, |property| property.name);
        if self.options.prop(name).is_some() {
            return Err(Stop::Failed(format!("property '{name}' specified multiple times")));
        }
        self.options.props.push((name.to_owned(), value.to_owned()));
        Ok(())
    }
}

fn absolute(path: &str) -> Result<PathBuf, Stop> {
    std::path::absolute(Path::new(path)).map_err(|e| Stop::Failed(format!("cannot resolve path '{path}': {e}")))
}

fn number(text: &str) -> Result<u64, Stop> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| Stop::usage("invalid txg value"))
}

#[cfg(test)]
mod tests {
    use pool::Rewind;

    use super::*;

    fn parse(line: &str) -> Result<ImportArgs, Stop> {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        ImportArgs::parse(&args)
    }

    #[test]
    fn a_command_line_comes_back() {
        let line = "-d /img -d rel -o readonly=on -o ro,noatime -R /mnt -N -f -F -n -D -m -t -T 0x10 tank new";
        let args = parse(line).unwrap();
        assert!(args.options.search[1].is_absolute());
        assert_eq!(
            (args.options.altroot(), args.options.prop("readonly"), args.options.txg_max),
            (Some("/mnt"), Some("on"), Some(Txg::new(16)))
        );
        assert_eq!(ImportArgs::parse(&args.to_command_line()), Ok(args));
        let args = parse("--rewind-to-checkpoint --adopt tank").unwrap();
        assert_eq!((args.options.wanted_state(), args.options.adopt), (Rewind::Checkpoint, true));
        assert_eq!(ImportArgs::parse(&args.to_command_line()), Ok(args));
        let args = parse("--at-txg 7 -c /etc/x -- -odd").unwrap();
        assert_eq!(
            (args.options.wanted_state(), args.options.pool.as_deref()),
            (Rewind::Exactly(Txg::new(7)), Some("-odd"))
        );
        assert_eq!(ImportArgs::parse(&args.to_command_line()), Ok(args));
    }

    #[test]
    fn what_makes_no_sense() {
        for (line, error) in [
            ("-Z", Stop::usage("invalid option 'Z'")),
            ("-d", Stop::usage("missing argument for 'd' option")),
            ("-T x", Stop::usage("invalid txg value")),
            ("-a tank", Stop::usage("too many arguments")),
            ("a b c", Stop::usage("too many arguments")),
            ("-o nope=1", Stop::Failed("property 'nope' is not a valid pool or vdev property".into())),
            ("-o readonly=on -o rdonly=off", Stop::Failed("property 'readonly' specified multiple times".into())),
        ] {
            assert_eq!(parse(line), Err(error), "{line}");
        }
        for (line, error) in [
            ("-c x -d y", "-c is incompatible with -d"),
            ("-n", "-n or -X only meaningful with -F"),
            ("-X", "-n or -X only meaningful with -F"),
            ("--at-txg 1 -F", "--at-txg is incompatible with -T and -F"),
        ] {
            assert_eq!(parse(line).unwrap().check_combination(), Err(Stop::usage(error)), "{line}");
        }
    }

    #[test]
    fn values_of_properties() {
        let check = |line: &str| parse(line).unwrap().options.check_values("tank");
        assert_eq!(check("-o readonly=on -o cachefile=none -R /mnt"), Ok(()));
        assert_eq!(check("-o comment=mine -o failmode=continue -o delegation=off"), Ok(()));
        for (line, why) in [
            ("-o readonly=maybe", "'readonly' must be one of 'on | off'"),
            ("-o size=5", "'size' is readonly"),
            ("-R mnt", "bad alternate root 'mnt'"),
            ("-o ashift=99", "property 'ashift' number 99 is invalid, only values between 9 and 16 are allowed."),
            ("-o comment=x -o readonly=on", "property 'comment' cannot be set in a pool that is read-only"),
            ("-o feature@nope=enabled", "feature 'nope' unsupported by kernel"),
        ] {
            assert_eq!(check(line), Err(format!("cannot import pool 'tank': {why}")), "{line}");
        }
    }
}
