//! Feature flags: what a pool of version 5000 may use beyond version 28, and what Cenote can do with it.
//!
//! A pool lists features by guid, with a count of uses; a feature is *enabled* when it is listed and
//! *active* when its count is not 0. One that is not known here is no obstacle until it is active: then
//! it forbids writing, and reading too if it is in the list of those needed for reading.
//!
//! Source: zpool-features(7).

/// A feature that some version of ZFS has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Name on disk.
    pub guid: &'static str,
    /// Name in `feature@NAME`.
    pub name: &'static str,
    /// Whether software that does not know it may read a pool in which it is active.
    pub readonly_compatible: bool,
    /// What Cenote can do with a pool in which it is active.
    pub support: Support,
    /// Guids of the features that have to be enabled with it.
    pub needs: &'static [&'static str],
}

/// What Cenote can do with a feature; each includes those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Support {
    /// Nothing.
    None,
    /// Read a pool in which it is active.
    Read,
    /// Write to such a pool. It gives the feature to no pool: it would not use it itself, or does not make what it
    /// wants from the start.
    Write,
    /// Make pools that have it.
    Give,
}

/// The feature of that guid.
pub fn find(guid: &str) -> Option<&'static Feature> {
    FEATURES.iter().find(|feature| feature.guid == guid)
}

/// A set of features; or of a pool that is older than all of them, its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureSet {
    /// Bit n: that in row n.
    bits: u64,
    version: u64,
}

impl Default for FeatureSet {
    /// None.
    fn default() -> FeatureSet {
        FeatureSet { bits: 0, version: VERSION }
    }
}

/// The version of all pools that may have features.
pub const VERSION: u64 = 5000;

impl FeatureSet {
    /// The features of which that is true.
    pub fn of(is_in: impl Fn(&Feature) -> bool) -> FeatureSet {
        let bits = FEATURES.iter().enumerate().filter(|(_, feature)| is_in(feature)).map(|(at, _)| 1 << at);
        FeatureSet { bits: bits.sum(), version: VERSION }
    }

    /// Whether the feature of that guid is in it.
    pub fn has(self, guid: &str) -> bool {
        FEATURES.iter().position(|feature| feature.guid == guid).is_some_and(|at| self.bits & 1 << at != 0)
    }

    /// What a pool of that version has, which may be below 5000.
    pub fn in_version(self, version: u64) -> FeatureSet {
        FeatureSet { version, ..self }
    }

    /// The version of the pool.
    pub fn version(self) -> u64 {
        self.version
    }

    /// Those of both sets.
    pub fn and(self, other: FeatureSet) -> FeatureSet {
        FeatureSet { bits: self.bits | other.bits, version: self.version }
    }
}

// a bit for each
const _: () = assert!(FEATURES.len() <= 64);

/// Whether every pool ought to have the feature: it is in all versions of OpenZFS that are still cared
/// for (2.1 is the oldest), so that having it shuts nobody out.
pub fn is_baseline(feature: &Feature) -> bool {
    let last = FEATURES.iter().position(|row| row.name == "draid");
    FEATURES.iter().position(|row| row.guid == feature.guid) <= last
}

/// Makes a constant and a row of the table of each feature.
macro_rules! features {
    ($($constant:ident = $guid:literal $name:literal, $readonly_compatible:literal, $support:ident, [$($needed:ident),*];)*) => {
        $(
            #[doc = concat!("The guid of `feature@", $name, "`.")]
            pub const $constant: &str = $guid;
        )*

        /// Features in the order in which commands list them, which is roughly that of their age.
        pub const FEATURES: &[Feature] = &[$(Feature {
            guid: $guid,
            name: $name,
            readonly_compatible: $readonly_compatible,
            support: Support::$support,
            needs: &[$($needed),*],
        },)*];
    };
}

#[rustfmt::skip]
features! {
    ASYNC_DESTROY = "com.delphix:async_destroy" "async_destroy", true, Give, [];
    EMPTY_BPOBJ = "com.delphix:empty_bpobj" "empty_bpobj", true, Give, [];
    LZ4_COMPRESS = "org.illumos:lz4_compress" "lz4_compress", false, Give, [];
    MULTI_VDEV_CRASH_DUMP = "com.joyent:multi_vdev_crash_dump" "multi_vdev_crash_dump", false, Give, [];
    SPACEMAP_HISTOGRAM = "com.delphix:spacemap_histogram" "spacemap_histogram", true, Give, [];
    ENABLED_TXG = "com.delphix:enabled_txg" "enabled_txg", true, Give, [];
    HOLE_BIRTH = "com.delphix:hole_birth" "hole_birth", false, Give, [ENABLED_TXG];
    EXTENSIBLE_DATASET = "com.delphix:extensible_dataset" "extensible_dataset", false, Give, [];
    EMBEDDED_DATA = "com.delphix:embedded_data" "embedded_data", false, Give, [];
    BOOKMARKS = "com.delphix:bookmarks" "bookmarks", true, Give, [EXTENSIBLE_DATASET];
    FILESYSTEM_LIMITS = "com.joyent:filesystem_limits" "filesystem_limits", true, Give, [EXTENSIBLE_DATASET];
    LARGE_BLOCKS = "org.open-zfs:large_blocks" "large_blocks", false, Give, [EXTENSIBLE_DATASET];
    LARGE_DNODE = "org.zfsonlinux:large_dnode" "large_dnode", false, Give, [EXTENSIBLE_DATASET];
    SHA512 = "org.illumos:sha512" "sha512", false, Give, [EXTENSIBLE_DATASET];
    SKEIN = "org.illumos:skein" "skein", false, Give, [EXTENSIBLE_DATASET];
    EDONR = "org.illumos:edonr" "edonr", false, Give, [EXTENSIBLE_DATASET];
    USEROBJ_ACCOUNTING = "org.zfsonlinux:userobj_accounting" "userobj_accounting", true, Give, [EXTENSIBLE_DATASET];
    ENCRYPTION = "com.datto:encryption" "encryption", false, Write, [];
    PROJECT_QUOTA = "org.zfsonlinux:project_quota" "project_quota", true, Give, [EXTENSIBLE_DATASET];
    DEVICE_REMOVAL = "com.delphix:device_removal" "device_removal", false, Give, [];
    OBSOLETE_COUNTS = "com.delphix:obsolete_counts" "obsolete_counts", true, Give, [];
    ZPOOL_CHECKPOINT = "com.delphix:zpool_checkpoint" "zpool_checkpoint", true, Give, [];
    SPACEMAP_V2 = "com.delphix:spacemap_v2" "spacemap_v2", true, Give, [];
    ALLOCATION_CLASSES = "org.zfsonlinux:allocation_classes" "allocation_classes", true, Give, [];
    RESILVER_DEFER = "com.datto:resilver_defer" "resilver_defer", true, Give, [];
    BOOKMARK_V2 = "com.datto:bookmark_v2" "bookmark_v2", false, Give, [BOOKMARKS, EXTENSIBLE_DATASET];
    REDACTION_BOOKMARKS = "com.delphix:redaction_bookmarks" "redaction_bookmarks", false, Give, [BOOKMARK_V2, BOOKMARKS, EXTENSIBLE_DATASET];
    REDACTED_DATASETS = "com.delphix:redacted_datasets" "redacted_datasets", false, Give, [EXTENSIBLE_DATASET];
    BOOKMARK_WRITTEN = "com.delphix:bookmark_written" "bookmark_written", false, Give, [BOOKMARK_V2, BOOKMARKS, EXTENSIBLE_DATASET];
    LOG_SPACEMAP = "com.delphix:log_spacemap" "log_spacemap", true, Give, [SPACEMAP_V2];
    LIVELIST = "com.delphix:livelist" "livelist", true, Give, [EXTENSIBLE_DATASET];
    DEVICE_REBUILD = "org.openzfs:device_rebuild" "device_rebuild", true, Give, [];
    ZSTD_COMPRESS = "org.freebsd:zstd_compress" "zstd_compress", false, Give, [EXTENSIBLE_DATASET];
    DRAID = "org.openzfs:draid" "draid", false, Give, [];
    ZILSAXATTR = "org.openzfs:zilsaxattr" "zilsaxattr", true, Write, [];
    HEAD_ERRLOG = "com.delphix:head_errlog" "head_errlog", false, Give, [];
    BLAKE3 = "org.openzfs:blake3" "blake3", false, Give, [EXTENSIBLE_DATASET];
    BLOCK_CLONING = "com.fudosecurity:block_cloning" "block_cloning", true, Give, [];
    VDEV_ZAPS_V2 = "com.klarasystems:vdev_zaps_v2" "vdev_zaps_v2", false, Write, [];
    REDACTION_LIST_SPILL = "com.delphix:redaction_list_spill" "redaction_list_spill", false, Give, [REDACTION_BOOKMARKS, BOOKMARK_V2, BOOKMARKS, EXTENSIBLE_DATASET];
    RAIDZ_EXPANSION = "org.openzfs:raidz_expansion" "raidz_expansion", false, Give, [];
    FAST_DEDUP = "com.klarasystems:fast_dedup" "fast_dedup", true, Give, [];
    LONGNAME = "org.zfsonlinux:longname" "longname", false, Write, [];
    LARGE_MICROZAP = "com.klarasystems:large_microzap" "large_microzap", true, Write, [];
    DYNAMIC_GANG_HEADER = "com.klarasystems:dynamic_gang_header" "dynamic_gang_header", false, Write, [];
    BLOCK_CLONING_ENDIAN = "com.truenas:block_cloning_endian" "block_cloning_endian", true, Give, [];
    PHYSICAL_REWRITE = "com.truenas:physical_rewrite" "physical_rewrite", true, Write, [];
    DRAID_FAILURE_DOMAINS = "com.seagate:draid_failure_domains" "draid_failure_domains", false, None, [];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_hang_together() {
        for (i, feature) in FEATURES.iter().enumerate() {
            assert!(
                feature.guid.ends_with(feature.name) || matches!(feature.name, "zpool_checkpoint"),
                "{}",
                feature.name
            );
            assert!(!feature.readonly_compatible || feature.support >= Support::Read, "{}", feature.name);
            // what is given comes with all that it needs
            let is_given = |guid: &&str| find(guid).is_some_and(|needed| needed.support == Support::Give);
            assert!(feature.support < Support::Give || feature.needs.iter().all(is_given), "{}", feature.name);
            assert_eq!(FEATURES.iter().position(|f| f.guid == feature.guid), Some(i));
        }
        assert_eq!(find("org.illumos:lz4_compress").unwrap().name, "lz4_compress");
        let set = FeatureSet::of(|feature| feature.readonly_compatible);
        assert!(set.has(ASYNC_DESTROY) && !set.has(LZ4_COMPRESS) && !set.has("nonsense"));
        assert!(set.and(FeatureSet::of(|_| true)).has(LZ4_COMPRESS));
        let baseline = |name| is_baseline(FEATURES.iter().find(|feature| feature.name == name).unwrap());
        assert!(baseline("async_destroy") && baseline("draid") && !baseline("blake3"));
    }
}
