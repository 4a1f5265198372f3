//! The loops over the bytes: parity of a piece of a row, and rebuilding a piece.
//!
//! Both go along the row once, two registers' width at a time; at each place they go through the
//! columns in order, doubling Q and quadrupling R before they add. The loops are written once, and
//! compiled for each kind of register ([`Lane`]) and each set of parity columns.

// the loops are unrolled, and their counters choose registers
#![allow(clippy::needless_range_loop)]

use super::field::Matrix;
use super::lane::{Lane, PortableLane};

/// A piece of a row. Pointers are to `len` bytes each, those that the set of rows makes use of.
/// Outputs overlap nothing that is read.
pub(super) struct KernelJob<'a> {
    /// The data columns. For one that is missing there are zeros.
    pub(super) columns: &'a [*const u8],
    pub(super) len: usize,
    /// P, Q, R; only for rebuilding.
    pub(super) parity: [*const u8; 3],
    /// P, Q, R, or the missing columns.
    pub(super) outputs: [*mut u8; 3],
}

/// What to do with it.
#[derive(Clone, Copy)]
pub(super) enum KernelTask {
    /// Compute this number of parity columns.
    Generate(usize),
    /// Rebuild as many columns as there are bits set, from these parity columns (bit 0 for P). The
    /// matrix has a row for each missing column, a column for each of the parity columns.
    Rebuild(u8, Matrix),
}

/// Does the task.
///
/// # Safety
/// The job's pointers are as [`KernelJob`] says, and the machine has the instructions.
pub(super) type Kernel = unsafe fn(&KernelJob, KernelTask);

/// The fastest that this machine has the instructions for.
pub(super) fn best() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    {
        if has_gfni() {
            return run_gfni;
        }
        if is_x86_feature_detected!("avx2") {
            return run_avx2;
        }
    }
    run_portable
}

/// All that this machine has the instructions for.
#[cfg(test)]
pub(super) fn all() -> Vec<Kernel> {
    let mut all: Vec<Kernel> = vec![run_portable];
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") {
            all.push(run_avx2);
        }
        if has_gfni() {
            all.push(run_gfni);
        }
    }
    all
}

#[cfg(target_arch = "x86_64")]
fn has_gfni() -> bool {
    is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx512f")
}

/// # Safety
/// As [`Kernel`].
unsafe fn run_portable(job: &KernelJob, task: KernelTask) {
    // SAFETY: the caller's promise.
    unsafe { run_with::<PortableLane>(job, task) }
}

/// # Safety
/// As [`Kernel`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,gfni")]
unsafe fn run_gfni(job: &KernelJob, task: KernelTask) {
    // SAFETY: the caller's promise.
    unsafe { run_with::<std::arch::x86_64::__m512i>(job, task) }
}

/// # Safety
/// As [`Kernel`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn run_avx2(job: &KernelJob, task: KernelTask) {
    // SAFETY: the caller's promise.
    unsafe { run_with::<std::arch::x86_64::__m256i>(job, task) }
}

/// Bits of a set of parity columns.
const P: u8 = 1;
const Q: u8 = 2;
const R: u8 = 4;
const PQ: u8 = P | Q;
const PR: u8 = P | R;
const QR: u8 = Q | R;
const PQR: u8 = P | Q | R;

/// # Safety
/// As [`Kernel`], for V's instructions.
#[inline(always)]
unsafe fn run_with<V: Lane>(job: &KernelJob, task: KernelTask) {
    // SAFETY: the caller's promise.
    unsafe {
        match task {
            KernelTask::Generate(1) => generate::<V, P>(job),
            KernelTask::Generate(2) => generate::<V, PQ>(job),
            KernelTask::Generate(_) => generate::<V, PQR>(job),
            KernelTask::Rebuild(rows, solution) => match rows {
                P => rebuild::<V, P>(job, &solution),
                Q => rebuild::<V, Q>(job, &solution),
                R => rebuild::<V, R>(job, &solution),
                PQ => rebuild::<V, PQ>(job, &solution),
                PR => rebuild::<V, PR>(job, &solution),
                QR => rebuild::<V, QR>(job, &solution),
                _ => rebuild::<V, PQR>(job, &solution),
            },
        }
    }
}

/// # Safety
/// As [`Kernel`], for V's instructions.
#[inline(always)]
unsafe fn generate<V: Lane, const ROWS: u8>(job: &KernelJob) {
    // SAFETY: the caller's promise.
    unsafe {
        let at = generate_from::<V, ROWS, 2>(job, 0);
        generate_from::<u8, ROWS, 1>(job, at);
    }
}

/// Goes on at `at`, `K` registers at a time, as far as that goes; returns where it stopped.
#[inline(always)]
unsafe fn generate_from<V: Lane, const ROWS: u8, const K: usize>(job: &KernelJob, mut at: usize) -> usize {
    while at + K * V::LEN <= job.len {
        // SAFETY: the caller's promise; there are that many bytes left.
        unsafe {
            let parity = parity_at::<V, ROWS, K>(job.columns, at);
            for row in (0..3).filter(|row| ROWS >> row & 1 != 0) {
                for k in 0..K {
                    parity[row][k].store(job.outputs[row].add(at + k * V::LEN));
                }
            }
        }
        at += K * V::LEN;
    }
    at
}

/// # Safety
/// As [`Kernel`], for V's instructions.
#[inline(always)]
unsafe fn rebuild<V: Lane, const ROWS: u8>(job: &KernelJob, solution: &Matrix) {
    // SAFETY: the caller's promise.
    unsafe {
        let at = rebuild_from::<V, ROWS, 2>(job, solution, 0);
        rebuild_from::<u8, ROWS, 1>(job, solution, at);
    }
}

/// Goes on at `at`, `K` registers at a time, as far as that goes; returns where it stopped.
#[inline(always)]
unsafe fn rebuild_from<V: Lane, const ROWS: u8, const K: usize>(
    job: &KernelJob,
    solution: &Matrix,
    mut at: usize,
) -> usize {
    let count = ROWS.count_ones() as usize;
    let has_p = ROWS & P != 0;
    let factors = solution.map(|row| row.map(V::factor));
    while at + K * V::LEN <= job.len {
        // SAFETY: the caller's promise; there are that many bytes left.
        unsafe {
            // what of each parity column the missing data make up, in the order of the solution
            let mut lost = [[V::zero(); K]; 3];
            let parity = parity_at::<V, ROWS, K>(job.columns, at);
            for (i, row) in (0..3).filter(|row| ROWS >> row & 1 != 0).enumerate() {
                for k in 0..K {
                    let whole = V::load(job.parity[row].add(at + k * V::LEN));
                    lost[i][k] = parity[row][k].add(whole);
                }
            }
            // P's part is the plain sum of all missing data: the last of them is what remains
            let mut remains = lost[0];
            for missing in 0..count {
                for k in 0..K {
                    let column = if has_p && missing + 1 == count {
                        remains[k]
                    } else {
                        (0..count).fold(V::zero(), |sum, i| sum.add(lost[i][k].mul(&factors[missing][i])))
                    };
                    remains[k] = remains[k].add(column);
                    column.store(job.outputs[missing].add(at + k * V::LEN));
                }
            }
        }
        at += K * V::LEN;
    }
    at
}

/// P, Q and R, as far as they are in the set, of `K` registers of the columns at `at`.
///
/// # Safety
/// There are that many bytes, and V's instructions.
#[inline(always)]
unsafe fn parity_at<V: Lane, const ROWS: u8, const K: usize>(columns: &[*const u8], at: usize) -> [[V; K]; 3] {
    let mut parity = [[V::zero(); K]; 3];
    for &column in columns {
        for k in 0..K {
            // SAFETY: the caller's promise.
            let data = unsafe { V::load(column.add(at + k * V::LEN)) };
            if ROWS & P != 0 {
                parity[0][k] = parity[0][k].add(data);
            }
            if ROWS & Q != 0 {
                parity[1][k] = parity[1][k].double().add(data);
            }
            if ROWS & R != 0 {
                parity[2][k] = parity[2][k].quadruple().add(data);
            }
        }
    }
    parity
}
