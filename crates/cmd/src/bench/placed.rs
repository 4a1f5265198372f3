//! Bytes that tell where they belong, and compress by a set ratio.

use base::{MIX_STRIDE, mixed, next_mixed};

/// Bytes that have a pattern of their own: what cannot be compressed, then zeros. All record sizes see the same.
pub const PIECE: u64 = 4096;

/// The contents of files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlacedBytes {
    seed: u64,
    /// Bytes of each piece that are noise.
    noise: usize,
}

impl PlacedBytes {
    /// Those of a run, that become about `ratio` times smaller.
    pub fn new(seed: u64, ratio: f64) -> PlacedBytes {
        let noise = (PIECE as f64 / ratio.max(1.0)) as usize;
        PlacedBytes { seed, noise: noise.clamp(8, PIECE as usize) }
    }

    /// Those of file number `file`, from byte `offset` on.
    pub fn fill(&self, file: u64, offset: u64, bytes: &mut [u8]) {
        let mut piece = [0; PIECE as usize];
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (number, from) = (at / PIECE, (at % PIECE) as usize);
            let len = (piece.len() - from).min(bytes.len() - done);
            match from == 0 && len == piece.len() {
                true => self.piece(file, number, &mut bytes[done..done + len]),
                false => {
                    self.piece(file, number, &mut piece);
                    bytes[done..done + len].copy_from_slice(&piece[from..from + len]);
                }
            }
            done += len;
        }
    }

    fn piece(&self, file: u64, number: u64, piece: &mut [u8]) {
        let mut seed = mixed(self.seed ^ mixed(file.wrapping_add(1).wrapping_mul(MIX_STRIDE)) ^ mixed(number + 1));
        let (noise, zeros) = piece.split_at_mut(self.noise);
        for word in noise.chunks_mut(8) {
            word.copy_from_slice(&next_mixed(&mut seed).to_le_bytes()[..word.len()]);
        }
        zeros.fill(0);
    }

    /// The first byte that is another one than what belongs there; `scratch` is as long as `bytes`.
    pub fn first_wrong(&self, file: u64, offset: u64, bytes: &[u8], scratch: &mut [u8]) -> Option<u64> {
        self.fill(file, offset, scratch);
        if bytes == scratch {
            return None;
        }
        bytes.iter().zip(scratch.iter()).position(|(is, due)| is != due).map(|at| offset + at as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_bytes_of_its_own_whatever_the_pieces() {
        let bytes = PlacedBytes::new(7, 2.0);
        let mut whole = vec![0; 20_000];
        bytes.fill(3, 1000, &mut whole);
        let mut parts = vec![0; 20_000];
        for (number, part) in parts.chunks_mut(777).enumerate() {
            bytes.fill(3, 1000 + number as u64 * 777, part);
        }
        assert!(whole == parts);
        let mut scratch = vec![0; 20_000];
        assert_eq!(bytes.first_wrong(3, 1000, &whole, &mut scratch), None);
        // of another file, another place, another run
        let is_wrong =
            |bytes: PlacedBytes, file, offset| bytes.first_wrong(file, offset, &whole, &mut vec![0; 20_000]).is_some();
        assert!(is_wrong(bytes, 2, 1000) && is_wrong(bytes, 3, 5096) && is_wrong(PlacedBytes::new(8, 2.0), 3, 1000));
        whole[17_000] ^= 1;
        assert_eq!(bytes.first_wrong(3, 1000, &whole, &mut scratch), Some(18_000));
        let zeros = whole.iter().filter(|byte| **byte == 0).count();
        assert!((9000..12_000).contains(&zeros), "half is noise: {zeros}");
    }
}
