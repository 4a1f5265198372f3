//! Sequential resilvers of draids: see [`crate::rebuild`].

use std::ops::Range;

use base::{AlignedBuf, Env, Result, WorkKind};
use device::meter::Purpose;
use format::ids::Txg;

use crate::draid::DraidLayout;
use crate::locate::{Branch, Choice};
use crate::raidz::Row;
use crate::rebuild::Rebuilt;
use crate::tree::Tree;
use crate::vdev::Vdev;

/// A column of a row of whole stripes.
struct StripeColumn {
    /// Leaves that have it.
    whole: Vec<Choice>,
    /// Leaves that are to be given it.
    lacking: Vec<Choice>,
    bytes: AlignedBuf,
    is_known: bool,
}

impl Tree {
    /// Gives ranges of a draid, which are made of whole stripes, to the leaves that lack something.
    pub(crate) fn rebuild_stripes(&self, top: &Vdev, layout: &DraidLayout, ranges: &[Range<u64>]) -> Result<Rebuilt> {
        let mut rebuilt = Rebuilt::default();
        for range in ranges {
            let size = layout.data_bytes(range.end - range.start)? as usize;
            for row in layout.map(range.start, size)? {
                self.rebuild_row(top, &row, &mut rebuilt);
            }
        }
        Ok(rebuilt)
    }

    fn rebuild_row(&self, top: &Vdev, row: &Row, rebuilt: &mut Rebuilt) {
        let mut columns: Vec<StripeColumn> = row
            .columns
            .iter()
            .map(|column| {
                let (mut whole, mut lacking) = (Vec::new(), Vec::new());
                self.each_whole_branch(self.child(top, column.child), column.offset, &mut |branch| match branch {
                    Branch::Leaf(choice) if choice.trusted => whole.push(choice),
                    Branch::Leaf(choice) => lacking.push(choice),
                    Branch::Rows { .. } => unreachable!("no parity below parity"),
                });
                StripeColumn { whole, lacking, bytes: AlignedBuf::for_overwrite(column.size), is_known: false }
            })
            .collect();
        if columns.iter().all(|column| column.lacking.is_empty()) {
            return;
        }
        self.read_stripes(&mut columns);
        match fill_in(&mut columns, row.nparity) {
            Ok(()) => self.write_stripes(&columns, rebuilt),
            Err(_) => rebuilt.errors += (row.columns[0].size >> top.ashift()) as u64,
        }
    }

    /// Reads all columns, each from the first leaf that can.
    fn read_stripes(&self, columns: &mut [StripeColumn]) {
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

    fn write_stripes(&self, columns: &[StripeColumn], rebuilt: &mut Rebuilt) {
        let targets = columns.iter().flat_map(|column| column.lacking.iter().map(move |to| (to, &column.bytes)));
        let (mut writes, mut leaves) = (Vec::new(), Vec::new());
        for (to, bytes) in targets {
            writes.push(self.write_of(to.leaf, to.offset, bytes, Purpose::AsyncWrite));
            leaves.push((self.state_of(to.leaf), bytes.len() as u64));
        }
        device::write_batch(&mut writes);
        let results: Vec<Result<()>> = writes.into_iter().map(|write| write.result).collect();
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
