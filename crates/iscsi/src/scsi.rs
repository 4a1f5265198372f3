//! What commands mean: the logical unit of a target, as SPC-4 and SBC-3 have it.
//!
//! ```text
//!   unit.rs         the logical unit, and the nexuses of initiators with it
//!   command.rs      a command under way; commands.rs: which there are, what each may say, what it conflicts with
//!   blocks.rs       reading, writing, comparing; provision.rs: what lets go of blocks
//!   pages.rs        INQUIRY and its pages, MODE SENSE; reports.rs: what else tells of the unit
//!   persist.rs      the commands for reservations; reservations.rs: these, and their text
//!   sense.rs        why a command fails
//! ```

mod blocks;
mod command;
mod commands;
mod pages;
mod persist;
mod provision;
mod reports;
mod reservations;
mod sense;
mod unit;

pub(crate) use commands::{count, fuzz, memory_of, perform, refused};
pub(crate) use reservations::fuzz_reservations;
pub(crate) use sense::Sense;
pub(crate) use unit::{AbortTasks, LogicalUnit, Nexus};
