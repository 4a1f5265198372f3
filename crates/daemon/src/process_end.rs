//! Why the process of a pool ends.

/// Why a pool process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// The pool was exported: nothing is mounted any more.
    Exported,
    /// It was handed over to another program.
    HandedOver,
    /// A signal.
    Signal,
}
