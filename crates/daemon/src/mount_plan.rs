//! Which file systems of a pool are mounted where: [`plan_below`].
//!
//! A file system is mounted at its property `mountpoint`, which what is below it in the tree inherits
//! with its own name appended, all below the folder that the pool was imported with (`-R`):
//!
//! ```text
//!   tank       mountpoint=/srv             -R /mnt ──▶  /mnt/srv
//!   tank/a     inherited from tank                      /mnt/srv/a
//!   tank/a/b   mountpoint=/b                            /mnt/b
//! ```
//!
//! Left out are those with `canmount=off` or `noauto`, with the mountpoint `none` or `legacy`, in use
//! by a zone, encrypted, redacted, and received in part.
//!
//! A pool may be a stranger's: one that was imported below another folder, or that is not on this host's list. Then
//! set-id bits and devices do not count in its mounts, whatever the properties say, unless the user that imports or
//! mounts it says so ([`MountBounds`]), and it is mounted over nothing that is there. Neither do they where a stream brought
//! the file system, unless that was set on this host; and a mountpoint that came with a stream is passed over ([`HostRule`]).
//!
//! Invariant: the order is that of the mountpoints, so that each directory is there before something
//! is mounted below it.

use std::collections::HashSet;

use base::Result;
use dsl::property::DatasetKind;
use dsl::{Property, PropertySource, PropertyValue, Sourced, Subject};
use fuse::{Direct, MountOptions, SnapDir, Transport, WriteBackCache};
use pool::Pool;

use crate::host_rule::HostRule;

/// A file system to be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMount {
    /// Its name.
    pub dataset: String,
    /// How, and where: options from its properties.
    pub options: MountOptions,
}

/// Why a file system is not mounted by itself, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // see `refused`
pub enum Refusal {
    Zoned,
    Legacy,
    NoMountpoint,
    CanmountOff,
    /// `canmount=noauto`: mounted if somebody asks for just this one.
    NotByItself,
    Encrypted,
    Partial,
    Redacted,
}

/// What an import lets the properties of file systems say.
#[derive(Clone, Debug)]
pub struct MountBounds {
    /// The folder that all mountpoints are below.
    pub altroot: Option<String>,
    /// Whether set-id bits count.
    pub setuid: bool,
    /// Whether device nodes are devices.
    pub devices: bool,
    /// What counts as set on this host.
    pub rule: HostRule,
}

impl MountBounds {
    /// Those of a pool by its rule; `mount_options` are those of the import, with commas.
    pub fn new(altroot: Option<&str>, rule: HostRule, mount_options: Option<&str>) -> MountBounds {
        let is_asked = |names: [&str; 2]| mount_options.is_some_and(|list| list.split(',').any(|o| names.contains(&o)));
        let bounds = MountBounds { altroot: altroot.map(str::to_owned), setuid: false, devices: false, rule };
        let is_trusted = bounds.rule.is_own() && bounds.root().is_none();
        MountBounds {
            setuid: is_trusted || is_asked(["suid", "setuid"]),
            devices: is_trusted || is_asked(["dev", "devices"]),
            ..bounds
        }
    }

    /// The folder that no mount leaves.
    fn root(&self) -> Option<&str> {
        self.altroot.as_deref().filter(|root| *root != "/")
    }

    /// The property `mountpoint` of a file system as far as it counts here. No mount leaves the folder of an import, so
    /// all does there. Errors: those of reading it.
    pub fn mountpoint(&self, pool: &Pool, subject: &Subject) -> Result<Option<Sourced>> {
        match self.root() {
            Some(_) => pool.dsl().property(subject, Property::Mountpoint, 0),
            None => self.rule.mountpoint(pool, subject),
        }
    }

    /// Whether a mountpoint came with a stream, and does not count.
    pub fn passes_over_mountpoint(&self, subject: &Subject) -> bool {
        self.root().is_none() && self.rule.passes_over_mountpoint(subject)
    }

    /// Whether a mount may be over what is there already.
    fn overlays(&self, pool: &Pool, subject: &Subject) -> Result<bool> {
        match self.root() {
            Some(_) => Ok(number(pool, subject, Property::Overlay)? != 0),
            None if !self.rule.is_own() && self.rule.value(subject.levels(), Property::Overlay.name()).is_none() => {
                Ok(false)
            }
            None => self.rule.gives(pool, subject, Property::Overlay),
        }
    }
}

/// The value of a property that is a number, wherever it was set.
fn number(pool: &Pool, subject: &Subject, property: Property) -> Result<u64> {
    Ok(match pool.dsl().property(subject, property, 0)?.map(|sourced| sourced.value) {
        Some(PropertyValue::Number(number)) => number,
        _ => property.default_number(),
    })
}

/// The file systems that are mounted by themselves, of `top` and what is below it in the tree, in the order in which to
/// mount them; `refuse` is told of the others. File systems that cannot be read are logged, and left out.
pub fn plan_below(
    pool: &Pool,
    bounds: &MountBounds,
    top: &Subject,
    refuse: &mut dyn FnMut(&Subject, Refusal),
) -> Result<Vec<PlannedMount>> {
    let mut plans = Vec::new();
    let mut stack = vec![top.clone()];
    let mut entered = HashSet::new();
    while let Some(subject) = stack.pop() {
        // in a damaged tree, one might come by again and again
        if subject.kind() != DatasetKind::FileSystem || !entered.insert(subject.dir().id) {
            continue;
        }
        match plan(pool, bounds, &subject) {
            Ok(Ok(plan)) => plans.push(plan),
            Ok(Err(refusal)) => refuse(&subject, refusal),
            Err(error) => tracing::warn!(dataset = subject.name(), "not mounted: {error}"),
        }
        match pool.dsl().subjects_below(&subject) {
            Ok(below) => stack.extend(
                below
                    .into_iter()
                    .filter_map(|subject| subject.inspect_err(|error| tracing::warn!("not mounted: {error}")).ok()),
            ),
            Err(error) => tracing::warn!(dataset = subject.name(), "not mounted below: {error}"),
        }
    }
    plans.sort_by_cached_key(|plan| path_order(&plan.options.mountpoint.to_string_lossy()));
    Ok(plans)
}

/// How one file system is mounted, or why it is not.
pub(super) fn plan(pool: &Pool, bounds: &MountBounds, subject: &Subject) -> Result<Result<PlannedMount, Refusal>> {
    let number = |property: Property| number(pool, subject, property);
    let Some(sourced) = bounds.mountpoint(pool, subject)? else { return Ok(Err(Refusal::NoMountpoint)) };
    let mountpoint = mountpoint_text(subject.name(), &sourced, bounds.altroot.as_deref());
    let refusal = if number(Property::Zoned)? != 0 {
        Some(Refusal::Zoned)
    } else if mountpoint == "legacy" {
        Some(Refusal::Legacy)
    } else if !mountpoint.starts_with('/') {
        Some(Refusal::NoMountpoint)
    } else if number(Property::Canmount)? == CANMOUNT_OFF {
        Some(Refusal::CanmountOff)
    } else if let Some(refusal) = contents_refusal(pool, subject)? {
        Some(refusal)
    } else if number(Property::Canmount)? == CANMOUNT_NOAUTO {
        Some(Refusal::NotByItself)
    } else {
        None
    };
    if let Some(refusal) = refusal {
        return Ok(Err(refusal));
    }
    Ok(Ok(PlannedMount { dataset: subject.name().to_owned(), options: options(pool, bounds, subject, &mountpoint)? }))
}

/// Why what a file system or snapshot holds cannot be shown, wherever it be mounted.
pub(super) fn contents_refusal(pool: &Pool, subject: &Subject) -> Result<Option<Refusal>> {
    let is_on = |property| {
        let value = pool.dsl().property(subject, property, 0)?.map(|sourced| sourced.value);
        Ok::<_, base::Error>(matches!(value, Some(PropertyValue::Number(1..))))
    };
    Ok(if is_on(Property::Zoned)? {
        Some(Refusal::Zoned)
    } else if pool.dsl().key_object(subject.dir())?.is_some() {
        Some(Refusal::Encrypted)
    } else if subject.is_inconsistent() {
        Some(Refusal::Partial)
    } else if is_on(Property::Redacted)? {
        Some(Refusal::Redacted)
    } else {
        None
    })
}

/// The options that the properties of a file system stand for.
pub(super) fn options(pool: &Pool, bounds: &MountBounds, subject: &Subject, mountpoint: &str) -> Result<MountOptions> {
    let number = |property: Property| number(pool, subject, property);
    let is_on = |property| number(property).map(|number| number != 0);
    let mut options = MountOptions::new(subject.name(), mountpoint);
    options.posix_acl = number(Property::Acltype)? == ACLTYPE_POSIX;
    options.xattrs = is_on(Property::Xattr)?;
    options.read_only = is_on(Property::Readonly)?;
    options.atime = is_on(Property::Atime)?;
    options.relatime = is_on(Property::Relatime)?;
    options.exec = is_on(Property::Exec)?;
    options.beneath = bounds.root().map(Into::into);
    // only root can mount so that these count
    options.setuid &= bounds.setuid && bounds.rule.gives(pool, subject, Property::Setuid)?;
    options.devices &= bounds.devices && bounds.rule.gives(pool, subject, Property::Devices)?;
    options.overlay = bounds.overlays(pool, subject)?;
    options.snapdir = match number(Property::Snapdir)? {
        1 => SnapDir::Visible,
        2 => SnapDir::Disabled,
        _ => SnapDir::Hidden,
    };
    let says = |property: &str, word: &str| {
        let value = bounds.rule.value(subject.levels(), property);
        value == Some(PropertyValue::Text(word.to_owned()))
    };
    options.direct = match number(Property::Direct)? {
        0 => Direct::Disabled,
        2 => Direct::Always,
        _ => Direct::Standard,
    };
    options.page_cache = options.direct != Direct::Always && !says(PAGE_CACHE, "off");
    options.keep_pages = number(Property::Primarycache)? == PRIMARYCACHE_ALL;
    options.reattach = !says(REATTACH, "off");
    options.transport = if says(TRANSPORT, "io_uring") { Transport::IoUring } else { Transport::Device };
    options.write_back = match () {
        () if says(WRITEBACK, "on") => WriteBackCache::On,
        () if says(WRITEBACK, "off") => WriteBackCache::Off,
        () => WriteBackCache::IfSafe,
    };
    Ok(options)
}

/// The options of a mount with that of `new` which a property stands for: the others may have been given to the
/// mount alone.
pub fn with_property(old: &MountOptions, new: &MountOptions, property: Property) -> MountOptions {
    let mut options = old.clone();
    match property {
        Property::Readonly => options.read_only = new.read_only,
        Property::Atime => options.atime = new.atime,
        Property::Relatime => options.relatime = new.relatime,
        Property::Exec => options.exec = new.exec,
        Property::Setuid => options.setuid = new.setuid,
        Property::Devices => options.devices = new.devices,
        Property::Xattr => options.xattrs = new.xattrs,
        Property::Acltype => options.posix_acl = new.posix_acl,
        Property::Snapdir => options.snapdir = new.snapdir,
        _ => {}
    }
    options
}

/// The property `mountpoint` as it is shown: for a path, where the file system is mounted.
pub(super) fn mountpoint_text(dataset: &str, sourced: &Sourced, altroot: Option<&str>) -> String {
    let PropertyValue::Text(stored) = &sourced.value else { return "none".to_owned() };
    if !stored.starts_with('/') {
        return stored.clone();
    }
    let inherited_from = match &sourced.source {
        PropertySource::Inherited(from) => from.as_str(),
        PropertySource::Default | PropertySource::None => "",
        PropertySource::Local | PropertySource::Received => dataset,
    };
    let below = dataset.strip_prefix(inherited_from).unwrap_or_default();
    let below = below.strip_prefix('/').unwrap_or(below);
    let root = altroot.filter(|root| *root != "/").unwrap_or_default();
    // the root directory itself adds nothing to a path that has more
    let stored = if stored == "/" && !(root.is_empty() && below.is_empty()) { "" } else { stored };
    match below {
        "" => format!("{root}{stored}"),
        below => format!("{root}{stored}/{below}"),
    }
}

/// The user property by which the kernel keeps nothing of the files of a file system's mounts, if it is `off`.
const PAGE_CACHE: &str = "org.cenote:pagecache";
/// That by which they use the kernel's write-back cache, if it is `on`, or do not, if it is `off`.
const WRITEBACK: &str = "org.cenote:writeback";
/// That by which they end with the pool's process, if it is `off`.
const REATTACH: &str = "org.cenote:reattach";
/// That by which their requests come by io_uring, if it is `io_uring`.
const TRANSPORT: &str = "org.cenote:transport";
const CANMOUNT_OFF: u64 = 0;
const CANMOUNT_NOAUTO: u64 = 2;
const ACLTYPE_POSIX: u64 = 1;
const PRIMARYCACHE_ALL: u64 = 2;

/// A key by which a directory comes right before all that is below it.
pub fn path_order(path: &str) -> Vec<u8> {
    path.bytes().map(|byte| if byte == b'/' { 0 } else { byte }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(dataset: &str, stored: &str, source: PropertySource, altroot: Option<&str>, expect: &str) {
        let sourced = Sourced { value: PropertyValue::Text(stored.to_owned()), source };
        assert_eq!(mountpoint_text(dataset, &sourced, altroot), expect);
    }

    #[test]
    fn mountpoints() {
        use PropertySource::{Default, Inherited, Local, Received};
        let from = |name: &str| Inherited(name.to_owned());
        check("tank", "/", Default, None, "/tank");
        check("tank/a", "/", Default, None, "/tank/a");
        check("tank/a", "/", Default, Some("/mnt"), "/mnt/tank/a");
        check("tank/a", "/srv", Local, Some("/mnt"), "/mnt/srv");
        check("tank/a", "/srv", Local, Some("/"), "/srv");
        check("tank/a/b/c", "/srv", from("tank/a"), None, "/srv/b/c");
        check("tank/a/b", "/", from("tank"), None, "/a/b");
        check("tank", "/", Local, None, "/");
        check("tank", "/", Local, Some("/mnt"), "/mnt");
        check("tank/a", "/srv", Received, Some("/mnt"), "/mnt/srv");
        check("tank/a", "legacy", Local, Some("/mnt"), "legacy");
        check("tank/a", "none", from("tank"), Some("/mnt"), "none");
    }

    #[test]
    fn whose_set_id_bits_count() {
        let counts = |altroot, is_own, options| {
            let bounds = MountBounds::new(altroot, HostRule::plain(is_own), options);
            (bounds.setuid, bounds.devices)
        };
        assert_eq!(counts(None, true, None), (true, true));
        assert_eq!(counts(Some("/"), true, Some("ro")), (true, true));
        assert_eq!(counts(None, false, None), (false, false));
        assert_eq!(counts(Some("/mnt"), true, None), (false, false));
        assert_eq!(counts(Some("/mnt"), false, Some("ro,suid")), (true, false));
        assert_eq!(counts(None, false, Some("devices,setuid")), (true, true));
    }

    #[test]
    fn directories_come_before_what_is_below() {
        let mut paths = ["/a-b", "/a/c", "/a", "/", "/a/b/d", "/a!", "/b"];
        paths.sort_by_cached_key(|path| path_order(path));
        assert_eq!(paths, ["/", "/a", "/a/b/d", "/a/c", "/a!", "/a-b", "/b"]);
    }
}
