//! Sending what is no snapshot: a file system that is not mounted, or a volume, as it is now.
//!
//! It is sent from a snapshot that is taken for that, unless nothing changes as the pool can only be read, and goes by
//! the guid of the head and the name `@--head--`, as with OpenZFS: no incremental stream goes on with it.

use base::{Error, Kind, Result};
use dsl::Dataset;
use dsl::resume::ResumeState;
use protocol::datasets::{Failure, Types};
use protocol::streams::SendOrder;

use super::plan::{PlannedStream, failure};
use crate::verbs::around::words;
use crate::verbs::host::Host;
use crate::verbs::now::SnapshotOfNow;
use crate::verbs::query::open;

/// What follows the name of a head in a stream.
const HEAD_SUFFIX: &str = "@--head--";

/// A head that is sent.
pub(super) struct SentHead<'a> {
    head: Dataset,
    now: Option<SnapshotOfNow<'a>>,
}

impl<'a> SentHead<'a> {
    /// The head that is to be sent, if it is one: by its name, or by the token of a stream of it. Errors: why it cannot
    /// be sent.
    pub(super) fn of(host: &'a dyn Host, order: &SendOrder) -> Result<Option<SentHead<'a>>, Failure> {
        let state = order.token.as_ref().and_then(|token| ResumeState::parse(token).ok());
        let name = match &state {
            Some(state) => state.to_name.strip_suffix(HEAD_SUFFIX),
            None => Some(order.to.as_str()).filter(|to| !to.contains('@') && order.token.is_none() && !order.saved),
        };
        let Some(name) = name else { return Ok(None) };
        let cannot = |error: &Error| {
            let why = if error.kind() == Kind::Busy { error.what().to_owned() } else { words(error) };
            failure(name, format!("warning: cannot send '{name}': {why}"))
        };
        let subject = open(host, name, Types { snapshots: false, ..Types::DATASETS })?;
        if order.properties || order.backup || order.holds || order.redact.is_some() {
            let what = "only a snapshot is sent with properties, with holds, or redacted";
            return Err(cannot(&Error::new(Kind::Unsupported, what)));
        }
        let Some(head) = subject.dataset().cloned() else { return Ok(None) };
        if let Some(state) = state.as_ref().filter(|state| state.to_guid != head.phys.guid) {
            let why = format!("'{}' is no longer the same snapshot used in the initial send", state.to_name);
            return Err(failure(name, format!("cannot resume send: {why}")));
        }
        if host.options_of(name).is_some_and(|options| !options.read_only) {
            let what = "target is busy; if a filesystem, it must not be mounted";
            return Err(cannot(&Error::new(Kind::Busy, what)));
        }
        let now = match SnapshotOfNow::take(host, name, "send") {
            Err(error) if error.kind() == Kind::ReadOnly => None,
            now => Some(now.map_err(|error| cannot(&error))?),
        };
        Ok(Some(SentHead { head, now }))
    }

    /// An order that names what is sent in its place.
    pub(super) fn named_in(&self, order: &SendOrder) -> SendOrder {
        let to = self.now.as_ref().map_or(&self.head.name, |now| &now.name);
        SendOrder { to: to.clone(), ..order.clone() }
    }

    /// Lets a stream go by its name and guid.
    pub(super) fn name(&self, stream: &mut PlannedStream) {
        stream.snapshot.name = format!("{}{HEAD_SUFFIX}", self.head.name);
        stream.snapshot.phys.guid = self.head.phys.guid;
        stream.snapshot.phys.creation_time_s = self.head.phys.creation_time_s;
    }
}
