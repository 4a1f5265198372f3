//! What tests share: the corpus of real pools and its manifests, devices that can be damaged, a walk that
//! reads everything in a pool and remembers what it read, and the program itself.

pub mod copy;
pub mod corpus;
pub mod damage;
pub mod manifest;
pub mod program;
pub mod rng;
pub mod survey;
pub mod totals;
