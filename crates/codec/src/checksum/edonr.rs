//! Edon-R-512, from Gligoroski et al., "Cryptographic Hash Function EDON-R", with the change its
//! authors made to the compression function after the submission (it takes the old state and the
//! message in once more at its end), cut to 256 bits, and keyed the way ZFS does.
//!
//! The state h and a block of input m are two vectors of eight words each. The only operation is
//! that of a quasigroup on such vectors, written `x * y` here: each side goes through sums of five
//! words and rotations, then through xors of three, and the two sides are added. A block takes
//! four rows of two operations; the second of a row works on the first one's result. rev is the
//! words in the opposite order:
//!
//! ```text
//!   row 1    p = rev(m1) * m0      q = p * m1
//!   row 2    p = h1 * p            q = p * q
//!   row 3    p = p * h0            q = q * p
//!   row 4    p = rev(m0) * p       q = p * q
//!
//!   then     h0 ^= m1 ^ p          h1 ^= m0 ^ q
//! ```
//!
//! Words are little-endian. Padding is one bit, zeros, and the length in bits as the block's last
//! word. The digest is h1.

/// Half a state or block.
type Words = [u64; 8];

/// Length of a block in bytes.
const BLOCK_LEN: usize = 128;

/// The first 256 bits of the digest of `data` under the pool's salt. There is no room in a block
/// for a key as short as the salt, so the first block is made of the salt's digest and that one's.
pub(super) fn edonr_512_256(salt: &[u8; 32], data: &[u8]) -> [u8; 32] {
    let mut key = [0; BLOCK_LEN];
    let once = EdonrState::new().finish(salt);
    key[..64].copy_from_slice(&once);
    key[64..].copy_from_slice(&EdonrState::new().finish(&once));
    let mut state = EdonrState::new();
    state.absorb(&key);
    *state.finish(data).first_chunk().expect("a digest has 64 bytes")
}

struct EdonrState {
    h: [Words; 2],
    /// Bytes taken in.
    len: u64,
}

impl EdonrState {
    fn new() -> EdonrState {
        // the bytes 0x80 to 0xff, in big-endian words
        let word = |n: usize| u64::from_be_bytes(std::array::from_fn(|i| 0x80 + (8 * n + i) as u8));
        EdonrState { h: [std::array::from_fn(word), std::array::from_fn(|n| word(n + 8))], len: 0 }
    }

    /// Takes in the rest of the message, and returns its digest.
    fn finish(mut self, data: &[u8]) -> [u8; 64] {
        let (blocks, tail) = data.as_chunks::<BLOCK_LEN>();
        for block in blocks {
            self.absorb(block);
        }
        let bits = (self.len + tail.len() as u64) * 8;
        let mut padded = [0; 2 * BLOCK_LEN];
        padded[..tail.len()].copy_from_slice(tail);
        padded[tail.len()] = 0x80;
        let padded_len = if tail.len() + 1 + 8 <= BLOCK_LEN { BLOCK_LEN } else { 2 * BLOCK_LEN };
        padded[padded_len - 8..padded_len].copy_from_slice(&bits.to_le_bytes());
        for block in padded[..padded_len].as_chunks::<BLOCK_LEN>().0 {
            self.absorb(block);
        }
        let mut digest = [0; 64];
        for (bytes, word) in digest.as_chunks_mut::<8>().0.iter_mut().zip(self.h[1]) {
            *bytes = word.to_le_bytes();
        }
        digest
    }

    fn absorb(&mut self, block: &[u8; BLOCK_LEN]) {
        let words = block.as_chunks::<8>().0;
        let m0: Words = std::array::from_fn(|i| u64::from_le_bytes(words[i]));
        let m1: Words = std::array::from_fn(|i| u64::from_le_bytes(words[i + 8]));
        let [h0, h1] = self.h;

        let p = multiply(&reversed(&m1), &m0);
        let q = multiply(&p, &m1);
        let p = multiply(&h1, &p);
        let q = multiply(&p, &q);
        let p = multiply(&p, &h0);
        let q = multiply(&q, &p);
        let p = multiply(&reversed(&m0), &p);
        let q = multiply(&p, &q);

        self.h = [std::array::from_fn(|i| h0[i] ^ m1[i] ^ p[i]), std::array::from_fn(|i| h1[i] ^ m0[i] ^ q[i])];
        self.len += BLOCK_LEN as u64;
    }
}

fn reversed(words: &Words) -> Words {
    std::array::from_fn(|i| words[7 - i])
}

/// The quasigroup's operation.
#[inline(always)]
fn multiply(x: &Words, y: &Words) -> Words {
    let s = sums_of_left(x);
    let t = sums_of_right(y);
    let [s01, s04, s17, s23, s56] = [s[0] ^ s[1], s[0] ^ s[4], s[1] ^ s[7], s[2] ^ s[3], s[5] ^ s[6]];
    let [t01, t25, t34, t67] = [t[0] ^ t[1], t[2] ^ t[5], t[3] ^ t[4], t[6] ^ t[7]];
    [
        (s01 ^ s[4]).wrapping_add(t01 ^ t[5]),
        (s04 ^ s[7]).wrapping_add(t67 ^ t[2]),
        (s17 ^ s[6]).wrapping_add(t01 ^ t[3]),
        (s23 ^ s[4]).wrapping_add(t34 ^ t[0]),
        (s17 ^ s[0]).wrapping_add(t25 ^ t[1]),
        (s56 ^ s[3]).wrapping_add(t34 ^ t[6]),
        (s56 ^ s[2]).wrapping_add(t25 ^ t[7]),
        (s23 ^ s[5]).wrapping_add(t67 ^ t[4]),
    ]
}

/// The left operand's sums of five words each, rotated. Every sum is all words but three.
#[inline(always)]
fn sums_of_left(x: &Words) -> Words {
    let [x04, x17, x23, x56] = [sum(x[0], x[4]), sum(x[1], x[7]), sum(x[2], x[3]), sum(x[5], x[6])];
    let [x0147, x2356] = [sum(x04, x17), sum(x23, x56)];
    [
        sum(sum(x0147, x[2]), 0xaaaa_aaaa_aaaa_aaaa),
        sum(x0147, x[3]).rotate_left(5),
        sum(x0147, x[6]).rotate_left(15),
        sum(x2356, x[7]).rotate_left(22),
        sum(x2356, x[1]).rotate_left(31),
        sum(sum(x04, x23), x[5]).rotate_left(40),
        sum(sum(x17, x56), x[0]).rotate_left(50),
        sum(x2356, x[4]).rotate_left(59),
    ]
}

/// The right operand's.
#[inline(always)]
fn sums_of_right(y: &Words) -> Words {
    let [y01, y25, y34, y67] = [sum(y[0], y[1]), sum(y[2], y[5]), sum(y[3], y[4]), sum(y[6], y[7])];
    let [y0125, y0134, y3467, y2567] = [sum(y01, y25), sum(y01, y34), sum(y34, y67), sum(y25, y67)];
    [
        sum(sum(y0125, y[7]), 0x5555_5555_5555_5555),
        sum(y0134, y[6]).rotate_left(10),
        sum(y0125, y[3]).rotate_left(19),
        sum(y3467, y[2]).rotate_left(29),
        sum(y0134, y[5]).rotate_left(36),
        sum(y2567, y[4]).rotate_left(44),
        sum(y2567, y[1]).rotate_left(48),
        sum(y3467, y[0]).rotate_left(55),
    ]
}

#[inline(always)]
fn sum(a: u64, b: u64) -> u64 {
    a.wrapping_add(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(message: &[u8], expect: &str) {
        let hex: String = EdonrState::new().finish(message).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expect);
    }

    /// The messages of NIST's SHA examples, with the digests of the tweaked function.
    #[test]
    fn published() {
        check(
            b"abc",
            "1b14db155f1d406594b8cef70a4362ec6b5de6a5daf50ec999e987c19d3049e2\
             de5977bb05b1bb220050a1ea5b46a9f1740acafbf6b45032adc90c628372c22b",
        );
        check(
            b"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopq\
              klmnopqrlmnopqrsmnopqrstnopqrstu",
            "5351070dc51c3b2baca5a60d0252ccb4e4921a96fe5a69e76dad48fd21a0845a\
             d57f880b3e4a907bc503151842bb949e1cba7439a6409a34b8436cb46921583c",
        );
    }
}
