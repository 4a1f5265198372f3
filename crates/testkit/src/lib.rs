//! What tests share: the corpus of real pools and its manifests, devices that can be damaged, a walk that
//! reads everything in a pool and remembers what it read, power cuts, pools that lie
//! under good checksums, and the program itself.

pub mod copy;
pub mod corpus;
pub mod damage;
pub mod files;
pub mod loops;
pub mod manifest;
pub mod model;
pub mod program;
pub mod recording;
pub mod rng;
pub mod rough;
pub mod seal;
pub mod sealed;
pub mod snapshots;
pub mod sparse;
pub mod streams;
pub mod survey;
pub mod totals;
pub mod workload;
