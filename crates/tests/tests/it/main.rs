//! Tests of the whole: one binary, as linking takes longer than running.

mod cache;
mod check;
mod checkpoint;
mod crash;
mod damage;
mod dedup;
mod files;
mod golden;
mod heal;
mod live;
mod log;
mod multihost;
mod names;
mod newer;
mod pools;
mod properties;
mod quota;
mod redundancy;
mod replace;
mod replaced_root;
mod replay;
mod resilver;
mod scrub;
mod snapshots;
mod volumes;
mod ztest;
