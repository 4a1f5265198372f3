use std::collections::BTreeSet;

use super::*;

/// Two devices: 1 has an A that lasts and a B over it that may be lost; 2 has a C of two sectors that may be lost.
fn recorded() -> Arc<Recording> {
    let recording = Recording::new(vec![SparseDevice::new("1", 4096), SparseDevice::new("2", 4096)]);
    let devices = recording.devices();
    devices[0].write_at(0, &[b'A'; 512]).unwrap();
    devices[0].flush().unwrap();
    devices[0].write_at(0, &[b'B'; 512]).unwrap();
    devices[1].write_at(512, &[b'C'; 1024]).unwrap();
    devices[1].flush().unwrap();
    assert_eq!((recording.len(), recording.flushes()), (5, vec![1, 4]));
    recording
}

/// The first bytes of the three sectors that are written.
fn seen(devices: &[SparseDevice]) -> [u8; 3] {
    [(0, 0), (1, 512), (1, 1024)].map(|(device, offset)| {
        let mut byte = [0];
        devices[device].read_at(offset, &mut byte).unwrap();
        byte[0]
    })
}

/// All that many cuts leave.
fn outcomes(at: usize, loss: Loss) -> BTreeSet<[u8; 3]> {
    let recording = recorded();
    (0..200).map(|seed| seen(&recording.cut(at, &mut Rng::new(seed), loss))).collect()
}

#[test]
fn what_was_flushed_stays() {
    for loss in Loss::ALL {
        assert!(outcomes(4, loss).iter().all(|seen| seen[0] != 0), "{loss:?}: A or B");
        assert!(outcomes(5, loss).iter().all(|seen| seen[1..] == *b"CC"), "{loss:?}: C has been flushed");
        assert_eq!(outcomes(2, loss), BTreeSet::from([[b'A', 0, 0]]), "{loss:?}: what comes later is not there");
    }
}

#[test]
fn what_was_not_flushed_may_be_lost_in_every_way() {
    let both = BTreeSet::from([*b"BCC"]);
    let neither = BTreeSet::from([[b'A', 0, 0]]);
    assert_eq!(outcomes(4, Loss::Nothing), both);
    assert_eq!(outcomes(4, Loss::Everything), neither);
    let whole: BTreeSet<[u8; 3]> = [b'A', b'B'].iter().flat_map(|&x| [[x, 0, 0], [x, b'C', b'C']]).collect();
    for loss in [Loss::Some, Loss::Shuffled] {
        assert_eq!(outcomes(4, loss), whole, "{loss:?}");
    }
    for loss in [Loss::Torn, Loss::Sectors, Loss::Mixed] {
        assert_eq!(outcomes(4, loss).len(), 8, "{loss:?}: each sector on its own");
    }
}

#[test]
fn later_writes_may_be_overtaken() {
    let recording = Recording::new(vec![SparseDevice::new("1", 4096)]);
    let device = recording.devices().remove(0);
    device.write_at(0, b"one").unwrap();
    device.write_at(0, b"two").unwrap();
    let first = |loss| {
        let byte = |seed| {
            let mut byte = [0];
            recording.cut(2, &mut Rng::new(seed), loss)[0].read_at(0, &mut byte).unwrap();
            byte[0]
        };
        (0..100).map(byte).collect::<BTreeSet<u8>>()
    };
    assert_eq!(first(Loss::Shuffled), BTreeSet::from([0, b'o', b't']));
    assert_eq!(first(Loss::Nothing), BTreeSet::from([b't']));
}
