//! Headers and logs of cache devices.
#![no_main]

use format::l2arc::{DeviceHeader, L2LogBlock};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some(header)) = DeviceHeader::parse(bytes) {
        assert_eq!(DeviceHeader::parse(&header.build()).unwrap().unwrap().log_entries, header.log_entries);
    }
    let _ = L2LogBlock::parse(bytes, u64::from(bytes.last().copied().unwrap_or(0)) * 5);
});
