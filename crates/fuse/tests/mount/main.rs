//! The adapter between a real kernel and trees in memory, and between a real kernel and real pools.
//!
//! These tests need /dev/fuse, and most of them root; where that is not given they say SKIPPED.

mod changed_attributes;
mod contents;
mod corpus;
mod directories;
mod faults;
mod folded;
mod harness;
mod lifecycle;
mod memory;
mod names;
mod permissions;
mod replaced;
mod rights;
mod rules;
mod snapshots;
mod written;
