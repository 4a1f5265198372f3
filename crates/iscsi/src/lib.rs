//! Disks for initiators of iSCSI: a target for each, with one logical unit.
//!
//! ```text
//!   server.rs       connections, and the logical units that they use; target.rs: what is known of these from outside
//!   login.rs        what an initiator and a target agree on: params.rs: each key; chap.rs: proofs of names; text.rs: keys
//!   parts.rs        what connections share
//!   connection.rs   a connection in its full feature phase: takes PDUs, several threads do what they ask
//!   discovery.rs    a session that only learns of targets: bounded in time and memory; texts.rs: what text requests get
//!   incoming.rs     the order of commands, and the data of writes; outgoing.rs: answers, and their numbers
//!   tasks.rs        commands under way, and their being aborted
//!   pdu.rs          messages: the head of 48 bytes, data, digests
//!   scsi/           what commands mean: a logical unit, its pages, blocks, reservations
//! ```
//!
//! Source: RFC 7143, with error recovery level 0 and one connection a session; SPC-4 and SBC-3.
//!
//! Invariants: what an initiator says is checked before it is used. Its data take no memory that is not counted:
//! `incoming` bounds what is written, a [`export::DataBudget`] what is read. One that makes no sense loses its connection,
//! and no other notices.

mod chap;
mod connection;
mod discovery;
mod fuzz;
mod incoming;
mod login;
mod outgoing;
mod params;
mod parts;
mod pdu;
mod scsi;
mod server;
mod target;
mod tasks;
#[cfg(test)]
mod tests;
mod text;
mod texts;

pub use fuzz::fuzz;
pub use server::IscsiServer;
pub use target::{ANY_INITIATOR, ChapSecrets, Lun, Secret, TargetAccess, Targets};
