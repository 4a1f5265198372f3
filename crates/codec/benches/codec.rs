//! How fast the codecs are, in GB/s (10^9 bytes of data, not of what is stored, a second).
//!
//!     cargo bench -p codec [-- PART-OF-A-NAME]
//!
//! A figure is the best of several runs on one core. The blocks are 128 KiB and stay in the caches,
//! as a block that was just read, decompressed or written does; lines named `memory` go through
//! 256 MiB instead. The first lines are what the machine can do at all: copying, and only reading.

use std::hint::black_box;
use std::time::{Duration, Instant};

use base::Endian;
use codec::checksum::{Checksum, compute, compute_pair};
use codec::compress::{Compress, compress, decompress, is_zero};
use codec::parity::{generate, reconstruct};
use codec::seal::{DataKeys, SealedWith, Suite, derive};

/// A block.
const BLOCK: usize = 128 << 10;
/// What no cache holds.
const MEMORY: usize = 256 << 20;
/// Data columns of a row.
const COLUMNS: usize = 8;

fn main() {
    let bench = Bench { filter: std::env::args().skip(1).find(|arg| !arg.starts_with('-')) };
    machine(&bench);
    checksums(&bench);
    compressions(&bench);
    parities(&bench);
    seals(&bench);
}

struct Bench {
    filter: Option<String>,
}

impl Bench {
    /// Prints how fast `work` goes through `bytes`, and `note`.
    fn run(&self, name: &str, bytes: usize, note: &str, mut work: impl FnMut()) {
        if self.filter.as_ref().is_some_and(|part| !name.contains(part.as_str())) {
            return;
        }
        // enough calls for a clock reading to cost nothing
        let mut calls = 1;
        let mut time = |calls: usize| {
            let start = Instant::now();
            (0..calls).for_each(|_| work());
            start.elapsed()
        };
        while time(calls) < Duration::from_millis(3) {
            calls *= 2;
        }
        let best = (0..30).map(|_| time(calls)).min().expect("there are several runs");
        let rate = (bytes * calls) as f64 / best.as_secs_f64() / 1e9;
        println!("{name:<40}{rate:>9.3} GB/s  {note}");
    }
}

fn machine(bench: &Bench) {
    for (place, len) in [("cache", BLOCK), ("memory", MEMORY)] {
        let from = vec![1u8; len];
        let mut to = vec![0u8; len];
        bench.run(&format!("copy {place}"), len, "", || black_box(&mut to).copy_from_slice(black_box(&from)));
        bench.run(&format!("read {place}"), len, "", || {
            let words = black_box(&from).as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
            black_box(words.fold(0u64, u64::wrapping_add));
        });
    }
}

fn checksums(bench: &Bench) {
    use Checksum::*;
    let block = noise(1, BLOCK);
    for kind in [Fletcher2, Fletcher4, Sha256, Sha512, Skein, Edonr, Blake3] {
        for (order, endian) in [("", Endian::Little), (" swapped", Endian::Big)] {
            bench.run(&format!("checksum {}{order}", kind.name()), BLOCK, "", || {
                black_box(compute(kind, endian, &[7; 32], black_box(&block)));
            });
        }
    }
    let other = noise(2, BLOCK);
    bench.run("checksum sha256, two blocks", 2 * BLOCK, "", || {
        black_box(compute_pair(Sha256, Endian::Little, &[7; 32], [&block, &other].map(|block| black_box(&block[..]))));
    });
    let small = &block[..4096];
    for kind in [Fletcher4, Skein, Edonr, Blake3] {
        bench.run(&format!("checksum {} 4 KiB", kind.name()), small.len(), "", || {
            black_box(compute(kind, Endian::Little, &[7; 32], black_box(small)));
        });
    }
    let memory = vec![1; MEMORY];
    for kind in [Fletcher2, Fletcher4] {
        bench.run(&format!("checksum {} memory", kind.name()), MEMORY, "", || {
            black_box(compute(kind, Endian::Little, &[7; 32], black_box(&memory)));
        });
    }
}

fn compressions(bench: &Bench) {
    use Compress::*;
    let zeros = vec![0; BLOCK];
    bench.run("is_zero", BLOCK, "", || {
        black_box(is_zero(black_box(&zeros)));
    });
    let levels =
        [(Lz4, 0), (Zstd, 3), (Zstd, 9), (Zstd, 19), (Zstd, -1), (Zstd, -10), (Gzip1, 0), (Gzip6, 0), (Gzip9, 0)];
    for (kind, level) in levels.into_iter().chain([(Lzjb, 0), (Zle, 0)]) {
        for (what, block) in [("text", text(BLOCK)), ("noise", noise(1, BLOCK)), ("half zero", half_zero(BLOCK))] {
            let suffix = if kind == Zstd { format!("{level}") } else { String::new() };
            let name = format!("{}{suffix} {what}", kind.name());
            let mut packed = vec![0; BLOCK - BLOCK / 8];
            let len = compress(kind, level, &block, &mut packed);
            let note = len.map_or("does not fit".to_owned(), |len| format!("to {} %", len * 100 / BLOCK));
            bench.run(&format!("compress {name}"), BLOCK, &note, || {
                black_box(compress(kind, level, black_box(&block), &mut packed));
            });
            let Some(len) = len else { continue };
            let mut unpacked = vec![0; BLOCK];
            bench.run(&format!("decompress {name}"), BLOCK, "", || {
                decompress(kind, black_box(&packed[..len]), &mut unpacked).expect("was just compressed");
            });
        }
    }
}

fn parities(bench: &Bench) {
    for (place, len) in [("", BLOCK), (" memory", MEMORY / COLUMNS)] {
        let mut data: Vec<Vec<u8>> = (0..COLUMNS).map(|i| noise(i as u64, len)).collect();
        for count in 1..=3 {
            let mut parity = vec![vec![0; len]; count];
            {
                let columns: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
                let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
                let name = format!("parity generate {}{place}", &"PQR"[..count]);
                bench.run(&name, COLUMNS * len, "", || generate(black_box(&columns), black_box(&mut outputs)));
            }
            let mut columns: Vec<&mut [u8]> = data.iter_mut().map(Vec::as_mut_slice).collect();
            for rows in (1..1u8 << count).filter(|rows| rows >> (count - 1) != 0) {
                let used: Vec<Option<&[u8]>> =
                    (0..count).map(|row| (rows >> row & 1 != 0).then_some(parity[row].as_slice())).collect();
                let names: String =
                    (0..count).filter(|row| rows >> row & 1 != 0).map(|row| ["P", "Q", "R"][row]).collect();
                let missing: Vec<usize> = (1..=rows.count_ones() as usize).collect();
                bench.run(&format!("parity rebuild from {names}{place}"), COLUMNS * len, "", || {
                    reconstruct(black_box(&mut columns), &missing, black_box(&used)).expect("there is enough");
                });
            }
        }
    }
}

/// Bytes that nothing compresses.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut next = random(seed);
    (0..len).map(|_| next() as u8).collect()
}

/// Noise and zeros, 128 bytes each in turn.
fn half_zero(len: usize) -> Vec<u8> {
    let mut block = noise(2, len);
    block.chunks_mut(128).step_by(2).for_each(|chunk| chunk.fill(0));
    block
}

/// Words of a made-up language, frequent and rare ones.
fn text(len: usize) -> Vec<u8> {
    const WORDS: u64 = 300;
    let mut next = random(3);
    let words: Vec<Vec<u8>> = (0..WORDS)
        .map(|_| {
            let len = 2 + next() % 9;
            (0..len).map(|_| b"etaoinshrdlucmfwypvbgkqjxz"[(next() % 26 * (next() % 26) / 26) as usize]).collect()
        })
        .collect();
    let mut text = Vec::with_capacity(len + 16);
    while text.len() < len {
        let rank = next() % WORDS * (next() % WORDS) / WORDS;
        text.extend(&words[rank as usize]);
        text.push(if next().is_multiple_of(12) { b'\n' } else { b' ' });
    }
    text.truncate(len);
    text
}

fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut x = seed;
    move || {
        x = x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        x >> 33
    }
}

/// Blocks of the six suites, sealed and opened; a block of a salt that was not seen before; MACs; a passphrase.
fn seals(bench: &Bench) {
    for suite in Suite::ALL {
        let keys = DataKeys::new(suite, &[7; 32][..suite.key_size()], &[8; 64]);
        for len in [4 << 10, BLOCK] {
            let name = |what: &str| format!("{what} {suite:?} {} KiB", len >> 10);
            let mut block = vec![0x5a; len];
            bench.run(&name("seal"), len, "", || {
                black_box(keys.seal([1; 8], &[2; 12], &[], &mut block).expect("blocks are short enough"));
            });
            let mac = keys.seal([1; 8], &[2; 12], &[], &mut block).expect("blocks are short enough");
            let (with, mut copy) = (SealedWith { salt: [1; 8], iv: [2; 12], mac }, block.clone());
            bench.run(&name("open"), len, "with a copy", || {
                copy.copy_from_slice(&block);
                assert!(keys.open(&with, &[], &mut copy));
            });
        }
        let mut salt = 0u64;
        bench.run(&format!("seal {suite:?} 512 bytes, new salt"), 512, "", || {
            salt += 1;
            black_box(keys.seal(salt.to_le_bytes(), &[2; 12], &[], &mut [1; 512]).expect("blocks are short enough"));
        });
    }
    let keys = DataKeys::new(Suite::Aes256Gcm, &[7; 32], &[8; 64]);
    let block = vec![0x5a; BLOCK];
    bench.run("mac", BLOCK, "", || {
        black_box(keys.mac([&block[..]]));
    });
    let filter = bench.filter.as_deref().unwrap_or_default();
    if "passphrase".contains(filter) {
        let start = Instant::now();
        black_box(derive(b"a passphrase", 1, 350_000));
        println!("passphrase, 350,000 rounds: {:.3} s", start.elapsed().as_secs_f64());
    }
}
