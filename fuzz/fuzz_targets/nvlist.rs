//! Name-value lists of both encodings; what is read packs and reads the same again.
#![no_main]

use format::nvlist::NvList;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(list) = NvList::unpack(bytes) {
        let packed = list.pack();
        let again = NvList::unpack(&packed).expect("what was packed unpacks");
        assert_eq!(again.pack(), packed);
    }
});
