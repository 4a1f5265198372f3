//! What monitors and guests of vhost-user say: messages, and memory with a ring in it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    vhostblk::fuzz_messages(bytes);
    vhostblk::fuzz_chains(bytes);
});
