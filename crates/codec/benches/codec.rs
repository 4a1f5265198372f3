use codec::parity::*;
use std::hint::black_box;
use std::time::Instant;
fn time(name: &str, bytes: usize, mut f: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..20 {
        let t = Instant::now();
        for _ in 0..100 {
            f()
        }
        best = best.min(t.elapsed().as_secs_f64() / 100.0);
    }
    println!("{name:12} {:.2} GB/s", bytes as f64 / best / 1e9);
}
fn main() {
    for len in [16384, 131072] {
        let data: Vec<Vec<u8>> = (0..8)
            .map(|j| (0..len as u64).map(|i| ((i + j).wrapping_mul(0x9e3779b97f4a7c15) >> 40) as u8).collect())
            .collect();
        let refs: Vec<&[u8]> = data.iter().map(|v| v.as_slice()).collect();
        for n in 1..=3 {
            let mut p = vec![vec![0; len]; n];
            let mut o: Vec<&mut [u8]> = p.iter_mut().map(|v| v.as_mut_slice()).collect();
            time(&format!("gen {n} {len}"), 8 * len, || generate(black_box(&refs), black_box(&mut o)));
            let mut d2 = data.clone();
            let mut d: Vec<&mut [u8]> = d2.iter_mut().map(|v| v.as_mut_slice()).collect();
            let pp: Vec<Option<&[u8]>> = p.iter().map(|p| Some(p.as_slice())).collect();
            let m: Vec<usize> = (0..n).collect();
            time(&format!("rec {n} {len}"), 8 * len, || reconstruct(black_box(&mut d), &m, &pp).unwrap());
            if n > 1 {
                time(&format!("rec {n} {len}"), 8 * len, || {
                    let mut x = pp.clone();
                    x[0] = None;
                    reconstruct(black_box(&mut d), &m[1..], &x).unwrap()
                });
            }
            if n > 2 {
                time(&format!("rec {n} {len}"), 8 * len, || {
                    let mut x = pp.clone();
                    x[0] = None;
                    x[1] = None;
                    reconstruct(black_box(&mut d), &m[2..], &x).unwrap()
                });
            }
        }
    }
}
