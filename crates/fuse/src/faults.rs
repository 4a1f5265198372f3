//! Requests that fail: their errno, and what is logged of them.
//!
//! A damaged pool under a busy reader must not fill the disk of the log: there is a limit on messages.

use std::sync::Arc;

use base::{Env, Error, Kind, Mutex, Result};

use crate::node::NodeId;
use crate::reply::Reply;
use crate::tree::Source;
use crate::trees::Trees;

/// Messages that pass in one window.
const BURST: u32 = 20;
/// Length of a window in seconds.
const WINDOW_S: u64 = 10;

/// Lets some messages through and counts the others.
#[derive(Default)]
pub(crate) struct LogLimit(Mutex<FaultWindow>);

#[derive(Default)]
struct FaultWindow {
    began_s: u64,
    passed: u32,
    held_back: u64,
}

impl LogLimit {
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

/// The answers to requests that fail, and what is logged of them.
pub(crate) struct FaultLog<S: Source> {
    trees: Arc<Trees<S>>,
    env: Env,
    limit: LogLimit,
}

impl<S: Source> FaultLog<S> {
    pub(crate) fn new(trees: Arc<Trees<S>>, env: Env) -> FaultLog<S> {
        FaultLog { trees, env, limit: LogLimit::default() }
    }

    /// The errno for a request that failed. What hints at a damaged pool is logged, here and only
    /// here; what any program can provoke is not.
    pub(crate) fn fail(&self, request: &'static str, node: u64, error: Error) -> i32 {
        let errno = error.errno();
        let is_fault = matches!(
            error.kind(),
            Kind::Io | Kind::Checksum | Kind::Corrupt | Kind::Missing | Kind::Encrypted
        )
            // a program that writes may ask for what is too big
            || error.kind() == Kind::TooBig && !self.trees.is_writable();
        if is_fault && let Some(held_back) = self.limit.pass(self.env.now_s()) {
            let (tree, ino) = match NodeId::parse(node) {
                NodeId::InTree { tree: 0, object } => (0, self.trees.live().object(object).get()),
                NodeId::InTree { tree, object } => (tree, object.get()),
                NodeId::Control | NodeId::Shares | NodeId::Snapshots => (0, node),
            };
            let error = error.in_dataset(&self.trees.snapshots().dataset_name(tree));
            tracing::warn!(request, ino, held_back, "{error}");
        }
        errno
    }

    /// Answers a request with `done`, by `answer` if it did not fail.
    pub(crate) fn answer<T>(
        &self,
        request: &'static str,
        node: u64,
        done: Result<T>,
        reply: Reply,
        answer: impl FnOnce(Reply, T),
    ) {
        match done {
            Ok(done) => answer(reply, done),
            Err(error) => reply.error(self.fail(request, node, error)),
        }
    }

    /// Answers a request whose answer says nothing but that it is done.
    pub(crate) fn answer_done(&self, request: &'static str, node: u64, done: Result<()>, reply: Reply) {
        self.answer(request, node, done, reply, |reply, ()| reply.ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut() {
        let flood = LogLimit::default();
        let passed = |now_s| (0..1000).filter_map(|_| flood.pass(now_s)).collect::<Vec<_>>();
        assert_eq!(passed(1_000_000), [0; BURST as usize]);
        assert_eq!(passed(1_000_000 + WINDOW_S - 1), [0; 0]);
        let next = passed(1_000_000 + WINDOW_S);
        assert_eq!(next.len(), BURST as usize);
        assert_eq!(next[0], 1000 - u64::from(BURST) + 1000);
        assert_eq!(passed(5).len(), BURST as usize);
    }
}
