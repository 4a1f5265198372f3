use std::sync::Arc;

use base::{Endian, Env};
use device::Device;
use zpl::Zpl;

use super::*;
use crate::corpus;
use crate::sparse::SparseDevice;
use crate::survey::{self, Survey};
use crate::workload::{PoolLayout, Workload};

/// A pool with some files, exported.
fn pool(layout: PoolLayout) -> Vec<Arc<dyn Device>> {
    let devices: Vec<Arc<dyn Device>> = (0..layout.devices())
        .map(|n| Arc::new(SparseDevice::new(format!("/d{n}"), 64 << 20)) as Arc<dyn Device>)
        .collect();
    let mut workload = Workload::create(&Env::fixed(1000), layout, &devices, 1).unwrap();
    workload.create_fs("live/fs", &[("copies", "2")]).unwrap();
    for _ in 0..200 {
        workload.step().unwrap();
    }
    workload.sync().unwrap();
    workload.pool.close(pool::PoolState::Exported).unwrap();
    devices
}

/// Every block put in its place again, with its sums and compression made anew.
fn seal_all(devices: &[Arc<dyn Device>]) -> usize {
    let atlas = Atlas::of(devices).unwrap();
    let mut forge = Forge::new(&atlas);
    for block in 0..atlas.blocks().len() {
        forge.contents_mut(block);
    }
    for (device, _) in atlas.labels() {
        forge.change_label(device, |_| ());
    }
    forge.seal(devices).unwrap();
    atlas.blocks().len()
}

#[test]
fn a_pool_whose_blocks_are_all_sealed_again_is_the_same() {
    for layout in PoolLayout::ALL {
        let devices = pool(layout);
        let truth = Survey::of(&survey::open(&devices, &Env::fixed(0)).unwrap());
        assert!(seal_all(&devices) > 50);
        let sealed = Survey::of(&survey::open(&devices, &Env::fixed(0)).unwrap());
        assert_eq!(sealed.errors(&truth), []);
        assert_eq!(sealed.found, truth.found, "{layout:?}");
    }
}

#[test]
fn pools_of_others_are_sealed() {
    let mut count = 0;
    for name in ["basic", "raidz2", "raidz3", "snapshots", "zil"] {
        let Some(case) = corpus::cases().into_iter().find(|case| case.name == name) else { continue };
        let devices = corpus::as_devices(&case.load());
        let truth = Survey::of(&survey::open(&devices, &Env::fixed(0)).unwrap());
        assert!(seal_all(&devices) > 100);
        let sealed = Survey::of(&survey::open(&devices, &Env::fixed(0)).unwrap());
        assert_eq!(sealed.found, truth.found, "{name}");
        count += 1;
    }
    assert!(count > 1, "the corpus' cases have other names");
}

#[test]
fn one_field_is_changed_and_nothing_else() {
    for layout in PoolLayout::ALL {
        let devices = pool(layout);
        let atlas = Atlas::of(&devices).unwrap();
        let view = survey::open(&devices, &Env::fixed(0)).unwrap();
        let dataset = view.dsl().find("live/fs").unwrap();
        let zpl = Zpl::open(view.dsl().objset(&dataset, dmu::Mode::Plain).unwrap()).unwrap();
        let mut names = Vec::new();
        let mut list = |zpl: &Zpl| {
            names.clear();
            let each = &mut |entry: zpl::DirEntry| {
                names.push(entry.name.to_vec());
                std::ops::ControlFlow::Continue(())
            };
            zpl.readdir(zpl.root(), 0, each).unwrap();
            names.clone()
        };
        let before = list(&zpl);
        let old = before.iter().find(|name| !name.starts_with(b".")).expect("there are files").clone();

        let mut forge = Forge::new(&atlas);
        forge.rename_entry(dataset.id, zpl.root(), &old, b"../x").unwrap();
        assert!(forge.rename_entry(dataset.id, zpl.root(), &old, b"../x").is_err());
        // and the log's header, which nothing reads here
        forge.put_u64(AtlasPlace { block: atlas.head(dataset.id).unwrap(), at: 512 + 160 }, 77);
        forge.seal(&devices).unwrap();

        let view = survey::open(&devices, &Env::fixed(0)).unwrap();
        let dataset = view.dsl().find("live/fs").unwrap();
        let objset = view.dsl().objset(&dataset, dmu::Mode::Plain).unwrap();
        let header = &objset.phys().log_header;
        assert_eq!(Endian::Little.u64(&header[160..]), Some(77), "{layout:?}");
        let after = list(&Zpl::open(objset).unwrap());
        let expect: Vec<Vec<u8>> =
            before.into_iter().map(|name| if name == old { b"../x".to_vec() } else { name }).collect();
        assert_eq!(after, expect, "{layout:?}");
    }
}
