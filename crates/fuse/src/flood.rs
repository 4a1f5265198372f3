//! A damaged pool under a busy reader must not fill the disk of the log: a limit on messages.

use base::{Error, Kind, Mutex};

use crate::node::NodeId;
use crate::session::Session;
use crate::tree::Source;

/// Messages that pass in one window.
const BURST: u32 = 20;
/// Length of a window in seconds.
const WINDOW_S: u64 = 10;

/// Lets some messages through and counts the others.
#[derive(Default)]
pub(crate) struct Flood(Mutex<Window>);

#[derive(Default)]
struct Window {
    began_s: u64,
    passed: u32,
    held_back: u64,
}

impl Flood {
    /// May a message pass at this time? If so, how many were held back since the last one that
    /// could.
    pub(crate) fn pass(&self, now_s: u64) -> Option<u64> {
        let mut window = self.0.lock();
        // a clock that was set back begins a new window, too
        if now_s.wrapping_sub(window.began_s) >= WINDOW_S {
            window.began_s = now_s;
            window.passed = 0;
        }
        if window.passed >= BURST {
            window.held_back += 1;
            return None;
        }
        window.passed += 1;
        Some(std::mem::take(&mut window.held_back))
    }
}

impl<S: Source> Session<S> {
    /// The errno for a request that failed. What hints at a damaged pool is logged, here and only
    /// here; what any program can provoke is not.
    pub(crate) fn fail(&self, request: &'static str, node: u64, error: Error) -> i32 {
        let errno = error.errno();
        let is_fault = matches!(
            error.kind(),
            Kind::Io | Kind::Checksum | Kind::Corrupt | Kind::Missing | Kind::Encrypted
        )
            // whoever writes may ask for what is too big
            || error.kind() == Kind::TooBig && !self.writable;
        if is_fault && let Some(held_back) = self.flood.pass(self.env.now_s()) {
            let (tree, ino) = match NodeId::parse(node) {
                NodeId::InTree { tree: 0, object } => (0, self.live.object(object)),
                NodeId::InTree { tree, object } => (tree, object),
                NodeId::Control | NodeId::Shares | NodeId::Snapshots => (0, node),
            };
            let error = error.in_dataset(&self.snapshots.dataset_name(tree));
            tracing::warn!(request, ino, held_back, "{error}");
        }
        errno
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut() {
        let flood = Flood::default();
        let passed = |now_s| (0..1000).filter_map(|_| flood.pass(now_s)).collect::<Vec<_>>();
        assert_eq!(passed(1_000_000), [0; BURST as usize]);
        assert_eq!(passed(1_000_000 + WINDOW_S - 1), [0; 0]);
        let next = passed(1_000_000 + WINDOW_S);
        assert_eq!(next.len(), BURST as usize);
        assert_eq!(next[0], 1000 - u64::from(BURST) + 1000);
        assert_eq!(passed(5).len(), BURST as usize);
    }
}
