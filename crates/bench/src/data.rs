//! The bytes that are written: the same as libzpool-bench writes, drawn from the same generator.

use bench::random;

/// Bytes of a record: the default recordsize.
pub(crate) const RECORD: usize = 128 << 10;
/// Records of ready-made data, which are used in turn.
const RING: usize = 256;

/// Records that compress by a given ratio.
pub(crate) struct Records {
    ring: Vec<u8>,
}

impl Records {
    /// Random literals, and repeats of what stands at most 1000 bytes before (one in four: zeros), so mixed
    /// that a coder without entropy coding, as lz4, makes it about `ratio` times smaller.
    pub(crate) fn new(ratio: f64) -> Records {
        let mut seed = 42;
        let share = if ratio <= 1.0 { 1.0 } else { (1.0 / ratio - 0.09) / 0.91 };
        let mut ring = vec![0u8; RING * RECORD];
        let (mut i, mut literals) = (0, 0);
        while i < ring.len() {
            let n = (16 + random(&mut seed) as usize % 48).min(ring.len() - i);
            if literals as f64 <= share * i as f64 || i < 1024 {
                ring[i..i + n].fill_with(|| random(&mut seed) as u8);
                literals += n;
            } else if !random(&mut seed).is_multiple_of(4) {
                let distance = 64 + random(&mut seed) as usize % 936;
                ring.copy_within(i - distance..i - distance + n, i);
            }
            i += n;
        }
        Records { ring }
    }

    /// Record `n`: always the same bytes for the same number, and no two are equal.
    pub(crate) fn record(&mut self, n: u64) -> &[u8] {
        let at = n as usize % RING * RECORD;
        let record = &mut self.ring[at..at + RECORD];
        record[..8].copy_from_slice(&n.to_le_bytes());
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Zero bytes tell: a random byte is zero once in 256 times, of repeats a quarter is.
    #[test]
    fn data_compresses_as_asked() {
        let zeros = |ratio| {
            let data = Records::new(ratio);
            data.ring.iter().filter(|byte| **byte == 0).count() as f64 / data.ring.len() as f64
        };
        assert!((zeros(1.0) - 1.0 / 256.0).abs() < 0.001);
        assert!(zeros(2.0) > 0.1);
    }

    #[test]
    fn records_differ() {
        let mut data = Records::new(1.0);
        let first = data.record(0).to_vec();
        assert!(first != data.record(RING as u64) && first != data.record(1));
        assert!(first == data.record(0));
    }
}
