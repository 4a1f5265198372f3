//! Requests that fail: their errno, and what is logged of them.
//!
//! There is a limit on messages ([`LogLimit`]), for each file system its own.

use std::sync::Arc;

use base::{Env, Error, Kind, LogLimit, Result};

use crate::node::NodeId;
use crate::reply::Reply;
use crate::tree::Source;
use crate::trees::Trees;

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
        self.env.failpoint("reply");
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
