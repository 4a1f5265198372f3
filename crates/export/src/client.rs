//! What a client of a disk has asked for, so that it can be told of.

use std::sync::atomic::{AtomicU64, Ordering};

/// Sums of what one client has asked for; all threads that serve it count here.
#[derive(Debug, Default)]
pub struct ClientCounters {
    /// Reads and writes, and the bytes of each.
    moved: [[AtomicU64; 2]; 2],
    others: AtomicU64,
}

/// Values of [`ClientCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientSums {
    /// Reads, writes, and other requests: flushes, discards, questions.
    pub operations: [u64; 3],
    /// Bytes of reads and writes.
    pub bytes: [u64; 2],
}

/// A client that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedClient<D> {
    /// Another one for each connection.
    pub number: u64,
    /// Its address, or its process at this machine.
    pub name: String,
    /// The disk that it uses.
    pub disk: D,
    /// Since it came.
    pub sums: ClientSums,
}

impl ClientCounters {
    /// It reads so many bytes.
    pub fn read(&self, bytes: u64) {
        self.moves(0, bytes);
    }

    /// It writes so many bytes.
    pub fn write(&self, bytes: u64) {
        self.moves(1, bytes);
    }

    /// It asks for something else.
    pub fn other(&self) {
        self.others.fetch_add(1, Ordering::Relaxed);
    }

    fn moves(&self, way: usize, bytes: u64) {
        let [count, sum] = &self.moved[way];
        count.fetch_add(1, Ordering::Relaxed);
        sum.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The sums now.
    pub fn sums(&self) -> ClientSums {
        let [[reads, read], [writes, written]] =
            [0, 1].map(|way| [0, 1].map(|what| self.moved[way][what].load(Ordering::Relaxed)));
        ClientSums { operations: [reads, writes, self.others.load(Ordering::Relaxed)], bytes: [read, written] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_together() {
        let counters = ClientCounters::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        counters.read(512);
                        counters.write(3);
                        counters.other();
                    }
                });
            }
        });
        assert_eq!(counters.sums(), ClientSums { operations: [400; 3], bytes: [400 * 512, 1200] });
    }
}
