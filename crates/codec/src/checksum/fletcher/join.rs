//! The last step of fletcher4 by lanes, whatever registers they were in.

use crate::checksum::sum::Sum;

/// The sum of 32-bit words that were dealt to 2N lanes, given the lanes' sums over 64-bit words and
/// over the high halves of these. The first word is the lowest lane's.
pub(super) fn join4<const N: usize>(all: &[[u64; N]; 4], high: &[[u64; N]; 4]) -> Sum {
    let l = 2 * N as i64;
    let mut sum: Sum = [0; 4];
    for j in 0..l {
        let at = j as usize / 2;
        let lane = |i: usize| if j % 2 == 1 { high[i][at] } else { all[i][at].wrapping_sub(high[i][at] << 32) };
        let weights = [
            [1, 0, 0, 0],
            [-j, l, 0, 0],
            [j * (j - 1) / 2, -l * (l - 1) / 2 - l * j, l * l, 0],
            [
                -j * (j - 1) * (j - 2) / 6,
                l * (l - 1) * (l - 2) / 6 + l * j * (l + j - 2) / 2,
                -l * l * (l - 1 + j),
                l * l * l,
            ],
        ];
        for (sum, weights) in sum.iter_mut().zip(weights) {
            for (i, weight) in weights.into_iter().enumerate() {
                *sum = sum.wrapping_add(lane(i).wrapping_mul(weight as u64));
            }
        }
    }
    sum
}
