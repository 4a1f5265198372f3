//! Importing a pool: it is found, opened, and locked against others.

pub mod acquire;
pub mod features;
pub mod find;
mod options;
mod unwritable;

pub use options::ImportOptions;
