//! Why a pool is not simply healthy: the most serious thing that can be said of it, in the words that
//! `zpool status` and `zpool import` have for it.

use daemon::compat::{self, Allowed};
use format::feature;
use protocol::pool_report::*;

/// What is to be said of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nothing.
    Ok,
    /// It is being resilvered.
    Resilvering,
    /// It was resilvered sequentially and not scrubbed since.
    RebuildScrub,
    /// It was last in use on another machine.
    HostidMismatch,
    /// It is guarded, and another machine has it.
    HostidActive,
    /// It is guarded, and this machine has no id.
    HostidRequired,
    /// Its version is not known.
    VersionNewer,
    /// Features that are not known forbid reading.
    UnsupFeatRead,
    /// Features that are not known forbid writing.
    UnsupFeatWrite,
    /// Top-level vdevs are missing.
    BadGuidSum,
    /// Nothing is written to it at present.
    IoFailure(Suspended),
    /// The intent log cannot be read.
    BadLog,
    /// Devices are faulted, more than the redundancy bears.
    FaultedDevNr,
    /// Devices are missing, more than the redundancy bears.
    MissingDevNr,
    /// Devices have no good label, more than the redundancy bears.
    CorruptLabelNr,
    /// The pool's own objects cannot be read.
    CorruptPool,
    /// Files are damaged.
    CorruptData,
    /// As above, within the redundancy.
    FaultedDevR,
    /// As above, within the redundancy.
    MissingDevR,
    /// As above, within the redundancy.
    CorruptLabelR,
    /// The sectors of devices are larger than those of their vdev, which are not used for that.
    LargeSectors,
    /// Devices lack what was written while they were away.
    StaleDev,
    /// Devices had errors.
    FailingDev,
    /// Devices had errors, and nothing is written to the pool.
    FailingDevReadOnly,
    /// Devices are offline.
    OfflineDev,
    /// Devices were taken out.
    RemovedDev,
    /// It suffers from an old mistake.
    Errata(u64),
    /// Its version is old.
    VersionOlder,
    /// It lacks features.
    FeatDisabled,
    /// Its feature sets cannot be read.
    CompatibilityErr,
    /// It has features beyond its feature sets.
    IncompatibleFeat,
}

/// What is known of a pool beside its report, when it could be imported but is not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Importing {
    /// Whether its labels say that it is in use on a machine with another host id.
    pub is_elsewhere: bool,
    /// It is guarded by property multihost, and another machine has it.
    pub is_active: bool,
    /// It is guarded by property multihost, and this machine has no id.
    pub lacks_hostid: bool,
    /// Whether all that forbids opening it is needed for writing only.
    pub is_readable: bool,
}

/// The most serious reason; `importing` for a pool that is not imported.
pub fn of(pool: &PoolReport, importing: Option<Importing>) -> Reason {
    let root = &pool.root;
    if let Some(reason) = scan_reason(pool) {
        return reason;
    }
    if importing.is_some_and(|importing| importing.lacks_hostid) {
        return Reason::HostidRequired;
    }
    if importing.is_some_and(|importing| importing.is_active) {
        return Reason::HostidActive;
    }
    if importing.is_some_and(|importing| importing.is_elsewhere) {
        return Reason::HostidMismatch;
    }
    if let Some(suspended) = pool.suspended {
        return Reason::IoFailure(suspended);
    }
    if root.state == VdevState::Unavail
        && let Some(reason) = unopened(root, importing)
    {
        return reason;
    }
    if importing.is_none() && pool.error_count != 0 {
        return Reason::CorruptData;
    }
    if any(root, &|vdev| vdev.state == VdevState::Faulted) {
        return Reason::FaultedDevR;
    }
    if any_here_or_cache(pool, &|vdev| vdev.state == VdevState::Unavail && vdev.aux == Aux::OpenFailed) {
        return Reason::MissingDevR;
    }
    if any(root, &has_large_sectors) {
        return Reason::LargeSectors;
    }
    if any_here_or_cache(pool, &|vdev| vdev.state == VdevState::Unavail) {
        return Reason::CorruptLabelR;
    }
    let has_errors = |vdev: &VdevReport| vdev.state == VdevState::Degraded || vdev.errors != [0; 3];
    if importing.is_none() && any_here_or_cache(pool, &has_errors) {
        return if pool.is_writable { Reason::FailingDev } else { Reason::FailingDevReadOnly };
    }
    if any(root, &|vdev| vdev.state == VdevState::Offline) {
        return Reason::OfflineDev;
    }
    if any(root, &|vdev| vdev.state == VdevState::Removed) {
        return Reason::RemovedDev;
    }
    if any(root, &|vdev| vdev.awaits_resilver) {
        return Reason::StaleDev;
    }
    if pool.errata != 0 {
        return Reason::Errata(pool.errata);
    }
    features_reason(pool, importing.is_some())
}

fn scan_reason(pool: &PoolReport) -> Option<Reason> {
    if pool.is_resilvering() {
        return Some(Reason::Resilvering);
    }
    let rebuilds = || pool.root.children.iter().filter_map(|top| top.rebuild.as_ref());
    if rebuilds().any(|rebuild| rebuild.progress == Progress::Running) {
        return Some(Reason::Resilvering);
    }
    let end_s =
        rebuilds().filter(|rebuild| rebuild.progress == Progress::Finished).map(|rebuild| rebuild.end_s).max()?;
    let is_scrubbed = match &pool.scan {
        None => false,
        Some(scan) => scan.is_resilver || scan.progress != Progress::Finished || scan.end_s >= end_s,
    };
    (!is_scrubbed).then_some(Reason::RebuildScrub)
}

fn unopened(root: &VdevReport, importing: Option<Importing>) -> Option<Reason> {
    let is_missing = |vdev: &VdevReport| vdev.state == VdevState::Unavail && vdev.aux == Aux::OpenFailed;
    Some(match root.aux {
        Aux::VersionNewer => Reason::VersionNewer,
        Aux::UnsupFeat if importing.is_some_and(|importing| importing.is_readable) => Reason::UnsupFeatWrite,
        Aux::UnsupFeat => Reason::UnsupFeatRead,
        Aux::BadGuidSum => Reason::BadGuidSum,
        Aux::BadLog => Reason::BadLog,
        _ if any(root, &|vdev| vdev.state == VdevState::Faulted) => Reason::FaultedDevNr,
        _ if any(root, &is_missing) => Reason::MissingDevNr,
        _ if any(root, &has_large_sectors) => Reason::LargeSectors,
        _ if any(root, &|vdev| vdev.state == VdevState::Unavail) => Reason::CorruptLabelNr,
        Aux::CorruptData => Reason::CorruptPool,
        _ => return None,
    })
}

fn has_large_sectors(vdev: &VdevReport) -> bool {
    vdev.state == VdevState::Unavail && vdev.aux == Aux::BadAshift
}

/// Whether `test` holds for a leaf; those that are being replaced have no say.
fn any(vdev: &VdevReport, test: &dyn Fn(&VdevReport) -> bool) -> bool {
    match vdev.kind.as_str() {
        "replacing" => false,
        // a pool whose data is beyond reach may have no vdevs below its root
        _ if vdev.children.is_empty() => vdev.kind != "root" && test(vdev),
        _ => vdev.children.iter().any(|child| any(child, test)),
    }
}

fn any_here_or_cache(pool: &PoolReport, test: &dyn Fn(&VdevReport) -> bool) -> bool {
    any(&pool.root, test) || pool.caches.iter().any(test)
}

fn features_reason(pool: &PoolReport, is_importing: bool) -> Reason {
    let sets = pool.compatibility.as_deref().filter(|_| !is_importing).unwrap_or("off");
    if pool.version != protocol::pool_properties::VERSION {
        return if sets == "legacy" { Reason::Ok } else { Reason::VersionOlder };
    }
    let Ok(allowed) = Allowed::load(sets) else { return Reason::CompatibilityErr };
    for feature in feature::FEATURES {
        let is_listed = pool.features.iter().any(|(guid, _)| guid == feature.guid);
        // nobody is sent to `zpool upgrade` for what it cannot give, or what other systems may lack
        let is_due = compat::is_given(feature.name) && (!allowed.is_all() || feature::is_baseline(feature));
        match allowed.has(feature.name) {
            true if is_due && !is_listed => return Reason::FeatDisabled,
            false if is_listed => return Reason::IncompatibleFeat,
            _ => {}
        }
    }
    Reason::Ok
}

impl Reason {
    /// Id of the article about it.
    pub fn message_id(self) -> Option<&'static str> {
        Some(match self {
            Reason::MissingDevR => "ZFS-8000-2Q",
            Reason::MissingDevNr => "ZFS-8000-3C",
            Reason::CorruptLabelR => "ZFS-8000-4J",
            Reason::CorruptLabelNr => "ZFS-8000-5E",
            Reason::BadGuidSum => "ZFS-8000-6X",
            Reason::CorruptPool => "ZFS-8000-72",
            Reason::CorruptData => "ZFS-8000-8A",
            Reason::FailingDev | Reason::FailingDevReadOnly => "ZFS-8000-9P",
            Reason::VersionNewer => "ZFS-8000-A5",
            Reason::HostidMismatch | Reason::HostidActive | Reason::HostidRequired => "ZFS-8000-EY",
            Reason::BadLog => "ZFS-8000-K4",
            Reason::IoFailure(Suspended::Wait | Suspended::Multihost) => "ZFS-8000-HC",
            Reason::IoFailure(Suspended::Continue) => "ZFS-8000-JQ",
            Reason::Errata(_) => "ZFS-8000-ER",
            _ => return None,
        })
    }

    /// Whether `zpool status -x` passes over it.
    pub fn is_healthy(self) -> bool {
        use Reason::*;
        matches!(self, Ok | VersionOlder | FeatDisabled | CompatibilityErr | IncompatibleFeat)
    }

    /// The status and action of an imported pool, each ending with a newline.
    pub fn words(self) -> Option<(String, String)> {
        let (status, action) = match self {
            Reason::Errata(number) => return Some(errata_words(number)),
            Reason::Ok => return None,
            _ => self.device_words().or(self.feature_words()).or(self.pool_words()).unwrap_or_default(),
        };
        Some((format!("{status}\n"), format!("{action}\n")))
    }

    /// Status and action where devices are the reason.
    #[rustfmt::skip]
    fn device_words(self) -> Option<(&'static str, &'static str)> {
        Some(match self {
            Reason::MissingDevR => (
                "One or more devices could not be opened.  Sufficient replicas exist for\n\tthe pool to continue functioning in a degraded state.",
                "Attach the missing device and online it using 'zpool online'.",
            ),
            Reason::MissingDevNr => (
                "One or more devices could not be opened.  There are insufficient\n\treplicas for the pool to continue functioning.",
                "Attach the missing device and online it using 'zpool online'.",
            ),
            Reason::CorruptLabelR => (
                "One or more devices could not be used because the label is missing or\n\tinvalid.  Sufficient replicas exist for the pool to continue\n\tfunctioning in a degraded state.",
                "Replace the device using 'zpool replace'.",
            ),
            Reason::CorruptLabelNr => (
                "One or more devices could not be used because the label is missing \n\tor invalid.  There are insufficient replicas for the pool to continue\n\tfunctioning.",
                "Destroy and re-create the pool from\n\ta backup source.",
            ),
            Reason::FaultedDevR => (
                "One or more devices are faulted in response to persistent errors.\n\tSufficient replicas exist for the pool to continue functioning in a\n\tdegraded state.",
                "Replace the faulted device, or use 'zpool clear' to mark the device\n\trepaired.",
            ),
            Reason::FaultedDevNr => (
                "One or more devices are faulted in response to persistent errors.  There are insufficient replicas for the pool to\n\tcontinue functioning.",
                "Destroy and re-create the pool from a backup source.  Manually marking the device\n\trepaired using 'zpool clear' may allow some data to be recovered.",
            ),
            Reason::LargeSectors => (
                "One or more devices have larger sectors than their vdev was made for\n\t(property 'ashift'), and are not used.",
                "Replace them with devices of smaller sectors.  If there are too few\n\tothers, copy them to such devices, byte by byte.",
            ),
            Reason::StaleDev => (
                "One or more devices were away and lack what was written meanwhile.  Only\n\tthe other devices of the same vdev have it.",
                "Keep the other devices.  What they have is copied when the pool is imported\n\twritable, or errors are cleared with 'zpool clear'.",
            ),
            Reason::FailingDev => (
                "One or more devices has experienced an unrecoverable error.  An\n\tattempt was made to correct the error.  Applications are unaffected.",
                "Determine if the device needs to be replaced, and clear the errors\n\tusing 'zpool clear' or replace the device with 'zpool replace'.",
            ),
            Reason::FailingDevReadOnly => (
                "One or more devices has experienced an unrecoverable error.  The pool\n\tis read-only, so no attempt was made to correct the error.\n\tApplications are unaffected.",
                "Determine if the device needs to be replaced, and import the pool\n\twritable to have the errors corrected.",
            ),
            Reason::OfflineDev => (
                "One or more devices has been taken offline by the administrator.\n\tSufficient replicas exist for the pool to continue functioning in a\n\tdegraded state.",
                "Online the device using 'zpool online' or replace the device with\n\t'zpool replace'.",
            ),
            Reason::RemovedDev => (
                "One or more devices have been removed.\n\tSufficient replicas exist for the pool to continue functioning in a\n\tdegraded state.",
                "Online the device using 'zpool online' or replace the device with\n\t'zpool replace'.",
            ),
            Reason::BadGuidSum => (
                "One or more devices are missing from the system.",
                "Attach the missing device and online it using 'zpool online'.",
            ),
            _ => return None,
        })
    }

    /// The same where versions or features are.
    #[rustfmt::skip]
    fn feature_words(self) -> Option<(&'static str, &'static str)> {
        Some(match self {
            Reason::VersionOlder => (
                "The pool is formatted using a legacy on-disk format.  The pool can\n\tstill be used, but some features are unavailable.",
                "Upgrade the pool using 'zpool upgrade'.  Once this is done, the\n\tpool will no longer be accessible on software that does not support\n\tfeature flags.",
            ),
            Reason::VersionNewer => (
                "The pool has been upgraded to a newer, incompatible on-disk version.\n\tThe pool cannot be accessed on this system.",
                "Access the pool from a system running more recent software, or\n\trestore the pool from backup.",
            ),
            Reason::FeatDisabled => (
                "Some supported and requested features are not enabled on the pool.\n\tThe pool can still be used, but some features are unavailable.",
                "Enable all features using 'zpool upgrade'. Once this is done,\n\tthe pool may no longer be accessible by software that does not support\n\tthe features. See zpool-features(7) for details.",
            ),
            Reason::CompatibilityErr => (
                "This pool has a compatibility list specified, but it could not be\n\tread/parsed at this time. The pool can still be used, but this\n\tshould be investigated.",
                "Check the value of the 'compatibility' property against the\n\tappropriate file in /etc/zfs/compatibility.d or /usr/share/zfs/compatibility.d.",
            ),
            Reason::IncompatibleFeat => (
                "One or more features are enabled on the pool despite not being\n\trequested by the 'compatibility' property.",
                "Consider setting 'compatibility' to an appropriate value, or\n\tadding needed features to the relevant file in\n\t/etc/zfs/compatibility.d or /usr/share/zfs/compatibility.d.",
            ),
            Reason::UnsupFeatRead => (
                "The pool cannot be accessed on this system because it uses the\n\tfollowing feature(s) not supported on this system:",
                "Access the pool from a system that supports the required feature(s),\n\tor restore the pool from backup.",
            ),
            Reason::UnsupFeatWrite => (
                "The pool can only be accessed in read-only mode on this system. It\n\tcannot be accessed in read-write mode because it uses the following\n\tfeature(s) not supported on this system:",
                "The pool cannot be accessed in read-write mode. Import the pool with\n\t\"-o readonly=on\", access the pool from a system that supports the\n\trequired feature(s), or restore the pool from backup.",
            ),
            _ => return None,
        })
    }

    /// The same of other reasons.
    #[rustfmt::skip]
    fn pool_words(self) -> Option<(&'static str, &'static str)> {
        Some(match self {
            Reason::Resilvering => (
                "One or more devices is currently being resilvered.  The pool will\n\tcontinue to function, possibly in a degraded state.",
                "Wait for the resilver to complete.",
            ),
            Reason::RebuildScrub => (
                "One or more devices have been sequentially resilvered, scrubbing\n\tthe pool is recommended.",
                "Verify all data checksums with 'zdb -c'.",
            ),
            Reason::CorruptData => (
                "One or more devices has experienced an error resulting in data\n\tcorruption.  Applications may be affected.",
                "Restore the file in question if possible.  Otherwise restore the\n\tentire pool from backup.",
            ),
            Reason::CorruptPool => (
                "The pool metadata is corrupted and the pool cannot be opened.",
                "Destroy and re-create the pool from\n\ta backup source.",
            ),
            Reason::IoFailure(Suspended::Multihost) => (
                "The pool is suspended because multihost writes failed or were delayed;\n\tanother system could import the pool undetected.",
                "Make sure the pool's devices are connected, then reboot your system and\n\timport the pool or run 'zpool clear' to resume the pool.",
            ),
            Reason::IoFailure(_) => (
                "One or more devices are faulted in response to IO failures.",
                "Make sure the affected devices are connected, then run 'zpool clear'.",
            ),
            Reason::BadLog => (
                "An intent log record could not be read.\n\tWaiting for administrator intervention to fix the faulted pool.",
                "Either restore the affected device(s) and run 'zpool online',\n\tor ignore the intent log records by running 'zpool clear'.",
            ),
            Reason::HostidMismatch => (
                "Mismatch between pool hostid and system hostid on imported pool.\n\tThis pool was previously imported into a system with a different hostid,\n\tand then was verbatim imported into this system.",
                "Export this pool on all systems on which it is imported.\n\tThen import it to correct the mismatch.",
            ),
            _ => return None,
        })
    }
}

#[rustfmt::skip]
fn errata_words(number: u64) -> (String, String) {
    let (more, action) = match number {
        1 => ("", "To correct the issue, scrub the pool with OpenZFS.\n"),
        3 => (
            "\tExisting encrypted datasets contain an on-disk incompatibility\n\t which needs to be corrected.\n",
            "To correct the issue backup existing encrypted datasets to new\n\tencrypted datasets and destroy the old ones. 'zfs mount -o ro' can\n\tbe used to temporarily mount existing encrypted datasets readonly.\n",
        ),
        4 => (
            "\tExisting encrypted snapshots and bookmarks contain an on-disk\n\tincompatibility. This may cause on-disk corruption if they are\n\tsent and received.\n",
            "To correct the issue, enable the bookmark_v2 feature. No additional\n\taction is needed if there are no encrypted snapshots or bookmarks.\n\tIf preserving the encrypted snapshots and bookmarks is required, use\n\ta non-raw send to backup and restore them. Alternately, they may be\n\tremoved to resolve the incompatibility.\n",
        ),
        _ => ("", ""),
    };
    (format!("Errata #{number} detected.\n{more}"), action.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(state: VdevState, aux: Aux) -> VdevReport {
        VdevReport { kind: "disk".into(), state, aux, ..VdevReport::default() }
    }

    fn pool(state: VdevState, aux: Aux, children: Vec<VdevReport>) -> PoolReport {
        let root = VdevReport { kind: "root".into(), state, aux, children, ..VdevReport::default() };
        let features = feature::FEATURES.iter().map(|feature| (feature.guid.to_owned(), false)).collect();
        PoolReport { root, version: 5000, features, is_writable: true, ..PoolReport::default() }
    }

    #[test]
    fn the_most_serious_wins() {
        let healthy = || leaf(VdevState::Healthy, Aux::None);
        let missing = || leaf(VdevState::Unavail, Aux::OpenFailed);
        let importing = Some(Importing::default());
        let mut one = pool(VdevState::Healthy, Aux::None, vec![healthy()]);
        assert_eq!(of(&one, None), Reason::Ok);
        one.features.remove(0);
        assert_eq!((of(&one, None), of(&one, importing)), (Reason::FeatDisabled, Reason::FeatDisabled));
        one.root.children[0].errors = [0, 0, 1];
        assert_eq!((of(&one, None), of(&one, importing)), (Reason::FailingDev, Reason::FeatDisabled));
        one.is_writable = false;
        assert_eq!(of(&one, None), Reason::FailingDevReadOnly);
        one.error_count = 3;
        assert_eq!(of(&one, None), Reason::CorruptData);
        let degraded = pool(VdevState::Degraded, Aux::None, vec![healthy(), missing()]);
        assert_eq!(of(&degraded, None), Reason::MissingDevR);
        let gone = pool(VdevState::Unavail, Aux::NoReplicas, vec![healthy(), missing()]);
        assert_eq!(of(&gone, importing), Reason::MissingDevNr);
        assert_eq!(of(&gone, Some(Importing { is_elsewhere: true, ..Importing::default() })), Reason::HostidMismatch);
        let newer = pool(VdevState::Unavail, Aux::VersionNewer, vec![]);
        assert_eq!(of(&newer, importing), Reason::VersionNewer);
        let suspended = PoolReport { suspended: Some(Suspended::Wait), ..gone.clone() };
        assert_eq!((of(&suspended, None), suspended.word()), (Reason::IoFailure(Suspended::Wait), "SUSPENDED"));
        let replacing = VdevReport {
            kind: "replacing".into(),
            children: vec![missing(), healthy()],
            ..leaf(VdevState::Degraded, Aux::None)
        };
        assert_eq!(of(&pool(VdevState::Degraded, Aux::None, vec![replacing]), None), Reason::Ok);
    }

    #[test]
    fn sets_of_features() {
        let mut one = pool(VdevState::Healthy, Aux::None, vec![leaf(VdevState::Healthy, Aux::None)]);
        one.compatibility = Some("no-such-set".into());
        assert_eq!(of(&one, None), Reason::CompatibilityErr);
        one.compatibility = Some("../passwd".into());
        assert_eq!(of(&one, None), Reason::CompatibilityErr);
        one.compatibility = Some("legacy".into());
        assert_eq!(of(&one, None), Reason::IncompatibleFeat);
        // known also where no file tells of it
        one.compatibility = Some("openzfs-2.1-linux".into());
        assert_eq!(of(&one, None), Reason::IncompatibleFeat);
        let draid = feature::FEATURES.iter().position(|feature| feature.name == "draid").unwrap();
        let all = one.features.clone();
        one.features.truncate(draid + 1);
        assert_eq!(of(&one, None), Reason::Ok);
        one.features.remove(0);
        assert_eq!(of(&one, None), Reason::FeatDisabled);
        one.features = all;
        one.compatibility = Some("legacy".into());
        one.version = 28;
        assert_eq!(of(&one, None), Reason::Ok);
    }
}
