//! For each property that can be set: the test that shows what it does, or why it does nothing.
//!
//! A value that can be set does something, or says what is so anyway. A property without a line here does not build
//! (of datasets), or fails (of pools), and so does a line that names no test.

use std::fs;
use std::path::Path;

use daemon::pool_props::{self, When};
use dsl::Property;
use dsl::property::{DatasetKind, Setting, rules};
use protocol::pool_properties::PROPERTIES;

/// What shows that a property is obeyed.
enum Proof {
    /// It cannot be set.
    ReadOnly,
    /// The test of that name.
    Test(&'static str),
    /// That value, as all but those that say what is so anyway, is refused.
    Refused(&'static str),
    /// Nothing: neither does OpenZFS on Linux.
    AsOpenZfs,
}

use Proof::{AsOpenZfs, ReadOnly, Refused, Test};

fn of_dataset(property: Property) -> Proof {
    use Property as P;
    match property {
        P::Type | P::Creation | P::Used | P::Available | P::Referenced | P::CompressRatio | P::Mounted => ReadOnly,
        P::Origin | P::Createtxg | P::Name | P::Numclones | P::Guid | P::Usedbysnapshots | P::Usedbydataset => ReadOnly,
        P::Usedbychildren | P::Usedbyrefreservation | P::Useraccounting | P::DeferDestroy | P::Userrefs => ReadOnly,
        P::Unique | P::Objsetid | P::RefCompressRatio | P::Written | P::Clones | P::Logicalused => ReadOnly,
        P::Logicalreferenced | P::Inconsistent | P::FilesystemCount | P::SnapshotCount | P::Prevsnap => ReadOnly,
        P::ReceiveResumeToken | P::Encryptionroot | P::Keyguid | P::Keystatus | P::Remaptxg | P::Ivsetguid => ReadOnly,
        P::Redacted | P::RedactSnaps | P::SnapshotsChanged => ReadOnly,

        P::Quota | P::Reservation | P::Refquota | P::Refreservation => Test("limits_are_kept"),
        P::Defaultuserquota | P::Defaultgroupquota => Test("who_has_no_limit_has_that_of_all"),
        P::Defaultuserobjquota | P::Defaultgroupobjquota => Test("who_has_no_limit_has_that_of_all"),
        P::Defaultprojectquota | P::Defaultprojectobjquota => Test("limits_of_projects_hold"),

        P::Recordsize | P::Checksum | P::Compression | P::Copies => Test("blocks_are_as_properties_say"),
        P::RedundantMetadata => Test("metadata_has_the_copies_that_are_asked_for"),
        P::SpecialSmallBlocks => Test("small_blocks_lie_on_special_vdevs"),
        P::Dnodesize => Test("dnodes_are_as_large_as_they_should_be"),
        P::Primarycache | P::Secondarycache => Test("what_the_cache_keeps"),
        P::Prefetch => Test("what_is_read_ahead"),
        P::Direct => Test("direct_reads_leave_nothing_in_the_cache"),
        P::Sync => Test("a_commit_is_one_write_and_one_flush"),
        P::Logbias => Test("large_writes_are_written_once"),

        P::Mountpoint => Test("mountpoints"),
        P::Canmount | P::Zoned => Test("what_keeps_file_systems_unmounted"),
        P::Overlay => Test("refusals"),
        P::Atime | P::Relatime => Test("access_times"),
        P::Devices | P::Exec | P::Setuid | P::Readonly => Test("remounted_while_it_is_used"),
        P::Xattr => Test("a_value_moves_to_the_place_that_the_property_names"),
        P::Acltype => Test("posix_acls"),
        P::Snapdir => Test("visible_or_not_there_at_all"),
        P::Utf8only => Test("names_that_can_be"),
        P::Normalization | P::Casesensitivity => Test("case_and_forms_of_names"),

        P::Volsize => Test("a_volume_has_the_size_and_the_reservation_that_it_is_given"),
        P::Volblocksize => Test("volumes_have_sizes"),
        P::Sharenfs | P::Sharesmb => Refused("on"),
        P::Volmode | P::Snapdev => Test("volumes_are_files"),
        P::Volthreading => Refused("off"),
        P::Context | P::Fscontext | P::Defcontext | P::Rootcontext => Refused("u:r:t:s0"),
        P::Mlslabel => Refused("secret"),
        P::Dedup => Test("the_same_block_is_there_once"),
        P::Encryption | P::Longname => Refused("on"),
        P::Keylocation => Refused("prompt"),
        P::Keyformat => Refused("raw"),
        P::Pbkdf2iters | P::Pbkdf2salt => Refused("100000"),
        P::FilesystemLimit | P::SnapshotLimit => Test("counting_begins_with_a_limit"),
        P::Version => Test("versions_of_file_systems"),

        // ACLs of NFS version 4 are kept, and obeyed by nobody; the kernel has no such locks any more; no scanner and
        // no target for iSCSI asks
        P::Aclmode | P::Aclinherit | P::Nbmand | P::Vscan | P::Iscsioptions | P::StmfShareinfo => AsOpenZfs,
    }
}

fn of_pool(name: &str) -> Option<Proof> {
    Some(match name {
        "altroot" => Test("a_pool_waits_for_its_device"),
        "version" => Test("versions_of_file_systems"),
        "bootfs" | "listsnapshots" => Test("every_pool_is_described_as_by_openzfs"),
        // there is no `zfs allow`: nothing is delegated
        "delegation" => Test("what_an_ordinary_user_is_told"),
        "autoreplace" => Test("a_new_device_takes_the_place_of_a_lost_one"),
        "autoexpand" => Test("a_pool_grows_with_its_devices_by_itself"),
        "autotrim" => Test("what_becomes_free_is_trimmed_by_itself"),
        "multihost" => Test("what_another_host_uses_is_not_imported"),
        "cachefile" => Test("cache_files"),
        "failmode" => Test("a_pool_waits_for_its_device"),
        "readonly" => Test("a_pool_comes_and_goes"),
        "ashift" | "comment" => Test("a_new_pool_is_used_and_destroyed"),
        "compatibility" => Test("features_of_new_pools"),
        "dedup_table_quota" => Test("a_table_that_is_full_takes_no_more"),
        _ => return None,
    })
}

#[test]
fn every_property_does_something_or_is_refused() {
    let tests = tests_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let is_there = |name: &str| assert!(tests.iter().any(|test| test == name), "there is no test {name}");
    for property in Property::all() {
        let (name, info) = (property.name(), property.info());
        match of_dataset(property) {
            ReadOnly => assert_eq!(info.setting, Setting::ReadOnly, "{name}"),
            Test(test) => is_there(test),
            Refused(value) => {
                let is_new = matches!(info.setting, Setting::Once | Setting::OnceOwn);
                let kind = [DatasetKind::FileSystem, DatasetKind::Volume];
                let kind = kind.into_iter().find(|kind| info.applies.has(*kind)).expect("it applies to something");
                assert!(rules::check(name, value, kind, is_new).is_err(), "{name}={value} can be set");
            }
            AsOpenZfs => assert_ne!(info.setting, Setting::ReadOnly, "{name}"),
        }
    }
    for property in PROPERTIES {
        let name = property.name;
        match of_pool(name) {
            None | Some(ReadOnly) => assert!(property.is_readonly, "nothing is known of {name}"),
            Some(Test(test)) => is_there(test),
            Some(Refused(value)) => assert!(pool_props::check(name, value, When::Set).is_err(), "{name}={value}"),
            Some(AsOpenZfs) => {}
        }
    }
}

/// Names of all tests in the sources below a folder.
fn tests_below(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            names.extend(tests_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("sources can be read");
            let after_mark = text.split("#[test]\n").skip(1);
            let name =
                |rest: &str| rest.split_once("fn ").and_then(|(_, rest)| rest.split_once('('))?.0.to_owned().into();
            names.extend(after_mark.filter_map(name));
        }
    }
    names
}
