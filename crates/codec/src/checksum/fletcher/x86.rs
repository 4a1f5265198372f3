//! fletcher4's lanes in vector registers: 8 lanes with AVX2, 16 with AVX-512.
//!
//! Per step of one register: a load, four additions to the sums over whole 64-bit words, a shift,
//! four additions to the sums over their high halves. Each sum is one addition deep per step, so
//! what limits is the number of vector units, and that only while the data is in the caches.

use std::arch::x86_64::*;
use std::mem::transmute;

use base::Endian;

use super::join::join4;
use crate::checksum::sum::Sum;

macro_rules! lanes4 {
    (
        $(#[$doc:meta])* $name:ident, $features:literal, $words:literal x $vector:ty,
        $zero:ident, $load:ident, $add:ident, $shift:ident, $shuffle:ident, $swaps:expr
    ) => {
        $(#[$doc])*
        #[target_feature(enable = $features)]
        pub(super) fn $name(endian: Endian, data: &[u8]) -> (Sum, &[u8]) {
            let (steps, rest) = data.as_chunks::<{ $words * 8 }>();
            let (mut all, mut high) = ([$zero(); 4], [$zero(); 4]);
            let mut step = |w: $vector| {
                let (mut add, mut add_high) = (w, $shift::<32>(w));
                for i in 0..4 {
                    all[i] = $add(all[i], add);
                    high[i] = $add(high[i], add_high);
                    (add, add_high) = (all[i], high[i]);
                }
            };
            // SAFETY: the load reads the step, which is as long as a register, and needs no alignment.
            let load = |bytes: &[u8; $words * 8]| unsafe { $load(bytes.as_ptr().cast()) };
            match endian {
                Endian::Little => steps.iter().for_each(|bytes| step(load(bytes))),
                Endian::Big => steps.iter().for_each(|bytes| step($shuffle(load(bytes), $swaps))),
            }
            // SAFETY: a register is so many words.
            let words = |v: $vector| unsafe { transmute::<$vector, [u64; $words]>(v) };
            (join4(&all.map(words), &high.map(words)), rest)
        }
    };
}

/// The order of the bytes of four 32-bit words, each the other way round: low half, high half.
const SWAPS: [i64; 2] = [0x0405_0607_0001_0203, 0x0c0d_0e0f_0809_0a0b];

lanes4! {
    /// 8 lanes.
    lanes4_avx2, "avx2", 4 x __m256i,
    _mm256_setzero_si256, _mm256_loadu_si256, _mm256_add_epi64, _mm256_srli_epi64, _mm256_shuffle_epi8,
    _mm256_set_epi64x(SWAPS[1], SWAPS[0], SWAPS[1], SWAPS[0])
}

lanes4! {
    /// 16 lanes.
    lanes4_avx512, "avx512f,avx512bw", 8 x __m512i,
    _mm512_setzero_si512, _mm512_loadu_si512, _mm512_add_epi64, _mm512_srli_epi64, _mm512_shuffle_epi8,
    _mm512_set_epi64(SWAPS[1], SWAPS[0], SWAPS[1], SWAPS[0], SWAPS[1], SWAPS[0], SWAPS[1], SWAPS[0])
}
