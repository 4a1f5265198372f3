//! What `zpool import` tells of a pool that could be imported, or could not.

use base::{Env, Kind};
use daemon::import::{ImportOptions, features};
use daemon::{hostid, report as gather};
use format::uberblock::Uberblock;
use pool::{Candidate, OpenOptions, Pool, PoolState, Rewind};
use protocol::pool_report::*;
use protocol::words::one_line;
use vdev::{Tree, VdevSpec};

use super::super::names::NameStyle;
use super::super::reason::{self, Importing, Reason};
use super::super::status_options::article;

/// Cache for a look at a pool that is closed again.
const CACHE_BYTES: u64 = 64 << 20;

/// All lines about one pool.
pub fn text(env: &Env, candidate: &Candidate, args: &ImportOptions, watched: &Watched) -> String {
    let look = look(env, candidate, args, watched);
    let comment = candidate.label.opt_str("comment");
    lines(&look, candidate, comment)
}

/// A pool as an attempt to open it shows it.
struct Look {
    pool: PoolReport,
    reason: Reason,
    /// Features that stand in the way, each with its description.
    features: Vec<(String, String)>,
}

/// What came of watching a pool that is guarded.
pub type Watched = base::Result<Option<Uberblock>>;

fn look(env: &Env, candidate: &Candidate, args: &ImportOptions, watched: &Watched) -> Look {
    let rewind = match args.txg {
        Some(txg) => Rewind::Exactly(txg),
        None => args.txg_max.map_or(Rewind::Newest, Rewind::AtMost),
    };
    let options = OpenOptions { rewind, cache_bytes: Some(CACHE_BYTES), ..OpenOptions::default() };
    let mut report = PoolReport {
        name: candidate.name.clone(),
        guid: candidate.guid,
        version: candidate.version,
        ..PoolReport::default()
    };
    let mut features = Vec::new();
    let mut is_readable = false;
    if (1..=28).contains(&candidate.version) || candidate.version == protocol::pool_properties::VERSION {
        let attempt = Pool::attempt(env, candidate, &options);
        let tree = attempt.tree.or_else(|| labels_tree(candidate));
        report.root = tree.as_ref().map_or_else(VdevReport::default, |tree| gather::tree(tree, candidate, &[]));
        match attempt.pool {
            Ok(pool) => {
                gather::identity(&pool, &mut report);
                features = pool.features().unwritable();
                is_readable = true;
                if !features.is_empty() {
                    (report.root.state, report.root.aux) = (VdevState::Unavail, Aux::UnsupFeat);
                }
            }
            Err(e) => {
                tracing::info!(pool = candidate.name, "cannot be opened: {e}");
                features = features::in_error(&e);
                fail(&mut report.root, &e);
            }
        }
    } else {
        let tree = labels_tree(candidate);
        report.root = tree.as_ref().map_or_else(VdevReport::default, |tree| gather::tree(tree, candidate, &[]));
        (report.root.state, report.root.aux) = (VdevState::Unavail, Aux::VersionNewer);
    }
    report.root.kind = "root".to_owned();
    let is_refused = watched.is_err();
    if is_refused {
        (report.root.state, report.root.aux) = (VdevState::Unavail, Aux::Active);
    }
    let lacks_hostid = is_refused && hostid::system() == 0;
    let is_elsewhere = is_elsewhere(candidate);
    let importing = Importing { is_elsewhere, is_active: is_refused && !lacks_hostid, lacks_hostid, is_readable };
    let reason = reason::of(&report, Some(importing));
    Look { pool: report, reason, features }
}

/// Whether labels say that another machine has the pool in use.
fn is_elsewhere(candidate: &Candidate) -> bool {
    let hostid = candidate.hostid.unwrap_or(0);
    hostid != 0 && hostid != hostid::system() && candidate.state == PoolState::Active
}

fn labels_tree(candidate: &Candidate) -> Option<std::sync::Arc<Tree>> {
    let devices = candidate.devices.iter().filter_map(|found| Some((found.guid()?, found.device.clone())));
    let tree = Tree::open(VdevSpec::parse_root(&candidate.vdev_tree).ok()?, &devices.collect()).ok()?;
    Some(std::sync::Arc::new(tree))
}

/// The root of a pool that cannot be opened: what its vdevs say, or else that its data is damaged.
fn fail(root: &mut VdevReport, error: &base::Error) {
    let lacks_top = root.children.iter().any(|top| top.kind == "missing");
    (root.state, root.aux) = match error.kind() {
        Kind::Unsupported => (VdevState::Unavail, Aux::UnsupFeat),
        _ if lacks_top => (VdevState::Unavail, Aux::BadGuidSum),
        _ if root.state == VdevState::Unavail && root.aux != Aux::None => return,
        Kind::Missing => (VdevState::Unavail, Aux::NoReplicas),
        _ => (VdevState::Unavail, Aux::CorruptData),
    };
}

fn lines(look: &Look, candidate: &Candidate, comment: Option<&str>) -> String {
    let indent = if comment.is_some() { " " } else { "" };
    let root = &look.pool.root;
    let name = one_line(&look.pool.name);
    let mut text = format!("{indent}  pool: {name}\n{indent}    id: {}\n", look.pool.guid);
    let destroyed = if candidate.state == PoolState::Destroyed { " (DESTROYED)" } else { "" };
    text += &format!("{indent} state: {}{destroyed}\n", root.word());
    if let Some(status) = status(look.reason, indent) {
        text += &format!("{indent}status: {status}\n");
        if matches!(look.reason, Reason::UnsupFeatRead | Reason::UnsupFeatWrite) {
            text += &features::lines(&look.features);
        }
    }
    let action = match look.reason {
        Reason::HostidActive => format!(
            "The pool must be exported from {} (hostid={:x})\n\t{indent}before it can be safely imported.",
            one_line(candidate.hostname.as_deref().unwrap_or("<unknown>")),
            candidate.hostid.unwrap_or(0)
        ),
        reason => action(reason, root.state, indent),
    };
    text += &format!("{indent}action: {action}\n");
    if let Some(comment) = comment {
        text += &format!("comment: {}\n", one_line(comment));
    }
    if root.state == VdevState::Unavail && root.aux == Aux::CorruptData {
        text += &match candidate.state {
            PoolState::Destroyed => {
                format!("\t{indent}The pool was destroyed, but can be imported using the '-Df' flags.\n")
            }
            PoolState::Exported => String::new(),
            _ => format!(
                "\t{indent}The pool may be active on another system, but can be imported using\n\
                 \t{indent}the '-f' flag.\n"
            ),
        };
    }
    if let Some(id) = look.reason.message_id() {
        text += &format!("{indent}   see: {}\n", article(id));
    }
    text += &format!("{indent}config:\n\n");
    text += &config(&look.pool, &name);
    if look.reason == Reason::BadGuidSum {
        text += &format!(
            "\n\t{indent}Additional devices are known to be part of this pool, though their\n\
             \t{indent}exact configuration cannot be determined.\n"
        );
    }
    text
}

fn status(reason: Reason, indent: &str) -> Option<String> {
    Some(match reason {
        Reason::Ok
        | Reason::CorruptData
        | Reason::FailingDev
        | Reason::FailingDevReadOnly
        | Reason::RebuildScrub
        | Reason::RemovedDev
        | Reason::IoFailure(_) => return None,
        Reason::MissingDevR | Reason::MissingDevNr | Reason::BadGuidSum => {
            "One or more devices are missing from the system.".to_owned()
        }
        Reason::CorruptLabelR | Reason::CorruptLabelNr => "One or more devices contains corrupted data.".to_owned(),
        Reason::LargeSectors => "One or more devices have larger sectors than their vdev was made for.".to_owned(),
        Reason::StaleDev => "One or more devices lack what was written while they were away.".to_owned(),
        Reason::OfflineDev => "One or more devices are offlined.".to_owned(),
        Reason::CorruptPool => "The pool metadata is corrupted.".to_owned(),
        Reason::VersionOlder => "The pool is formatted using a legacy on-disk version.".to_owned(),
        Reason::VersionNewer => "The pool is formatted using an incompatible version.".to_owned(),
        Reason::FeatDisabled => format!(
            "Some supported features are not enabled on the pool.\n\
             \t{indent}(Note that they may be intentionally disabled if the\n\
             \t{indent}'compatibility' property is set.)"
        ),
        Reason::CompatibilityErr => {
            format!("Error reading or parsing the file(s) indicated by the 'compatibility'\n\t{indent}property.")
        }
        Reason::IncompatibleFeat => format!(
            "One or more features are enabled on the pool despite not being\n\
             \t{indent}requested by the 'compatibility' property."
        ),
        Reason::UnsupFeatRead => "The pool uses the following feature(s) not supported on this system:".to_owned(),
        Reason::UnsupFeatWrite => format!(
            "The pool can only be accessed in read-only mode on this system. It\n\
             \t{indent}cannot be accessed in read-write mode because it uses the following\n\
             \t{indent}feature(s) not supported on this system:"
        ),
        Reason::HostidMismatch => "The pool was last accessed by another system.".to_owned(),
        Reason::HostidActive => "The pool is currently imported by another system.".to_owned(),
        Reason::HostidRequired => format!(
            "The pool has the multihost property on.  It cannot\n\
             \t{indent}be safely imported when the system hostid is not set."
        ),
        Reason::FaultedDevR | Reason::FaultedDevNr => "One or more devices are faulted.".to_owned(),
        Reason::BadLog => "An intent log record cannot be read.".to_owned(),
        Reason::Resilvering => "One or more devices were being resilvered.".to_owned(),
        Reason::Errata(number) => format!("Errata #{number} detected."),
    })
}

fn action(reason: Reason, state: VdevState, indent: &str) -> String {
    match (state, reason) {
        (VdevState::Healthy, Reason::VersionOlder | Reason::FeatDisabled) => format!(
            "The pool can be imported using its name or numeric identifier, though\n\
             \t{indent}some features will not be available without an explicit 'zpool upgrade'."
        ),
        (VdevState::Healthy, Reason::CompatibilityErr) => format!(
            "The pool can be imported using its name or numeric\n\
             \t{indent}identifier, though the file(s) indicated by its 'compatibility'\n\
             \t{indent}property cannot be parsed at this time."
        ),
        (VdevState::Healthy, Reason::HostidMismatch) => {
            format!("The pool can be imported using its name or numeric identifier and\n\t{indent}the '-f' flag.")
        }
        (VdevState::Healthy, Reason::Errata(number)) => errata_action(number, indent),
        (VdevState::Healthy, _) => "The pool can be imported using its name or numeric identifier.".to_owned(),
        (VdevState::Degraded, _) => format!(
            "The pool can be imported despite missing or damaged devices.  The\n\
             \t{indent}fault tolerance of the pool may be compromised if imported."
        ),
        (_, Reason::VersionNewer) => format!(
            "The pool cannot be imported.  Access the pool on a system running newer\n\
             \t{indent}software, or recreate the pool from backup."
        ),
        (_, Reason::UnsupFeatRead) => format!(
            "The pool cannot be imported. Access the pool on a system that supports\n\
             \t{indent}the required feature(s), or recreate the pool from backup."
        ),
        (_, Reason::UnsupFeatWrite) => format!(
            "The pool cannot be imported in read-write mode. Import the pool with\n\
             \t{indent}'-o readonly=on', access the pool on a system that supports the\n\
             \t{indent}required feature(s), or recreate the pool from backup."
        ),
        (_, Reason::MissingDevR | Reason::MissingDevNr | Reason::BadGuidSum) => {
            format!("The pool cannot be imported. Attach the missing\n\t{indent}devices and try again.")
        }
        (_, Reason::LargeSectors) => format!(
            "The pool cannot be imported. Copy the devices, byte by byte, to others with\n\t{indent}smaller sectors."
        ),
        (_, Reason::HostidRequired) => "Set a unique system hostid with the zgenhostid(8) command.".to_owned(),
        _ => "The pool cannot be imported due to damaged devices or data.".to_owned(),
    }
}

fn errata_action(number: u64, indent: &str) -> String {
    match number {
        1 => format!(
            "The pool can be imported using its name or numeric identifier,\n\
             \t{indent}however there is a compatibility issue which should be corrected\n\
             \t{indent}by scrubbing the pool with OpenZFS"
        ),
        2 => format!(
            "The pool cannot be imported with this version of ZFS due to\n\
             \t{indent}an active asynchronous destroy. Revert to an earlier version\n\
             \t{indent}and allow the destroy to complete before updating."
        ),
        3 => format!(
            "Existing encrypted datasets contain an on-disk incompatibility, which\n\
             \t{indent}needs to be corrected. Backup these datasets to new encrypted datasets\n\
             \t{indent}and destroy the old ones."
        ),
        _ => format!(
            "Existing encrypted snapshots and bookmarks contain an on-disk\n\
             \t{indent}incompatibility. This may cause on-disk corruption if they are sent\n\
             \t{indent}and received. To correct the issue, enable the bookmark_v2 feature.\n\
             \t{indent}No additional action is needed if there are no encrypted snapshots or\n\
             \t{indent}bookmarks. If preserving the encrypted snapshots and bookmarks is\n\
             \t{indent}required, use a non-raw send to backup and restore them. Alternately,\n\
             \t{indent}they may be removed to resolve the incompatibility."
        ),
    }
}

fn config(pool: &PoolReport, name: &str) -> String {
    let style = NameStyle::default();
    let aux: Vec<&VdevReport> = pool.spares.iter().chain(&pool.caches).collect();
    let width = style.width(&[&pool.root], name, 0).max(style.width(&aux, name, 2)).max(10);
    let mut text = String::new();
    vdev_lines(&pool.root, name, 0, width, &mut text);
    for (heading, vdevs) in [("cache", &pool.caches), ("spares", &pool.spares)] {
        for (i, vdev) in vdevs.iter().enumerate() {
            if i == 0 {
                text += &format!("\t{heading}\n");
            }
            text += &format!("\t  {}\n", style.name(vdev, name));
        }
    }
    for class in ["dedup", "special", "logs"] {
        let is_of_class = |top: &&VdevReport| match class {
            "logs" => top.is_log,
            _ => !top.is_log && !top.is_indirect() && top.bias.as_deref() == Some(class),
        };
        for (i, top) in pool.root.children.iter().filter(is_of_class).enumerate() {
            if i == 0 {
                text += &format!("\t{class}\t\n");
            }
            vdev_lines(top, name, 2, width, &mut text);
        }
    }
    text
}

fn vdev_lines(vdev: &VdevReport, pool: &str, depth: usize, width: usize, out: &mut String) {
    if matches!(vdev.kind.as_str(), "missing" | "hole") {
        return;
    }
    let name = NameStyle::default().name(vdev, pool);
    let name_width = width.saturating_sub(depth);
    *out += &format!("\t{:depth$}{:name_width$}  {}", "", name, vdev.word());
    if vdev.aux != Aux::None {
        // other words than for a pool in use
        let words = match vdev.aux {
            Aux::BadLog | Aux::External | Aux::SplitPool | Aux::Spared => "corrupted data",
            aux => aux.words(),
        };
        *out += &format!("  {words}");
    }
    *out += "\n";
    let below = vdev.children.iter().filter(|child| child.is_normal());
    below.for_each(|child| vdev_lines(child, pool, depth + 2, width, out));
}
