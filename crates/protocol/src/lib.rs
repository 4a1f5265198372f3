//! What the process of an imported pool and its clients have in common: messages, reports, and how both ends meet.
//!
//! ```text
//!   zpool, zfs ── client ──▶ socket below rundir, wire ──▶ the pool's process
//!                 startup: how that process is started, and tells how it goes
//! ```
//!
//! - [`wire`]: messages and their framing; [`beside`]: descriptors beside them; [`datasets`]: messages about datasets.
//! - [`pool_report`], [`io_report`], [`log_report`], [`profile_report`], [`client_report`]: what a process tells of its pool, facts and not text;
//!   [`pool_properties`]: what `zpool list` and `get` show of it.
//! - [`injections`]: faults of pools in use.
//! - [`create`]: a pool to be made; [`cut`]: snapshots of many pools at one moment.
//! - [`pool_names`]: what pools may be called.
//! - [`kstat`]: counters as files.
//! - [`lists`]: names in requests, bounded and distinct.
//! - [`rundir`]: where sockets and logs are; [`client`]: asking; [`startup`]: starting a process.
//! - [`owners`]: users and groups by name; [`words`]: numbers, times and errors for people.

mod answer_parts;
pub mod beside;
pub mod client;
pub mod client_report;
pub mod create;
pub mod cut;
pub mod datasets;
pub mod diff;
mod ended;
pub mod injections;
pub mod io_report;
pub mod kstat;
pub mod lists;
pub mod log_report;
pub mod owners;
pub mod pool_names;
pub mod pool_properties;
pub mod pool_report;
pub mod profile_report;
pub mod rundir;
pub mod share;
pub mod startup;
pub mod streams;
pub mod tap;
pub mod vdev_properties;
pub mod volumes;
mod wanted;
pub mod wire;
pub mod words;
