//! Events between a monitor and the threads here: eventfd(2).

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use base::{Error, Kind, Result};
use export::is_ready;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// An event that the monitor gave: by which it tells something, or is told.
pub(crate) struct MonitorEvent(OwnedFd);

impl MonitorEvent {
    /// Errors: `Invalid` if it is something else, which could hold up the thread that writes to it.
    pub(crate) fn new(descriptor: OwnedFd) -> Result<MonitorEvent> {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))?;
        match link.to_string_lossy().starts_with("anon_inode:[eventfd") {
            true => Ok(MonitorEvent(descriptor)),
            false => Err(Error::new(Kind::Invalid, "a descriptor that is no eventfd")),
        }
    }

    /// Tells. One that has not been looked at for 2^64 - 2 times needs no more.
    pub(crate) fn signal(&self) {
        if is_ready(&self.0, PollFlags::OUT) {
            // nobody may be there any more
            let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
        }
    }

    /// Notes that it was told.
    pub(crate) fn clear(&self) {
        if is_ready(&self.0, PollFlags::IN) {
            let _ = rustix::io::read(&self.0, &mut [0; 8]);
        }
    }
}

impl AsFd for MonitorEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An event among the threads here.
pub(crate) struct WakeEvent(OwnedFd);

impl WakeEvent {
    /// Errors: there are too many open files.
    pub(crate) fn new() -> Result<WakeEvent> {
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
        Ok(WakeEvent(made))
    }

    pub(crate) fn signal(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Waits until it, or any of the others, has been signalled, and clears what has been; not longer than `patience`, if
    /// there is one.
    pub(crate) fn wait<'a>(&'a self, others: impl Iterator<Item = &'a MonitorEvent>, patience: Option<Duration>) {
        let others: Vec<_> = others.collect();
        let mut all: Vec<PollFd<'_>> = vec![PollFd::new(&self.0, PollFlags::IN)];
        all.extend(others.iter().map(|other| PollFd::new(*other, PollFlags::IN)));
        let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
        match poll(&mut all, patience.as_ref()).map_err(io::Error::from) {
            Err(error) if error.kind() != ErrorKind::Interrupted => tracing::warn!("cannot wait for a guest: {error}"),
            _ => {}
        }
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
        for (other, polled) in others.iter().zip(&all[1..]) {
            if polled.revents().contains(PollFlags::IN) {
                other.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_eventfds() {
        let event = |flags| MonitorEvent::new(eventfd(0, flags).unwrap());
        let (told, wakes) = (event(EventfdFlags::empty()).unwrap(), WakeEvent::new().unwrap());
        // what is not signalled is not waited for
        told.clear();
        told.signal();
        wakes.wait([&told].into_iter(), None);
        assert!(!is_ready(&told.0, PollFlags::IN), "it was cleared");
        wakes.signal();
        wakes.wait([&told].into_iter(), None);
        // nothing comes
        wakes.wait([&told].into_iter(), Some(Duration::from_millis(1)));
        // one that is full
        rustix::io::write(&told.0, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        told.signal();
        let pipe = io::pipe().unwrap().1;
        assert_eq!(MonitorEvent::new(pipe.into()).err().unwrap().kind(), Kind::Invalid);
    }
}
