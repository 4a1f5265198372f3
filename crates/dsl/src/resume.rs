//! The token of an interrupted receive: what tells the sender where to go on.
//!
//! ```text
//!   1-9cfe49bfe-b8-789c6360...
//!   │ │         │  └ an nvlist of the state, packed, compressed as by zlib, in hex
//!   │ │         └ its length before compression, in hex
//!   │ └ first word of the fletcher4 checksum of the compressed bytes, in hex
//!   └ version
//! ```
//!
//! The state is kept in the ZAP of the dataset that is being received: the dataset itself, or for an
//! incremental receive the child `%recv`, which nothing else shows.

use base::{Result, ResultExt};
use codec::compress::{Compress, compress};
use dmu::zap::Zap;
use format::nvlist::{NvList, Value};

use crate::{Dataset, Dir, Dsl};

const RECEIVE_CHILD: &str = "%recv";
const GZIP_LEVEL_OF_TOKENS: Compress = Compress::Gzip6;

impl Dsl {
    /// The token of a receive that was interrupted and can be resumed.
    pub fn resume_token(&self, dir: &Dir, head: &Dataset) -> Result<Option<String>> {
        if let Some(state) = self.resume_state(head).in_dataset(&dir.name)? {
            return Ok(token(&state));
        }
        if dir.phys.child_zap == 0 {
            return Ok(None);
        }
        let child = Zap::open(self.mos().object(dir.phys.child_zap)?)?.u64(RECEIVE_CHILD).in_dataset(&dir.name)?;
        let Some(child) = child else { return Ok(None) };
        let name = format!("{}/{RECEIVE_CHILD}", dir.name);
        let receiving = self.head(&self.dir(child, &name)?)?;
        Ok(self.resume_state(&receiving).in_dataset(&name)?.and_then(|state| token(&state)))
    }

    fn resume_state(&self, dataset: &Dataset) -> Result<Option<NvList>> {
        let field = |name: &str| self.dataset_field(dataset, name);
        if field("com.delphix:resume_toguid")?.is_none() {
            return Ok(None);
        }
        let mut state = NvList::new();
        for name in ["fromguid", "object", "offset", "bytes", "toguid"] {
            if let Some(number) = field(&format!("com.delphix:resume_{name}"))?.and_then(|value| value.first_u64()) {
                state.set(name, Value::U64(number));
            }
        }
        if let Some(name) = field("com.delphix:resume_toname")? {
            state.set("toname", Value::Str(name.text()));
        }
        for (stored, name) in [
            ("com.delphix:resume_largeblockok", "largeblockok"),
            ("com.delphix:resume_embedok", "embedok"),
            ("com.delphix:resume_compressok", "compressok"),
            ("com.datto:resume_rawok", "rawok"),
        ] {
            if field(stored)?.is_some() {
                state.set(name, Value::Flag);
            }
        }
        for (stored, name) in [
            ("com.delphix:redacted_datasets", "redact_snaps"),
            ("com.delphix:resume_redact_book_snaps", "book_redact_snaps"),
        ] {
            if let Some(snapshots) = field(stored)? {
                state.set(name, Value::U64s(snapshots.u64s()));
            }
        }
        Ok(Some(state))
    }
}

/// `None` only if the state cannot be compressed, which with its many zeros it always can.
fn token(state: &NvList) -> Option<String> {
    let packed = state.pack();
    let mut compressed = vec![0; packed.len() + 64];
    let len = compress(GZIP_LEVEL_OF_TOKENS, 6, &packed, &mut compressed)?;
    compressed.truncate(len);
    let hex: String = compressed.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("1-{:x}-{:x}-{hex}", first_word(&compressed), packed.len()))
}

/// The first word of fletcher4: the sum of all whole 32-bit words.
fn first_word(bytes: &[u8]) -> u64 {
    bytes.as_chunks().0.iter().fold(0, |sum: u64, word| sum.wrapping_add(u32::from_le_bytes(*word).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::compress::decompress;

    /// What a sender reads from a token.
    fn decode(token: &str) -> NvList {
        let parts: Vec<&str> = token.split('-').collect();
        let [version, sum, len, hex] = parts[..] else { panic!("four parts: {token}") };
        assert_eq!(version, "1");
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let compressed: Vec<u8> = hex.as_bytes().chunks(2).map(byte).collect();
        assert_eq!(u64::from_str_radix(sum, 16).unwrap(), first_word(&compressed));
        let mut packed = vec![0; usize::from_str_radix(len, 16).unwrap()];
        decompress(GZIP_LEVEL_OF_TOKENS, &compressed, &mut packed).unwrap();
        NvList::unpack(&packed).unwrap()
    }

    #[test]
    fn tokens_say_what_the_state_was() {
        let mut state = NvList::new();
        state.set("object", Value::U64(2));
        state.set("offset", Value::U64(1 << 40));
        state.set("toname", Value::Str("tank/fs@s".to_owned()));
        state.set("compressok", Value::Flag);
        assert_eq!(decode(&token(&state).unwrap()), state);
    }

    #[test]
    fn a_token_of_openzfs() {
        let token = "1-9cfe49bfe-b8-789c636064000310a500c4ec50360710e72765a52697303008409460caa7a515a796806498e0f2\
                     6c48f2499525a9c5403aa3960dabfe92fcf4d2cc1406868f1d7dc9eb3c0fded64092e704cbe725e6a602e9f8e2d4bc14fd\
                     b4620743061800002e3e1720";
        let state = decode(token);
        assert!(state.str("toname").unwrap().contains('@'), "{state:?}");
        assert!(state.u64("toguid").is_ok() && state.u64("object").is_ok());
    }
}
