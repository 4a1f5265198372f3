//! Hostile pools, opened as an administrator opens a stranger's disk: nothing outside the named folder changes.
//!
//! ```text
//!   DIR/outside     canaries: files, folders, a disk (a loop device)    must stay as they are
//!   DIR/in          where pools are mounted and copied to               theirs
//! ```
//!
//! Each pool is made by the program itself, then forged: a field is changed, and all checksums up to the
//! uberblock are made right again ([`testkit::seal`]). Everything happens in a mount namespace of its own, and
//! what is mounted elsewhere than below `DIR/in` is a broken canary, too.
//!
//! Needs root and /dev/fuse, or user namespaces; what needs more is skipped, loudly.

mod copies;
mod growth;
mod legacy;
mod mounts;
mod users;
mod world;
