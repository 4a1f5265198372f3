//! When a change waits for the log.

/// When changes are brought to disk, beside with their group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// When it is asked for.
    #[default]
    Standard,
    /// Before an operation returns.
    Always,
    /// Never, even if it is asked for.
    Disabled,
}
