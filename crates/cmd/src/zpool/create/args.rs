//! The command line of `zpool create`.

use std::ffi::OsString;

use protocol::pool_properties::Property;

use super::super::command::Stop;
use crate::getopt::{self, Opt};

/// What the command line says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateArgs {
    /// `-f`: also devices that seem to be in use, and uneven vdevs.
    pub force: bool,
    /// `-n`: only show what would be made.
    pub dry_run: bool,
    /// `-d`: no features but those asked for.
    pub no_features: bool,
    /// `-o`, and `-R`: properties of the pool, by their real names.
    pub props: Vec<(String, String)>,
    /// `-O`: properties of the root dataset, but for the mountpoint.
    pub fs_props: Vec<(String, String)>,
    /// `-m`, or `-O mountpoint`.
    pub mountpoint: Option<String>,
    /// `-t`.
    pub temporary_name: Option<String>,
    /// Name of the pool.
    pub pool: String,
    /// What it is made of.
    pub vdevs: Vec<String>,
}

impl CreateArgs {
    /// Reads a command line.
    pub fn parse(args: &[OsString]) -> Result<CreateArgs, Stop> {
        let parsed = getopt::parse(args, "BfndR:m:o:O:t:", &[]);
        let mut args = CreateArgs::default();
        for opt in &parsed.opts {
            match opt {
                Opt::Flag('f') => args.force = true,
                Opt::Flag('n') => args.dry_run = true,
                Opt::Flag('d') => args.no_features = true,
                // room for a boot loader is there anyway
                Opt::Flag('B') => {}
                Opt::Value('m', path) => args.mountpoint = Some(path.clone()),
                Opt::Value('R', root) => {
                    args.add_prop("altroot", root)?;
                    args.default_cachefile();
                }
                Opt::Value('o', text) => {
                    let (name, value) = split(text, 'o')?;
                    args.add_prop(name, value)?;
                }
                Opt::Value('O', text) => {
                    let (name, value) = split(text, 'O')?;
                    args.add_fs_prop(name, value)?;
                }
                Opt::Value('t', name) if name.contains('/') => {
                    return Err(Stop::Failed(format!(
                        "cannot create '{name}': invalid character '/' in temporary name\n\
                         use 'zfs create' to create a dataset"
                    )));
                }
                Opt::Value('t', name) => {
                    args.temporary_name = Some(name.clone());
                    args.default_cachefile();
                }
                other => return Err(Stop::bad_option(other)),
            }
        }
        let mut operands = parsed.operands.into_iter();
        args.pool = operands.next().ok_or_else(|| Stop::usage("missing pool name argument"))?;
        args.vdevs = operands.collect();
        if args.vdevs.is_empty() {
            return Err(Stop::usage("missing vdev specification"));
        }
        Ok(args)
    }

    /// The value of a property of the pool that was given.
    pub fn prop(&self, name: &str) -> Option<&str> {
        self.props.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Whether the properties `feature@NAME` want a feature, by its name.
    pub fn feature_wishes(&self) -> Vec<(&str, bool)> {
        let features = self.props.iter().filter_map(|(name, value)| Some((name.strip_prefix("feature@")?, value)));
        features.map(|(name, value)| (name, value == "enabled")).collect()
    }

    fn add_prop(&mut self, name: &str, value: &str) -> Result<(), Stop> {
        let known = Property::find(name);
        if known.is_none() && !name.starts_with("feature@") {
            return Err(Stop::Failed(format!("property '{name}' is not a valid pool property")));
        }
        let real = known.map_or(name, |property| property.name);
        if real.starts_with("feature@") && self.prop("version").is_some()
            || real == "version" && self.props.iter().any(|(n, _)| n.starts_with("feature@"))
        {
            let why = "'feature@' and 'version' properties cannot be specified together";
            return Err(Stop::Failed(why.to_owned()));
        }
        match self.props.iter_mut().find(|(n, _)| n == real) {
            // -R and -t set it, too
            Some((_, before)) if real == "cachefile" => *before = value.to_owned(),
            Some(_) => return Err(Stop::Failed(format!("property '{name}' specified multiple times"))),
            None => self.props.push((real.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    fn add_fs_prop(&mut self, name: &str, value: &str) -> Result<(), Stop> {
        if name == "mountpoint" {
            self.mountpoint = Some(value.to_owned());
            return Ok(());
        }
        let known = dsl::Property::find(name);
        if known.is_none() && !name.contains(':') && !name.contains('@') {
            return Err(Stop::Failed(format!("property '{name}' is not a valid filesystem property")));
        }
        let real = known.map_or(name, |property| property.info().name);
        if self.fs_props.iter().any(|(n, _)| n == real) {
            return Err(Stop::Failed(format!("property '{name}' specified multiple times")));
        }
        self.fs_props.push((real.to_owned(), value.to_owned()));
        Ok(())
    }

    /// The properties of the root file system.
    pub fn root_props(&self) -> Vec<(String, String)> {
        let mountpoint = self.mountpoint.iter().map(|path| ("mountpoint".to_owned(), path.clone()));
        self.fs_props.iter().cloned().chain(mountpoint).collect()
    }

    fn default_cachefile(&mut self) {
        if self.prop("cachefile").is_none() {
            self.props.push(("cachefile".to_owned(), "none".to_owned()));
        }
    }
}

fn split(text: &str, flag: char) -> Result<(&str, &str), Stop> {
    text.split_once('=').ok_or_else(|| Stop::Failed(format!("missing '=' for -{flag} option")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<CreateArgs, Stop> {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        CreateArgs::parse(&args)
    }

    #[test]
    fn a_whole_command_line() {
        let line = "-fnd -o ashift=12 -o feature@skein=enabled -o comment=x -O atime=off -O compress=lz4 -m /srv -R /mnt \
                    -t other tank mirror a b log c";
        let args = parse(line).unwrap();
        assert!(args.force && args.dry_run && args.no_features);
        assert_eq!((args.prop("ashift"), args.prop("altroot")), (Some("12"), Some("/mnt")));
        assert_eq!((args.prop("cachefile"), args.mountpoint.as_deref()), (Some("none"), Some("/srv")));
        assert_eq!(args.feature_wishes(), [("skein", true)]);
        let fs_props = [("atime", "off"), ("compression", "lz4")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(args.fs_props, fs_props);
        assert_eq!((args.pool.as_str(), args.vdevs.len()), ("tank", 5));
    }

    #[test]
    fn what_makes_no_sense() {
        let failed = |why: &str| Stop::Failed(why.to_owned());
        for (line, error) in [
            ("", Stop::usage("missing pool name argument")),
            ("tank", Stop::usage("missing vdev specification")),
            ("-Z tank a", Stop::usage("invalid option 'Z'")),
            ("tank a -m", Stop::usage("missing argument for 'm' option")),
            ("-o ashift tank a", failed("missing '=' for -o option")),
            ("-O atime tank a", failed("missing '=' for -O option")),
            ("-o nope=1 tank a", failed("property 'nope' is not a valid pool property")),
            ("-O nope=1 tank a", failed("property 'nope' is not a valid filesystem property")),
            ("-o ashift=9 -o ashift=9 tank a", failed("property 'ashift' specified multiple times")),
            ("-O atime=on -O atime=on tank a", failed("property 'atime' specified multiple times")),
            (
                "-o version=28 -o feature@skein=enabled tank a",
                failed("'feature@' and 'version' properties cannot be specified together"),
            ),
            (
                "-t a/b tank a",
                failed(
                    "cannot create 'a/b': invalid character '/' in temporary name\n\
                     use 'zfs create' to create a dataset",
                ),
            ),
        ] {
            assert_eq!(parse(line), Err(error), "{line}");
        }
    }
}
