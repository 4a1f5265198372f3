//! Dataset layers that are made and changed in memory, and read back by what reads those of real pools.

mod accounts;
mod blocks;
mod lists;

use std::sync::Arc;

use base::{Env, Kind, Result};
use codec::checksum::Checksum;
use codec::compress::Compress;
use device::{Device, MemDevice};
use dmu::zap::ZapValue;
use dmu::{Cache, Ledger, Objset, ObjsetPolicy, Redundant, Throttle, Txgs};
use format::blkptr::BlkPtr;
use format::feature::{ASYNC_DESTROY, EMPTY_BPOBJ, FEATURES, FeatureSet};
use format::ids::{DatasetId, Guid, Txg, VdevNumber};
use format::object_type::ObjectType;
use format::objset::ObjsetType;
use format::space_map::Run;
use vdev::{Tree, VdevSpec};
use zio::Zio;
use zio::alloc::{Allocator, Class, SpaceMapSource, TopShape};

use super::*;
use crate::property::{DatasetKind, rules};
use crate::{Dsl, Property, PropertySource, PropertyValue};

const GUID: Guid = Guid::new(5);
const SIZE: u64 = 64 << 20;
/// What a pool of tests has room for.
const USABLE: u64 = 1 << 30;

struct Nothing;

impl SpaceMapSource for Nothing {
    fn runs(&self, _top: VdevNumber, _metaslab: u64) -> Result<Vec<Run>> {
        Ok(Vec::new())
    }
}

fn cache() -> Arc<Cache> {
    let device: Arc<dyn Device> = Arc::new(MemDevice::new("disk", vec![0; SIZE as usize]));
    let tree = Arc::new(Tree::open(VdevSpec::of_file(GUID, SIZE - (5 << 20), 24), &[(GUID, device)].into()).unwrap());
    let zio = Arc::new(Zio::new(tree.clone(), Env::fixed(0)));
    let allocator = Arc::new(Allocator::new(tree, Box::new(Nothing)));
    let metaslabs = (0..3).map(|i| (i << 24..(i + 1) << 24, 0)).collect();
    allocator
        .add_top(TopShape { top: VdevNumber::new(0), class: Class::Normal, metaslab_shift: 24, metaslabs })
        .unwrap();
    zio.set_allocator(allocator);
    Arc::new(Cache::new(zio, 1 << 20))
}

fn size_of(bp: &BlkPtr) -> u64 {
    if bp.is_embedded() { 0 } else { bp.asize() }
}

/// The MOS frees at once what it kills.
struct Own<'a>(&'a Zio, Txg);

impl Ledger for Own<'_> {
    fn born(&mut self, _bp: &BlkPtr) {}

    fn killed(&mut self, bp: &BlkPtr) -> Result<()> {
        if bp.is_hole() { Ok(()) } else { self.0.free(self.1, bp, dmu::OnFailure::Fail).map(drop) }
    }
}

/// A pool's MOS in memory.
struct World {
    cache: Arc<Cache>,
    mos: Arc<Objset>,
    env: Env,
    txgs: Txgs,
    txg: Txg,
}

impl World {
    /// With a dataset layer, and the features `features`.
    fn new(features: &[&str]) -> (World, PoolDsl) {
        let cache = cache();
        let mos = Objset::open_live(
            cache.clone(),
            DatasetId::NONE,
            BlkPtr::HOLE,
            ObjsetType::Meta,
            "tank",
            ObjsetPolicy::default(),
        )
        .unwrap();
        let world = World {
            cache,
            mos,
            env: Env::fixed(1_700_000_000),
            txgs: Txgs::new(Txg::new(3), Throttle::of(&Env::fixed(0), 8 << 30)),
            txg: Txg::new(4),
        };
        let pool = world.change(|change| {
            change.create_table_at(DIRECTORY, ObjectType::OBJECT_DIRECTORY).unwrap();
            let table = change.create_table(ObjectType::ZAP_METADATA).unwrap();
            change.add(DIRECTORY, "features_for_write", table.get()).unwrap();
            for feature in features {
                change.set(table, feature, &ZapValue::one(0)).unwrap();
            }
            create_pool_dsl(change, &[("compression".into(), "gzip-9".into())]).unwrap().0
        });
        (world, pool)
    }

    fn change<T>(&self, f: impl FnOnce(&Change<'_>) -> T) -> T {
        let tx = self.txgs.in_sync(self.txg);
        f(&Change { mos: &self.mos, tx: &tx, env: &self.env, size_of: &size_of })
    }

    /// Writes the MOS, and goes to the next group.
    fn sync(&mut self) {
        let synced = self.mos.sync(&self.txgs.in_sync(self.txg), &mut Own(self.cache.zio(), self.txg)).unwrap();
        self.cache.zio().finish_writes().unwrap();
        if let Some(synced) = synced {
            self.mos.commit(synced);
        }
        self.txg = self.txg.next();
    }

    fn dsl(&self) -> Dsl {
        Dsl::open(self.mos.clone(), "tank").unwrap()
    }

    fn create(&self, name: &str, properties: &[(&str, &str)]) -> Result<Created> {
        let properties: Vec<(String, String)> =
            properties.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
        let new = NewDataset { kind: DatasetKind::FileSystem, properties: &properties };
        self.change(|change| create_dataset(change, &self.dsl(), name, &new, USABLE))
    }

    fn set(&self, dataset: &str, name: &str, text: &str) -> Result<Option<ObjsetProperty>> {
        self.change(|change| set_property(change, &self.dsl(), dataset, name, text, USABLE))
    }

    fn inherit(&self, dataset: &str, name: &str, received: bool) -> Result<()> {
        self.change(|change| inherit_property(change, &self.dsl(), dataset, name, received, USABLE))
    }

    fn rename(&self, old: &str, new: &str) -> Result<()> {
        self.change(|change| rename_dataset(change, &self.dsl(), old, new))
    }

    fn destroy(&self, name: &str) -> Result<Destroyed> {
        self.change(|change| destroy_dataset(change, &self.dsl(), name)).map(|done| done.blocks)
    }

    fn names(&self) -> Vec<String> {
        self.dsl().walk().unwrap().into_iter().map(|dir| dir.name).collect()
    }

    fn value(&self, dataset: &str, property: Property) -> (PropertyValue, PropertySource) {
        let dsl = self.dsl();
        let subject = dsl.subject(dataset).unwrap();
        let sourced = dsl.property(&subject, property, USABLE).unwrap().unwrap();
        (sourced.value, sourced.source)
    }

    fn snapshot(&self, name: &str) -> DatasetId {
        match self.change(|change| take_snapshots(change, &self.dsl(), &[name.to_owned()], &[], USABLE)).unwrap() {
            Taken::All(taken) => taken[0].1,
            taken => panic!("{taken:?}"),
        }
    }
}

#[test]
fn limits_have_the_type_that_openzfs_gives_them() {
    use crate::accounting::{Counted, Owner, set_limit};
    let (world, _) = World::new(&[]);
    // object 1 is a table here, too
    world.change(|change| {
        set_limit(change, Owner::User, Counted::Bytes, 5, 100).unwrap();
        let table = change.object_id(DIRECTORY, "userquota@").unwrap().unwrap();
        assert_eq!(change.mos.object(table).unwrap().dnode().object_type, ObjectType::USERGROUP_QUOTA);
        assert_eq!(change.number(table, "5").unwrap(), Some(100));
    });
}

#[test]
fn a_new_pool_reads_back() {
    let (world, pool) = World::new(&[ASYNC_DESTROY, EMPTY_BPOBJ]);
    let dsl = world.dsl();
    let root = dsl.root().unwrap();
    assert_eq!((root.id, root.phys.head_dataset, root.phys.origin), (pool.root_dir, pool.root_dataset, pool.origin));
    let own: Vec<String> = dsl.child_ids(&root).unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(own, ["$FREE", "$MOS", "$ORIGIN"]);
    let origin = dsl.dataset(pool.origin, "origin").unwrap();
    assert_eq!(dsl.name_of(pool.origin).unwrap(), "tank/$ORIGIN@$ORIGIN");
    assert_eq!((origin.phys.creation_txg, origin.phys.num_children), (Txg::new(1), 2));
    assert_eq!(dsl.clones(&origin).unwrap(), ["tank"]);
    let head = dsl.head(&root).unwrap();
    assert_eq!(
        (head.phys.prev_snap, head.phys.prev_snap_txg, head.phys.creation_txg),
        (pool.origin, Txg::new(1), Txg::new(1))
    );
    assert!(head.phys.bp.is_hole() && head.phys.fsid_guid < 1 << 56 && head.phys.guid != origin.phys.guid);
    let gzip_9 = PropertyValue::Number(13);
    assert_eq!(world.value("tank", Property::Compression), (gzip_9, PropertySource::Local));
    // of the origin's head and the root's: one part each
    world.change(|change| assert_eq!(feature::uses(change, EMPTY_BPOBJ).unwrap(), Some(2)));
}

#[test]
fn datasets_come_move_and_go() {
    let (world, _) = World::new(&[ASYNC_DESTROY]);
    let created = world.create("tank/a", &[("quota", "1M"), ("x:y", "z"), ("normalization", "formC")]).unwrap();
    world.create("tank/a/b", &[]).unwrap();
    assert_eq!(
        created.contents,
        [
            (Property::Version, 5),
            (Property::Normalization, 0x50),
            (Property::Utf8only, 1),
            (Property::Casesensitivity, 0)
        ]
    );
    assert_eq!(world.names(), ["tank", "tank/a", "tank/a/b"]);
    assert_eq!(world.value("tank/a", Property::Quota), (PropertyValue::Number(1 << 20), PropertySource::Local));
    assert_eq!(world.dsl().find_dir("tank/a").unwrap().phys.quota, 1 << 20);
    let user = world.dsl().subject("tank/a/b").unwrap().levels().find_user("x:y").unwrap();
    assert_eq!(user.value, PropertyValue::Text("z".into()));

    let error = |result: Result<()>| result.map_err(|e| (e.kind(), e.what().to_owned())).unwrap_err();
    let of = |kind, what: &str| (kind, what.to_owned());
    let create = |name| error(world.create(name, &[]).map(drop));
    assert_eq!(create("tank/a"), of(Kind::Exists, "dataset already exists"));
    assert_eq!(create("tank/c/d"), of(Kind::NotFound, "parent does not exist"));
    assert_eq!(error(world.create("tank/c", &[("used", "1")]).map(drop)), of(Kind::ReadOnly, "'used' is readonly"));
    assert_eq!(error(world.destroy("tank/a").map(drop)), of(Kind::NotEmpty, "filesystem has children"));
    assert_eq!(
        error(world.rename("tank/a", "tank/a/b/c")),
        of(Kind::Invalid, "New dataset name cannot be a descendant of current dataset name")
    );
    assert_eq!(error(world.rename("tank/a", "other/a")), of(Kind::Invalid, "datasets must be within same pool"));
    world.rename("tank/a/b", "tank/b").unwrap();
    world.rename("tank/a", "tank/b/c").unwrap();
    assert_eq!(world.names(), ["tank", "tank/b", "tank/b/c"]);
    assert_eq!(world.destroy("tank/b/c").unwrap(), Destroyed::Nothing);
    assert_eq!(world.destroy("tank/b").unwrap(), Destroyed::Nothing);
    assert_eq!(world.names(), ["tank"]);
    let dsl = world.dsl();
    let origin = dsl.head(&dsl.root().unwrap()).unwrap().phys.prev_snap;
    assert_eq!(dsl.clones(&dsl.dataset(origin, "origin").unwrap()).unwrap(), ["tank"]);
}

#[test]
fn a_rename_keeps_the_tree_flat() {
    let (world, _) = World::new(&[]);
    let chain = |top: &str, levels: usize| {
        (1..levels).fold(vec![format!("tank/{top}")], |mut names: Vec<String>, _| {
            names.push(format!("{}/x", names.last().unwrap()));
            names
        })
    };
    for name in chain("a", 30).iter().chain(&chain("long-name", 20)) {
        world.create(name, &[]).unwrap();
    }
    let below = |levels: usize| format!("tank/long-name{}", "/x".repeat(levels));
    // 49 levels are allowed, and it is the deepest below that counts, also where the name gets no longer
    let error = world.rename("tank/a", &format!("{}/a", below(19))).unwrap_err();
    assert_eq!((error.kind(), error.what()), (Kind::TooLong, "name is too long"));
    world.rename("tank/a", &format!("{}/a", below(18))).unwrap();
    assert_eq!(world.names().len(), 51);
    world.rename(&format!("{}/a", below(18)), "tank/b").unwrap();
    world.create(&format!("{}/y", below(19)), &[]).unwrap();
}

#[test]
fn volumes_have_sizes() {
    let (world, _) = World::new(&[]);
    let create = |name: &str, properties: &[(&str, &str)]| {
        let properties: Vec<(String, String)> =
            properties.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
        let new = NewDataset { kind: DatasetKind::Volume, properties: &properties };
        world.change(|change| create_dataset(change, &world.dsl(), name, &new, USABLE))
    };
    let created = create("tank/v", &[("volsize", "1M"), ("volblocksize", "4K"), ("copies", "2")]).unwrap();
    assert_eq!(created.contents, [(Property::Volsize, 1 << 20), (Property::Volblocksize, 4096)]);
    let stored = world.dsl().stored_props(&world.dsl().find_dir("tank/v").unwrap()).unwrap();
    assert_eq!(stored, [("copies".to_owned(), PropertyValue::Number(2))]);
    for (properties, why) in [
        (&[][..], "missing volume size"),
        (&[("volsize", "0")], "volume size cannot be zero"),
        (&[("volsize", "12K"), ("volblocksize", "8K")], "volume size must be a multiple of volume block size"),
        (&[("quota", "1M")], "'quota' does not apply to datasets of this type"),
    ] {
        assert_eq!(create("tank/w", properties).unwrap_err().what(), why);
    }
    assert_eq!(world.names(), ["tank", "tank/v"]);
}

#[test]
fn properties_are_set_inherited_and_reverted() {
    let (world, _) = World::new(&[]);
    world.create("tank/a", &[]).unwrap();
    let number = PropertyValue::Number;
    assert_eq!(world.set("tank", "copies", "2").unwrap(), None);
    assert_eq!(world.set("tank/a", "copies", "3").unwrap(), None);
    assert_eq!(world.set("tank/a", "mountpoint", "/x").unwrap(), None);
    assert_eq!(world.value("tank/a", Property::Copies), (number(3), PropertySource::Local));
    world.inherit("tank/a", "copies", false).unwrap();
    assert_eq!(world.value("tank/a", Property::Copies), (number(2), PropertySource::Inherited("tank".into())));

    // what was received hides behind what is set, and can be hidden itself
    let table = world.dsl().find_dir("tank/a").unwrap().phys.props_zap;
    world.change(|change| {
        change.set(table, "$hasrecvd", &ZapValue::one(0)).unwrap();
        change.set(table, "copies$recvd", &ZapValue::one(1)).unwrap();
    });
    assert_eq!(world.value("tank/a", Property::Copies), (number(1), PropertySource::Received));
    world.inherit("tank/a", "copies", false).unwrap();
    assert_eq!(world.value("tank/a", Property::Copies), (number(2), PropertySource::Inherited("tank".into())));
    world.inherit("tank/a", "copies", true).unwrap();
    assert_eq!(world.value("tank/a", Property::Copies), (number(1), PropertySource::Received));

    let snapshot = world.snapshot("tank/a@s");
    world.set("tank/a@s", "a:b", "c").unwrap();
    let found = |world: &World| world.dsl().subject("tank/a@s").unwrap().levels().find_user("a:b");
    assert_eq!(found(&world).unwrap().source, PropertySource::Local);
    world.inherit("tank/a@s", "a:b", false).unwrap();
    assert_eq!(found(&world), None);
    assert_eq!(world.change(|change| change.dataset(snapshot).unwrap().props_zap), ObjectId::NONE);
}

#[test]
fn limits_are_kept() {
    let (world, _) = World::new(&[]);
    world.create("tank/a", &[("reservation", "10M")]).unwrap();
    let error = |result: Result<Option<ObjsetProperty>>| result.unwrap_err().what().to_owned();
    let small = "size is less than current used or reserved space";
    let large = "size is greater than available space";
    assert_eq!(error(world.set("tank/a", "quota", "5M")), small);
    assert_eq!(world.set("tank/a", "quota", "20M").unwrap(), None);
    assert_eq!(error(world.set("tank/a", "reservation", "21M")), large);
    assert_eq!(error(world.set("tank/a", "refreservation", "21M")), large);
    assert_eq!(error(world.set("tank", "reservation", "2G")), large);
    world.set("tank/a", "refquota", "3M").unwrap();
    assert_eq!(error(world.set("tank/a", "refreservation", "4M")), large);
    world.set("tank/a", "refreservation", "2M").unwrap();
    assert_eq!(error(world.set("tank/a", "refquota", "1M")), small);
    assert_eq!(world.create("tank/b", &[("reservation", "2G")]).unwrap_err().kind(), Kind::NoSpace);

    let room = |name: &str| {
        let dsl = world.dsl();
        let dir = dsl.find_dir(name).unwrap();
        dsl.room(&dir, &dsl.head(&dir).unwrap(), USABLE).unwrap()
    };
    assert_eq!(room("tank/a"), RoomLeft { bytes: 3 << 20, refusal: Kind::Quota });
    assert_eq!(room("tank"), RoomLeft { bytes: USABLE - (10 << 20), refusal: Kind::NoSpace });
    world.set("tank/a", "refquota", "none").unwrap();
    assert_eq!(room("tank/a"), RoomLeft { bytes: 20 << 20, refusal: Kind::Quota });
}

#[test]
fn policies_follow_properties() {
    let names = ["lz4_compress", "embedded_data", "large_blocks", "large_dnode", "skein", "zstd_compress"];
    let enabled = FeatureSet::of(|feature| names.contains(&feature.name));
    let guids = FEATURES.iter().filter(|feature| names.contains(&feature.name)).map(|feature| feature.guid);
    let (world, _) = World::new(&guids.collect::<Vec<_>>());
    let given = [("recordsize", "1M"), ("checksum", "skein"), ("dnodesize", "auto"), ("compression", "zstd-fast-10")];
    world.create("tank/a", &given).unwrap();
    let dsl = world.dsl();
    let levels = || dsl.levels(&dsl.find_dir("tank/a").unwrap()).unwrap();
    let policy = write_policy(&levels(), enabled);
    assert_eq!((policy.checksum, policy.compress, policy.compress_level), (Checksum::Skein, Compress::Zstd, -10));
    assert_eq!((policy.copies, policy.embed, policy.hole_birth), (1, true, false));
    assert_eq!((policy.redundant, policy.special_up_to), (Redundant::All, 0));
    let options = file_system_options(&levels(), enabled);
    assert_eq!((options.record_size, options.dnode_size, options.xattr), (1 << 20, 1 << 10, 2));
    // what an earlier version let in, in a pool without the features
    let policy = write_policy(&levels(), FeatureSet::default());
    assert_eq!((policy.checksum, policy.compress), (Checksum::Fletcher4, Compress::Lzjb));
    let options = file_system_options(&levels(), FeatureSet::default());
    assert_eq!((options.record_size, options.dnode_size), (128 << 10, 512));

    for (name, value) in
        [("compression", "on"), ("redundant_metadata", "some"), ("special_small_blocks", "4K"), ("dnodesize", "4k")]
    {
        world.set("tank/a", name, value).unwrap();
    }
    let policy = write_policy(&levels(), enabled);
    assert_eq!((policy.compress, policy.redundant, policy.special_up_to), (Compress::Lz4, Redundant::Some, 4096));
    assert_eq!(file_system_options(&levels(), enabled).dnode_size, 4 << 10);
}

#[test]
fn values_that_need_a_feature() {
    let (world, _) = World::new(&["com.delphix:extensible_dataset"]);
    let words = "must be upgraded to set this property or value";
    let size = "'recordsize' must be power of 2 from 512B to 128K".to_owned();
    for (name, value, guid) in [
        ("compression", "zstd-7", "org.freebsd:zstd_compress"),
        ("compression", "lz4", "org.illumos:lz4_compress"),
        ("checksum", "sha512", "org.illumos:sha512"),
        ("checksum", "skein", "org.illumos:skein"),
        ("checksum", "edonr", "org.illumos:edonr"),
        ("checksum", "blake3", "org.openzfs:blake3"),
        ("recordsize", "256K", "org.open-zfs:large_blocks"),
        ("dnodesize", "auto", "org.zfsonlinux:large_dnode"),
    ] {
        let is_size = name == "recordsize";
        let error = |result: Result<()>| result.unwrap_err().what().to_owned();
        let expect = |who: &str| if is_size { size.clone() } else { format!("{who} {words}") };
        assert_eq!(error(world.set("tank", name, value).map(drop)), expect("pool and or dataset"), "{value}");
        assert_eq!(error(world.create("tank/x", &[(name, value)]).map(drop)), expect("pool"), "{value}");
        assert_eq!(world.names(), ["tank"], "{value}");
        // what was received before
        let table = world.dsl().find_dir("tank").unwrap().phys.props_zap;
        world.change(|change| {
            let given = rules::check(name, value, DatasetKind::FileSystem, false).unwrap();
            let PropertyValue::Number(number) = given.value else { panic!("{name}") };
            change.set(table, "$hasrecvd", &ZapValue::one(0)).unwrap();
            change.set(table, &format!("{name}$recvd"), &ZapValue::one(number)).unwrap();
        });
        assert_eq!(error(world.inherit("tank", name, true)), expect("pool and or dataset"), "{value}");
        world.change(|change| {
            let features = change.object_id(DIRECTORY, "features_for_write").unwrap().unwrap();
            change.set(features, guid, &ZapValue::one(0)).unwrap();
        });
        world.set("tank", name, value).unwrap();
        // versions without zstd do not know its values
        let count = (name, value) == ("compression", "zstd-7");
        world.change(|change| assert_eq!(feature::uses(change, guid).unwrap(), Some(count.into()), "{value}"));
    }
}

#[test]
fn file_systems_have_the_version_that_is_asked_for() {
    let (world, _) = World::new(&[]);
    let created = world.create("tank/x", &[("version", "4")]).unwrap();
    assert!(created.contents.contains(&(Property::Version, 4)));
    let created = world.create("tank/y", &[]).unwrap();
    assert!(created.contents.contains(&(Property::Version, 5)));
}

#[test]
fn counts_of_a_damaged_directory_overflow_nothing() {
    let (world, _) = World::new(&[format::feature::FILESYSTEM_LIMITS]);
    world.create("tank/a", &[]).unwrap();
    world.create("tank/a/b", &[]).unwrap();
    world.set("tank/a/b", "filesystem_limit", "5").unwrap();
    let dir = world.dsl().find_dir("tank/a/b").unwrap().id;
    world.change(|change| {
        for name in ["com.joyent:filesystem_count", "com.joyent:snapshot_count"] {
            assert!(change.number(dir.object(), name).unwrap().is_some());
            change.set(dir.object(), name, &ZapValue::one(u64::MAX)).unwrap();
        }
    });
    world.set("tank/a", "filesystem_limit", "9").unwrap();
    assert_eq!(world.value("tank/a", Property::FilesystemCount).0, PropertyValue::Number(u64::MAX));
}
