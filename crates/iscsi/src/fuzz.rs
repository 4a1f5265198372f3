//! All that is parsed, for a fuzzer.

use crate::params::Params;
use crate::pdu::{DATA_BYTES_MAX, Digests, Pdu};
use crate::target::ChapSecrets;
use crate::{scsi, text};

/// Parses any bytes as all that an initiator can send.
pub fn fuzz(bytes: &[u8]) {
    let digests = Digests { head: bytes.len() % 2 == 1, data: bytes.len() % 3 == 1 };
    let mut rest = bytes;
    while let Ok(pdu) = Pdu::read(&mut rest, digests) {
        assert!(pdu.data.len() <= DATA_BYTES_MAX);
        let _ = (pdu.head.lun(), pdu.head.number(), text::parse(&pdu.data));
        scsi::fuzz(&pdu);
    }
    scsi::fuzz_reservations(bytes);
    let _ = std::str::from_utf8(bytes).map(|text| {
        let _ = (text::binary(text), ChapSecrets::parse(text));
        Params::default().negotiate(text, text);
    });
}
