//! The native properties of datasets: one table of all that is known about each.
//!
//! ```text
//!   name ──▶ Property ──▶ its row: column header, type and default, what sets it, what it applies to,
//!                                  how it is shown, where its value comes from, what it says of the host
//! ```
//!
//! The rows are in the order of OpenZFS's property numbers, which is that of `zfs get all`. Names,
//! numbers of choices and defaults are those of OpenZFS 2.4. Properties that users make up have a colon in their name, and no row.
//!
//! Source: the manual page zfsprops(7), and the behaviour of `zfs`.

pub(crate) mod names;
pub mod needs;
pub mod rules;
mod table;

pub use names::ValueNames;
pub use table::Property;

/// A row of the table.
#[derive(Debug)]
pub struct PropertyInfo {
    /// Which property it is.
    pub property: Property,
    /// Its name.
    pub name: &'static str,
    /// Header of its column in `zfs list`.
    pub column: &'static str,
    /// Type and default of its value.
    pub kind: ValueKind,
    /// Whether and when it can be set.
    pub setting: Setting,
    /// What it applies to.
    pub applies: Applies,
    /// Where its value comes from.
    pub from: ValueOrigin,
    /// What it says of the host.
    pub reach: HostReach,
    /// The values that it can have, for the usage text; none for those that are not shown unasked.
    pub values: Option<&'static str>,
}

/// Type and default of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A number, with its default and the way in which it is shown.
    Number(u64, NumberForm),
    /// A text, with its default.
    Text(Option<&'static str>),
    /// A choice, with its default and the names.
    Choice(u64, ValueNames),
}

/// How a number is shown to people; with `-p`, most are just decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberForm {
    /// As it is: ids, which make no sense when rounded.
    Exact,
    /// With K, M, G: `1.23M`.
    Count,
    /// The same, and B for bytes: `512B`.
    Bytes,
    /// The same, and `none` for 0.
    Quota,
    /// With K, M, G, and `none` for the highest number.
    Limit,
    /// Hundredths: `1.25x`.
    Ratio,
    /// Seconds since 1970: `Sat Nov 21 21:42 2026`.
    Date,
    /// The same, with seconds, and nothing at all for 0.
    DateOrNothing,
}

/// Whether and when a property can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Never.
    ReadOnly,
    /// For one dataset.
    Own,
    /// For a dataset and all below it that have no value of their own.
    Inherited,
    /// When the dataset is made; datasets below are made alike.
    Once,
    /// When the dataset is made.
    OnceOwn,
}

/// What is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DatasetKind {
    /// A head with files in it.
    FileSystem,
    /// A head that is a disk.
    Volume,
    /// A snapshot of either.
    Snapshot,
    /// What is left of a snapshot.
    Bookmark,
}

/// A set of [`DatasetKind`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applies(u8);

/// Where values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueOrigin {
    /// Set by users, in the ZAPs of properties.
    Stored,
    /// The record of the directory, or a ZAP that belongs to it.
    Dir,
    /// The record of the dataset or bookmark, or a ZAP that belongs to it.
    Dataset,
    /// The wrapped key of the directory.
    Key,
    /// The contents of the object set: the master node of a file system, the properties of a volume.
    Contents,
    /// The free space of the pool, with all limits on the way down.
    Available,
    /// The mounts, which only the system knows.
    System,
}

/// What a property says of the host that has the pool. What a stream or another host says does not count for all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostReach {
    /// Nothing: it is about the dataset itself.
    Inside,
    /// Where on the host the dataset is mounted: does not count if it came with a stream.
    Place,
    /// It names something of the host, lets others in, or gives rights there: counts only if it was set on this host.
    Door,
}

/// All properties of Cenote's own, and what they say of the host. A property without a row is a [`HostReach::Door`].
pub const OWN_PROPERTIES: [(&str, HostReach); 16] = [
    ("org.cenote:block", HostReach::Door),
    ("org.cenote:cut", HostReach::Inside),
    ("org.cenote:iscsi", HostReach::Door),
    ("org.cenote:iscsi_chap", HostReach::Door),
    ("org.cenote:iscsi_initiators", HostReach::Door),
    ("org.cenote:iscsi_listen", HostReach::Door),
    ("org.cenote:iscsi_reservations", HostReach::Inside),
    ("org.cenote:nbd", HostReach::Door),
    ("org.cenote:nbd_listen", HostReach::Door),
    ("org.cenote:nbd_tls", HostReach::Door),
    ("org.cenote:pagecache", HostReach::Inside),
    ("org.cenote:reattach", HostReach::Inside),
    ("org.cenote:received", HostReach::Door),
    ("org.cenote:transport", HostReach::Inside),
    ("org.cenote:vhost", HostReach::Door),
    ("org.cenote:writeback", HostReach::Inside),
];

/// What a property, native or of Cenote's own, says of the host; nothing if Cenote does not know it.
pub fn reach_of(name: &str) -> HostReach {
    let own = || OWN_PROPERTIES.iter().find(|(own, _)| *own == name).map(|(_, reach)| *reach);
    let unknown = if name.starts_with("org.cenote:") { HostReach::Door } else { HostReach::Inside };
    Property::find(name).map(|property| property.info().reach).or_else(own).unwrap_or(unknown)
}

impl Applies {
    /// File systems.
    pub const FILE_SYSTEM: Applies = Applies(1);
    /// Volumes.
    pub const VOLUME: Applies = Applies(2);
    /// Snapshots.
    pub const SNAPSHOT: Applies = Applies(4);
    /// Bookmarks.
    pub const BOOKMARK: Applies = Applies(8);

    const fn and(self, other: Applies) -> Applies {
        Applies(self.0 | other.0)
    }

    /// Whether the set has that kind.
    pub fn has(self, kind: DatasetKind) -> bool {
        let bit = match kind {
            DatasetKind::FileSystem => Applies::FILE_SYSTEM,
            DatasetKind::Volume => Applies::VOLUME,
            DatasetKind::Snapshot => Applies::SNAPSHOT,
            DatasetKind::Bookmark => Applies::BOOKMARK,
        };
        self.0 & bit.0 != 0
    }
}

impl Property {
    /// All of them, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Property> {
        table::TABLE.iter().map(|info| info.property)
    }

    /// The one called so: by its name, or by its column header in lower case, such as `refer`.
    pub fn find(name: &str) -> Option<Property> {
        let is_it = |info: &&PropertyInfo| info.name == name || is_lower_of(name, info.column);
        table::TABLE.iter().find(is_it).map(|info| info.property)
    }

    /// All that is known about it.
    pub fn info(self) -> &'static PropertyInfo {
        &table::TABLE[self as usize]
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Whether datasets below take over its value.
    pub fn is_inherited(self) -> bool {
        matches!(self.info().setting, Setting::Inherited | Setting::Once)
    }

    /// Whether nobody can set it on a dataset that exists.
    pub fn is_read_only(self) -> bool {
        matches!(self.info().setting, Setting::ReadOnly | Setting::Once | Setting::OnceOwn)
    }

    /// Whether it is part of `zfs get all` and of the list in the usage text.
    pub fn is_shown(self) -> bool {
        self.info().values.is_some()
    }

    /// The name of a choice; `None` if it is no choice, or not one of those known.
    pub fn name_of(self, value: u64) -> Option<&'static str> {
        match self.info().kind {
            ValueKind::Choice(_, names) => names.iter().find(|(_, number)| *number == value).map(|(name, _)| *name),
            _ => None,
        }
    }

    /// The number of a choice by its name.
    pub fn value_of(self, name: &str) -> Option<u64> {
        match self.info().kind {
            ValueKind::Choice(_, names) => names.iter().find(|(n, _)| *n == name).map(|(_, number)| *number),
            _ => None,
        }
    }

    /// The number that it has where nobody set it; 0 for texts.
    pub fn default_number(self) -> u64 {
        match self.info().kind {
            ValueKind::Number(default, _) | ValueKind::Choice(default, _) => default,
            ValueKind::Text(_) => 0,
        }
    }
}

/// Whether the name is one that users can make up: lower case letters, digits, `-_.:`, at least one `:`.
pub fn is_user_property(name: &str) -> bool {
    let may_be = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.:".contains(c);
    name.contains(':') && name.chars().all(may_be)
}

fn is_lower_of(name: &str, column: &str) -> bool {
    name.len() == column.len() && name.bytes().zip(column.bytes()).all(|(n, c)| n == c.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The native properties that say something of the host.
    const DOORS: [&str; 14] = [
        "mountpoint",
        "sharenfs",
        "devices",
        "setuid",
        "iscsioptions",
        "sharesmb",
        "stmf_sbd_lu",
        "mlslabel",
        "context",
        "fscontext",
        "defcontext",
        "rootcontext",
        "overlay",
        "keylocation",
    ];

    #[test]
    fn rows_are_where_their_numbers_say() {
        for (i, info) in table::TABLE.iter().enumerate() {
            assert_eq!(info.property as usize, i, "{}", info.name);
            assert_eq!(Property::find(info.name), Some(info.property));
            if let ValueKind::Choice(default, _) = info.kind {
                let has_default = info.property.name_of(default).is_some();
                assert!(has_default || info.name == "version", "{}", info.name);
            }
        }
    }

    #[test]
    fn what_reaches_the_host_is_judged() {
        let doors: Vec<&str> =
            Property::all().filter(|one| one.info().reach != HostReach::Inside).map(Property::name).collect();
        assert_eq!(doors, DOORS);
        // all names in the sources have a row
        let mut waiting = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..")];
        let mut found = std::collections::BTreeSet::new();
        while let Some(folder) = waiting.pop() {
            for entry in folder.read_dir().unwrap().map(|entry| entry.unwrap().path()) {
                let name = entry.file_name().unwrap().to_string_lossy().into_owned();
                if entry.is_dir() && !["tests", "target", "testkit"].contains(&name.as_str()) {
                    waiting.push(entry);
                } else if name.ends_with(".rs") && !name.contains("test") {
                    let text = std::fs::read_to_string(&entry).unwrap();
                    let is_of_name = |c: char| c.is_ascii_lowercase() || c == '_';
                    let names = text.split("\"org.cenote:").skip(1).map(|rest| rest.split(|c| !is_of_name(c)).next());
                    found.extend(
                        names.flatten().filter(|name| !name.is_empty()).map(|name| format!("org.cenote:{name}")),
                    );
                }
            }
        }
        let judged: std::collections::BTreeSet<String> =
            OWN_PROPERTIES.iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(found, judged);
        assert_eq!(reach_of(&format!("org.cenote:{}", "new")), HostReach::Door);
        assert_eq!((reach_of("com.example:x"), reach_of("compression")), (HostReach::Inside, HostReach::Inside));
    }

    #[test]
    fn found_by_name_or_column() {
        assert_eq!(Property::find("refer"), Some(Property::Referenced));
        assert_eq!(Property::find("avail"), Some(Property::Available));
        assert_eq!(Property::find("ratio"), Some(Property::CompressRatio));
        assert_eq!(Property::find("REFER"), None);
        assert_eq!(Property::find("refers"), None);
        assert_eq!(Property::find("user:x"), None);
    }

    #[test]
    fn choices() {
        assert_eq!(Property::Compression.name_of(10), Some("gzip"));
        assert_eq!(Property::Compression.value_of("gzip-6"), Some(10));
        assert_eq!(Property::Compression.name_of(16 | 3 << 7), Some("zstd-3"));
        assert_eq!(Property::Compression.name_of(16 | 123 << 7), Some("zstd-fast-1000"));
        assert_eq!(Property::Compression.name_of(99), None);
        assert_eq!((Property::Xattr.name_of(2), Property::Xattr.name_of(1)), (Some("sa"), Some("dir")));
        assert_eq!(Property::Xattr.value_of("on"), Some(2));
        assert_eq!(Property::Guid.name_of(1), None);
    }

    #[test]
    fn what_users_can_make_up() {
        assert!(is_user_property("com.example:note-1_x"));
        for bad in ["note", "Com:x", "a:b c", "a:b$recvd", ""] {
            assert!(!is_user_property(bad), "{bad}");
        }
    }
}
