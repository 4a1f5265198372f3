//! Starting another process for a pool whose process died: how the next one imports it, told to the keeper before it is
//! needed.
//!
//! ```text
//!   before a device is opened ─▶ begin: what holds on this host     ┐
//!   each change of the pool   ─▶ Revival::renew: pool, its devices  ┴▶ keeper: "serve --revive BEGIN POOL"
//!   kill -9                      keeper ─▶ process::revive ─▶ imports, adopts the mounts
//!   export, signals           ─▶ Revival::end  ─▶ keeper: nothing
//! ```

use std::path::PathBuf;

use base::tunables::CENOTE_DEATHS_MAX;
use base::{Env, Result};
use format::ids::Guid;
use fuse::{Helper, KeptFiles, RevivalPlan};
use pool::Pool;
use serde::{Deserialize, Serialize};

use crate::import::ImportOptions;

/// Which pool the next process imports.
#[derive(Serialize, Deserialize)]
struct RevivedPool {
    guid: String,
    name: String,
    /// Its name until it is exported, if that is not the one in its labels.
    temporary_name: Option<String>,
    devices: Vec<PathBuf>,
}

/// How the pool of this process is imported by the next one.
pub struct Revival {
    helper: Helper,
    files: KeptFiles,
    is_temporary: bool,
}

/// What of an import holds as long as the pool is imported, for [`Helper::begin_revival`].
pub(crate) fn begin(options: &ImportOptions) -> String {
    let lasts = |(name, _): &&(String, String)| ["altroot", "cachefile", "readonly"].contains(&name.as_str());
    let lasting = ImportOptions {
        missing_log: options.missing_log,
        mount_options: options.mount_options.clone(),
        props: options.props.iter().filter(lasts).cloned().collect(),
        temporary: options.temporary,
        ..ImportOptions::default()
    };
    serde_json::to_string(&lasting).unwrap_or_default()
}

/// The import that both say. `None` if they make no sense.
pub(crate) fn import_of(begin: &str, pool: &str) -> Option<ImportOptions> {
    let lasting: ImportOptions = serde_json::from_str(begin).ok()?;
    let RevivedPool { guid, temporary_name, devices, .. } = serde_json::from_str(pool).ok()?;
    Some(ImportOptions { search: devices, pool: Some(guid), new_name: temporary_name, ..lasting })
}

/// The name and the guid of the pool. `None` if they make no sense.
pub(crate) fn named(pool: &str) -> Option<(String, Guid)> {
    let RevivedPool { guid, name, .. } = serde_json::from_str(pool).ok()?;
    Some((name, Guid::new(guid.parse().ok()?)))
}

impl Revival {
    /// A pool that this process has imported, for as long as it has it with a name of its own (`is_temporary`), with what
    /// the keeper is given.
    pub fn new(helper: Helper, files: KeptFiles, is_temporary: bool) -> Revival {
        Revival { helper, files, is_temporary }
    }

    /// Tells the keeper how the pool is imported now. That there is none is logged: the mounts end with this process then.
    pub fn renew(&self, pool: &Pool, env: &Env) {
        let revived = RevivedPool {
            guid: pool.guid().to_string(),
            name: pool.name().to_owned(),
            temporary_name: self.is_temporary.then(|| pool.name().to_owned()),
            devices: pool.tree().leaves().map(|leaf| PathBuf::from(leaf.name())).collect(),
        };
        let Ok(pool) = serde_json::to_string(&revived) else { return };
        let plan = RevivalPlan { pool, deaths_max: env.tunable(CENOTE_DEATHS_MAX) };
        if let Err(error) = self.helper.plan_revival(plan, &self.files) {
            tracing::debug!("no other process is started when this one dies: {error}");
        }
    }

    /// Whose program the next process has, in the place of this one's. Errors: there is no keeper, or it refuses.
    pub fn start_next(&self, process: Option<u32>) -> Result<()> {
        self.helper.start_next(process)
    }

    /// This process ends in order: nobody is to start another one.
    pub fn end(&self) {
        if let Err(error) = self.helper.retire() {
            tracing::debug!("there is no keeper: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_for_once_is_not_done_again() {
        let line = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let options = ImportOptions {
            rewind: true,
            force: true,
            checkpoint: true,
            adopt: true,
            no_mount: true,
            history: Some("zpool import".to_owned()),
            props: vec![line("altroot", "/mnt"), line("comment", "x"), line("readonly", "on")],
            mount_options: Some("noexec".to_owned()),
            pool: Some("tank".to_owned()),
            search: vec!["/dev".into()],
            ..ImportOptions::default()
        };
        let pool = r#"{"guid":"7","name":"tank","temporary_name":null,"devices":["/dev/a"]}"#;
        let expect = ImportOptions {
            props: vec![line("altroot", "/mnt"), line("readonly", "on")],
            mount_options: Some("noexec".to_owned()),
            pool: Some("7".to_owned()),
            search: vec!["/dev/a".into()],
            ..ImportOptions::default()
        };
        assert_eq!(import_of(&begin(&options), pool), Some(expect));
        assert_eq!(named(pool), Some(("tank".to_owned(), Guid::new(7))));
        assert_eq!(import_of("{}", pool), None);
        assert_eq!(import_of(&begin(&options), "[]"), None);
    }
}
