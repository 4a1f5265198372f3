use std::collections::HashMap;

use super::*;

const DRAWING: DraidShape = DraidShape { children: 7, ndata: 2, nparity: 2, nspares: 1, ngroups: 3 };

fn shapes() -> Vec<DraidShape> {
    let shape = |children, ndata, nparity, nspares, ngroups| DraidShape { children, ndata, nparity, nspares, ngroups };
    vec![
        DRAWING,
        shape(2, 1, 1, 0, 1),
        shape(6, 2, 1, 1, 5),
        shape(14, 8, 1, 2, 4),
        shape(11, 3, 3, 1, 5),
        shape(40, 8, 2, 3, 37),
        shape(255, 16, 3, 4, 251),
    ]
}

#[test]
fn impossible_shapes_are_refused() {
    assert!(DraidLayout::new(12, DRAWING).is_ok());
    let bad = [
        DraidShape { children: 0, ..DRAWING },
        DraidShape { children: 256, ..DRAWING },
        DraidShape { children: u64::MAX, ..DRAWING },
        DraidShape { ndata: 0, ..DRAWING },
        DraidShape { ndata: 5, ..DRAWING },
        DraidShape { ndata: u64::MAX, ..DRAWING },
        DraidShape { nparity: 0, ..DRAWING },
        DraidShape { nparity: 4, ..DRAWING },
        DraidShape { nspares: 4, ..DRAWING },
        DraidShape { nspares: u64::MAX, ..DRAWING },
        DraidShape { ngroups: 0, ..DRAWING },
        DraidShape { ngroups: 4, ..DRAWING },
        DraidShape { ngroups: u64::MAX, ..DRAWING },
    ];
    for shape in bad {
        assert_eq!(DraidLayout::new(12, shape).unwrap_err().kind(), Kind::Corrupt, "{shape:?}");
    }
}

/// In the drawing, group 1 of the second slice wraps from its first row to its second.
#[test]
fn the_drawing() {
    let draid = DraidLayout::new(12, DRAWING).unwrap();
    let group = 4 * ROW_BYTES;
    let at = 4 * group + 4 * 5 * 4096; // fifth line of the group
    let [row] = &draid.map(at, 8192).unwrap()[..] else { panic!("one row") };
    let place = |n| draid.permutations.child(1, n);
    let line = 5 * 4096;
    let expect = [(4, 2), (5, 2), (0, 3), (1, 3)].map(|(n, r)| Column {
        child: place(n),
        offset: r * ROW_BYTES + line,
        size: 4096,
    });
    assert_eq!(row.columns, expect);
    assert_eq!(draid.spare_child(0, 2 * ROW_BYTES), place(6));
    assert_eq!(draid.spare_child(0, 2 * ROW_BYTES - 1), draid.permutations.child(0, 6));
}

/// No two blocks share a byte of a child, no block lies on spare space, and no row has two columns
/// on one child.
#[test]
fn blocks_and_spares_are_apart() {
    for shape in shapes() {
        let draid = DraidLayout::new(16, shape).unwrap();
        let mut owner: HashMap<(usize, u64), usize> = HashMap::new();
        let slices = 3;
        let mut claim = |child, offset, who| {
            assert_eq!(owner.insert((child, offset), who), None, "{shape:?} child {child} at {offset:#x}");
        };
        let full = draid.group_bytes() / draid.group_width() * shape.ndata;
        for group in 0..shape.ngroups * slices {
            let rows = draid.map(group * draid.group_bytes(), full as usize).unwrap();
            assert_eq!(rows.len(), 1);
            for column in &rows[0].columns {
                assert_eq!(column.size as u64, ROW_BYTES);
                claim(column.child, column.offset, group as usize);
            }
        }
        for row in 0..draid.slice_rows() * slices {
            for spare in 0..draid.nspares() {
                claim(draid.spare_child(spare, row * ROW_BYTES), row * ROW_BYTES, usize::MAX);
            }
        }
        // and nothing is left over
        assert_eq!(owner.len() as u64, shape.children * draid.slice_rows() * slices);
    }
}

#[test]
fn small_blocks_and_blocks_that_cross_groups() {
    for shape in shapes() {
        let draid = DraidLayout::new(12, shape).unwrap();
        let (ndata, width) = (shape.ndata as usize, draid.group_width());
        for sectors in [1usize, 2, 3, 5, 8, 31, 32, 256] {
            let size = sectors << 12;
            let lines = sectors.div_ceil(ndata);
            assert_eq!(draid.asize(size as u64), (lines as u64 * width) << 12);
            assert_eq!(draid.asize(size as u64 - 511), draid.asize(size as u64));
            let [row] = &draid.map(width << 12, size).unwrap()[..] else { panic!("one row") };
            assert_eq!((row.len(), row.columns.len() as u64, row.columns[0].size), (size, width, lines << 12));

            // as many lines as possible before the end of the group, the rest behind it
            let before = lines / 2;
            if before > 0 {
                let at = draid.group_bytes() - ((before as u64 * width) << 12);
                let rows = draid.map(at, size).unwrap();
                assert_eq!(rows.len(), 2);
                assert_eq!((rows[0].len(), rows[1].start), ((before * ndata) << 12, rows[0].len()));
                assert_eq!(rows[0].len() + rows[1].len(), size);
                let next = draid.map(draid.group_bytes(), rows[1].len()).unwrap();
                assert_eq!(rows[1].columns, next[0].columns);
            }
        }
        assert!(draid.map(4096, 4096).is_err() && draid.map(0, 512).is_err() && draid.map(0, 0).is_err());
        // far beyond any disk, but no reason to panic
        let far = (u64::MAX >> 12) / width * width;
        assert!(draid.map(far << 12, 4096).is_ok() && draid.map(far << 12, 512 << 20).is_err());
    }
}

/// What blocks have on a child is what the ranges of their addresses have there, and progress over addresses leads to
/// offsets and back to no address behind.
#[test]
fn ranges_of_addresses_on_children() {
    for shape in shapes() {
        let draid = DraidLayout::new(12, shape).unwrap();
        let (line, bytes) = (draid.group_width() << 12, draid.group_bytes());
        let far = bytes * (shape.ngroups + 1);
        for (start, lines) in [(0, 1), (bytes - 3 * line, 7), (far - line, 2), (far + 5 * line, 4096 + 9)] {
            let size = lines as usize * shape.ndata as usize * 4096;
            let rows = draid.map(start, size).unwrap();
            for child in 0..shape.children as usize {
                let columns = rows.iter().flat_map(|row| &row.columns).filter(|column| column.child == child);
                let expect: Vec<_> = columns.map(|c| c.offset..c.offset + c.size as u64).collect();
                let found = draid.ranges_on_child(child, &(start..start + lines * line));
                assert_eq!(found, expect, "{shape:?} child {child}");
                for at in [start, start + (lines - 1) * line] {
                    for range in draid.ranges_on_child(child, &(at..at + line)) {
                        assert!(draid.first_offset(at) <= range.start && draid.first_address(range.start) <= at);
                    }
                }
                // of a line that is not whole nothing is free
                assert!(draid.ranges_on_child(child, &(start + 4096..start + line)).is_empty());
            }
        }
        for address in [0, bytes, far, far + 17 * line] {
            assert!(draid.first_address(draid.first_offset(address)) <= address);
        }
    }
}
