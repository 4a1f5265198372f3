//! What monitors and guests of vhost-user say: messages, memory with a ring in it, and what rings have in flight.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    vhostblk::fuzz_messages(bytes);
    vhostblk::fuzz_chains(bytes);
    vhostblk::fuzz_inflight(bytes);
});
