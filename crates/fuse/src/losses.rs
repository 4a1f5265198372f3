//! Files that lost changes which programs were told are done, as the pool's process died: the next fsync of each fails,
//! once.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Error, Kind, Mutex, Result};
use zpl::ObjectId;

use crate::legacy::{Legacy, NotedFact};

/// The files of one mount that lost something, and were not told yet.
pub(crate) struct Losses {
    untold: Mutex<UntoldLosses>,
    is_any: AtomicBool,
}

struct UntoldLosses {
    /// With each its fact, for the process after this one.
    objects: HashMap<ObjectId, Option<NotedFact>>,
    /// All files may have lost something but these, which were told.
    all_but: Option<HashSet<ObjectId>>,
}

impl Losses {
    /// Those of the process before.
    pub(crate) fn new(legacy: &Legacy) -> Losses {
        let lost = legacy.lost();
        let note = |object: &ObjectId| (*object, legacy.note_changed(*object));
        let untold =
            UntoldLosses { objects: lost.changed.iter().map(note).collect(), all_but: lost.are_all.then(HashSet::new) };
        let is_any = AtomicBool::new(!untold.objects.is_empty() || untold.all_but.is_some());
        Losses { untold: Mutex::new(untold), is_any }
    }

    /// A sync of an object has this result; it fails if the object lost something before. Errors: `Io`, once.
    pub(crate) fn told<T>(&self, object: ObjectId, done: Result<T>) -> Result<T> {
        if !self.is_any.load(Ordering::Relaxed) {
            return done;
        }
        match self.untold.lock().take(object) {
            true => Err(Error::new(Kind::Io, "changes of it were lost when the pool's process died")),
            false => done,
        }
    }

    /// A file was made, which may have the number of one that lost something.
    pub(crate) fn made(&self, object: ObjectId) {
        if self.is_any.load(Ordering::Relaxed) {
            self.untold.lock().take(object);
        }
    }
}

impl UntoldLosses {
    /// Whether an object lost something and was not told; it is taken to be told then.
    fn take(&mut self, object: ObjectId) -> bool {
        let is_known = self.objects.remove(&object).is_some();
        self.all_but.as_mut().is_some_and(|told| told.insert(object)) || is_known
    }
}
