use device::MemDevice;
use format::ids::{Guid, Txg};

use super::*;
use crate::spec::LeafSpec;

const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

#[test]
fn metaslabs_by_size() {
    let env = Env::fixed(0);
    let counted = |asize: u64| (metaslab_shift(&env, asize), asize >> metaslab_shift(&env, asize));
    for (asize, expect) in [
        (59 << 20, (24, 3)),
        (255 << 20, (24, 15)),
        (256 << 20, (25, 8)),
        (GIB - 1, (26, 15)),
        (8 * GIB - 1, (29, 15)),
        (8 * GIB, (29, 16)),
        (100 * GIB, (29, 200)),
        (101 * GIB, (30, 101)),
        (3 * TIB, (34, 192)),
        (10 * TIB, (34, 640)),
        (2048 * TIB, (34, 1 << 17)),
        (2048 * TIB + (16 << 30), (35, 1 << 16)),
        (u64::MAX, (47, (1 << 17) - 1)),
    ] {
        assert_eq!(counted(asize), expect, "{asize}");
    }
}

fn leaf(guid: u64) -> VdevSpec {
    let leaf = Some(LeafSpec::default());
    VdevSpec {
        kind: VdevKind::File,
        id: guid,
        guid: Guid::new(guid),
        create_txg: Txg::ZERO,
        top: None,
        leaf,
        children: vec![],
    }
}

fn above(kind: VdevKind, count: u64) -> VdevSpec {
    VdevSpec { kind, guid: Guid::new(99), leaf: None, children: (0..count).map(leaf).collect(), ..leaf(0) }
}

/// Devices of so many MiB, and some bytes more.
fn devices(mib: &[u64]) -> HashMap<Guid, Arc<dyn Device>> {
    let device = |mib: &u64| Arc::new(MemDevice::new("m", vec![0; ((mib << 20) + 77) as usize])) as Arc<dyn Device>;
    (0..).map(Guid::new).zip(mib.iter().map(device)).collect()
}

#[test]
fn sizes_of_each_kind() {
    let mib = |spec: &VdevSpec, sizes: &[u64]| {
        plan(&Env::fixed(0), spec, &devices(sizes), 9).map(|plan| plan.asize as f64 / 1048576.0)
    };
    assert_eq!(mib(&leaf(0), &[100]).unwrap(), 95.5);
    assert_eq!(mib(&above(VdevKind::Mirror, 3), &[100, 65, 70]).unwrap(), 60.5);
    assert_eq!(mib(&above(VdevKind::Raidz { nparity: 2 }, 4), &[64, 100, 100, 100]).unwrap(), 4.0 * 59.5);
    let shape = draid::DraidShape { children: 4, ndata: 1, nparity: 1, nspares: 1, ngroups: 3 };
    // 4 rows of which 2 are kept back, on 3 children, make 3 groups of 2 columns
    assert_eq!(mib(&above(VdevKind::Draid(shape), 4), &[80; 4]).unwrap(), 96.0);
    for (spec, sizes, kind) in [
        (leaf(0), &[63][..], ErrorKind::Invalid),
        (leaf(0), &[], ErrorKind::Missing),
        (above(VdevKind::Mirror, 2), &[64], ErrorKind::Missing),
        (above(VdevKind::Mirror, 0), &[], ErrorKind::Invalid),
        (above(VdevKind::Raidz { nparity: 1 }, 1), &[64], ErrorKind::Invalid),
        (above(VdevKind::Hole, 0), &[], ErrorKind::Invalid),
    ] {
        assert_eq!(mib(&spec, sizes).unwrap_err().kind(), kind, "{spec:?}");
    }
    assert_eq!(leaf_asize(DEVICE_BYTES_MIN).unwrap(), (64 << 20) - (9 << 19));
}

#[derive(Debug)]
struct Disk(u64);

impl Device for Disk {
    fn path(&self) -> &str {
        "disk"
    }

    fn size(&self) -> u64 {
        GIB
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<()> {
        unreachable!("nobody reads it")
    }

    fn sector_bytes(&self) -> u64 {
        self.0
    }
}

#[test]
fn the_largest_sector_counts() {
    let shift = |sectors: &[u64], ashift| {
        let disks =
            (0..).map(Guid::new).zip(sectors.iter().map(|&bytes| Arc::new(Disk(bytes)) as Arc<dyn Device>)).collect();
        let spec = above(VdevKind::Mirror, sectors.len() as u64);
        plan(&Env::fixed(0), &spec, &disks, ashift)
            .map(|plan| (sector_shift(&spec, &disks, |disk| disk.sector_bytes()), plan.ashift))
    };
    assert_eq!(shift(&[512, 512], 9).unwrap(), (9, 9));
    assert_eq!(shift(&[512, 4096], 9).unwrap(), (12, 9));
    assert_eq!(shift(&[1 << 20], 16).unwrap(), (20, 16));
    assert!(shift(&[512], 8).is_err() && shift(&[512], 17).is_err());
}
