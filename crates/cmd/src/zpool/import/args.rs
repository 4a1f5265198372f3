//! The command line of `zpool import` and `cenote serve`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use pool::Rewind;

use super::super::Stop;
use super::super::pool_props::{self, When};
use super::super::props::Property;
use crate::getopt::{self, Long, Opt};

/// What the command line says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportArgs {
    /// `-d`: folders and devices to search, in place of the system's.
    pub search: Vec<PathBuf>,
    /// `-c`: a file that tells of devices.
    pub cachefile: Option<PathBuf>,
    /// `-a`: all pools.
    pub all: bool,
    /// `-D`: destroyed pools.
    pub destroyed: bool,
    /// `-f`: also pools that seem to be in use elsewhere.
    pub force: bool,
    /// `-F`: an older state if the newest cannot be opened.
    pub rewind: bool,
    /// `-X`: however old it is; only read to be checked, as `-F` looks at all there are.
    pub extreme: bool,
    /// `-n`: only see whether that would work.
    pub dry_run: bool,
    /// `-T`: the newest state up to that txg.
    pub txg_max: Option<u64>,
    /// `--at-txg`: the state of just that txg.
    pub txg: Option<u64>,
    /// `-m`: also without the log device.
    pub missing_log: bool,
    /// `-N`: mount nothing.
    pub no_mount: bool,
    /// `-o` without a value: mount options.
    pub mount_options: Option<String>,
    /// `-o` with a value.
    pub props: Vec<(String, String)>,
    /// Name or guid of the pool.
    pub pool: Option<String>,
    /// Name that it shall have.
    pub new_name: Option<String>,
    /// `-t`: only until it is exported.
    pub temporary: bool,
    /// Whether `zpool import` started the process, and listens to it.
    pub notify: bool,
}

const LONG: [Long; 2] =
    [Long { name: "at-txg", takes_value: true, code: '1' }, Long { name: "notify", takes_value: false, code: '2' }];

impl ImportArgs {
    /// Reads a command line.
    pub fn parse(args: &[OsString]) -> Result<ImportArgs, Stop> {
        let parsed = getopt::parse(args, "ac:d:DfFmnNo:R:stT:X", &LONG);
        let mut args = ImportArgs::default();
        for opt in &parsed.opts {
            match opt {
                Opt::Flag('a') => args.all = true,
                Opt::Value('c', file) => args.cachefile = Some(absolute(file)?),
                Opt::Value('d', path) => args.search.push(absolute(path)?),
                Opt::Flag('D') => args.destroyed = true,
                Opt::Flag('f') => args.force = true,
                Opt::Flag('F') => args.rewind = true,
                Opt::Flag('m') => args.missing_log = true,
                Opt::Flag('n') => args.dry_run = true,
                Opt::Flag('N') => args.no_mount = true,
                Opt::Value('o', text) => args.add_option(text)?,
                Opt::Value('R', root) => args.add_prop("altroot", root)?,
                Opt::Value('T', txg) => args.txg_max = Some(number(txg)?),
                Opt::Value('1', txg) => args.txg = Some(number(txg)?),
                Opt::Flag('2') => args.notify = true,
                Opt::Flag('t') => args.temporary = true,
                // -F looks at all states that there are, and so goes as far back as -X
                Opt::Flag('X') => args.extreme = true,
                // devices are searched anyway: nothing is known of them from before
                Opt::Flag('s') => {}
                other => return Err(Stop::bad_option(other)),
            }
        }
        let mut operands = parsed.operands.into_iter();
        (args.pool, args.new_name) = (operands.next(), operands.next());
        if operands.next().is_some() || args.all && args.pool.is_some() {
            return Err(Stop::usage("too many arguments"));
        }
        Ok(args)
    }

    /// Refuses flags that do not go together.
    pub fn check_combination(&self) -> Result<(), Stop> {
        if self.cachefile.is_some() && !self.search.is_empty() {
            return Err(Stop::usage("-c is incompatible with -d"));
        }
        if (self.dry_run || self.extreme) && !self.rewind {
            return Err(Stop::usage("-n or -X only meaningful with -F"));
        }
        if self.txg.is_some() && (self.txg_max.is_some() || self.rewind) {
            return Err(Stop::usage("--at-txg is incompatible with -T and -F"));
        }
        Ok(())
    }

    /// Which state of the pool to open.
    pub fn wanted_state(&self) -> Rewind {
        match (self.txg, self.txg_max) {
            (Some(txg), _) => Rewind::Exactly(txg),
            (None, Some(txg)) => Rewind::AtMost(txg),
            (None, None) if self.rewind => Rewind::Recover,
            (None, None) => Rewind::Newest,
        }
    }

    /// The value of a property that was given.
    pub fn prop(&self, name: &str) -> Option<&str> {
        self.props.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The properties that are to be set in the pool; the others are for as long as it is imported.
    pub fn to_set(&self) -> impl Iterator<Item = (&str, &str)> {
        let is_stored = |(name, _): &(&str, &str)| !["altroot", "cachefile", "readonly"].contains(name);
        self.props.iter().map(|(name, value)| (name.as_str(), value.as_str())).filter(is_stored)
    }

    /// The folder that all mountpoints are below.
    pub fn altroot(&self) -> Option<&str> {
        self.prop("altroot")
    }

    /// The property `cachefile`: whoever says where or how the pool is to be used for now wants no file.
    pub fn cachefile_property(&self) -> Option<&str> {
        let is_passing = self.temporary || self.altroot().is_some();
        self.prop("cachefile").or(is_passing.then_some("none"))
    }

    /// The same as a command line, wherever it is read.
    pub fn to_command_line(&self) -> Vec<OsString> {
        let mut line: Vec<OsString> = Vec::new();
        let mut add = |flag: &str, value: &dyn AsRef<std::ffi::OsStr>| {
            line.push(flag.into());
            line.push(value.as_ref().into());
        };
        self.search.iter().for_each(|path| add("-d", path));
        self.cachefile.iter().for_each(|path| add("-c", path));
        self.mount_options.iter().for_each(|options| add("-o", options));
        self.props.iter().for_each(|(name, value)| add("-o", &format!("{name}={value}")));
        self.txg_max.iter().for_each(|txg| add("-T", &txg.to_string()));
        self.txg.iter().for_each(|txg| add("--at-txg", &txg.to_string()));
        for (flag, is_on) in [
            ("-D", self.destroyed),
            ("-f", self.force),
            ("-F", self.rewind),
            ("-n", self.dry_run),
            ("-X", self.extreme),
            ("-m", self.missing_log),
            ("-N", self.no_mount),
            ("-t", self.temporary),
        ] {
            if is_on {
                line.push(flag.into());
            }
        }
        line.push("--".into());
        line.extend(self.pool.iter().chain(&self.new_name).map(OsString::from));
        line
    }

    fn add_option(&mut self, text: &str) -> Result<(), Stop> {
        match text.split_once('=') {
            Some((name, value)) => self.add_prop(name, value),
            None => {
                self.mount_options = Some(text.to_owned());
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
        if self.prop(name).is_some() {
            return Err(Stop::Failed(format!("property '{name}' specified multiple times")));
        }
        self.props.push((name.to_owned(), value.to_owned()));
        Ok(())
    }
}

/// Checks the values of properties, as far as an import knows them. `pool` is for the message.
pub fn check_props(args: &ImportArgs, pool: &str) -> Result<(), String> {
    let wrong = |why: String| Err(format!("cannot import pool '{pool}': {why}"));
    for (name, value) in &args.props {
        let Some(property) = Property::find(name) else {
            let feature = name.strip_prefix("feature@").unwrap_or(name);
            match format::feature::FEATURES.iter().any(|f| f.name == feature) {
                true => continue,
                false => return wrong(format!("feature '{feature}' unsupported by kernel")),
            }
        };
        if property.is_readonly {
            return wrong(format!("'{name}' is readonly"));
        }
        if let Some(words) = property.words()
            && !words.contains(&value.as_str())
        {
            return wrong(format!("'{name}' must be one of '{}'", property.values));
        }
        match name.as_str() {
            "altroot" if !value.starts_with('/') => return wrong(format!("bad alternate root '{value}'")),
            "bootfs" => return wrong(format!("property '{name}' cannot be set at creation or import time")),
            "cachefile" if !value.is_empty() && value != "none" && !value.starts_with('/') => {
                return wrong(format!("property '{name}' must be empty, an absolute path, or 'none'"));
            }
            _ => {}
        }
    }
    let is_read_only = args.prop("readonly") == Some("on");
    for (name, value) in args.to_set() {
        pool_props::check(name, value, When::Set).or_else(wrong)?;
        if is_read_only {
            return wrong(format!("property '{name}' cannot be set in a pool that is read-only"));
        }
    }
    Ok(())
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
    use super::*;

    fn parse(line: &str) -> Result<ImportArgs, Stop> {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        ImportArgs::parse(&args)
    }

    #[test]
    fn a_command_line_comes_back() {
        let line = "-d /img -d rel -o readonly=on -o ro,noatime -R /mnt -N -f -F -n -D -m -t -T 0x10 tank new";
        let args = parse(line).unwrap();
        assert!(args.search[1].is_absolute());
        assert_eq!((args.altroot(), args.prop("readonly"), args.txg_max), (Some("/mnt"), Some("on"), Some(16)));
        assert_eq!(ImportArgs::parse(&args.to_command_line()), Ok(args));
        let args = parse("--at-txg 7 -c /etc/x -- -odd").unwrap();
        assert_eq!((args.wanted_state(), args.pool.as_deref()), (Rewind::Exactly(7), Some("-odd")));
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
        let check = |line: &str| check_props(&parse(line).unwrap(), "tank");
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
