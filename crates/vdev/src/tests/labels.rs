//! Labels that are written, and read again: those of a device, and of all leaves of a tree.

use base::{AlignedBuf, Endian, Kind as ErrorKind};
use codec::checksum::{Checksum, embedded};
use format::blkptr::BlkPtr;
use format::ids::{Guid, Txg};
use format::uberblock::Uberblock;

use super::*;
use crate::label::{LABEL_BYTES, clear, clear_sound, initialize, read_labels, write_config, write_uberblock};
use crate::{Vdev, VdevState};

/// Where the block of the boot environment begins and ends in a label.
const BOOT_ENV_AT: usize = 8 << 10;
const CONFIG_AT: usize = 16 << 10;

const SIZE: u64 = (64 << 20) + 12_345;

fn disk() -> Arc<FaultyDevice> {
    Arc::new(FaultyDevice::new(Arc::new(MemDevice::new("disk", vec![0xee; SIZE as usize])), 1))
}

fn uberblock(txg: Txg) -> Uberblock {
    Uberblock {
        endian: Endian::Little,
        version: 5000,
        txg,
        guid_sum: 7,
        timestamp_s: 1000,
        rootbp: BlkPtr::parse(&[0; 128]).unwrap(),
        software_version: 5000,
        mmp: None,
        checkpoint_txg: Txg::ZERO,
        raidz_reflow: 0,
    }
}

/// The txgs in the ring of each label.
fn txgs(device: &dyn Device, ashift: u32) -> Vec<Vec<(usize, u64)>> {
    let slots = |label: crate::label::Label| {
        let txg = |slot: crate::label::UberblockSlot| {
            (slot.slot, Uberblock::parse(slot.bytes.unwrap()).unwrap().map_or(0, |uberblock| uberblock.txg.get()))
        };
        label.uberblocks(ashift).map(txg).collect()
    };
    read_labels(device).labels.into_iter().map(|label| slots(label.unwrap())).collect()
}

fn configs(device: &dyn Device) -> [Option<Vec<u8>>; 4] {
    read_labels(device).labels.map(|label| label.unwrap().config().ok().map(<[u8]>::to_vec))
}

#[test]
fn what_is_written_is_read() {
    let device = disk();
    initialize(&*device).unwrap();
    for label in read_labels(&*device).labels {
        let label = label.unwrap();
        let (front, rest) = label.bytes().split_at(BOOT_ENV_AT);
        let (boot_env, rest) = rest.split_at(CONFIG_AT - BOOT_ENV_AT);
        assert!(front.iter().chain(rest).all(|&byte| byte == 0));
        let verifier = [label.offset() + BOOT_ENV_AT as u64, 0, 0, 0];
        assert!(embedded::verify(Checksum::Label, &verifier, boot_env).is_ok());
    }
    // nothing but labels has changed
    let mut data = vec![0; (SIZE - (1 << 20)) as usize / 2];
    device.read_at(512 << 10, &mut data).unwrap();
    assert!(data.iter().all(|&byte| byte == 0xee));

    write_config(&*device, &[0, 2], b"old").unwrap();
    write_config(&*device, &[1, 3], b"new").unwrap();
    let found = configs(&*device).map(|config| config.unwrap()[..4].to_vec());
    assert_eq!(found, [b"old\0", b"new\0", b"old\0", b"new\0"]);
    for txg in [5, 31, 32, 36] {
        write_uberblock(&*device, &uberblock(Txg::new(txg)), 12).unwrap();
    }
    assert_eq!(txgs(&*device, 12), vec![vec![(0, 32), (4, 36), (5, 5), (31, 31)]; 4]);
    clear(&*device).unwrap();
    assert_eq!(configs(&*device), [const { None }; 4]);
    assert_eq!(txgs(&*device, 12), vec![vec![]; 4]);
    for (ashift, slot) in [(9, 100), (13, 100 % 16), (16, 100 % 16)] {
        write_uberblock(&*device, &uberblock(Txg::new(100)), ashift).unwrap();
        assert_eq!(txgs(&*device, ashift), vec![vec![(slot, 100)]; 4]);
        clear(&*device).unwrap();
    }
}

/// Until nothing of it can be read, all of a configuration is there but its first sector.
#[test]
fn a_configuration_goes_from_its_beginning_on() {
    let device = disk();
    initialize(&*device).unwrap();
    write_config(&*device, &[0, 1, 2, 3], &[7; 3000]).unwrap();
    device.fail_flush(device.flushes());
    clear(&*device).unwrap_err();
    for label in read_labels(&*device).labels {
        let label = label.unwrap();
        let (gone, left) = label.bytes()[CONFIG_AT..CONFIG_AT + 3000].split_at(512);
        assert!(gone.iter().all(|byte| *byte == 0) && left.iter().all(|byte| *byte == 7));
    }
    clear(&*device).unwrap();
    assert!(read_labels(&*device).labels.into_iter().all(|label| label.unwrap().bytes().iter().all(|byte| *byte == 0)));
}

#[test]
fn what_is_no_label_stays() {
    let device = disk();
    write_config(&*device, &[0, 1, 2, 3], b"old").unwrap();
    device.write_at(0, &AlignedBuf::from(&[0xdd; 400 << 10][..])).unwrap();
    clear_sound(&*device).unwrap();
    assert_eq!(configs(&*device), [const { None }; 4]);
    let mut front = vec![0; 400 << 10];
    device.read_at(0, &mut front).unwrap();
    assert!(front.iter().all(|byte| *byte == 0xdd), "others' data");
    let mut back = vec![1; 512 << 10];
    device.read_at(SIZE / LABEL_BYTES * LABEL_BYTES - (512 << 10), &mut back).unwrap();
    assert!(back.iter().all(|byte| *byte == 0), "the labels behind");
}

#[test]
fn errors_name_the_label() {
    let device = disk();
    let room = (112 << 10) - 40;
    assert!(write_config(&*device, &[0], &vec![1; room]).is_ok());
    assert_eq!(write_config(&*device, &[1], &vec![1; room + 1]).unwrap_err().kind(), ErrorKind::TooBig);
    device.unwritable(300 << 10..301 << 10);
    let error = write_config(&*device, &[0, 1, 2], b"x").unwrap_err();
    assert_eq!((error.kind(), error.what()), (ErrorKind::Io, "label 1 could not be written"));
    assert_eq!((error.place().vdev.as_deref(), error.place().offset), (Some("disk"), Some((256 + 16) << 10)));
    assert_eq!(configs(&*device).map(|config| config.is_some()), [true, false, true, false]);
    let small = MemDevice::new("small", vec![0; 1 << 19]);
    assert_eq!(initialize(&small).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// A mirror of 1 and 2, the device 3, and the log 4.
fn tree(absent: &[u64]) -> (Tree, HashMap<u64, Arc<FaultyDevice>>) {
    let spec = |kind: VdevKind, id, guid, is_log, children| {
        let top = TopSpec {
            ashift: 12,
            asize: 0,
            metaslab_array: ObjectId::NONE,
            metaslab_shift: 0,
            is_log,
            bias: None,
            removing: false,
            zap: ObjectId::NONE,
            indirect: None,
            expansion: None,
        };
        let leaf = kind.is_leaf().then(LeafSpec::default);
        VdevSpec { kind, id, guid: Guid::new(guid), create_txg: Txg::ZERO, top: Some(top), leaf, children }
    };
    let below = |id, guid| VdevSpec { top: None, ..spec(VdevKind::File, id, guid, false, vec![]) };
    let tops = vec![
        spec(VdevKind::Mirror, 0, 10, false, vec![below(0, 1), below(1, 2)]),
        spec(VdevKind::File, 1, 3, false, vec![]),
        spec(VdevKind::File, 2, 4, true, vec![]),
    ];
    let devices: HashMap<u64, Arc<FaultyDevice>> = (1..5).map(|guid| (guid, disk())).collect();
    let given = devices.iter().filter(|(guid, _)| !absent.contains(guid));
    let given: HashMap<Guid, Arc<dyn Device>> =
        given.map(|(&guid, d)| (Guid::new(guid), d.clone() as Arc<dyn Device>)).collect();
    (Tree::open(VdevSpec::root_of(Guid::new(99), tops, 3).unwrap(), &given).unwrap(), devices)
}

#[test]
fn all_leaves_of_a_pool() {
    let (tree, devices) = tree(&[]);
    let config = |leaf: &Vdev| format!("leaf {}", leaf.guid()).into_bytes();
    tree.write_labels(&[0, 2], &config).unwrap();
    tree.write_uberblock(&uberblock(Txg::new(7))).unwrap();
    tree.flush().unwrap();
    for (guid, device) in &devices {
        let expect = format!("leaf {guid}\0").into_bytes();
        let found = configs(&**device).map(|config| config.is_some_and(|config| config.starts_with(&expect)));
        assert_eq!((found, device.flushes()), ([true, false, true, false], 1));
        assert_eq!(txgs(&**device, 12), vec![vec![(7, 7)]; 4]);
    }
    assert!(tree.leaves().all(|leaf| leaf.state().dtl().is_empty()));
}

#[test]
fn how_many_must_take_it() {
    let (tree, devices) = tree(&[2, 4]);
    let config = |_: &Vdev| b"x".to_vec();
    let all = 0..SIZE;
    // one label of the mirror's last leaf is enough, the log does not matter
    devices[&1].unwritable(0..256 << 10);
    tree.write_labels(&[0, 2], &config).unwrap();
    assert_eq!(tree.leaf(Guid::new(1)).unwrap().stats().errors(), [0, 1, 0]);
    devices[&1].unwritable(all.clone());
    assert_eq!(tree.write_labels(&[0, 2], &config).unwrap_err().kind(), ErrorKind::Io);
    tree.write_uberblock(&uberblock(Txg::new(7))).unwrap();
    devices[&3].vanish(true);
    assert_eq!(tree.write_uberblock(&uberblock(Txg::new(8))).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(tree.health(tree.leaf(Guid::new(3)).unwrap().id()).state, VdevState::Unavail);
    let big = |_: &Vdev| vec![1; 112 << 10];
    assert_eq!(tree.write_labels(&[0], &big).unwrap_err().kind(), ErrorKind::TooBig);
    let (empty, _) = super::labels::tree(&[1, 2, 3, 4]);
    assert_eq!(empty.write_uberblock(&uberblock(Txg::new(8))).unwrap_err().kind(), ErrorKind::Missing);
    assert_eq!(empty.write_labels(&[0], &config).unwrap_err().kind(), ErrorKind::Missing);
}
