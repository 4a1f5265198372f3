//! The exports of an imported pool: what serves its datasets, whatever protocol it speaks.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use base::{Error, Kind, Mutex, Result};
use export::Export;
use fuse::SETTLE_MAX;

use crate::verbs::is_at_or_below_name;

/// The exports, in the order in which they began.
#[derive(Default)]
pub struct Exports(Mutex<Vec<Arc<dyn Export>>>);

impl Exports {
    /// A dataset is served from now on.
    pub fn add(&self, export: Arc<dyn Export>) {
        self.0.lock().push(export);
    }

    /// Ends the last one of a dataset, which is not cleared. Errors: `NotFound` if it is not served; `Busy`, unless
    /// `force`.
    pub fn stop(&self, dataset: &str, force: bool) -> Result<Arc<dyn Export>> {
        let export = self.of(dataset).pop();
        let export = export.ok_or_else(|| Error::new(Kind::NotFound, "not currently mounted").in_dataset(dataset))?;
        export.stop(force)?;
        self.remove(&export);
        settle(std::slice::from_ref(&export), force);
        Ok(export)
    }

    /// Ends all, the last one first, up to the first that cannot be. Errors: where that is, and why: `Busy`.
    ///
    /// They are cleared when none is left, and only what lay in none of them: a folder that a file system was mounted on
    /// stays in the one above, where it may be mounted next time, and cannot be made if that is read-only then.
    pub fn stop_all(&self, force: bool) -> Result<(), (String, Error)> {
        self.stop_all_while(force, &|| true)
    }

    /// The same, as long as `goes_on` says so. Errors: likewise; `Interrupted`, and what is served yet.
    pub fn stop_all_while(&self, force: bool, goes_on: &dyn Fn() -> bool) -> Result<(), (String, Error)> {
        let mut ended = Vec::new();
        let outcome = loop {
            let Some(last) = self.0.lock().last().cloned() else { break Ok(()) };
            if !goes_on() {
                break Err((last.place(), Error::new(Kind::Interrupted, "it is served yet")));
            }
            if let Err(error) = last.stop(force) {
                break Err((last.place(), error));
            }
            self.remove(&last);
            ended.push(last);
        };
        settle(&ended, force);
        outcome?;
        let mut outermost = HashSet::new();
        // the outer ones began first
        ended.reverse();
        ended.retain(|export| {
            let place = PathBuf::from(export.place());
            !place.ancestors().any(|outer| outermost.contains(outer)) && outermost.insert(place)
        });
        for export in ended.iter().rev() {
            export.clear();
        }
        Ok(())
    }

    /// A dataset, and those below it, have another name now.
    pub fn renamed(&self, from: &str, to: &str) {
        for export in self.all() {
            let name = export.dataset();
            if is_at_or_below_name(&name, from) {
                export.renamed(&format!("{to}{}", &name[from.len()..]));
            }
        }
    }

    /// Properties of datasets may have other values, or they have other snapshots.
    pub fn properties_changed(&self) {
        self.tell_changed(&|_| true);
    }

    /// Those of some datasets, and of what inherits from them.
    pub fn properties_changed_of(&self, datasets: &[&str]) {
        self.tell_changed(&|export| datasets.iter().any(|dataset| export.depends_on(dataset)));
    }

    fn tell_changed(&self, is_about: &dyn Fn(&dyn Export) -> bool) {
        for export in self.all().into_iter().filter(|export| is_about(&**export)) {
            if let Err(error) = export.property_changed()
                && export.is_served()
            {
                tracing::warn!(dataset = export.dataset(), "it is served as before: {error}");
            }
        }
    }

    /// Freezes what serves a dataset while `work` may replace its root. Errors: `Unsupported` if it cannot be frozen,
    /// and nothing was done then; those of `work`. What cannot be opened again under its new root is served no more.
    pub fn frozen<T>(&self, dataset: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let exports: Vec<_> =
            self.all().into_iter().filter(|export| export.serves(dataset) && export.is_served()).collect();
        let done = exports.iter().try_for_each(|export| export.freeze()).and_then(|()| work());
        thaw(exports);
        done
    }

    /// Lets no request be done, so that the process after this one does them. Errors: what cannot be handed over; then
    /// [`Exports::go_on_all`] is to follow.
    pub fn hold_all(&self) -> Result<()> {
        self.all().iter().filter(|export| export.is_served()).try_for_each(|export| export.hold())
    }

    /// Has writes wait that programs begin and kernels would keep, until [`Exports::go_on_all`].
    pub fn calm_all(&self) {
        self.all().iter().filter(|export| export.is_served()).for_each(|export| export.calm());
    }

    /// Has kernels send what they keep of writes, while these wait.
    pub fn flush_all(&self) {
        self.all().iter().filter(|export| export.is_served()).for_each(|export| export.flush());
    }

    /// Lets no request be done for a moment, until [`Exports::go_on_all`]. Errors: what cannot wait.
    pub fn park_all(&self) -> Result<()> {
        self.all().iter().filter(|export| export.is_served()).try_for_each(|export| export.park())
    }

    /// Lets requests be done again.
    pub fn go_on_all(&self) {
        self.all().iter().for_each(|export| export.go_on());
    }

    /// Freezes all that can be frozen while `work` runs: what kernels have in memory of it they forget.
    pub fn all_forgotten<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let exports: Vec<_> = self.all().into_iter().filter(|export| export.is_served()).collect();
        for export in &exports {
            if let Err(error) = export.freeze() {
                tracing::info!(dataset = export.dataset(), "what is in memory of it stays there: {error}");
            }
        }
        let done = work();
        thaw(exports);
        done
    }

    /// Whether a dataset is served.
    pub fn has(&self, dataset: &str) -> bool {
        !self.of(dataset).is_empty()
    }

    /// Those of a dataset that are served still.
    fn of(&self, dataset: &str) -> Vec<Arc<dyn Export>> {
        self.all().into_iter().filter(|export| export.dataset() == dataset && export.is_served()).collect()
    }

    fn all(&self) -> Vec<Arc<dyn Export>> {
        self.0.lock().clone()
    }

    /// One that has ended is none any more.
    pub fn remove(&self, ended: &Arc<dyn Export>) {
        self.0.lock().retain(|export| !Arc::ptr_eq(export, ended));
    }
}

/// Waits for what has ended, all together for no longer than for one: a container may have a copy of every mount.
fn settle(ended: &[Arc<dyn Export>], force: bool) {
    let began = Instant::now();
    for export in ended.iter().filter(|_| !force) {
        export.settle(SETTLE_MAX.saturating_sub(began.elapsed()));
    }
}

/// Lets what serves datasets go on; what cannot is served no more.
fn thaw(exports: Vec<Arc<dyn Export>>) {
    for export in exports {
        if let Err(error) = export.thaw() {
            tracing::error!(
                dataset = export.dataset(),
                place = export.place(),
                "the new root cannot be opened: {error}"
            );
            if let Err(error) = export.stop(true) {
                tracing::error!(dataset = export.dataset(), place = export.place(), "it cannot be stopped: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// An export that notes what is asked of it.
    struct Noted {
        dataset: Mutex<String>,
        calls: Arc<Mutex<Vec<String>>>,
        /// Which call fails.
        fails: &'static str,
    }

    impl Noted {
        fn call(&self, call: &str) -> Result<()> {
            self.calls.lock().push(format!("{call} {}", self.dataset.lock()));
            match call == self.fails {
                true => Err(Error::new(Kind::Busy, "no")),
                false => Ok(()),
            }
        }
    }

    impl Export for Noted {
        fn dataset(&self) -> String {
            self.dataset.lock().clone()
        }

        fn place(&self) -> String {
            format!("/{}", self.dataset.lock())
        }

        fn is_served(&self) -> bool {
            self.fails != "is_served"
        }

        fn stop(&self, force: bool) -> Result<()> {
            self.call(if force { "force" } else { "stop" })
        }

        fn settle(&self, _: Duration) {
            self.call("settle").unwrap();
        }

        fn clear(&self) {
            self.call("clear").unwrap();
        }

        fn renamed(&self, name: &str) {
            name.clone_into(&mut self.dataset.lock());
        }

        fn property_changed(&self) -> Result<()> {
            self.call("property_changed")
        }

        fn freeze(&self) -> Result<()> {
            self.call("freeze")
        }

        fn thaw(&self) -> Result<()> {
            self.call("thaw")
        }
    }

    fn exports(list: &[(&str, &'static str)]) -> (Exports, Arc<Mutex<Vec<String>>>) {
        let (exports, calls) = (Exports::default(), Arc::<Mutex<Vec<String>>>::default());
        for (dataset, fails) in list {
            let dataset = Mutex::new((*dataset).to_owned());
            exports.add(Arc::new(Noted { dataset, calls: calls.clone(), fails }));
        }
        (exports, calls)
    }

    #[test]
    fn the_last_one_ends_first() {
        let (exports, calls) = exports(&[("t/a", ""), ("t/b", "stop"), ("t/a", ""), ("t/c", "")]);
        exports.stop("t/a", false).unwrap().clear();
        assert_eq!(exports.stop("t/none", false).err().unwrap().kind(), Kind::NotFound);
        assert_eq!(exports.stop_all(false).unwrap_err().0, "/t/b");
        assert_eq!(exports.stop_all_while(true, &|| false).unwrap_err().1.kind(), Kind::Interrupted);
        exports.stop_all(true).unwrap();
        let calls = calls.lock().join(", ");
        assert_eq!(
            calls,
            "stop t/a, settle t/a, clear t/a, stop t/c, stop t/b, settle t/c, force t/b, force t/a, clear t/b, clear t/a"
        );
        let (exports, calls) = self::exports(&[("t", ""), ("t/a/b", ""), ("u", "")]);
        exports.stop_all(false).unwrap();
        assert_eq!(
            calls.lock().join(", "),
            "stop u, stop t/a/b, stop t, settle u, settle t/a/b, settle t, clear u, clear t"
        );
        assert!(exports.stop_all(false).is_ok());
    }

    #[test]
    fn names_follow_a_rename() {
        let (exports, _) = exports(&[("t/a", ""), ("t/a/b", ""), ("t/a@s", ""), ("t/ab", "")]);
        exports.renamed("t/a", "t/x/y");
        let names: Vec<String> = exports.all().iter().map(|export| export.dataset()).collect();
        assert_eq!(names, ["t/x/y", "t/x/y/b", "t/x/y@s", "t/ab"]);
    }

    #[test]
    fn what_was_frozen_is_thawed_whatever_happens() {
        let failing = || Err::<(), _>(Error::new(Kind::Io, "no"));
        let (frozen, calls) = exports(&[("t/a", ""), ("t/b", ""), ("t/a", "is_served")]);
        assert_eq!(frozen.frozen("t/a", || Ok(7)).unwrap(), 7);
        assert_eq!(frozen.frozen("t/a", failing).unwrap_err().kind(), Kind::Io);
        assert_eq!(*calls.lock(), ["freeze t/a", "thaw t/a", "freeze t/a", "thaw t/a"]);
        // one cannot be frozen: nothing is done
        let (frozen, calls) = exports(&[("t/a", ""), ("t/a", "freeze")]);
        let mut is_done = false;
        let done = frozen.frozen("t/a", || {
            is_done = true;
            Ok(())
        });
        assert!(done.unwrap_err().kind() == Kind::Busy && !is_done);
        assert_eq!(*calls.lock(), ["freeze t/a", "freeze t/a", "thaw t/a", "thaw t/a"]);
        // one cannot be opened again
        let (frozen, calls) = exports(&[("t/a", "thaw")]);
        frozen.frozen("t/a", || Ok(())).unwrap();
        assert_eq!(*calls.lock(), ["freeze t/a", "thaw t/a", "force t/a"]);
    }
}
