//! The command line of `zinject`.

use std::ffi::OsString;

use device::ALWAYS;
use format::ids::{DatasetId, ObjectId};
use pool::inject::{InjectedEffect, InjectedRequests};
use vdev::LabelRegion;

use crate::getopt::{self, Opt};

/// Flags, those that are refused among them.
const FLAGS: &str = ":aA:b:C:c:d:D:e:E:f:Fg:hiIl:L:mp:P:qr:s:t:T:u";

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(super) enum ZinjectTask {
    Help,
    List,
    /// All without a number.
    Cancel(Option<u64>),
    /// Of all pools if there are none.
    Forget(Vec<String>),
    /// To say of a device that it is degraded, or faulted.
    Act {
        device: String,
        pool: String,
        is_fault: bool,
    },
    Inject(FaultLine),
}

/// A fault as it is asked for.
#[derive(Debug, PartialEq)]
pub(super) struct FaultLine {
    pub(super) place: Place,
    pub(super) effect: InjectedEffect,
    pub(super) requests: InjectedRequests,
    pub(super) per_million: u32,
    pub(super) copies: u8,
    /// Whether what is in memory is forgotten.
    pub(super) flushes: bool,
    pub(super) is_quiet: bool,
}

/// Where.
#[derive(Debug, PartialEq)]
pub(super) enum Place {
    Device { device: String, pool: String, label: Option<LabelRegion> },
    Bookmark { pool: String, objset: DatasetId, object: ObjectId, level: u8, blocks: (u64, u64) },
    File { path: String, is_dnode: bool, level: u8, range: Option<(u64, u64)> },
}

/// The flags as they were given.
#[derive(Default)]
struct GivenFlags {
    values: Vec<(char, String)>,
    flags: Vec<char>,
}

impl GivenFlags {
    fn value(&self, flag: char) -> Option<&str> {
        self.values.iter().rfind(|(other, _)| *other == flag).map(|(_, value)| value.as_str())
    }

    fn has(&self, flag: char) -> bool {
        self.flags.contains(&flag) || self.value(flag).is_some()
    }
}

/// Reads a command line. Errors: why it makes no sense.
pub(super) fn parse(args: &[OsString]) -> Result<ZinjectTask, String> {
    let parsed = getopt::parse(args, FLAGS, &[]);
    let mut given = GivenFlags::default();
    for opt in parsed.opts {
        match opt {
            Opt::Flag(flag) => given.flags.push(flag),
            Opt::Value(flag, value) => given.values.push((flag, value)),
            Opt::Missing(name) => return Err(format!("option -{name} requires an operand")),
            Opt::Unknown(name) => return Err(format!("invalid option '{name}'")),
        }
    }
    refuse_what_is_not_there(&given)?;
    let operands = &parsed.operands[..];
    if given.has('h') {
        return Ok(ZinjectTask::Help);
    }
    if let Some(which) = given.value('c') {
        let is_alone = given.values.len() == 1 && given.flags.is_empty() && operands.is_empty();
        return match (is_alone, which) {
            (false, _) => Err("cancel (-c) incompatible with any other options".to_owned()),
            (true, "all") => Ok(ZinjectTask::Cancel(None)),
            (true, id) => {
                id.parse().map(|id| ZinjectTask::Cancel(Some(id))).map_err(|_| format!("invalid handle id '{id}'"))
            }
        };
    }
    if let Some(device) = given.value('d') {
        return of_device(&given, device, operands);
    }
    if given.has('D') || given.has('A') || given.has('L') {
        return Err("-D, -A and -L need a device (-d)".to_owned());
    }
    if let Some(bookmark) = given.value('b') {
        let [pool] = operands else {
            return Err("-b requires a single pool name".to_owned());
        };
        let (objset, object, level, blocks) =
            numbers(bookmark).ok_or_else(|| format!("invalid bookmark '{bookmark}'"))?;
        return of_data(&given, Place::Bookmark { pool: pool.clone(), objset, object, level, blocks });
    }
    match given.value('t') {
        Some(kind) => of_file(&given, kind, operands),
        None if given.values.is_empty() && (given.has('a') || given.has('m')) => {
            Ok(ZinjectTask::Forget(operands.to_vec()))
        }
        None if given.values.is_empty() && given.flags.is_empty() && operands.is_empty() => Ok(ZinjectTask::List),
        None => Err("at least one of '-b', '-d', '-t', '-a' or '-c' must be specified".to_owned()),
    }
}

/// Something with a device.
fn of_device(given: &GivenFlags, device: &str, operands: &[String]) -> Result<ZinjectTask, String> {
    if ['b', 't', 'r', 'l', 'C'].iter().any(|flag| given.has(*flag)) {
        return Err("device (-d) incompatible with data error injection".to_owned());
    }
    let [pool] = operands else {
        return Err("device (-d) injection requires a single pool name".to_owned());
    };
    let (device, pool) = (device.to_owned(), pool.clone());
    if let Some(action) = given.value('A') {
        let is_fault = match action {
            "degrade" => false,
            "fault" => true,
            _ => return Err(format!("invalid action '{action}': must be 'degrade' or 'fault'")),
        };
        return Ok(ZinjectTask::Act { device, pool, is_fault });
    }
    let label = given.value('L').map(label).transpose()?;
    let effect = match given.value('D') {
        Some(delay) => slow(delay)?,
        None => given.value('e').map_or(Ok(InjectedEffect::Gone), |name| effect(name, false))?,
    };
    fault(given, Place::Device { device, pool, label }, effect, InjectedRequests::All)
}

/// Something with a file.
fn of_file(given: &GivenFlags, kind: &str, operands: &[String]) -> Result<ZinjectTask, String> {
    let is_dnode = match kind {
        "data" => false,
        "dnode" => true,
        _ => return Err(format!("type '{kind}' is not supported: must be 'data' or 'dnode'")),
    };
    let [path] = operands else {
        return Err(format!("type '{kind}' requires a path"));
    };
    if !path.starts_with('/') {
        return Err(format!("path '{path}' must be absolute"));
    }
    let level = given.value('l').map_or(Ok(0), |text| text.parse().map_err(|_| format!("invalid level '{text}'")))?;
    let range = given.value('r').map(range).transpose()?;
    if is_dnode && range.is_some() {
        return Err("range cannot be specified when type is 'dnode'".to_owned());
    }
    of_data(given, Place::File { path: path.clone(), is_dnode, level, range })
}

/// Something with blocks.
fn of_data(given: &GivenFlags, place: Place) -> Result<ZinjectTask, String> {
    let effect = given.value('e').map_or(Ok(InjectedEffect::Io), |name| effect(name, true))?;
    fault(given, place, effect, InjectedRequests::Reads)
}

/// A fault of these requests, unless others were named.
fn fault(
    given: &GivenFlags,
    place: Place,
    effect: InjectedEffect,
    by_default: InjectedRequests,
) -> Result<ZinjectTask, String> {
    Ok(ZinjectTask::Inject(FaultLine {
        place,
        effect,
        requests: given.value('T').map_or(Ok(by_default), requests)?,
        per_million: given.value('f').map_or(Ok(ALWAYS), frequency)?,
        copies: given.value('C').map_or(Ok(u8::MAX), copies)?,
        flushes: given.has('a') || given.has('m'),
        is_quiet: given.has('q'),
    }))
}

/// Refuses what OpenZFS's zinject can do, and this one cannot.
fn refuse_what_is_not_there(given: &GivenFlags) -> Result<(), String> {
    let absent = [
        ('u', "unloading pools (-u)"),
        ('p', "panics in functions (-p)"),
        ('P', "delays of imports and exports (-P)"),
        ('I', "ignored flushes of whole pools (-I)"),
        ('E', "delays before requests are ready (-E)"),
        ('i', "delays of imports (-i)"),
        ('F', "failing faster (-F)"),
        ('s', "durations (-s)"),
        ('g', "durations (-g)"),
    ];
    match absent.iter().find(|(flag, _)| given.has(*flag)) {
        Some((_, what)) => Err(format!("{what} are not supported")),
        None => Ok(()),
    }
}

fn effect(name: &str, is_data: bool) -> Result<InjectedEffect, String> {
    match (name, is_data) {
        ("io", _) => Ok(InjectedEffect::Io),
        ("corrupt", _) => Ok(InjectedEffect::WrongBit),
        ("nxio", false) => Ok(InjectedEffect::Gone),
        ("noop", false) => Ok(InjectedEffect::Ignored),
        ("checksum", true) => Ok(InjectedEffect::Checksum),
        ("checksum" | "decompress" | "decrypt" | "dtl" | "nxio" | "noop", _) => {
            Err(format!("error type '{name}' is not supported here"))
        }
        _ => Err(format!("invalid error type '{name}': must be 'io', 'checksum', 'nxio', 'noop' or 'corrupt'")),
    }
}

fn requests(name: &str) -> Result<InjectedRequests, String> {
    match name {
        "read" => Ok(InjectedRequests::Reads),
        "write" => Ok(InjectedRequests::Writes),
        "flush" => Ok(InjectedRequests::Flushes),
        "free" => Ok(InjectedRequests::Discards),
        "probe" => Ok(InjectedRequests::Probes),
        "all" => Ok(InjectedRequests::All),
        "claim" => Err(format!("I/O type '{name}' is not supported")),
        _ => Err(format!("invalid I/O type '{name}': must be 'read', 'write', 'flush', 'free', 'probe' or 'all'")),
    }
}

fn label(name: &str) -> Result<LabelRegion, String> {
    match name {
        "pad1" => Ok(LabelRegion::Blank),
        "pad2" => Ok(LabelRegion::BootEnv),
        "nvlist" => Ok(LabelRegion::Config),
        "uber" => Ok(LabelRegion::Uberblocks),
        _ => Err(format!("invalid label type '{name}'")),
    }
}

/// Parts of a million from a percentage between 0.0001 and 100.
fn frequency(text: &str) -> Result<u32, String> {
    let percent: f64 = text.parse().unwrap_or(0.0);
    if !(0.0001..=100.0).contains(&percent) {
        return Err("frequency range is in the range (0.0001 .. 100)".to_owned());
    }
    Ok((percent / 100.0 * f64::from(ALWAYS)).round() as u32)
}

/// A mask of numbers of copies that commas are between.
fn copies(text: &str) -> Result<u8, String> {
    text.split(',').try_fold(0, |mask, number| match number.parse() {
        Ok(number @ 0u8..=2) => Ok(mask | 1 << number),
        _ => Err(format!("invalid DVA list '{text}'")),
    })
}

/// Milliseconds and lanes.
fn slow(text: &str) -> Result<InjectedEffect, String> {
    let both = text.split_once(':').and_then(|(ms, lanes)| Some((ms.parse().ok()?, lanes.parse().ok()?)));
    match both {
        Some((ms @ 1.., lanes @ 1..)) => Ok(InjectedEffect::Slow { ms, lanes }),
        _ => Err(format!("invalid i/o delay value: '{text}'")),
    }
}

/// The range of bytes, its end excluded.
fn range(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str| dsl::property::rules::parse_number(text).ok();
    let (start, end) = text.split_once(',').map_or((text, None), |(start, end)| (start, Some(end)));
    let both = number(start).and_then(|start| Some((start, end.map_or(Some(start + 1), number)?)));
    both.filter(|(start, end)| start < end).ok_or_else(|| format!("invalid range '{text}'"))
}

type BlockNumbers = (DatasetId, ObjectId, u8, (u64, u64));

/// `objset:object:level:start[:end]`, in hexadecimal digits.
fn numbers(text: &str) -> Option<BlockNumbers> {
    let parts: Vec<u64> = text.split(':').map(|part| u64::from_str_radix(part, 16)).collect::<Result<_, _>>().ok()?;
    let (objset, object, level, start, end) = match parts[..] {
        [objset, object, level, start] => (objset, object, level, start, start),
        [objset, object, level, start, end] => (objset, object, level, start, end),
        _ => return None,
    };
    Some((DatasetId::new(objset), ObjectId::new(object), u8::try_from(level).ok()?, (start, end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<ZinjectTask, String> {
        parse(&text.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    fn fault(text: &str) -> FaultLine {
        match line(text) {
            Ok(ZinjectTask::Inject(fault)) => fault,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn devices() {
        let of = fault("-d /dev/sda -e io -T write -f 12.5 tank");
        assert_eq!((of.effect, of.requests, of.per_million), (InjectedEffect::Io, InjectedRequests::Writes, 125_000));
        let of = fault("-aq -d sda -D250:2 tank");
        assert_eq!((of.effect, of.flushes, of.is_quiet), (InjectedEffect::Slow { ms: 250, lanes: 2 }, true, true));
        assert_eq!(fault("-d sda tank").effect, InjectedEffect::Gone);
        let label = Some(LabelRegion::Uberblocks);
        assert_eq!(fault("-d a -e io -L uber t").place, Place::Device { device: "a".into(), pool: "t".into(), label });
        let act = ZinjectTask::Act { device: "a".into(), pool: "t".into(), is_fault: true };
        assert_eq!(line("-d a -A fault t"), Ok(act));
    }

    #[test]
    fn blocks() {
        let of = fault("-t data -e checksum -C 0,2 -r 0,128k -l 1 /t/file");
        assert_eq!((of.effect, of.copies, of.requests), (InjectedEffect::Checksum, 0b101, InjectedRequests::Reads));
        let range = Some((0, 128 << 10));
        assert_eq!(of.place, Place::File { path: "/t/file".into(), is_dnode: false, level: 1, range });
        let of = fault("-b 36:a:0:3fff t");
        let blocks = (0x3fff, 0x3fff);
        assert_eq!(
            of.place,
            Place::Bookmark {
                pool: "t".into(),
                objset: DatasetId::new(0x36),
                object: ObjectId::new(10),
                level: 0,
                blocks
            }
        );
    }

    #[test]
    fn the_rest() {
        assert_eq!((line(""), line("-h")), (Ok(ZinjectTask::List), Ok(ZinjectTask::Help)));
        assert_eq!((line("-c all"), line("-c 7")), (Ok(ZinjectTask::Cancel(None)), Ok(ZinjectTask::Cancel(Some(7)))));
        assert_eq!(
            (line("-a"), line("-a t")),
            (Ok(ZinjectTask::Forget(vec![])), Ok(ZinjectTask::Forget(vec!["t".into()])))
        );
        for wrong in [
            "-c x",
            "-c 1 t",
            "-d a",
            "-d a -e ouch t",
            "-d a -f 0 t",
            "-d a -f 101 t",
            "-d a -D 5 t",
            "-d a -T claim t",
            "-t data",
            "-t data file",
            "-t mos t",
            "-t dnode -r 1,2 /f",
            "-b 1:2 t",
            "-t data -C 3 /f",
            "-u t",
            "-x",
            "-d a -e decompress t",
            "t",
            "-e io",
            "-d a -L no t",
            "-t data -r 2,1 /f",
        ] {
            assert!(line(wrong).is_err(), "{wrong}");
        }
    }
}
