//! Where raidz and draid put columns, and what is rebuilt from parity.
#![no_main]

use vdev::{draid, raidz};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((head, data)) = bytes.split_first_chunk::<32>() else { return };
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
    let ashift = 9 + u32::from(head[0] % 8);
    let (offset, size) = (word(8) >> 1 << ashift, usize::from(head[1]) + 1 << ashift);
    let shape = draid::DraidShape {
        children: head[2].into(),
        ndata: head[3].into(),
        nparity: head[4].into(),
        nspares: head[5].into(),
        ngroups: word(16) >> (head[6] % 64),
    };
    if let Ok(layout) = draid::DraidLayout::new(ashift, shape) {
        let _ = layout.asize(size as u64);
        if let Ok(rows) = layout.map(offset, size) {
            assert!(rows.iter().flat_map(|row| row.data()).map(|column| column.size).sum::<usize>() >= size);
        }
        (0..layout.nspares()).for_each(|spare| assert!(layout.spare_child(spare, offset) < 255));
    }
    let nparity = 1 + usize::from(head[4] % 3);
    let geometry = raidz::RaidzGeometry { ashift, width: nparity + 1 + usize::from(head[2] % 8), nparity };
    if let Ok(row) = geometry.map(offset, size) {
        assert_eq!(row.data().iter().map(|column| column.size).sum::<usize>(), size);
    }

    // columns of any lengths that raidz has, of which as many as there is parity are lost
    let columns = 1 + usize::from(head[7] % 6);
    let len = data.len() / columns / 2 * 2;
    let mut whole: Vec<Vec<u8>> = data.chunks_exact(len.max(1)).take(columns).map(<[u8]>::to_vec).collect();
    if whole.len() < columns || len == 0 {
        return;
    }
    let mut parity = vec![vec![0; len]; nparity];
    let borrowed: Vec<&[u8]> = whole.iter().map(Vec::as_slice).collect();
    codec::parity::generate(&borrowed, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    let expect = whole.clone();
    let missing: Vec<usize> = (0..columns).filter(|column| head[24] >> column & 1 == 1).take(nparity).collect();
    missing.iter().for_each(|&column| whole[column].fill(0xee));
    let parity: Vec<Option<&[u8]>> = parity.iter().map(|column| Some(column.as_slice())).collect();
    let mut columns: Vec<&mut [u8]> = whole.iter_mut().map(Vec::as_mut_slice).collect();
    codec::parity::reconstruct(&mut columns, &missing, &parity).expect("there is enough parity");
    assert_eq!(whole, expect);
});
