//! Home of the one integration test binary, `tests/it`, and of the fuzzer of pools, [`pools`], which is a command
//! beside: `./x fuzz-pools`.

pub mod pools;
