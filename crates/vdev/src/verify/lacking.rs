//! Leaves that have missed the birth of a block: left alone, or given it.

/// What happens to leaves that are known to have missed the birth of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// They are left alone.
    Leave,
    /// They are given the block, which is what a resilver does. What cannot be written to them they go on lacking
    /// ([`crate::Dtl::note_unfilled`]).
    Fill,
}
