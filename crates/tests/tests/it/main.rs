//! Tests of the whole: one binary, as linking takes longer than running.

mod cache;
mod check;
mod crash;
mod damage;
mod files;
mod golden;
mod live;
mod log;
mod multihost;
mod names;
mod properties;
mod redundancy;
mod replay;
mod ztest;
