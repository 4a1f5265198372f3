//! Answers that go out while they are made: however much there is to tell, the process keeps little of it.

use base::Result;
use protocol::datasets::{Cell, CellValue, DatasetRow, Failure, FoundDatasets, Response, SnapshotHolds, ValueSource};

use super::host::Host;

/// How much a part has, in bytes of memory, about.
const PART_BYTES: usize = 128 << 10;
/// How long nothing may be sent, so that a client that has gone is found out.
const SILENCE_NS: u64 = 1_000_000_000;

/// Sends parts of an answer.
pub(super) struct Parts<'a> {
    host: &'a dyn Host,
    send: &'a mut dyn FnMut(Response) -> Result<()>,
    bytes: usize,
    sent_ns: u64,
}

impl<'a> Parts<'a> {
    pub(super) fn new(host: &'a dyn Host, send: &'a mut dyn FnMut(Response) -> Result<()>) -> Parts<'a> {
        Parts { host, send, bytes: 0, sent_ns: host.now_ns() }
    }

    /// Counts what was added to the part that is being made.
    pub(super) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Sends what was made so far, if it is much or nothing was sent for long. Errors: those of sending; nobody waits for
    /// the rest then.
    pub(super) fn send_if_due(&mut self, take: impl FnOnce() -> Response) -> Result<()> {
        let now_ns = self.host.now_ns();
        if self.bytes < PART_BYTES && now_ns < self.sent_ns.saturating_add(SILENCE_NS) {
            return Ok(());
        }
        (self.send)(take())?;
        (self.bytes, self.sent_ns) = (0, self.host.now_ns());
        Ok(())
    }
}

/// What a row takes, about.
pub(super) fn bytes_of_row(row: &DatasetRow) -> usize {
    let cells: usize = row.cells.iter().flatten().map(bytes_of_cell).sum();
    let user: usize =
        row.user.iter().map(|(name, cell)| size_of::<(String, Cell)>() + name.len() + bytes_of_cell(cell)).sum();
    size_of::<DatasetRow>() + row.name.len() + size_of_val(row.cells.as_slice()) + cells + user
}

fn bytes_of_cell(cell: &Cell) -> usize {
    let text = |value: &CellValue| match value {
        CellValue::Number(_) => 0,
        CellValue::Text(text) => text.len(),
    };
    let source = if let ValueSource::Inherited(from) = &cell.source { from.len() } else { 0 };
    text(&cell.value) + source + cell.received.as_ref().map_or(0, text)
}

/// What a failure takes, about.
pub(super) fn bytes_of_failure(failure: &Failure) -> usize {
    size_of::<Failure>() + failure.about.len() + failure.line.len()
}

/// What the holds of a snapshot take, about.
pub(super) fn bytes_of_holds(holds: &SnapshotHolds) -> usize {
    let tags: usize = holds.holds.iter().map(|(tag, _)| size_of::<(String, u64)>() + tag.len()).sum();
    size_of::<SnapshotHolds>() + holds.snapshot.len() + tags
}

/// Takes what was found so far.
pub(super) fn take(found: &mut FoundDatasets) -> Response {
    Response::Datasets(std::mem::take(found))
}
