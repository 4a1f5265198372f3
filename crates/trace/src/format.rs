//! The formats: their names, what they can say, and which of them some bytes are.

use crate::layout::{BLKTRACE_MAGIC, CENOTE_BYTES, CENOTE_MAGIC, ORACLE_BYTES, VSCSI1_BYTES, VSCSI2_BYTES, at32, at64};

/// The form of a trace; see the table of the crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the table of the crate has them
pub enum TraceFormat {
    Arc,
    Lines,
    U32,
    Blktrace,
    Msr,
    Vscsi1,
    Vscsi2,
    VscsiCsv,
    Alibaba,
    Tencent,
    OracleGeneral,
    Cenote,
}

use TraceFormat::*;

impl TraceFormat {
    /// All of them.
    pub const ALL: [TraceFormat; 12] =
        [Arc, Lines, U32, Blktrace, Msr, Vscsi1, Vscsi2, VscsiCsv, Alibaba, Tencent, OracleGeneral, Cenote];

    /// Its name, as `--format` has it.
    pub fn name(self) -> &'static str {
        match self {
            Arc => "arc",
            Lines => "lines",
            U32 => "u32",
            Blktrace => "blktrace",
            Msr => "msr",
            Vscsi1 => "vscsi1",
            Vscsi2 => "vscsi2",
            VscsiCsv => "vscsi-csv",
            Alibaba => "alibaba",
            Tencent => "tencent",
            OracleGeneral => "oracleGeneral",
            Cenote => "cenote",
        }
    }

    /// The format of a name.
    pub fn named(name: &str) -> Option<TraceFormat> {
        TraceFormat::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Whether its requests are about keys, and not about places in streams.
    pub fn has_keys(self) -> bool {
        matches!(self, Lines | U32 | OracleGeneral)
    }

    /// Bytes of its records; `None` if it has lines, or records of several sizes.
    pub(crate) fn record_bytes(self) -> Option<usize> {
        match self {
            U32 => Some(4),
            Vscsi1 => Some(VSCSI1_BYTES),
            Vscsi2 => Some(VSCSI2_BYTES),
            OracleGeneral => Some(ORACLE_BYTES),
            Cenote => Some(CENOTE_BYTES),
            Arc | Lines | Blktrace | Msr | VscsiCsv | Alibaba | Tencent => None,
        }
    }

    /// Which format a trace has that begins with these bytes, as far as that can be told. Keys of 32 bits look like
    /// anything: these are never found.
    pub fn detect(head: &[u8]) -> Option<TraceFormat> {
        if head.len() >= 4 && [at32(head, 0), at32(head, 0).swap_bytes()].iter().any(|word| word >> 8 == BLKTRACE_MAGIC)
        {
            return Some(Blktrace);
        }
        if head.starts_with(&CENOTE_MAGIC) && head.get(3).is_some_and(|op| *op < b' ') {
            return Some(Cenote);
        }
        let is_text = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n');
        if !head.is_empty() && head.iter().all(is_text) { of_text(head) } else { of_records(head) }
    }
}

/// The format of lines.
fn of_text(head: &[u8]) -> Option<TraceFormat> {
    let text = std::str::from_utf8(head).ok()?;
    let is_data = |line: &&str| line.trim_start().starts_with(|first: char| first.is_ascii_digit());
    let line = text.lines().find(is_data)?;
    if !line.contains(',') {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let all_numbers = words.iter().all(|word| word.parse::<u64>().is_ok());
        return match words.len() {
            4 if all_numbers => Some(Arc),
            1 | 2 if all_numbers => Some(Lines),
            _ => None,
        };
    }
    let words: Vec<&str> = line.split(',').map(str::trim).collect();
    let is_one_of = |at: usize, names: &[&str]| names.iter().any(|name| words[at].eq_ignore_ascii_case(name));
    let number = |at: usize| words[at].parse::<u64>().ok();
    match words.len() {
        7 if is_one_of(3, &["read", "write"]) => Some(Msr),
        5 if is_one_of(1, &["r", "w"]) => Some(Alibaba),
        // the first field is a version, or seconds since 1970
        5 if number(0).is_some_and(|first| first < 256) => Some(VscsiCsv),
        5 if is_one_of(3, &["0", "1"]) && number(0).is_some() => Some(Tencent),
        2 if number(0).is_some() && number(1).is_some() => Some(Lines),
        _ => None,
    }
}

/// The format of records, of which as many as there are have to make sense.
fn of_records(head: &[u8]) -> Option<TraceFormat> {
    let all = |bytes: usize, makes_sense: &dyn Fn(usize, &[u8]) -> bool| {
        head.len() >= bytes && head.chunks_exact(bytes).enumerate().all(|(at, record)| makes_sense(at, record))
    };
    let version = |record: &[u8], at: usize| at32(record, at) >> 24;
    if all(VSCSI2_BYTES, &|_, record| version(record, 0) == 2) {
        return Some(Vscsi2);
    }
    if all(VSCSI1_BYTES, &|_, record| version(record, 12) == 1) {
        return Some(Vscsi1);
    }
    let is_object = |at: usize, record: &[u8]| {
        let next = at64(record, 16) as i64;
        at32(record, 12) > 0 && (next == -1 || next > at as i64)
    };
    let times: Vec<u32> = head.chunks_exact(ORACLE_BYTES).map(|record| at32(record, 0)).collect();
    (all(ORACLE_BYTES, &is_object) && times.is_sorted()).then_some(OracleGeneral)
}
