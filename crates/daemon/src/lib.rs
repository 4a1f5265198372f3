//! The process of an imported pool.
//!
//! ```text
//!   zpool import, create ── protocol::startup ──▶ cenote serve ──┬── opens the pool, locks its devices
//!                                                                ├── mounts: FUSE, threads of its own
//!   zpool, zfs ── protocol::client ──────▶ socket ───────────────┴── server: a thread a connection ── served: answers
//! ```
//!
//! - `process`: its life; [`mod@import`]: how it gets its pool; `served`: the state; [`live`]: the pool in it, for reading or
//!   for writing; `server`: connections; `stranger_share`: what users may take together that only ask.
//! - [`verbs`]: what `zfs` asks; [`report`]: what `zpool` asks; `mounts`, `source`: what is mounted, by [`mount_plan`];
//!   [`exports`]: all that serves its datasets.
//! - [`volumes`]: those that are open; `volume_mount`, `volume_tree`: volumes as files; `nbd_export`: by NBD; `iscsi_export`:
//!   by iSCSI; `vhost_export`: to virtual machines; `block_export`: as block devices, which `block_helper` sets up;
//!   `volume_exports`: all of these; `disk_listening`: a server of them that
//!   listens; `network_door`: at addresses of the network, with sockets from [`listen_helper`], which opens all that the
//!   process may not; `openable`: what that is; `volume_handle`: one that an export has open; `volume_losses`: what they lost with a process; `volume_offers`: which
//!   properties offer; `host_files`: files that properties name; [`new_contents`]: what is in a new dataset.
//! - [`locks`]: against a second opener; [`cachefile`]: what property `cachefile` asks for; `host_state`: whose pools are this
//!   host's own; [`host_rule`]: what counts as set here; [`hostid`]: this host's id; [`pool_props`], [`compat`]: what pool properties may be.
//! - `injections`: faults that `zinject` asks for; `process_end`: why the process ends.
//! - [`leftovers`]: clearing up after a process that was killed; [`mount_helper`]: what does all that
//!   happens at mountpoints, so that a process that is killed never waits for itself; `confine`: what the process gives
//!   up; `descriptors`: how many files may be open; [`panics`]: what a panic does; `log`: what the process has to tell.
//!
//! Killing the process is a power cut for its pool, and for nobody else. SIGTERM and SIGINT end it in
//! order: everything is unmounted first.

mod block_export;
mod block_helper;
pub mod cachefile;
pub mod compat;
mod confine;
mod descriptors;
mod disk_listening;
pub mod exports;
mod file_room;
mod files_version;
mod histories;
mod host_files;
pub mod host_rule;
mod host_state;
pub mod hostid;
pub mod import;
mod injections;
mod iscsi_access;
mod iscsi_export;
pub mod leftovers;
pub mod listen_helper;
pub mod live;
pub mod locks;
mod log;
pub mod mount_helper;
pub mod mount_plan;
mod mounts;
mod nbd_export;
mod network_door;
pub mod new_contents;
mod openable;
pub mod panics;
pub mod pool_props;
mod process;
mod process_end;
pub mod report;
mod revival;
mod served;
mod server;
mod share;
mod source;
mod stranger_share;
mod streams;
mod taps;
mod told;
pub mod verbs;
mod vhost_export;
mod volume_exports;
mod volume_handle;
mod volume_losses;
mod volume_mount;
mod volume_offers;
mod volume_tree;
pub mod volumes;
pub mod zedlets;

pub use file_room::FileRoom;
pub use process::{create, import, revive, stand_in};
