//! Parity against its definition, and every loss rebuilt, by every kind of register.

use proptest::prelude::*;

use super::*;

/// P, Q and R by the definition, a byte at a time.
fn by_definition(data: &[Vec<u8>], row: usize) -> Vec<u8> {
    let len = data.iter().map(Vec::len).max().unwrap();
    let power = |column: usize| field::pow(GENERATORS[row], data.len() - 1 - column);
    (0..len)
        .map(|at| {
            let terms =
                data.iter().enumerate().map(|(i, column)| column.get(at).map_or(0, |&byte| field::mul(byte, power(i))));
            terms.fold(0, |sum, term| sum ^ term)
        })
        .collect()
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn generated(data: &[Vec<u8>], count: usize) -> Vec<Vec<u8>> {
    let len = data.iter().map(Vec::len).max().unwrap();
    let columns: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let by = |kernel| {
        let mut parity = vec![vec![0xaa; len]; count];
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        generate_by(kernel, &columns, &mut outputs);
        parity
    };
    let parity = by(kernel::best());
    for kernel in kernel::all() {
        assert!(by(kernel) == parity, "machines differ");
    }
    parity
}

/// Breaks the columns in `missing`, and has them rebuilt from the parity in `rows`.
#[track_caller]
fn check_rebuilt(data: &[Vec<u8>], parity: &[Vec<u8>], missing: &[usize], rows: u8) {
    let parity: Vec<Option<&[u8]>> =
        (0..parity.len()).map(|row| (rows >> row & 1 != 0).then_some(parity[row].as_slice())).collect();
    for kernel in kernel::all() {
        let mut broken = data.to_vec();
        missing.iter().for_each(|&column| broken[column].fill(0xee));
        let mut columns: Vec<&mut [u8]> = broken.iter_mut().map(Vec::as_mut_slice).collect();
        reconstruct_by(kernel, &mut columns, missing, &parity).unwrap();
        assert!(broken == data, "{} columns, missing {missing:?}, parity {rows:03b}", data.len());
    }
}

/// All sets of up to `count` of `0..n`.
fn subsets(n: usize, count: usize) -> Vec<Vec<usize>> {
    let all = (0u32..1 << n).filter(|set| set.count_ones() as usize <= count);
    all.map(|set| (0..n).filter(|i| set >> i & 1 != 0).collect()).collect()
}

/// P = 1 ^ 2 ^ 3, Q = 4·1 ^ 2·2 ^ 3, R = 16·1 ^ 4·2 ^ 3; and a byte whose products are reduced.
#[test]
fn by_hand() {
    let data = [vec![1, 0x80], vec![2, 0], vec![3, 0]];
    assert_eq!(generated(&data, 3), [[0, 0x80], [3, 0x3a], [27, 0xe8]]);
}

#[test]
fn every_loss_of_up_to_8_columns() {
    for n in 1..=if cfg!(miri) { 3 } else { 8 } {
        // long enough for full registers and a tail
        let data: Vec<Vec<u8>> = (0..n).map(|i| noise(i as u64, 300 + 13 - i)).collect();
        let parity = generated(&data, 3);
        for missing in subsets(n, 3) {
            for rows in (0u8..8).filter(|rows| rows.count_ones() as usize >= missing.len()) {
                check_rebuilt(&data, &parity, &missing, rows);
            }
        }
    }
}

#[test]
fn too_much_lost() {
    let mut columns = [[1u8; 4], [2; 4]];
    let [a, b] = &mut columns;
    let error = reconstruct(&mut [a, b], &[0, 1], &[None, Some(&[0; 4])]).unwrap_err();
    assert_eq!(error.kind(), Kind::Missing);
    assert_eq!(columns, [[1; 4], [2; 4]]);
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri an hour")]
fn all_255_columns() {
    let data: Vec<Vec<u8>> = (0..255).map(|i| noise(i, 64)).collect();
    let parity = generated(&data, 3);
    for (row, parity) in parity.iter().enumerate() {
        assert_eq!(*parity, by_definition(&data, row));
    }
    check_rebuilt(&data, &parity, &[0, 85, 254], 0b111);
    check_rebuilt(&data, &parity, &[0, 254], 0b110);
}

/// Columns of lengths that are sorted or not, up to a few chunks.
fn row() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let len = prop_oneof![0usize..200, 0usize..3 * CHUNK_LEN, Just(CHUNK_LEN), Just(2 * CHUNK_LEN)];
    let len = len.prop_map(|len| if cfg!(miri) { len % 200 } else { len });
    proptest::collection::vec((len, any::<u64>()).prop_map(|(len, seed)| noise(seed, len)), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 100 }))]

    #[test]
    fn any_row_and_loss(data in row(), count in 1usize..=3, seed in any::<u64>()) {
        let parity = generated(&data, count);
        for (row, parity) in parity.iter().enumerate() {
            prop_assert!(*parity == by_definition(&data, row));
        }
        let mut missing: Vec<usize> = noise(seed, count).iter().map(|&i| i as usize % data.len()).collect();
        missing.sort();
        missing.dedup();
        check_rebuilt(&data, &parity, &missing, 0b111);
    }
}
