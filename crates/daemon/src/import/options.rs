//! How a pool is to be imported.

use std::path::PathBuf;

use format::ids::Txg;
use pool::Rewind;
use protocol::pool_properties::Property;
use serde::{Deserialize, Serialize};

use crate::pool_props::{self, When};

/// Which pool to import, and how. The letters are the flags of `zpool import`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportOptions {
    /// `-d`: folders and devices to search, in place of the system's.
    pub search: Vec<PathBuf>,
    /// `-c`: a file that tells of devices.
    pub cachefile: Option<PathBuf>,
    /// `-D`: destroyed pools.
    pub destroyed: bool,
    /// `-f`: also pools that seem to be in use elsewhere.
    pub force: bool,
    /// `-F`: an older state if the newest cannot be opened.
    pub rewind: bool,
    /// `-X`: however old it is; `-F` alone looks at all there are, too. With `-n` all are listed.
    pub extreme: bool,
    /// `-n`: only see whether that would work.
    pub dry_run: bool,
    /// `-T`: the newest state up to that txg.
    pub txg_max: Option<Txg>,
    /// `--at-txg`: the state of just that txg.
    pub txg: Option<Txg>,
    /// `--rewind-to-checkpoint`: the state of the checkpoint.
    pub checkpoint: bool,
    /// `--adopt`: the pool is this host's own from now on, whichever host had it last.
    pub adopt: bool,
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
    /// The line of the command in the pool's history.
    pub history: Option<String>,
}

impl ImportOptions {
    /// Which state of the pool to open.
    pub fn wanted_state(&self) -> Rewind {
        match (self.txg, self.txg_max) {
            _ if self.checkpoint => Rewind::Checkpoint,
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

    /// The property `cachefile`: an import that says where or how the pool is to be used for now wants no file.
    pub fn cachefile_property(&self) -> Option<&str> {
        let is_passing = self.temporary || self.altroot().is_some();
        self.prop("cachefile").or(is_passing.then_some("none"))
    }

    /// Checks the values of properties, as far as an import knows them. `pool` is for the message.
    pub fn check_values(&self, pool: &str) -> Result<(), String> {
        self.check_properties().map_err(|why| format!("cannot import pool '{pool}': {why}"))
    }

    /// The same, for another command than an import. Errors: what is wrong.
    pub fn check_properties(&self) -> Result<(), String> {
        for (name, value) in &self.props {
            let Some(property) = Property::find(name) else {
                let feature = name.strip_prefix("feature@").unwrap_or(name);
                match format::feature::FEATURES.iter().any(|f| f.name == feature) {
                    true => continue,
                    false => return Err(format!("feature '{feature}' unsupported by kernel")),
                }
            };
            if property.is_readonly {
                return Err(format!("'{name}' is readonly"));
            }
            if let Some(words) = property.words()
                && !words.contains(&value.as_str())
            {
                return Err(format!("'{name}' must be one of '{}'", property.values));
            }
            match name.as_str() {
                "altroot" if !value.starts_with('/') => return Err(format!("bad alternate root '{value}'")),
                "bootfs" => return Err(format!("property '{name}' cannot be set at creation or import time")),
                "cachefile" if !value.is_empty() && value != "none" && !value.starts_with('/') => {
                    return Err(format!("property '{name}' must be empty, an absolute path, or 'none'"));
                }
                _ => {}
            }
        }
        let is_read_only = self.prop("readonly") == Some("on");
        for (name, value) in self.to_set() {
            pool_props::check(name, value, When::Set)?;
            if is_read_only {
                return Err(format!("property '{name}' cannot be set in a pool that is read-only"));
            }
        }
        Ok(())
    }
}
