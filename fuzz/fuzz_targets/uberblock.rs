//! Slots of the uberblock ring.
#![no_main]

use format::uberblock::Uberblock;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some(uberblock)) = Uberblock::parse(bytes) {
        uberblock.rank();
        let _ = format!("{:?}", uberblock.rootbp);
    }
});
