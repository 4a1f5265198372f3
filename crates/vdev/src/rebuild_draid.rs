//! Sequential resilvers of draids: see [`crate::rebuild`].

use std::ops::Range;

use base::{AlignedBuf, Env, Result, WorkKind};
use device::meter::Purpose;
use format::ids::Txg;

use crate::draid::DraidLayout;
use crate::locate::{Branch, Choice};
use crate::raidz::Row;
use crate::rebuild::{Rebuilt, pieces};
use crate::tree::Tree;
use crate::vdev::Vdev;

/// A row of whole stripes, the columns of parity first.
struct StripeRow {
    nparity: usize,
    columns: Vec<StripeColumn>,
}

/// A column of such a row.
struct StripeColumn {
    /// Leaves that have it.
    whole: Vec<Choice>,
    /// Leaves that are to be given it.
    lacking: Vec<Choice>,
    bytes: AlignedBuf,
    is_known: bool,
}

/// So many bytes of rows are read at a time, while those before them are written: enough for each leaf to have a few.
const PIECE_BYTES: u64 = 2 << 20;

impl Tree {
    /// Gives ranges of a draid, which are made of whole stripes, to the leaves that lack something.
    pub(crate) fn rebuild_stripes(&self, top: &Vdev, layout: &DraidLayout, ranges: &[Range<u64>]) -> Result<Rebuilt> {
        let mut rows = Vec::new();
        for range in ranges {
            let size = layout.data_bytes(range.end - range.start)? as usize;
            rows.extend(layout.map(range.start, size)?);
        }
        let row_bytes = |row: &Row| row.columns.iter().map(|column| column.size as u64).sum();
        let read = |rows: &[Row]| self.read_rows(top, rows);
        let write = |rows: &Vec<StripeRow>| self.write_rows(rows);
        Ok(self.copy_pieces(pieces(&rows, PIECE_BYTES, row_bytes), read, write))
    }

    fn stripe_row(&self, top: &Vdev, row: &Row) -> StripeRow {
        let columns = row.columns.iter().map(|column| {
            let (mut whole, mut lacking) = (Vec::new(), Vec::new());
            self.each_whole_branch(self.child(top, column.child), column.offset, &mut |branch| match branch {
                Branch::Leaf(choice) if choice.trusted => whole.push(choice),
                Branch::Leaf(choice) => lacking.push(choice),
                Branch::Rows { .. } => unreachable!("no parity below parity"),
            });
            StripeColumn { whole, lacking, bytes: AlignedBuf::for_overwrite(column.size), is_known: false }
        });
        StripeRow { nparity: row.nparity, columns: columns.collect() }
    }

    /// Reads those of the rows of which a leaf lacks something, and makes columns that cannot be read of the others. Rows of which
    /// too few can be read are left out; how many sectors of a column these are.
    fn read_rows(&self, top: &Vdev, rows: &[Row]) -> (Vec<StripeRow>, u64) {
        let mut rows: Vec<StripeRow> = rows.iter().map(|row| self.stripe_row(top, row)).collect();
        rows.retain(|row| row.columns.iter().any(|column| !column.lacking.is_empty()));
        self.read_stripes(rows.iter_mut().flat_map(|row| &mut row.columns).collect());
        let mut errors = 0;
        rows.retain_mut(|row| {
            let is_whole = fill_in(&mut row.columns, row.nparity).is_ok();
            errors += if is_whole { 0 } else { (row.columns[0].bytes.len() >> top.ashift()) as u64 };
            is_whole
        });
        (rows, errors)
    }

    /// Reads columns, each from the first leaf that can.
    fn read_stripes(&self, mut columns: Vec<&mut StripeColumn>) {
        for attempt in 0.. {
            let (mut reads, mut read) = (Vec::new(), Vec::new());
            for column in columns.iter_mut().filter(|column| !column.is_known) {
                if let Some(from) = column.whole.get(attempt).copied() {
                    reads.push(Env::doing(WorkKind::Rebuild, || self.read_of(from, &mut column.bytes)));
                    read.push((from, &mut column.is_known));
                }
            }
            if reads.is_empty() {
                return;
            }
            device::read_batch(&mut reads);
            for ((from, is_known), result) in read.into_iter().zip(reads.into_iter().map(|read| read.result)) {
                match result {
                    Ok(()) => *is_known = true,
                    Err(error) => self.state_of(from.leaf).charge_read(&error),
                }
            }
        }
    }

    /// Writes the columns of rows to all leaves that lack them.
    fn write_rows(&self, rows: &[StripeRow]) -> Rebuilt {
        let columns = rows.iter().flat_map(|row| &row.columns);
        let targets = columns.flat_map(|column| column.lacking.iter().map(move |to| (to, &column.bytes)));
        let (mut writes, mut leaves) = (Vec::new(), Vec::new());
        for (to, bytes) in targets {
            writes.push(self.write_of(to.leaf, to.offset, bytes, Purpose::AsyncWrite));
            leaves.push((self.state_of(to.leaf), bytes.len() as u64));
        }
        device::write_batch(&mut writes);
        let results: Vec<Result<()>> = writes.into_iter().map(|write| write.result).collect();
        let mut rebuilt = Rebuilt::default();
        for ((leaf, bytes), result) in leaves.into_iter().zip(results) {
            match result {
                Ok(()) => {
                    leaf.note_written(Txg::ZERO..Txg::ZERO);
                    rebuilt.bytes += bytes;
                }
                // what is spread over it may lack this, which is not known of the leaf itself
                Err(error) => {
                    leaf.charge_write(&error);
                    rebuilt.unwritten += 1;
                }
            }
        }
        rebuilt
    }
}

/// Makes the columns that are not known from the others. Errors: `Missing` if these are too few.
fn fill_in(columns: &mut [StripeColumn], nparity: usize) -> Result<()> {
    let (parity, data) = columns.split_at_mut(nparity);
    let lost: Vec<usize> = (0..data.len()).filter(|&number| !data[number].is_known).collect();
    let known: Vec<Option<&[u8]>> = parity.iter().map(|column| column.is_known.then_some(&column.bytes[..])).collect();
    let mut bytes: Vec<&mut [u8]> = data.iter_mut().map(|column| &mut column.bytes[..]).collect();
    codec::parity::reconstruct(&mut bytes, &lost, &known)?;
    if parity.iter().any(|column| !column.is_known) {
        let bytes: Vec<&[u8]> = data.iter().map(|column| &column.bytes[..]).collect();
        let mut again: Vec<AlignedBuf> = parity.iter().map(|column| AlignedBuf::zeroed(column.bytes.len())).collect();
        codec::parity::generate(&bytes, &mut again.iter_mut().map(|buf| &mut buf[..]).collect::<Vec<_>>());
        for (column, again) in parity.iter_mut().zip(again).filter(|(column, _)| !column.is_known) {
            column.bytes = again;
        }
    }
    Ok(())
}
