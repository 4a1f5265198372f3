use base::Endian;
use codec::checksum::{Checksum, compute};
use std::hint::black_box;
use std::time::Instant;
fn main() {
    let data: Vec<u8> = (0..131072u64).map(|i| (i.wrapping_mul(0x9e3779b97f4a7c15) >> 40) as u8).collect();
    for kind in Checksum::ALL {
        for e in [Endian::Little, Endian::Big] {
            let mut best = f64::MAX;
            for _ in 0..7 {
                let n = if kind as u8 == 8 || kind as u8 > 10 { 200 } else { 4000 };
                let t = Instant::now();
                for _ in 0..n {
                    black_box(compute(kind, e, &[1; 32], black_box(&data)));
                }
                best = best.min(t.elapsed().as_secs_f64() / n as f64);
            }
            println!("{:12} {e:?} {:.2} GB/s", kind.name(), data.len() as f64 / best / 1e9);
        }
    }
}
