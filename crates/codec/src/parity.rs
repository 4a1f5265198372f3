//! The parity of RAID-Z and dRAID, and what is lost from it.
//!
//! A row of n data columns D has up to three parity columns, calculated byte by byte in GF(2^8)
//! (see `parity/field.rs`):
//!
//! ```text
//!   P = D0         + D1         + ... + Dn-1
//!   Q = 2^(n-1) D0 + 2^(n-2) D1 + ... + Dn-1     = ((D0·2 + D1)·2 + ...)·2 + Dn-1
//!   R = 4^(n-1) D0 + 4^(n-2) D1 + ... + Dn-1     = ((D0·4 + D1)·4 + ...)·4 + Dn-1
//! ```
//!
//! A column's power depends on how many come after it, so every column of the row is passed,
//! whatever its length; what is missing at its end counts as zeros.
//!
//! To rebuild m columns, m parity columns are taken. Each, with the parity of the columns that are
//! there taken away, is a sum of the lost ones with known factors. For up to 255 columns these
//! equations always have one solution, whichever parity columns they are: the factors' determinant
//! is a product of differences of distinct powers of 2 or of 4. The inverse of the m by m matrix of
//! factors is found once; then one pass over the bytes reads each column once and writes the lost
//! ones.
//!
//! The source of the code is that definition, which H. P. Anvin's "The mathematics of RAID-6" gives
//! for P and Q.

use std::mem::MaybeUninit;
use std::ptr;

use base::{Error, Kind, Result};

use kernel::{Kernel, KernelJob, KernelTask};

mod field;
mod kernel;
mod lane;

/// What of the data is worked on at a time. Columns that have ended or are lost are read as
/// [`ZEROS`] instead.
const CHUNK_LEN: usize = 4096;
static ZEROS: [u8; CHUNK_LEN] = [0; CHUNK_LEN];

/// Most data columns in a row: the powers of 2 begin anew after that.
const COLUMNS_MAX: usize = 255;

/// The generators of P, Q and R.
const GENERATORS: [u8; 3] = [1, 2, 4];

/// Computes P, P and Q, or P, Q and R of `data`, depending on the number of `parity` columns.
///
/// Panics unless there are 1 to 255 data columns, 1 to 3 parity columns, and the latter are as long
/// as the longest of the former.
pub fn generate(data: &[&[u8]], parity: &mut [&mut [u8]]) {
    generate_by(kernel::best(), data, parity)
}

fn generate_by(kernel: Kernel, data: &[&[u8]], parity: &mut [&mut [u8]]) {
    let lens = || data.iter().map(|column| column.len());
    let len = row_len(lens());
    assert!((1..=GENERATORS.len()).contains(&parity.len()), "a row has 1 to 3 parity columns");
    assert!(parity.iter().all(|parity| parity.len() == len), "parity is as long as the longest column");

    let mut columns = Vec::with_capacity(data.len());
    for (start, end) in pieces(lens()) {
        columns.clear();
        columns.extend(data.iter().map(|column| column.get(start..end).unwrap_or(&ZEROS[..end - start]).as_ptr()));
        let mut job = new_job(&columns, end - start);
        for (output, parity) in job.outputs.iter_mut().zip(parity.iter_mut()) {
            *output = parity[start..end].as_mut_ptr();
        }
        // SAFETY: each column has, and each output has room for, the piece's length.
        unsafe { kernel(&job, KernelTask::Generate(parity.len())) };
    }
}

/// Overwrites the columns of `data` whose numbers are in `missing` with what they were, given P, Q
/// and R as far as they are there.
///
/// `data` are all data columns of the row, those missing too, each with its right length; `parity`
/// has three elements at most. As many parity columns are used as there are columns missing, P
/// before Q before R; others are not looked at.
///
/// Errors: `Missing` if there are not enough of them; nothing is written then. Panics unless there
/// are 1 to 255 data columns, the numbers are different and below that, and parity columns are as
/// long as the longest data column.
pub fn reconstruct(data: &mut [&mut [u8]], missing: &[usize], parity: &[Option<&[u8]>]) -> Result<()> {
    reconstruct_by(kernel::best(), data, missing, parity)
}

fn reconstruct_by(kernel: Kernel, data: &mut [&mut [u8]], missing: &[usize], parity: &[Option<&[u8]>]) -> Result<()> {
    let len = row_len(data.iter().map(|column| column.len()));
    assert!(parity.len() <= GENERATORS.len(), "a row has at most 3 parity columns");
    assert!(parity.iter().flatten().all(|parity| parity.len() == len), "parity is as long as the longest column");
    assert!(missing.iter().all(|&column| column < data.len()), "no such column");

    let rows: Vec<usize> = (0..parity.len()).filter(|&row| parity[row].is_some()).take(missing.len()).collect();
    if rows.len() < missing.len() {
        let what = format!("{} columns are lost, with {} of parity to rebuild them", missing.len(), rows.len());
        return Err(Error::new(Kind::Missing, what));
    }
    if missing.is_empty() {
        return Ok(());
    }
    let mut factors = [[0; 3]; 3];
    for (factors, &row) in factors.iter_mut().zip(&rows) {
        for (factor, &column) in factors.iter_mut().zip(missing) {
            *factor = field::pow(GENERATORS[row], data.len() - 1 - column);
        }
    }
    let solution = field::invert(factors, missing.len()).expect("missing columns are different");
    let task = KernelTask::Rebuild(rows.iter().fold(0, |rows, row| rows | 1 << row), solution);

    // all columns are borrowed for as long as this takes; from here they are pointers
    let all: Vec<(*mut u8, usize)> = data.iter_mut().map(|column| (column.as_mut_ptr(), column.len())).collect();
    let mut columns = Vec::with_capacity(all.len());
    let mut beyond_end = MaybeUninit::<[u8; CHUNK_LEN]>::uninit();
    // once only: several outputs may go there, and a new borrow would end what an earlier one may do
    let beyond_end: *mut u8 = beyond_end.as_mut_ptr().cast();
    for (start, end) in pieces(all.iter().map(|column| column.1)) {
        let at_start = |&(column, len): &(*mut u8, usize)| {
            // SAFETY: the piece is within the column.
            (end <= len).then(|| unsafe { column.add(start) })
        };
        columns.clear();
        columns.extend(all.iter().map(|column| at_start(column).map_or(ZEROS.as_ptr(), |column| column.cast_const())));
        missing.iter().for_each(|&column| columns[column] = ZEROS.as_ptr());
        let mut job = new_job(&columns, end - start);
        for (output, &column) in job.outputs.iter_mut().zip(missing) {
            *output = at_start(&all[column]).unwrap_or(beyond_end);
        }
        for (input, parity) in job.parity.iter_mut().zip(parity) {
            *input = parity.map_or(ZEROS.as_ptr(), |parity| parity[start..end].as_ptr());
        }
        // SAFETY: each column and parity column has, and each output has room for, the piece's
        // length; columns that are written are not read, as zeros are read in their place.
        unsafe { kernel(&job, task) };
    }
    Ok(())
}

fn new_job(columns: &[*const u8], len: usize) -> KernelJob<'_> {
    KernelJob { columns, len, parity: [ptr::null(); 3], outputs: [ptr::null_mut(); 3] }
}

/// The length of the longest column of a row.
fn row_len(lens: impl ExactSizeIterator<Item = usize>) -> usize {
    assert!((1..=COLUMNS_MAX).contains(&lens.len()), "a row has 1 to 255 data columns");
    lens.max().unwrap_or(0)
}

/// Cuts a row with columns of such lengths into pieces of at most [`CHUNK_LEN`], in which each column is there
/// from start to end or not at all.
fn pieces(lens: impl Iterator<Item = usize> + Clone) -> impl Iterator<Item = (usize, usize)> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let end = lens.clone().filter(|&len| len > start).min()?.min(start + CHUNK_LEN);
        let piece = (start, end);
        start = end;
        Some(piece)
    })
}

#[cfg(test)]
mod tests;
