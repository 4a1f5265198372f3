//! Partition tables.
#![no_main]

use device::MemDevice;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut disk = vec![0; 64 << 10];
    let len = bytes.len().min(disk.len());
    disk[..len].copy_from_slice(&bytes[..len]);
    let device = MemDevice::new("disk", disk);
    if let Ok(Some(partitions)) = device::gpt::read(&device) {
        assert!(partitions.iter().all(|p| p.start + p.size <= 64 << 10));
    }
});
