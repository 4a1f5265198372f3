//! Volumes for clients of NBD, the network block device.
//!
//! ```text
//!   server.rs      connections, and which disks they use; disk.rs: what is known of these
//!   handshake.rs   what a client and the server agree on: options up to GO or EXPORT_NAME
//!   connection.rs  requests of one client: several threads take them, and answer in any order
//!   commands.rs    what each does to the volume
//!   reply.rs       answers: simple ones, and structured ones in chunks
//!   wire.rs        the numbers of the protocol, and messages of clients, parsed
//! ```
//!
//! Source: the protocol of <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>: the fixed newstyle
//! handshake, structured replies, `base:allocation`. TLS and extended headers are refused by name.
//!
//! Invariants: what a client says is checked before it is used, and takes no memory that `data_budget` does not
//! count; a client that makes no sense loses its connection, and no other client notices.

mod commands;
mod connection;
mod data_budget;
mod disk;
mod handshake;
mod reply;
mod server;
mod wire;

pub use disk::{Disk, Disks};
pub use server::Server;
pub use wire::fuzz;
