//! Send streams: their records, and reading them one after the other.
#![no_main]

use base::Endian;
use dsl::receive::StreamReader;
use format::stream::{RECORD_SIZE, StreamRecord};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for endian in [Endian::Little, Endian::Big] {
        if let Some(record) = bytes.first_chunk::<RECORD_SIZE>()
            && let Ok(record) = StreamRecord::parse(record, endian)
        {
            assert!(endian == Endian::Big || StreamRecord::parse(&record.to_bytes(), endian).is_ok());
        }
    }
    let _ = dsl::resume::ResumeState::parse(&String::from_utf8_lossy(bytes));
    let mut rest = bytes;
    let mut reader = StreamReader::new(&mut rest);
    while let Ok(Some((begin, ..))) = reader.begin() {
        if begin.is_package && reader.end_of_list().is_err() {
            return;
        }
        while !begin.is_package && reader.record().is_ok() {}
    }
});
