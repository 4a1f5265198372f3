//! Requests that come again, since the process that took them died before it answered, and may have been done already.
//!
//! ```text
//!   unlink a ─▶ begun: which object a is ─▶ done ─▶ answered ─▶ forgotten
//!                                           killed
//!   unlink a, with the mark ─▶ a is still that object: do it; it is not: done before, and answered so
//! ```
//!
//! Reads, writes at their place, attributes, holes and copies give the same when they are done twice, and are not noted.

use std::collections::HashMap;

use base::Mutex;
use zpl::ObjectId;

use crate::legacy::{BEGUN, Legacy, NotedFact};
use crate::reply::Reply;
use crate::wire::UNIQUE_RESEND;

/// The requests of one mount that are not to be done twice.
pub(crate) struct Repeats {
    legacy: Legacy,
    /// Those that the process before had begun, by number: what was at the name, and that for the process after this one.
    begun: Mutex<HashMap<u64, (ObjectId, Option<NotedFact>)>>,
}

impl Repeats {
    pub(crate) fn new(legacy: Legacy) -> Repeats {
        let note = |[unique, object]: [u64; 2]| (unique, (ObjectId::new(object), legacy.note(BEGUN, [unique, object])));
        let begun = Mutex::new(legacy.inherited(BEGUN).map(note).collect());
        Repeats { legacy, begun }
    }

    /// A request begins that makes something, as of [`Repeats::begin`]: nothing is at its name.
    pub(crate) fn begin_new(&self, reply: Reply) -> (Reply, Option<ObjectId>) {
        self.begin(reply, || ObjectId::NONE)
    }

    /// A request begins that is not to be done twice, and will be answered by this. `object` says what is at its name, 0
    /// being nothing. If it had begun before, what was at the name then.
    pub(crate) fn begin(&self, reply: Reply, object: impl FnOnce() -> ObjectId) -> (Reply, Option<ObjectId>) {
        if self.legacy.file().is_none() {
            return (reply, None);
        }
        let unique = reply.unique() & !UNIQUE_RESEND;
        let is_again = reply.unique() & UNIQUE_RESEND != 0;
        match is_again.then(|| self.begun.lock().remove(&unique)).flatten() {
            Some((object, noted)) => (reply.noted(noted), Some(object)),
            None => (reply.noted(self.legacy.note(BEGUN, [unique, object().get()])), None),
        }
    }
}
