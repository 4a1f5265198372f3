//! What `/proc` tells of processes: time of processors, memory, names of threads.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use super::tally::thread_kind;

/// Threads whose kinds are kept.
const THREADS_MAX: usize = 1 << 14;

/// Seconds of processors that a process has used; `None` if it is gone.
pub fn cpu_seconds(process: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    ticks_of_stat(&stat).map(seconds)
}

/// Bytes of a process that are in memory.
pub fn resident_bytes(process: u32) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64
}

/// Ticks in the program and in the kernel for it. The name in brackets may have anything in it.
fn ticks_of_stat(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut words = rest.split(' ').skip(11).map(|word| word.parse::<u64>().ok());
    Some(words.next()?? + words.next()??)
}

/// Kinds of threads, by their numbers.
#[derive(Default)]
pub struct ThreadKinds {
    known: HashMap<u32, Arc<str>>,
}

impl ThreadKinds {
    /// The kind of a thread of a process.
    pub fn of(&mut self, process: u32, thread: u32) -> Arc<str> {
        if let Some(kind) = self.known.get(&thread) {
            return kind.clone();
        }
        let name = fs::read_to_string(format!("/proc/{process}/task/{thread}/comm"));
        let kind: Arc<str> = name.map_or_else(|_| "ended".into(), |name| thread_kind(&name).into());
        if self.known.len() < THREADS_MAX {
            self.known.insert(thread, kind.clone());
        }
        kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_proc_are_read() {
        let stat = "7 (a) b) (c) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 9";
        assert_eq!(ticks_of_stat(stat), Some(300));
        assert_eq!(ticks_of_stat("7 (a) S 1"), None);
        let own = std::process::id();
        assert!(cpu_seconds(own).is_some() && resident_bytes(own) > 1 << 20);
        assert_eq!(cpu_seconds(u32::MAX), None);
        let name = "a thread 12";
        let kind = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            ThreadKinds::default().of(own, thread)
        });
        assert_eq!(&*kind.unwrap().join().unwrap(), "a thread");
    }
}
