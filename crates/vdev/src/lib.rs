//! vdev

pub mod draid;
pub mod raidz;
