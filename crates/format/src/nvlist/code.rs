//! What both encodings have in common: the type numbers on disk, and what is wrong with a list.

use base::Error;

/// How deep lists may nest; real configurations need less than ten.
pub const DEPTH_MAX: usize = 32;

pub const FLAG: u32 = 1;
pub const BYTE: u32 = 2;
pub const I16: u32 = 3;
pub const U16: u32 = 4;
pub const I32: u32 = 5;
pub const U32: u32 = 6;
pub const I64: u32 = 7;
pub const U64: u32 = 8;
pub const STR: u32 = 9;
pub const BYTES: u32 = 10;
pub const I16S: u32 = 11;
pub const U16S: u32 = 12;
pub const I32S: u32 = 13;
pub const U32S: u32 = 14;
pub const I64S: u32 = 15;
pub const U64S: u32 = 16;
pub const STRS: u32 = 17;
pub const HRTIME: u32 = 18;
pub const LIST: u32 = 19;
pub const LISTS: u32 = 20;
pub const BOOL: u32 = 21;
pub const I8: u32 = 22;
pub const U8: u32 = 23;
pub const BOOLS: u32 = 24;
pub const I8S: u32 = 25;
pub const U8S: u32 = 26;
pub const DOUBLE: u32 = 27;

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn too_deep() -> Error {
    Error::corrupt(format!("nvlist nested deeper than {DEPTH_MAX} levels"))
}

pub fn unknown_type(name: &str, kind: u32) -> Error {
    Error::corrupt(format!("nvlist: '{name}' is of unknown type {kind}"))
}
