//! File systems and snapshots mounted through FUSE: a thin adapter between the kernel and a [`Tree`].
//!
//! Above it is the pool process, which hands in a [`Source`] for each dataset and keeps the
//! [`Mount`]. Below it is `zpl`, whose `Zpl` is the [`Tree`]; the traits exist so that the adapter
//! can be tested without a pool, and so that `.zfs` is written once.
//!
//! ```text
//!   kernel  /dev/fuse        device.rs   open, mount(2) or fusermount3, unmount
//!     |  one request             |
//!   fuser threads            mount.rs    Mount: threads, is it mounted, unmount, wait
//!     |                          |
//!   session.rs               one short function per request; replies, errno
//!     |        \
//!   list.rs   find.rs        directories; names
//!     |        /
//!   node.rs                  node id <-> (tree, object)
//!     |        \
//!   tree.rs    snapshots.rs  what is mounted; .zfs/snapshot, opened when used
//! ```
//!
//! What keeps it fast, as a read-only pool never changes: the kernel may keep names, attributes,
//! symlinks, directory listings and file data for as long as it likes, and names that do not exist,
//! too; files and directories are opened and closed without a request; node ids say by themselves
//! which object is meant, so nothing is counted and nothing forgotten.
//!
//! What is not there: birth times (`fuser` 0.18 does not know the statx request; every other way to
//! read a pool shows them), NFSv4 ACLs as a rule for access (the kernel only knows mode bits and
//! POSIX ACLs), and writing.

mod attr;
mod cache;
mod device;
mod find;
mod flood;
mod list;
mod mount;
mod mountinfo;
mod node;
mod options;
mod session;
mod snapshots;
mod statfs;
mod tree;

pub use mount::{Mount, mount};
pub use options::{MountOptions, SnapDir, Unmount};
pub use tree::{Snapshot, Source, Space, Tree, TreeFile};
