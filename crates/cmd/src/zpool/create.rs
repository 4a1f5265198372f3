//! `zpool create`: a process is started that makes the pool, and goes on as the process of the pool.
//!
//! ```text
//!   args ──▶ spec ──▶ in_use, replication: may the devices be used? ──▶ layout    (-n)
//!                 └──▶ CreateRequest ── standard input of `cenote serve --create` ──▶ serve: makes, mounts, answers
//! ```
//!
//! All that can be checked without touching a device is checked here, so that texts and exit codes come
//! straight. The order of the checks is that of OpenZFS.

mod args;
mod draid;
pub(super) mod in_use;
mod layout;
pub(super) mod replication;
mod signature;
pub(super) mod spec;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::Path;

use daemon::compat::{self, Allowed};
use daemon::hostid;
use daemon::pool_props::{self, When};
use dsl::property::{DatasetKind, needs, rules};
use format::feature::FeatureSet;
use pool::NewPool;
use protocol::create::CreateRequest;
use protocol::pool_names;
use protocol::startup;
use protocol::wire::Hello;
use protocol::words::nicenum::nicebytes;
use protocol::words::of_system;

use super::command::{CommandResult, Stop, history_line};
use super::pools;
use args::CreateArgs;
use in_use::Complaint;

pub use in_use::{MemberState, Membership, label_of};
use spec::NewPoolSpec;

/// Bytes of the smallest device: SPA_MINDEVSIZE.
pub(super) const DEVICE_BYTES_MIN: u64 = 64 << 20;

/// Runs the command.
pub fn run(args: &[OsString]) -> CommandResult {
    let history = history_line("create", args);
    let args = CreateArgs::parse(args)?;
    let imported = pools::imported()?;
    let spec = check(&args, &imported).map_err(Stop::Failed)?;
    if args.dry_run {
        check_properties(&args).map_err(Stop::Failed)?;
        print!("{}", layout::text(&args.pool, &spec));
        return Ok(true);
    }
    let new = new_pool(&args, spec, history).map_err(Stop::Failed)?;
    check_pool(&args, &new, &imported).map_err(Stop::Failed)?;
    let failed = |why: String| Stop::Failed(format!("cannot create '{}': {why}", args.pool));
    let request = CreateRequest { pool: new, altroot: args.prop("altroot").map(str::to_owned) };
    let json = serde_json::to_vec(&request).map_err(|e| failed(e.to_string()))?;
    startup::start_with(&["--create".into()], &json).map_err(|e| failed(e.to_string()))
}

/// What is checked even without making the pool.
fn check(args: &CreateArgs, imported: &[Hello]) -> Result<NewPoolSpec, String> {
    let pool = &args.pool;
    if pool.contains('/') {
        return Err(format!(
            "cannot create '{pool}': invalid character '/' in pool name\nuse 'zfs create' to create a dataset"
        ));
    }
    if let Some(ashift) = args.prop("ashift") {
        let number: u64 = ashift.parse().map_err(|_| "ashift must be a number.".to_owned())?;
        if number != 0 && !(9..=16).contains(&number) {
            let why = "only values between 9 and 16 are allowed.";
            return Err(format!("invalid 'ashift={number}' property: {why}"));
        }
    }
    let spec = NewPoolSpec::parse(&args.vdevs)?;
    check_devices(&spec, imported, Forced::all(args.force), &|| {
        replication::complaints(&spec.vdevs, &replication::size)
    })?;
    let altroot = args.prop("altroot");
    if let Some(root) = altroot.filter(|root| !root.starts_with('/')) {
        return Err(format!("invalid alternate root '{root}': must be an absolute path"));
    }
    check_mountpoint(args.mountpoint.as_deref(), altroot, pool)?;
    Ok(spec)
}

/// Whether a device may be overwritten that is no pool's. Errors: why not, for the user; with `force`, only what
/// no force can put aside.
pub fn check_device(path: &str, force: bool) -> Result<(), String> {
    let imported = pools::imported().map_err(|(Stop::Usage(why) | Stop::Failed(why))| why)?;
    check_devices(&NewPoolSpec::parse(&[path.to_owned()])?, &imported, Forced::all(force), &Vec::new)
}

/// What stands in the way of overwriting a device that is no pool's: lines for the user; with `force`, only what no force
/// can put aside. Errors, for the user: there is no such device; pools do not answer.
pub fn device_complaints(path: &str, force: bool) -> Result<Vec<String>, String> {
    let imported = pools::imported().map_err(|(Stop::Usage(why) | Stop::Failed(why))| why)?;
    let complaints = in_use::complaints(&NewPoolSpec::parse(&[path.to_owned()])?, &imported, force);
    Ok(complaints.into_iter().map(|(Complaint::Taken(line) | Complaint::InUse(line))| line).collect())
}

/// Which doubts about devices are put aside.
#[derive(Clone, Copy, Default)]
pub(super) struct Forced {
    /// That they may be in use.
    pub in_use: bool,
    /// That they are not protected alike.
    pub uneven: bool,
    /// That their sectors are of another size than those of the pool.
    pub ashift: bool,
}

impl Forced {
    /// All of them, or none.
    pub fn all(force: bool) -> Forced {
        Forced { in_use: force, uneven: force, ashift: force }
    }

    /// Whether any is put aside.
    pub fn is_any(self) -> bool {
        self.in_use || self.uneven || self.ashift
    }
}

/// Whether devices may be used; `uneven` tells what speaks against how. What no force can put aside is an error whatever
/// is `forced`. Errors: the whole text for the user.
pub(super) fn check_devices(
    spec: &NewPoolSpec,
    imported: &[Hello],
    forced: Forced,
    uneven: &dyn Fn() -> Vec<String>,
) -> Result<(), String> {
    let how = if forced.in_use && forced.uneven {
        "the following errors must be manually repaired:"
    } else {
        "use '-f' to override the following errors:"
    };
    let text = |lines: &[String]| format!("invalid vdev specification\n{how}\n{}", lines.join("\n"));
    let (mut taken, mut in_use) = (Vec::new(), Vec::new());
    for complaint in in_use::complaints(spec, imported, forced.in_use) {
        match complaint {
            Complaint::Taken(line) => taken.push(line),
            Complaint::InUse(line) => in_use.push(line),
        }
    }
    if !taken.is_empty() {
        in_use.push(text(&taken));
    }
    if !in_use.is_empty() {
        return Err(in_use.join("\n"));
    }
    let uneven = if forced.uneven { Vec::new() } else { uneven() };
    if uneven.is_empty() { Ok(()) } else { Err(text(&uneven)) }
}

/// Whether the root file system can be mounted where it is to be.
fn check_mountpoint(mountpoint: Option<&str>, altroot: Option<&str>, pool: &str) -> Result<(), String> {
    let point = match mountpoint {
        Some("legacy" | "none") => return Ok(()),
        Some(path) if !path.starts_with('/') => {
            return Err(format!("invalid mountpoint '{path}': must be an absolute path, 'legacy', or 'none'"));
        }
        Some(path) => format!("{}{path}", altroot.unwrap_or_default()),
        None => format!("{}/{pool}", altroot.unwrap_or_default()),
    };
    let other = "use '-m' option to provide a different default";
    match std::fs::read_dir(Path::new(&point)).map(|mut entries| entries.next().is_some()) {
        Ok(true) => Err(format!("mountpoint '{point}' exists and is not empty\n{other}")),
        Ok(false) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(format!("mountpoint '{point}' : {}\n{other}", of_system(&e))),
    }
}

/// The pool to be made.
fn new_pool(args: &CreateArgs, spec: NewPoolSpec, history: String) -> Result<NewPool, String> {
    let allowed = Allowed::of_new_pool(args.prop("compatibility")).map_err(|why| format!("Error: {why}"))?;
    if let Some(warning) = &allowed.warning {
        eprintln!("Warning: {warning}");
    }
    let wishes = args.feature_wishes();
    let is_odd = |feature: &str| args.prop("compatibility").is_some() && !allowed.has(feature);
    for (feature, _) in wishes.iter().filter(|(feature, is_on)| *is_on && is_odd(feature)) {
        eprintln!("Warning: feature \"{feature}\" enabled but is not in specified 'compatibility' feature set.");
    }
    let is_elsewhere = |name: &str| matches!(name, "altroot" | "version") || name.starts_with("feature@");
    Ok(NewPool {
        name: args.pool.clone(),
        temporary_name: args.temporary_name.clone(),
        vdevs: spec.vdevs,
        spares: spec.spares,
        caches: spec.caches,
        ashift: args.prop("ashift").and_then(|ashift| ashift.parse().ok()).filter(|ashift| *ashift != 0),
        features: compat::features_for(&allowed, args.no_features, &wishes),
        properties: args.props.iter().filter(|(name, _)| !is_elsewhere(name)).cloned().collect(),
        fs_properties: args.root_props(),
        history,
        host: hostid::host(),
    })
}

fn check_properties(args: &CreateArgs) -> Result<(), String> {
    let pool = &args.pool;
    let failed = |why: &str| format!("cannot create '{pool}': {why}");
    pool_names::check_new(pool).map_err(|why| format!("{}\npool name may have been omitted", failed(&why)))?;
    for (name, value) in &args.props {
        pool_props::check(name, value, When::Create).map_err(|why| failed(&why))?;
    }
    let given = rules::check_all(&args.root_props(), DatasetKind::FileSystem).map_err(|e| failed(e.what()))?;
    let allowed = Allowed::of_new_pool(args.prop("compatibility")).map_err(|why| failed(&why))?;
    let guids = compat::features_for(&allowed, args.no_features, &args.feature_wishes());
    let enabled = FeatureSet::of(|feature| guids.iter().any(|guid| guid == feature.guid));
    needs::check(&given, enabled, false).map_err(|e| failed(e.what()))
}

/// What is checked only before the pool is really made.
fn check_pool(args: &CreateArgs, new: &NewPool, imported: &[Hello]) -> Result<(), String> {
    let pool = &args.pool;
    let failed = |why: &str| format!("cannot create '{pool}': {why}");
    check_properties(args)?;
    let name = args.temporary_name.as_ref().unwrap_or(pool);
    if imported.iter().any(|hello| hello.pool == *name) {
        return Err(failed("pool already exists"));
    }
    let spec = NewPoolSpec { vdevs: new.vdevs.clone(), spares: new.spares.clone(), caches: new.caches.clone() };
    if in_use::has_twins(&spec) {
        let why =
            "one or more vdevs refer to the same device, or one of\nthe devices is part of an active md or lvm device";
        return Err(failed(why));
    }
    if spec.leaves().any(|leaf| replication::size(&leaf.path).unwrap_or(0) < DEVICE_BYTES_MIN) {
        let least = nicebytes(DEVICE_BYTES_MIN);
        return Err(failed(&format!("one or more devices is less than the minimum size ({least})")));
    }
    Ok(())
}
