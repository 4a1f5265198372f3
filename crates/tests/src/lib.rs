//! Home of the one integration test binary, `tests/it`.
