//! What must not unwind.

/// Runs `f`; if it panics, the process ends at once. For threads whose work others wait for, and for memory that
/// somebody else writes to until `f` has returned.
pub fn or_abort<R>(f: impl FnOnce() -> R) -> R {
    let abort = AbortOnDrop;
    let result = f();
    std::mem::forget(abort);
    result
}

struct AbortOnDrop;

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        // the panic has said what and where
        std::process::abort();
    }
}
