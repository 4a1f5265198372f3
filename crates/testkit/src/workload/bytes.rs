//! What is written.

use crate::rng::Rng;

/// Sectors that are written again and again.
const TWINS: u64 = 3;

/// Noise, text that shrinks, one of few sectors again and again, or zeros.
pub(super) fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let kind = rng.below(8);
    let word = rng.number();
    for (number, chunk) in bytes.chunks_mut(8).enumerate() {
        let number = match kind {
            0 => 0,
            1 => word.wrapping_add(number as u64 / 9),
            2 => Rng::new(word % TWINS << 32 | number as u64 % 64).number(),
            _ => rng.number(),
        };
        chunk.copy_from_slice(&number.to_le_bytes()[..chunk.len()]);
    }
    bytes
}
