//! The sizes of caches that are tried, and which of them share a sample.

/// Blocks that a sample has at most; it has half of them after it was halved.
pub const SAMPLE_BLOCKS: usize = 1 << 16;
/// Halvings of a sample at most.
pub const SHIFT_MAX: u32 = 32;
/// Sizes of one sample are at most so much larger than the smallest of them.
const NEAR: f64 = 1.5;

/// The sizes that are tried.
#[derive(Clone, Debug)]
pub struct MiniaturePlan {
    /// Bytes of the cache in RAM, to which cache devices are added.
    pub ram: u64,
    /// Bytes of other caches in RAM, without a device.
    pub rams: Vec<u64>,
    /// Bytes of cache devices.
    pub devices: Vec<u64>,
    /// Blocks of the sample at most.
    pub blocks_max: usize,
}

impl MiniaturePlan {
    /// Twelve sizes of each, around the size of the cache in RAM.
    pub fn around(ram: u64) -> MiniaturePlan {
        let times = |eighths: [u64; 12]| eighths.map(|part| (ram / 8).saturating_mul(part).max(1)).to_vec();
        MiniaturePlan {
            ram,
            rams: times([1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128]),
            devices: times([4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]),
            blocks_max: SAMPLE_BLOCKS,
        }
    }

    /// Bytes of younger blocks beyond which nothing has to be known of one, with that part of the largest size.
    pub(crate) fn far(&self, part: f64) -> u64 {
        let with_ram = self.devices.iter().map(|bytes| bytes.saturating_add(self.ram));
        let largest = self.rams.iter().copied().chain(with_ram).max().unwrap_or(self.ram);
        (largest as f64 * part) as u64
    }

    /// Plans of sizes that are near each other, in the order of this one.
    pub(crate) fn split(&self) -> Vec<MiniaturePlan> {
        let none = MiniaturePlan { rams: Vec::new(), devices: Vec::new(), ..self.clone() };
        let of_rams = runs(&self.rams).map(|rams| MiniaturePlan { rams: rams.to_vec(), ..none.clone() });
        let of_devices = runs(&self.devices).map(|devices| MiniaturePlan { devices: devices.to_vec(), ..none.clone() });
        of_rams.chain(of_devices).collect()
    }
}

/// Sizes in runs, of which none has one that is much larger than its first, or smaller.
fn runs(sizes: &[u64]) -> impl Iterator<Item = &[u64]> {
    let mut rest = sizes;
    std::iter::from_fn(move || {
        let first = *rest.first()?;
        let is_near = |size: &&u64| (first..=(first as f64 * NEAR) as u64).contains(*size);
        let (run, tail) = rest.split_at(rest.iter().take_while(is_near).count().max(1));
        rest = tail;
        Some(run)
    })
}
