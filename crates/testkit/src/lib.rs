//! What tests share: the corpus of real pools, devices that can be damaged, and a walk that reads
//! everything in a pool and remembers what it read.

pub mod corpus;
pub mod damage;
pub mod rng;
pub mod survey;
