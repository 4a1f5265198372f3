//! Arithmetic of single bytes in GF(2^8), the field of 256 elements that RAID-Z calculates in.
//!
//! A byte is a polynomial over GF(2), bit i being the coefficient of x^i. Addition is xor.
//! Multiplication is that of polynomials, modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11d). x itself, the
//! number 2, generates the field: its powers run through all 255 bytes but 0.

/// What x^8 reduces to.
pub(super) const REDUCED: u8 = 0x1d;

/// `a` times `b`.
pub(super) const fn mul(a: u8, b: u8) -> u8 {
    let (mut product, mut a, mut b) = (0, a, b);
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = a << 1 ^ if a & 0x80 != 0 { REDUCED } else { 0 };
        b >>= 1;
    }
    product
}

/// `a` to the power of `n`.
pub(super) const fn pow(a: u8, n: usize) -> u8 {
    let (mut power, mut a, mut n) = (1, a, n);
    while n != 0 {
        if n & 1 != 0 {
            power = mul(power, a);
        }
        a = mul(a, a);
        n >>= 1;
    }
    power
}

/// What `a`, which is not 0, is to be multiplied with to give 1.
pub(super) const fn inverse(a: u8) -> u8 {
    pow(a, 254)
}

/// A square matrix of up to 3 rows; more room than `n` rows and columns is ignored.
pub(super) type Matrix = [[u8; 3]; 3];

/// The inverse of the upper left `n` by `n` of `m`, by Gauss and Jordan. `None` if there is none.
pub(super) fn invert(mut m: Matrix, n: usize) -> Option<Matrix> {
    let mut inverted = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
    for i in 0..n {
        let pivot = (i..n).find(|&row| m[row][i] != 0)?;
        m.swap(i, pivot);
        inverted.swap(i, pivot);
        let scale = inverse(m[i][i]);
        m[i] = m[i].map(|x| mul(x, scale));
        inverted[i] = inverted[i].map(|x| mul(x, scale));
        for row in (0..n).filter(|&row| row != i) {
            let factor = m[row][i];
            for col in 0..n {
                m[row][col] ^= mul(factor, m[i][col]);
                inverted[row][col] ^= mul(factor, inverted[i][col]);
            }
        }
    }
    Some(inverted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_field() {
        for a in (1..=255).step_by(if cfg!(miri) { 31 } else { 1 }) {
            assert_eq!(mul(a, inverse(a)), 1);
            assert_eq!(mul(a, 1), a);
            for b in 0..=255 {
                assert_eq!(mul(a, b), mul(b, a));
                assert_eq!(mul(a, b ^ 1), mul(a, b) ^ a);
            }
        }
        let mut powers: Vec<u8> = (0..255).map(|n| pow(2, n)).collect();
        powers.sort();
        powers.dedup();
        assert_eq!(powers.len(), 255);
        // x^8 by hand
        assert_eq!(mul(0x80, 2), 0x1d);
    }

    #[test]
    fn inverts() {
        assert_eq!(invert([[1, 1, 0], [1, 1, 0], [0; 3]], 2), None);
        let m = [[1, 1, 1], [8, 4, 1], [64, 16, 1]];
        let inverted = invert(m, 3).unwrap();
        for (i, row) in m.iter().enumerate() {
            let product: [u8; 3] = std::array::from_fn(|j| (0..3).fold(0, |sum, k| sum ^ mul(row[k], inverted[k][j])));
            let expect: [u8; 3] = std::array::from_fn(|j| u8::from(i == j));
            assert_eq!(product, expect);
        }
    }
}
