//! Which features a pool gets: those that Cenote uses, cut down to what other systems know.
//!
//! ```text
//!   features Cenote gives  ∩ sets named by `compatibility`  (none with -d)
//!     + those named by feature@NAME=enabled                 - those named by feature@NAME=disabled
//!     + all that these need
//! ```
//!
//! A new pool for which nothing is said has the features that all versions of OpenZFS have from 2.1 on; with
//! `compatibility=off`, all.
//!
//! A set is a file of feature names; `#` begins a comment. Where the machine has no such file, the table
//! below knows the most usual ones. See zpool-features(7).

use std::path::Path;

use format::feature::{FEATURES, Feature, Support, is_baseline};

/// Where the files are; the administrator's go before those of the distribution.
const FOLDERS: [&str; 2] = ["/etc/zfs/compatibility.d", "/usr/share/zfs/compatibility.d"];
/// Longer files are no sets of features.
const FILE_BYTES_MAX: u64 = 16 << 10;

/// The usual sets: all features up to one, in the order of the table, or just these.
const USUAL: &[(&str, Usual)] = &[
    (
        "grub2",
        Usual::Only(&[
            "async_destroy",
            "bookmarks",
            "embedded_data",
            "empty_bpobj",
            "enabled_txg",
            "extensible_dataset",
            "filesystem_limits",
            "hole_birth",
            "large_blocks",
            "lz4_compress",
            "spacemap_histogram",
        ]),
    ),
    ("zol-0.7", Usual::UpTo("userobj_accounting")),
    ("zol-0.8", Usual::UpTo("bookmark_v2")),
    ("openzfs-2.0-linux", Usual::UpTo("zstd_compress")),
    ("openzfs-2.1-linux", Usual::UpTo("draid")),
    ("openzfs-2.2", Usual::UpTo("vdev_zaps_v2")),
    ("openzfs-2.2-linux", Usual::UpTo("vdev_zaps_v2")),
    ("openzfs-2.3", Usual::UpTo("large_microzap")),
    ("openzfs-2.3-linux", Usual::UpTo("large_microzap")),
    ("openzfs-2.4", Usual::UpTo("physical_rewrite")),
];

/// A set of features.
enum Usual {
    /// These.
    Only(&'static [&'static str]),
    /// All up to this.
    UpTo(&'static str),
}

impl Usual {
    fn names(&self) -> Vec<String> {
        let names = FEATURES.iter().map(|feature| feature.name);
        match self {
            Usual::Only(names) => names.iter().map(|&name| name.to_owned()).collect(),
            Usual::UpTo(last) => {
                let count = names.clone().position(|name| name == *last).map_or(0, |at| at + 1);
                names.take(count).map(str::to_owned).collect()
            }
        }
    }
}

/// The features that a value of the property `compatibility` allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Names; `None` is all.
    names: Option<Vec<String>>,
    /// What is odd about the files, for the user.
    pub warning: Option<String>,
}

impl Allowed {
    /// Those of a new pool of which nothing was asked: what all versions of OpenZFS have that are cared for.
    pub fn baseline() -> Allowed {
        let names = FEATURES.iter().filter(|feature| is_baseline(feature)).map(|feature| feature.name.to_owned());
        Allowed { names: Some(names.collect()), warning: None }
    }

    /// As [`Allowed::load`] of what a new pool's `compatibility` is to be, if anything was said.
    pub fn of_new_pool(compatibility: Option<&str>) -> Result<Allowed, String> {
        compatibility.map_or_else(|| Ok(Allowed::baseline()), Allowed::load)
    }

    /// Reads the sets that `compatibility` names. Errors: what is wrong with them, for the user.
    pub fn load(compatibility: &str) -> Result<Allowed, String> {
        Allowed::load_from(compatibility, &FOLDERS.map(Path::new))
    }

    fn load_from(compatibility: &str, folders: &[&Path]) -> Result<Allowed, String> {
        match compatibility {
            "" | "off" => return Ok(Allowed::default()),
            "legacy" => return Ok(Allowed { names: Some(Vec::new()), warning: None }),
            _ => {}
        }
        let (mut names, mut bad_files, mut bad_words) = (None::<Vec<String>>, String::new(), String::new());
        let mut is_own = false;
        for file in compatibility.split(',').filter(|file| !file.is_empty()) {
            let Some((set, place)) = read(file, folders) else {
                bad_files += &format!("{file} ");
                continue;
            };
            for word in set.iter().filter(|word| !is_known(word)) {
                let shown: String = word.chars().take(32).map(|c| if c.is_control() { '?' } else { c }).collect();
                bad_words += &format!("{shown} ");
                is_own |= place == 0;
            }
            names = Some(match names {
                None => set,
                Some(before) => before.into_iter().filter(|name| set.contains(name)).collect(),
            });
        }
        if !bad_files.is_empty() {
            return Err(format!("could not read/parse feature file(s): {bad_files}"));
        }
        let Some(names) = names else { return Err("no valid compatibility files specified".to_owned()) };
        if is_own {
            return Err(format!("invalid feature name(s) in local compatibility files: {bad_words}"));
        }
        let warning = format!("unrecognized feature name(s) in distribution compatibility files: {bad_words}");
        Ok(Allowed { names: Some(names), warning: (!bad_words.is_empty()).then_some(warning) })
    }

    /// Whether there is nothing that they forbid.
    pub fn is_all(&self) -> bool {
        self.names.is_none()
    }

    /// Whether a feature is among them.
    pub fn has(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.iter().any(|allowed| allowed == name))
    }
}

/// The words in a file, and the number of the folder that it was found in.
fn read(file: &str, folders: &[&Path]) -> Option<(Vec<String>, usize)> {
    if file.contains('/') {
        return None;
    }
    for (place, folder) in folders.iter().enumerate() {
        let path = folder.join(file);
        let Ok(metadata) = path.metadata() else { continue };
        if !metadata.is_file() || metadata.len() == 0 || metadata.len() > FILE_BYTES_MAX {
            return None;
        }
        let text = std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'))?;
        return Some((words(&text), place));
    }
    let (_, usual) = USUAL.iter().find(|(name, _)| *name == file)?;
    Some((usual.names(), folders.len()))
}

/// The words of such a file: behind `#` is a comment.
pub fn words(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines.flat_map(|line| line.split([',', ' ', '\t'])).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn is_known(name: &str) -> bool {
    FEATURES.iter().any(|feature| feature.name == name)
}

/// Whether a pool can get the feature of that name from Cenote.
pub fn is_given(name: &str) -> bool {
    given().any(|feature| feature.name == name)
}

/// The features that pools can get from Cenote, in the order of the table.
pub fn given() -> impl Iterator<Item = &'static Feature> {
    FEATURES.iter().filter(|feature| feature.support == Support::Give)
}

/// Guids of the features of a new pool. `none` is flag `-d`; `wishes` are the properties `feature@NAME`,
/// whose values have been checked.
pub fn features_for(allowed: &Allowed, none: bool, wishes: &[(&str, bool)]) -> Vec<String> {
    let wished = |name: &str| wishes.iter().find(|(wish, _)| *wish == name).map(|(_, is_on)| *is_on);
    let is_wanted = |feature: &&Feature| wished(feature.name).unwrap_or(!none && allowed.has(feature.name));
    let wanted: Vec<&Feature> = given().filter(is_wanted).collect();
    let is_needed = |feature: &Feature| wanted.iter().any(|other| other.needs.contains(&feature.guid));
    given()
        .filter(|feature| wanted.contains(feature) || is_needed(feature))
        .map(|feature| feature.guid.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_from_files() {
        let top = std::env::temp_dir().join(format!("cenote-compat-{}", std::process::id()));
        let (own, shared) = (top.join("own"), top.join("shared"));
        std::fs::create_dir_all(&own).unwrap();
        std::fs::create_dir_all(&shared).unwrap();
        std::fs::write(own.join("mine"), "# mine\nlz4_compress, skein # two\nedonr\n").unwrap();
        std::fs::write(shared.join("mine"), "sha512\n").unwrap();
        std::fs::write(shared.join("theirs"), "edonr\tsha512\nfrom_the_future\n").unwrap();
        std::fs::write(own.join("bad"), "nope\n").unwrap();
        std::fs::write(own.join("cut"), "skein").unwrap();
        let load = |text: &str| Allowed::load_from(text, &[&own, &shared]);
        let mine = load("mine").unwrap();
        assert!(mine.has("skein") && mine.has("edonr") && !mine.has("sha512"));
        let both = load("mine,theirs").unwrap();
        assert!(both.has("edonr") && !both.has("skein"));
        let warning = "unrecognized feature name(s) in distribution compatibility files: from_the_future ";
        assert_eq!(both.warning.as_deref(), Some(warning));
        assert_eq!(load("bad"), Err("invalid feature name(s) in local compatibility files: nope ".into()));
        assert_eq!(load("cut,gone"), Err("could not read/parse feature file(s): cut gone ".into()));
        assert_eq!(load(","), Err("no valid compatibility files specified".into()));
        assert!(load("openzfs-2.1-linux").unwrap().has("zstd_compress"));
        assert!(!load("openzfs-2.1-linux").unwrap().has("blake3") && load("openzfs-2.2").unwrap().has("blake3"));
        assert!(!load("zol-0.8").unwrap().has("zstd_compress") && load("zol-0.8").unwrap().has("large_dnode"));
        assert!(load("../shared/mine").is_err() && load("legacy").unwrap() != load("off").unwrap());
        std::fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn features_of_new_pools() {
        let all = Allowed::load("off").unwrap();
        assert_eq!(features_for(&all, false, &[]).len(), given().count());
        assert!(features_for(&all, true, &[]).is_empty());
        let of_2_1 = Allowed::load("openzfs-2.1-linux").unwrap();
        let unasked = features_for(&Allowed::of_new_pool(None).unwrap(), false, &[]);
        assert_eq!(unasked, features_for(&of_2_1, false, &[]));
        assert_eq!(Allowed::of_new_pool(Some("off")).unwrap(), all);
        assert!(features_for(&Allowed::load("legacy").unwrap(), false, &[]).is_empty());
        // what a feature needs comes with it
        let skein = features_for(&all, true, &[("skein", true)]);
        assert_eq!(skein, ["com.delphix:extensible_dataset", "org.illumos:skein"]);
        let most = features_for(&all, false, &[("edonr", false)]);
        assert!(!most.iter().any(|guid| guid.ends_with("edonr")) && most.len() + 1 == given().count());
    }

    #[test]
    fn the_tables_know_only_features() {
        for (set, usual) in USUAL {
            let names = usual.names();
            assert!(names.len() > 10 && names.iter().all(|name| is_known(name)), "{set}");
        }
        for name in ["async_destroy", "userobj_accounting", "project_quota"] {
            assert!(is_given(name), "{name}");
        }
    }
}
