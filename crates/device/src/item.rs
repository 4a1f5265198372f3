//! One request of a batch, and the place for what comes of it.

use base::Result;

use crate::Device;
use crate::meter::Ticket;
use crate::ring::IoTask;

/// What is to be done, and the place for what comes of it.
pub(crate) struct BatchItem<'a> {
    pub(crate) device: &'a dyn Device,
    pub(crate) offset: u64,
    pub(crate) task: IoTask<'a>,
    pub(crate) result: &'a mut Result<()>,
    pub(crate) ticket: Option<Ticket<'a>>,
}

impl BatchItem<'_> {
    pub(crate) fn run_alone(mut self) {
        self.ticket.iter_mut().for_each(Ticket::issued);
        *self.result = match self.task {
            IoTask::Fill(buf) => self.device.read_at(self.offset, buf),
            // those are of several items
            IoTask::FillAll(_) => unreachable!("no item has several buffers"),
            IoTask::Store(buf) => self.device.write_at(self.offset, buf),
            IoTask::Flush => self.device.flush(),
        };
        if self.result.is_ok() {
            self.ticket.into_iter().for_each(Ticket::done);
        }
    }
}
