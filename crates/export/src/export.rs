//! What the process of a pool knows of an export, whatever protocol it speaks.

use std::time::Duration;

use base::Result;

/// A dataset that is served to programs. It is served from when it is made.
///
/// While the root of the dataset is replaced, it is frozen:
///
/// ```text
///   freeze   what programs have changed is in the old root; what is kept of it outside is forgotten; no request is done
///     ...    the root is another, or still the same
///   thaw     requests are done again, of what has the root by now; those of files that are gone fail with ESTALE
/// ```
pub trait Export: Send + Sync {
    /// The name of the dataset, as it is now.
    fn dataset(&self) -> String;

    /// Whether it serves that dataset: some serve several.
    fn serves(&self, dataset: &str) -> bool {
        self.dataset() == dataset
    }

    /// Where it is served: a mountpoint, or another address.
    fn place(&self) -> String;

    /// Whether it is served still: an administrator may end it by other ways.
    fn is_served(&self) -> bool;

    /// Ends it. Errors: `Busy` if it is in use, unless `force`.
    fn stop(&self, force: bool) -> Result<()>;

    /// Waits until all that programs have asked of it is done, after it has ended; for at most `limit` if there may be
    /// programs yet that it does not see.
    fn settle(&self, _limit: Duration) {}

    /// Takes away what was made for it, after it has ended.
    fn clear(&self) {}

    /// The dataset has another name.
    fn renamed(&self, name: &str);

    /// Whether a change of that dataset may change what it serves.
    fn depends_on(&self, _dataset: &str) -> bool {
        true
    }

    /// A property of the dataset may have another value, or it may have other snapshots. Errors: those of reading them;
    /// it is served as before then.
    fn property_changed(&self) -> Result<()>;

    /// Lets no request be done, as said above. Every call is followed by one of [`Export::thaw`], also if it fails.
    /// Errors: `Unsupported` if it cannot be frozen.
    fn freeze(&self) -> Result<()>;

    /// Lets requests be done again. Errors: those of opening the new root; it can only be stopped then.
    fn thaw(&self) -> Result<()>;

    /// Lets no request be done, so that the process after this one does them. Every call is followed by one of
    /// [`Export::go_on`], if there is to be no such process after all. Errors: it cannot be handed over.
    fn hold(&self) -> Result<()> {
        self.freeze()
    }

    /// What programs write, and the kernel would keep, waits from now on until [`Export::go_on`]. Requests are done.
    fn calm(&self) {}

    /// Has the kernel send what it keeps of writes, while they wait.
    fn flush(&self) {}

    /// Lets no request be done for a moment, in which the root stays. Every call is followed by one of [`Export::go_on`].
    fn park(&self) -> Result<()> {
        self.hold()
    }

    /// Lets requests be done again.
    fn go_on(&self) {
        // the root is the same
        let _ = self.thaw();
    }
}
