//! What waits to be done in the thread that syncs groups, in four lists: see `tasks`.

use base::Mutex;

/// Tasks of kind `T`, and what they have begun.
pub(super) struct TaskLists<T, E> {
    /// Before anything of the group is freed.
    pub(super) first: Mutex<Vec<T>>,
    /// When heads have been written once.
    pub(super) others: Mutex<Vec<T>>,
    /// When all heads are written, behind the endings.
    pub(super) last: Mutex<Vec<T>>,
    /// What tasks of this group have begun, and is to be ended in it.
    pub(super) endings: Mutex<Vec<E>>,
}

impl<T, E> Default for TaskLists<T, E> {
    fn default() -> TaskLists<T, E> {
        let (first, others, last, endings) = Default::default();
        TaskLists { first, others, last, endings }
    }
}

impl<T, E> TaskLists<T, E> {
    /// Gives up all: threads that wait for one get an error.
    pub(super) fn clear(&self) {
        [&self.first, &self.others, &self.last].iter().for_each(|tasks| tasks.lock().clear());
        self.endings.lock().clear();
    }
}
