//! Volumes for clients of NBD, the network block device.
//!
//! ```text
//!   server.rs      connections, and which disks they use; disk.rs: what is known of these
//!   handshake.rs   what a client and the server agree on: options up to GO or EXPORT_NAME
//!   connection.rs  requests of one client: several threads take them, and answer in any order
//!   commands.rs    what each does to the volume
//!   reply.rs       answers: simple ones, and structured ones in chunks
//!   stream.rs      the bytes of a client, by TLS if that is asked for; tls.rs: certificates, sessions
//!   kernel.rs      the kernel's own client: block devices, by netlink
//!   wire.rs        the numbers of the protocol, and messages of clients, parsed
//! ```
//!
//! Source: the protocol of <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>: the fixed newstyle
//! handshake, structured replies, `base:allocation`, TLS, and extended headers.
//!
//! Invariants: what a client says is checked before it is used, and takes no memory that a [`export::DataBudget`] does not
//! count; a client that makes no sense loses its connection, and no other client notices.

mod commands;
mod connection;
mod disk;
mod handshake;
mod kernel;
mod reply;
mod server;
mod stream;
mod tls;
mod wire;

pub use disk::{Disk, Disks};
pub use kernel::{KernelDevice, KernelNbd};
pub use server::NbdServer;
pub use tls::Tls;
pub use wire::fuzz;
