//! Files as POSIX knows them: the ZPL, which gives object sets directories, attributes and contents.
//!
//! ```text
//!  object 1, master node ─┬─ ROOT ──── directory: a ZAP of name -> object, type ─── file, link, ...
//!                         ├─ SA_ATTRS ─ registry and layouts of system attributes
//!                         ├─ FUID ───── domains of foreign user ids
//!                         └─ VERSION, casesensitivity, normalization, utf8only
//! ```
//!
//! What a file is made of lies in its dnode's bonus buffer: since version 5 as system attributes,
//! before as a fixed struct (`nodes`). Its contents are the object's data. Extended attributes are
//! packed into a system attribute, or are files in a hidden directory, or both (`xattr`).
//!
//! Below is `dmu`; above are the FUSE adapter and the offline commands, which know no
//! on-disk format. All of it shows files as OpenZFS on Linux does, so that `stat` and
//! `getfattr` do not tell which of them serves them.
//!
//! A [`Zpl`] is made of parts that own their fields: [`nodes::Nodes`] and what their attributes mean, the
//! [`master::Master`], [`fuid::Domains`]. One that may be changed has a [`live::LiveZpl`] beside: transactions, locks,
//! options, the [`orphans::OrphanQueue`] and its [`drain::Drain`], the [`attr_tables::AttrTables`]. Each
//! operation is one transaction, so that a crash shows all of it or nothing; and it tells the intent log
//! (`log`), by which what was synced is done again (`replay`). Of two states of a file system, `diff` tells what differs.
//!
//! Invariant: nothing here follows links between objects without a bound, and no size that a file
//! claims is allocated before it is known to be small.

mod attr_tables;
mod attrs;
mod change;
mod contents;
mod counters;
mod create;
mod create_fs;
mod diff;
mod dir;
mod drain;
mod file;
mod fixed;
mod flags;
mod fuid;
mod fuzz;
mod kind;
mod live;
mod locks;
mod log;
mod logged_files;
mod master;
mod names;
mod nodes;
mod op;
mod orphans;
mod owners;
mod portions;
mod posix_acl;
mod rename;
mod replay;
mod set_attr;
mod set_xattr;
mod share;
mod stat;
#[cfg(test)]
mod tests;
mod unlinked;
mod visible;
mod xattr;
mod zpl;

pub use change::{Allocate, New, NewFs, NewKind, RenameMode, SetAttr, SetFlags, SetTime, Whiteout, XattrMode};
pub use counters::{Counters, Counts};
pub use create_fs::{create_fs, upgrade_fs};
pub use diff::{DiffKind, DiffRow};
pub use dir::DirEntry;
pub use file::File;
pub use format::ids::ObjectId;
pub use format::objset::Owner;
pub use format::znode::{FLAG_APPENDONLY, FLAG_IMMUTABLE, FLAG_NODUMP, FLAG_PROJINHERIT, FLAG_READONLY};
pub use fuzz::fuzz;
pub use kind::FileKind;
pub use live::{Room, ZplOptions};
pub use master::{CaseMode, Master};
pub use names::is_possible_name;
pub use set_attr::is_atime_due;
pub use stat::Stat;
pub use visible::Visible;
pub use zil::{LostChanges, SyncMode, Unsettled, UntoldLosses};
pub use zpl::Zpl;
