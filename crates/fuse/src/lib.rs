//! File systems and snapshots mounted through FUSE: a thin adapter between the kernel and a [`FileTree`].
//!
//! Above it is the pool process, which hands in a [`Source`] for each dataset and keeps the
//! [`Mount`]. Below it is `zpl`, whose `Zpl` is the [`FileTree`]; the traits exist so that the adapter
//! can be tested without a pool, and so that `.zfs` is written once.
//!
//! ```text
//!   kernel  /dev/fuse        device.rs   open, mount(2) or fusermount3, unmount; point.rs: mountpoints
//!     |  one request             |
//!     |                      helper.rs   a process of its own: what must not be done by the one that serves mounts
//!     |                      keeper.rs   what outlives that one; legacy.rs, repeats.rs, losses.rs: what the next one does
//!     |                          |
//!   channel.rs wire.rs       serve.rs    handshake, threads; export::Turns: whose turn; follow.rs: how it waits
//!     |                      mount.rs     is it mounted, unmount, wait; life.rs: how far it has come
//!     |                          |
//!   session.rs               the table of requests; negotiated.rs: what was agreed on with the kernel
//!     |                          |       export::Parking: requests that wait for a suspended pool
//!   names.rs list.rs         requests of names: finding and changing them; directories
//!   contents.rs              of contents: files and symbolic links
//!   attributes.rs xattr.rs   of attributes, and extended ones; flags.rs: chattr(1) and projects
//!     |                          |
//!   entries.rs reply.rs      what the kernel is told, and for how long that holds; faults.rs: what went wrong
//!   told_lately.rs           attributes that hold until a group is on disk
//!   known.rs lookup_counts.rs  which nodes it knows, and when an orphan goes
//!   opened.rs accesses.rs    open files; times of last accesses
//!   freezer.rs               how the root is replaced by another
//!   asker.rs                 the task that asks: its groups and capabilities
//!   set_ids.rs notifier.rs   which changes take set-id bits and capabilities away; what it is told unasked
//!     |                          |
//!   trees.rs node.rs         the trees of a mount; node id <-> (tree, object)
//!     |        \
//!   tree.rs    snapshots.rs  what is mounted; .zfs/snapshot, opened when used
//! ```
//!
//! What keeps it fast: the kernel may keep names, attributes, symlinks, directory listings and file data
//! for as long as it likes, and names that do not exist, too, as either nothing changes or all changes
//! come through the same mount; directories are opened and closed without a request, files are not, as only an open can
//! refuse what programs store into mappings; node ids say by themselves which object is meant. In a read-only mount nothing is counted and nothing
//! forgotten; in a writable one the kernel's uses of each object are counted, so that one without a name
//! goes with its last user.
//!
//! What changes a mounted tree by another way has to tell: [`Mount::invalidate`]. While its root is replaced by another,
//! as a rollback does, it is frozen: [`Mount::freeze`].
//!
//! Locks, permissions and the sticky bit are the kernel's own: no request is made for them.
//!
//! What is not there: sync(2) and syncfs(2) (the kernel sends them to virtiofs, and some kernels to `fuseblk`, of which each
//! mount holds a block device of its own; for all others it writes back what it keeps, and that is all), and NFSv4 ACLs as a rule for access (the kernel only knows mode bits and POSIX ACLs).
//! Whether it knows those, too, is said once: it always does, and is told of no ACLs as long as `acltype` is not `posix`.

mod accesses;
mod asker;
mod attr;
mod attributes;
mod cache;
mod channel;
mod contents;
mod device;
mod entries;
mod faults;
mod flags;
mod follow;
mod freezer;
mod helper;
mod keeper;
mod known;
mod legacy;
mod life;
mod lifetimes;
mod list;
mod lobby;
mod lookup_counts;
mod losses;
mod messages;
mod mount;
mod mountinfo;
mod names;
mod negotiated;
mod node;
mod notifier;
mod opened;
mod options;
mod point;
mod repeats;
mod reply;
mod request_counts;
mod ring_slot;
mod ring_threads;
mod rings;
mod room;
mod serve;
mod session;
mod set_ids;
mod snapshots;
mod stand_in;
mod statfs;
mod told_lately;
mod tree;
mod trees;
mod visit;
mod visits;
mod wire;
mod write_back;
mod xattr;

pub use flags::Project;
pub use helper::{Helper, NO_HELPER, help};
pub use keeper::{Inheritance, InheritedMount, KeptFiles, RevivalPlan};
pub use legacy::LostObjects;
pub use mount::{AdoptedMount, Mount, SETTLE_MAX, adopt, clear_dead_mounts, mount, unmount_all};
pub use mountinfo::{MountInfo, MountTable, all as all_mounts};
pub use node::object_of;
pub use options::{Direct, MountOptions, SnapDir, Transport, Unmount, WriteBackCache};
pub use point::{NO_MOUNTPOINT, folder_to_mount_at};
pub use request_counts::request_counts;
pub use rings::close_request_rings;
pub use stand_in::StandIn;
pub use tree::{DatasetSpace, FileTree, ProjectSpace, Snapshot, SnapshotEdit, Source, TreeFile};
pub use wire::fuzz;
pub use zpl::{Allocate, New, NewKind, RenameMode, SetAttr, SetFlags, SetTime, Whiteout, XattrMode};
