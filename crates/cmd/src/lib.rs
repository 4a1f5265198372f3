//! The `cenote` program: one binary, many names.
//!
//! ```text
//!   cenote ls ...      ─┐
//!   cenote zpool ...    ├─▶ commands (the table) ─▶ offline | inspect | bench | top | exporter | zdb | zpool | zfs | serve
//!   zpool ... (a link) ─┘
//! ```
//!
//! - [`commands`]: the table of commands and how one is chosen.
//! - [`offline`], [`inspect`], [`zdb`]: read images directly, without a pool process.
//! - [`zilstat`]: asks pool processes what they log.
//! - [`volumes`]: how programs get at volumes.
//! - [`reflink`]: copies that share blocks; [`cut`]: snapshots of many pools at one moment.
//! - [`exporter`]: tells Prometheus what they count, [`top`] and [`analytics`] show it; [`http`]: the server of pages.
//! - [`mod@bench`]: measures file systems and devices; [`advise`]: says what would pay; [`emulate`]: serves files as slow as
//!   disks; [`traces`]: traces of requests; [`lab`]: runs studies, and writes a report; [`chart`]: what they draw with.
//! - [`zpool`], [`zfs`]: clients of a pool's process; [`serve`]: becomes that process ([`daemon`]).
//! - [`mount_zfs`]: what mount(8) runs.
//! - [`version`]: which program this is.
//! - [`zgenhostid`]: gives the machine an id.
//! - [`zinject`]: lets devices and blocks go wrong.
//! - [`distinct`]: samples of different things; [`dedup_survey`]: of a pool's blocks.
//! - [`processors`]: how busy this machine is.
//! - [`tools`]: programs of others that are asked.
//! - [`output`], [`histogram`], [`protocol::words`]: what several print with; [`getopt`]: how `zpool` and `zfs` read their command
//!   lines.
//! - [`fuzzing`]: what fuzzers ask for.

/// In the place of the standard library's, which panics if standard output cannot be written.
macro_rules! print {
    ($($arg:tt)*) => { $crate::output::print(format_args!($($arg)*)) };
}

/// The same, with the end of a line.
macro_rules! println {
    () => { $crate::output::print(format_args!("\n")) };
    ($($arg:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($arg)*))) };
}

/// In the place of the standard library's, which panics if standard error cannot be written.
macro_rules! eprint {
    ($($arg:tt)*) => { $crate::output::eprint(format_args!($($arg)*)) };
}

/// The same, with the end of a line.
macro_rules! eprintln {
    () => { $crate::output::eprint(format_args!("\n")) };
    ($($arg:tt)*) => { $crate::output::eprint(format_args!("{}\n", format_args!($($arg)*))) };
}

mod advise;
mod analytics;
mod bench;
mod chart;
mod commands;
mod cut;
mod dedup_survey;
mod device_rates;
mod distinct;
mod emulate;
mod exporter;
mod file_paths;
pub mod fuzzing;
mod getopt;
mod groups;
mod histogram;
mod http;
mod inspect;
mod keys;
mod lab;
mod mount_zfs;
mod offline;
mod output;
mod patience;
mod processors;
mod profile;
mod progress;
mod reflink;
mod serve;
mod taps;
#[cfg(test)]
mod tests;
mod tools;
mod top;
mod traces;
mod upgrade;
mod version;
mod via;
mod volumes;
mod zdb;
mod zfs;
mod zgenhostid;
mod zilstat;
mod zinject;
mod zpool;

pub use commands::run;
