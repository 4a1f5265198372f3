//! Files that lost changes which programs were told are done, as the pool's process died: the next fsync of each fails,
//! once.

use std::sync::atomic::{AtomicBool, Ordering};

use base::{Error, Kind, Mutex};
use zpl::{ObjectId, UntoldLosses};

use crate::legacy::{Legacy, NotedFact, NotedNames};

/// The files of one mount that lost something, and were not told yet.
pub(crate) struct Losses {
    /// With each its fact, for the process after this one.
    untold: Mutex<UntoldLosses<NotedFact>>,
    is_any: AtomicBool,
    /// The kernel may have names that were lost, of directories that lost something.
    has_lost_names: AtomicBool,
    /// Those of them that nobody could find out, for the process after this one.
    names: Mutex<Option<NotedNames>>,
    /// What comes after the kernel has dropped what it had of such files; `None` when it has.
    waiting: Mutex<Option<Vec<DelayedAnswer>>>,
}

/// What gives an answer.
type DelayedAnswer = Box<dyn FnOnce() + Send>;

/// A loss that is being told.
pub(crate) struct ToldLoss(Option<NotedFact>);

impl Losses {
    /// Those of the process before.
    pub(crate) fn new(legacy: &Legacy) -> Losses {
        let lost = legacy.lost();
        let note = |object: &ObjectId| (*object, legacy.note_changed(*object));
        let untold = UntoldLosses::new(lost.changed.iter().map(note), lost.are_all);
        let is_any = AtomicBool::new(untold.are_any());
        let waiting = Mutex::new((!lost.is_empty()).then(Vec::new));
        let (has_lost_names, names) = (AtomicBool::new(!lost.is_empty()), Mutex::new(legacy.note_lost_names()));
        Losses { untold: Mutex::new(untold), is_any, has_lost_names, names, waiting }
    }

    /// Does `work` when the kernel has dropped what it had of files that lost something: a program that is told of a loss
    /// is to find what is there, and not what was.
    pub(crate) fn when_dropped(&self, work: impl FnOnce() + Send + 'static) {
        let mut waiting = self.waiting.lock();
        match &mut *waiting {
            Some(list) => list.push(Box::new(work)),
            None => {
                drop(waiting);
                work();
            }
        }
    }

    /// The kernel has dropped that, as far as it can be told.
    pub(crate) fn dropped(&self) {
        let waiting = self.waiting.lock().take();
        waiting.into_iter().flatten().for_each(|work| work());
    }

    /// What is to be told of a file, once, in the place of how its sync ended. An answer that cannot wait until the kernel has
    /// dropped what it had is told again then.
    pub(crate) fn tell(&self, object: ObjectId, may_wait: bool) -> Option<ToldLoss> {
        if !self.is_any.load(Ordering::Relaxed) {
            return None;
        }
        match may_wait || self.waiting.lock().is_none() {
            true => self.untold.lock().take(object).map(ToldLoss),
            false => self.untold.lock().contains(object).then_some(ToldLoss(None)),
        }
    }

    /// The same for a directory. While the kernel has names that were lost it is told each time: that cannot wait, as the
    /// kernel drops no name of a directory that is being synced.
    pub(crate) fn tell_of_names(&self, object: ObjectId) -> Option<ToldLoss> {
        match self.has_lost_names.load(Ordering::SeqCst) {
            true => self.untold.lock().contains(object).then_some(ToldLoss(None)),
            false => self.tell(object, true),
        }
    }

    /// The kernel asks again for the names that it had of directories that lost something.
    pub(crate) fn names_expired(&self) {
        self.has_lost_names.store(false, Ordering::SeqCst);
        self.names.lock().take();
    }

    /// A file was made, which may have the number of one that lost something.
    pub(crate) fn made(&self, object: ObjectId) {
        if self.is_any.load(Ordering::Relaxed) {
            self.untold.lock().take(object);
        }
    }
}

impl ToldLoss {
    /// What is answered, and the fact, which holds until it is: if this process dies before, the next one tells it.
    pub(crate) fn into_answer(self) -> (Error, Option<NotedFact>) {
        (Error::new(Kind::Io, "changes of it were lost when the pool's process died"), self.0)
    }
}
