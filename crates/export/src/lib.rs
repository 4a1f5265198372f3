//! What all exports share. An export makes a dataset usable by programs that know nothing of ZFS: as files that the
//! kernel mounts (`fuse`), or as a disk (`zvol`: a file below a mount; `nbd`).
//!
//! ```text
//!   export.rs    what the process of a pool knows of an export: `Export`
//!   server.rs    what it knows of a server of disks: `DiskServer`
//!   serving.rs   the threads that serve one connection, and that which sends late answers
//!   turns.rs     several threads take requests from one connection: which of them takes the next one
//!   looks.rs     whether that one looks for it before it sleeps
//!   parking.rs   requests that fail because the pool is suspended wait, outside of the threads that take requests
//!   gate.rs      no request is done while the root of the dataset is replaced
//!   socket.rs    the socket of a client, at this machine or by network
//!   client.rs    what a client of a disk has asked for
//!   host_file.rs files of the host that properties name
//!   budget.rs    how much memory the data of a client's requests may take
//! ```
//!
//! Nothing here knows a protocol or an object set.

mod budget;
mod client;
mod export;
mod gate;
mod host_file;
mod looks;
mod parking;
mod room;
mod server;
mod serving;
mod socket;
mod turns;

pub use budget::{DataBudget, DataGrant};
pub use client::{ClientCounters, ClientSums, ServedClient};
pub use export::Export;
pub use gate::{Gate, Passage};
pub use host_file::{FileRights, read_host_file};
pub use looks::Looks;
pub use parking::Parking;
pub use room::{ConnectedClient, make_room};
pub use server::DiskServer;
pub use serving::{LateAnswers, ServedConnection, serve};
pub use socket::{ClientSocket, is_ready, process_name, write_slices};
pub use turns::{Seat, Turns};
