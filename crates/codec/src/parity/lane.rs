//! Many field elements at once: what a vector unit can do with a register full of bytes.
//!
//! Doubling (multiplying by x) is all that making parity takes; rebuilding also multiplies by
//! constants found at run time, which a lane may prepare as it likes ([`Lane::Factor`]).
//!
//! | lane        | double                               | multiply                                |
//! |-------------|--------------------------------------|-----------------------------------------|
//! | `u8`, words | shift, reduce where the top bit was  | shift and add, bit by bit               |
//! | AVX2        | the same                             | look both nibbles up (16-entry shuffles) |
//! | GFNI        | one affine map, as x is linear       | one affine map                          |

use super::field;

/// A register of field elements.
///
/// The methods of a lane may only be called where the instructions it stands for exist.
pub(super) trait Lane: Copy {
    /// A constant, made ready to be multiplied with.
    type Factor: Copy;
    /// Number of bytes.
    const LEN: usize;

    fn zero() -> Self;
    /// Reads `LEN` bytes, which must be there, at any alignment.
    unsafe fn load(from: *const u8) -> Self;
    /// Writes `LEN` bytes, for which there must be room, at any alignment.
    unsafe fn store(self, to: *mut u8);
    fn add(self, other: Self) -> Self;
    fn double(self) -> Self;
    #[inline(always)]
    fn quadruple(self) -> Self {
        self.double().double()
    }
    fn factor(c: u8) -> Self::Factor;
    fn mul(self, factor: &Self::Factor) -> Self;
}

/// One byte at a time, for what is left over at the end.
impl Lane for u8 {
    type Factor = u8;
    const LEN: usize = 1;

    fn zero() -> u8 {
        0
    }
    unsafe fn load(from: *const u8) -> u8 {
        // SAFETY: the caller says that the byte is there.
        unsafe { *from }
    }
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller says that there is room.
        unsafe { *to = self }
    }
    fn add(self, other: u8) -> u8 {
        self ^ other
    }
    fn double(self) -> u8 {
        field::mul(self, 2)
    }
    fn factor(c: u8) -> u8 {
        c
    }
    fn mul(self, factor: &u8) -> u8 {
        field::mul(self, *factor)
    }
}

/// The portable lane: two of the registers that most machines have.
pub(super) type PortableLane = [u64; 4];

/// Every byte of a word.
const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Plain integers, eight bytes to each; compilers find vector instructions for these.
impl Lane for PortableLane {
    /// For each bit of the constant all ones, if it is set.
    type Factor = [u64; 8];
    const LEN: usize = size_of::<PortableLane>();

    #[inline(always)]
    fn zero() -> Self {
        [0; 4]
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller says that the bytes are there.
        unsafe { from.cast::<Self>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller says that there is room.
        unsafe { to.cast::<Self>().write_unaligned(self) }
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        std::array::from_fn(|i| self[i] ^ other[i])
    }
    #[inline(always)]
    fn double(self) -> Self {
        self.map(|x| {
            // the top bits, spread over their bytes
            let top = x & each(0x80);
            let carried = (top << 1).wrapping_sub(top >> 7);
            (x & each(0x7f)) << 1 ^ carried & each(field::REDUCED)
        })
    }
    fn factor(c: u8) -> [u64; 8] {
        std::array::from_fn(|bit| u64::from(c >> bit & 1).wrapping_neg())
    }
    #[inline(always)]
    fn mul(self, factor: &[u64; 8]) -> Self {
        let (mut product, mut x) = (Self::zero(), self);
        for mask in factor {
            product = product.add(x.map(|x| x & mask));
            x = x.double();
        }
        product
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    //! The lanes of x86 machines. The instructions are inlined into the callers that name them.

    use std::arch::x86_64::*;

    use super::{Lane, field};

    /// AVX2.
    impl Lane for __m256i {
        /// What the lower nibble gives, what the upper nibble gives.
        type Factor = &'static [[u8; 16]; 2];
        const LEN: usize = 32;

        #[inline(always)]
        fn zero() -> Self {
            // SAFETY: lanes are used only where their instructions exist.
            unsafe { _mm256_setzero_si256() }
        }
        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the caller says that the bytes are there.
            unsafe { _mm256_loadu_si256(from.cast()) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller says that there is room.
            unsafe { _mm256_storeu_si256(to.cast(), self) }
        }
        #[inline(always)]
        fn add(self, other: Self) -> Self {
            // SAFETY: lanes are used only where their instructions exist.
            unsafe { _mm256_xor_si256(self, other) }
        }
        #[inline(always)]
        fn double(self) -> Self {
            // SAFETY: lanes are used only where their instructions exist.
            unsafe {
                let carried = _mm256_cmpgt_epi8(_mm256_setzero_si256(), self);
                let reduced = _mm256_and_si256(carried, _mm256_set1_epi8(field::REDUCED as i8));
                _mm256_xor_si256(_mm256_add_epi8(self, self), reduced)
            }
        }
        #[inline(always)]
        fn factor(c: u8) -> &'static [[u8; 16]; 2] {
            &NIBBLES[c as usize]
        }
        #[inline(always)]
        fn mul(self, [low, high]: &&'static [[u8; 16]; 2]) -> Self {
            // SAFETY: lanes are used only where their instructions exist; a table is as long as a
            // 128-bit load.
            unsafe {
                let low = _mm256_broadcastsi128_si256(_mm_loadu_si128(low.as_ptr().cast()));
                let high = _mm256_broadcastsi128_si256(_mm_loadu_si128(high.as_ptr().cast()));
                let nibble = _mm256_set1_epi8(0x0f);
                let of_low = _mm256_shuffle_epi8(low, _mm256_and_si256(self, nibble));
                let of_high = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16::<4>(self), nibble));
                _mm256_xor_si256(of_low, of_high)
            }
        }
    }

    /// AVX-512 with GFNI.
    impl Lane for __m512i {
        /// The linear map "times c", as the instruction takes it.
        type Factor = i64;
        const LEN: usize = 64;

        #[inline(always)]
        fn zero() -> Self {
            // SAFETY: lanes are used only where their instructions exist.
            unsafe { _mm512_setzero_si512() }
        }
        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the caller says that the bytes are there.
            unsafe { _mm512_loadu_si512(from.cast()) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller says that there is room.
            unsafe { _mm512_storeu_si512(to.cast(), self) }
        }
        #[inline(always)]
        fn add(self, other: Self) -> Self {
            // SAFETY: lanes are used only where their instructions exist.
            unsafe { _mm512_xor_si512(self, other) }
        }
        #[inline(always)]
        fn double(self) -> Self {
            self.mul(&LINEAR_MAPS[2])
        }
        #[inline(always)]
        fn quadruple(self) -> Self {
            self.mul(&LINEAR_MAPS[4])
        }
        #[inline(always)]
        fn factor(c: u8) -> i64 {
            LINEAR_MAPS[c as usize]
        }
        #[inline(always)]
        fn mul(self, factor: &i64) -> Self {
            // SAFETY: lanes are used only where their instructions exist.
            unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(self, _mm512_set1_epi64(*factor)) }
        }
    }

    /// For each constant, the products with the 16 lower nibbles and with the 16 upper ones.
    static NIBBLES: [[[u8; 16]; 2]; 256] = {
        let mut all = [[[0; 16]; 2]; 256];
        let mut c = 0;
        while c < 256 {
            let mut nibble = 0;
            while nibble < 16 {
                all[c][0][nibble] = field::mul(c as u8, nibble as u8);
                all[c][1][nibble] = field::mul(c as u8, (nibble << 4) as u8);
                nibble += 1;
            }
            c += 1;
        }
        all
    };

    /// For each constant, [`linear_map`].
    static LINEAR_MAPS: [i64; 256] = {
        let mut all = [0; 256];
        let mut c = 0;
        while c < 256 {
            all[c] = linear_map(c as u8);
            c += 1;
        }
        all
    };

    /// Multiplication by `c` as a matrix over GF(2). Byte 7 - i of the number holds row i, whose bit
    /// j tells whether bit j of the input goes into bit i of the output.
    const fn linear_map(c: u8) -> i64 {
        let mut map = 0u64;
        let mut input = 0;
        while input < 8 {
            let column = field::mul(c, 1 << input);
            let mut output = 0;
            while output < 8 {
                if column >> output & 1 != 0 {
                    map |= 1 << (8 * (7 - output) + input);
                }
                output += 1;
            }
            input += 1;
        }
        map as i64
    }
}
