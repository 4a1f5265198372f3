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

use base::{Error, Kind, Result, ResultExt};
use codec::compress::{Compress, compress, decompress};
use dmu::zap::Zap;
use format::ids::{DirId, Guid, ObjectId};
use format::nvlist::{NvList, Value};

use crate::{Dataset, Dir, Dsl};

/// The child that an incremental receive is kept in.
pub const RECEIVE_CHILD: &str = "%recv";
/// Bytes of a packed state at most.
const STATE_BYTES_MAX: usize = 1 << 20;
const GZIP_LEVEL_OF_TOKENS: Compress = Compress::Gzip6;

impl Dsl {
    /// The token of a receive that was interrupted and can be resumed.
    pub fn resume_token(&self, dir: &Dir, head: &Dataset) -> Result<Option<String>> {
        if let Some(state) = self.resume_state(head).in_dataset(&dir.name)? {
            return Ok(token(&state));
        }
        if dir.phys.child_zap.is_none() {
            return Ok(None);
        }
        let child = Zap::open(self.mos().object(dir.phys.child_zap)?)?.u64(RECEIVE_CHILD).in_dataset(&dir.name)?;
        let Some(child) = child else { return Ok(None) };
        let name = format!("{}/{RECEIVE_CHILD}", dir.name);
        let receiving = self.head(&self.dir(DirId::new(child), &name)?)?;
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

/// What a token says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResumeState {
    /// Guid of the snapshot that the stream begins from; 0 if it is whole.
    pub from_guid: Guid,
    /// Guid of the snapshot that is sent.
    pub to_guid: Guid,
    /// Its name at the sender.
    pub to_name: String,
    /// The object where it goes on.
    pub object: ObjectId,
    /// Where in the object.
    pub offset: u64,
    /// Bytes that were received.
    pub bytes: u64,
    /// The stream has blocks of more than 128 KiB.
    pub large_blocks: bool,
    /// It has embedded data.
    pub embedded: bool,
    /// It has compressed data.
    pub compressed: bool,
    /// It is raw.
    pub raw: bool,
    /// Guids of the snapshots that it is redacted for.
    pub redacted_for: Option<Vec<Guid>>,
    /// It begins from something redacted: guids of the snapshots that this was redacted for.
    pub redacted_from: Option<Vec<Guid>>,
    list: NvList,
}

impl ResumeState {
    /// Reads a token. Errors: `Invalid`, and what is wrong with it.
    pub fn parse(token: &str) -> Result<ResumeState> {
        let wrong = |what: &str| Error::new(Kind::Invalid, format!("resume token is corrupt ({what})"));
        let corrupt = || wrong("invalid format");
        let parts: Vec<&str> = token.split('-').collect();
        let [version, sum, len, hex] = parts[..] else { return Err(corrupt()) };
        let number = |text: &str| u64::from_str_radix(text, 16).map_err(|_| corrupt());
        let len = usize::try_from(number(len)?).ok().filter(|len| (1..=STATE_BYTES_MAX).contains(len));
        let version = number(version)?;
        if version != 1 {
            return Err(wrong(&format!("invalid version {version}")));
        }
        if hex.len() % 2 != 0 || hex.len() > 2 * STATE_BYTES_MAX || !hex.is_ascii() {
            return Err(corrupt());
        }
        let byte = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let packed = hex.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>().ok_or_else(corrupt)?;
        if first_word(&packed) != number(sum)? {
            return Err(wrong("incorrect checksum"));
        }
        let mut list = vec![0; len.ok_or_else(corrupt)?];
        decompress(GZIP_LEVEL_OF_TOKENS, &packed, &mut list).map_err(|_| wrong("decompression failed"))?;
        let list = NvList::unpack(&list).map_err(|_| wrong("nvlist_unpack failed"))?;
        let incomplete = || Error::new(Kind::Invalid, "resume token is corrupt");
        let number = |name: &str| list.u64(name).map_err(|_| incomplete());
        Ok(ResumeState {
            from_guid: list.opt_guid("fromguid").unwrap_or(Guid::NONE),
            to_guid: list.guid("toguid").map_err(|_| incomplete())?,
            to_name: list.str("toname").map_err(|_| incomplete())?.to_owned(),
            object: ObjectId::new(number("object")?),
            offset: number("offset")?,
            bytes: number("bytes")?,
            large_blocks: list.has("largeblockok"),
            embedded: list.has("embedok"),
            compressed: list.has("compressok"),
            raw: list.has("rawok"),
            redacted_for: list.opt_guids("redact_snaps"),
            redacted_from: list.opt_guids("book_redact_snaps"),
            list,
        })
    }

    /// The state as OpenZFS prints it.
    pub fn text(&self) -> String {
        let value = |value: &Value| match value {
            Value::U64(number) => format!("{number:#x}"),
            Value::Str(text) => text.clone(),
            Value::U64s(numbers) => numbers.iter().map(|number| format!("{number:#x}")).collect::<Vec<_>>().join(" "),
            _ => "1".to_owned(),
        };
        let lines = self.list.iter().map(|(name, one)| format!("\t{name} = {}\n", value(one)));
        format!("nvlist version: 0\n{}", lines.collect::<String>())
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
        assert!(state.guid("toguid").is_ok() && state.u64("object").is_ok());
        let parsed = ResumeState::parse(token).unwrap();
        assert_eq!(
            (parsed.to_guid, parsed.object),
            (state.guid("toguid").unwrap(), ObjectId::new(state.u64("object").unwrap()))
        );
        for (from, to) in [("1-9", "1-8"), ("-b8-", "-b7-"), ("789c", "789d"), ("1-", "2-"), ("620743", "62074")] {
            assert!(ResumeState::parse(&token.replacen(from, to, 1)).is_err(), "{from} > {to}");
        }
    }
}
