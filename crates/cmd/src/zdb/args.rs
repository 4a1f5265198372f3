//! The command line, in zdb's flags.

use std::ffi::OsString;
use std::path::PathBuf;

use format::ids::Txg;

use crate::getopt::{self, Opt};
use crate::keys::KeyPlace;

/// What is printed when the command line makes no sense.
pub const USAGE: &str = "\
Usage:\tzdb [-bcCdDLPSuv] [-e [-p <path> ...]] [-F] [-K <key>] [-t <txg>] [<poolname>[/<dataset>] [<object> ...]]
\tzdb -l [-qu] <device> ...

    Dataset name must include at least one separator character '/' or '@'
    If dataset name is specified, only that dataset is dumped
    If object numbers are specified, only those objects are dumped.

    Options to control amount of output:
        -b block statistics
        -c checksum all metadata (twice for all data) blocks
        -C config
        -d dataset(s)
        -D dedup statistics
        -l read label contents
        -L disable leak tracking (do not load spacemaps)
        -S simulate dedup to measure effect
        -u uberblock
        -v verbose (applies to all others)

    Below options are intended for use with other options:
        -e pool is not imported here; always so
        -F attempt automatic rewind within safe range of transaction groups
        -K <key> -- key of an encrypted dataset: prompt, -, file:///<path>, a passphrase or hex digits, the path of a raw key
        -p <path> -- use one or more to specify path to vdev dir, or a vdev [/dev]
        -P print numbers in parseable form
        -q don't print label contents
        -t <txg> -- highest txg to use when searching for uberblocks
Specify an option more than once (e.g. -bb) to make only that option verbose
";

/// How often each flag was given, after `-v` has been added.
#[derive(Clone, Debug, Default)]
pub struct ZdbArgs {
    /// `-b`.
    pub blocks: u32,
    /// `-c`.
    pub checksums: u32,
    /// `-C`.
    pub config: u32,
    /// `-d`.
    pub datasets: u32,
    /// `-D`.
    pub dedup: u32,
    /// `-l`.
    pub labels: u32,
    /// `-S`.
    pub simulated: u32,
    /// `-u`.
    pub uberblock: u32,
    /// `-L`.
    pub no_leaks: bool,
    /// `-P`.
    pub parseable: bool,
    /// `-q`.
    pub quiet: bool,
    /// `-F`.
    pub rewind: bool,
    /// `-t`.
    pub txg_max: Option<Txg>,
    /// `-K`.
    pub key: Option<KeyPlace>,
    /// `-p`: where to look; if it is empty, where the pool's devices are known to be.
    pub search: Vec<PathBuf>,
    /// Pool or dataset, and objects; or devices.
    pub operands: Vec<String>,
}

impl ZdbArgs {
    /// `None` asks for help. An error is a sentence.
    pub fn parse(args: &[OsString]) -> Result<Option<ZdbArgs>, String> {
        let help = [getopt::Long { name: "help", takes_value: false, code: '?' }];
        let parsed = getopt::parse(args, "bcCdDeFK:lLp:PqSt:uv", &help);
        let mut out = ZdbArgs { operands: parsed.operands, ..ZdbArgs::default() };
        let (mut verbose, mut any) = (0, false);
        for opt in parsed.opts {
            match opt {
                Opt::Flag('?') => return Ok(None),
                Opt::Flag('v') => verbose += 1,
                Opt::Flag(flag) => any |= out.flag(flag),
                Opt::Value('K', key) => out.key = Some(KeyPlace::of_zdb(&key)),
                Opt::Value('p', path) => out.search.push(PathBuf::from(path)),
                Opt::Value(_, txg) => {
                    out.txg_max = Some(txg.parse().map_err(|_| format!("incorrect txg specified: {txg}"))?);
                }
                Opt::Missing(flag) => return Err(format!("option requires an argument -- '{flag}'")),
                Opt::Unknown(flag) => return Err(format!("invalid option -- '{flag}'")),
            }
        }
        if out.operands.is_empty() {
            return Err(if out.labels > 0 { "no device was named" } else { "no pool was named" }.to_owned());
        }
        if !any {
            // everything, but not verbosely
            verbose = verbose.max(1);
            let all = [&mut out.blocks, &mut out.checksums, &mut out.config, &mut out.datasets, &mut out.dedup];
            all.into_iter().chain([&mut out.uberblock]).for_each(|count| *count = 1);
        }
        let counts = [&mut out.blocks, &mut out.checksums, &mut out.config, &mut out.datasets, &mut out.labels];
        let others = [&mut out.dedup, &mut out.simulated, &mut out.uberblock];
        for count in counts.into_iter().chain(others).filter(|count| **count > 0) {
            *count += verbose;
        }
        Ok(Some(out))
    }

    /// Counts a flag; true if it asks for something to be shown.
    fn flag(&mut self, flag: char) -> bool {
        let count = match flag {
            'b' => &mut self.blocks,
            'c' => &mut self.checksums,
            'C' => &mut self.config,
            'd' => &mut self.datasets,
            'D' => &mut self.dedup,
            'l' => &mut self.labels,
            'S' => &mut self.simulated,
            'u' => &mut self.uberblock,
            _ => {
                self.no_leaks |= flag == 'L';
                self.parseable |= flag == 'P';
                self.quiet |= flag == 'q';
                self.rewind |= flag == 'F';
                return false;
            }
        };
        *count += 1;
        true
    }

    /// A number for people, or in full with `-P`.
    pub fn number(&self, n: u64) -> String {
        if self.parseable { n.to_string() } else { protocol::words::nicenum::nicenum(n) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<ZdbArgs>, String> {
        ZdbArgs::parse(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn flags_add_up() {
        let args = parse("-e -p /a -p /b -bcc -v tank 5").unwrap().unwrap();
        assert_eq!((args.blocks, args.checksums, args.datasets), (2, 3, 0));
        assert_eq!((args.search.len(), &args.operands[..]), (2, &["tank".to_owned(), "5".to_owned()][..]));
        let all = parse("tank").unwrap().unwrap();
        assert_eq!((all.blocks, all.checksums, all.datasets, all.labels), (2, 2, 2, 0));
        let dedup = parse("-DDvS tank").unwrap().unwrap();
        assert_eq!((all.dedup, all.simulated, dedup.dedup, dedup.simulated, dedup.blocks), (2, 0, 3, 2, 0));
        assert!(parse("--help").unwrap().is_none());
        for wrong in ["-x tank", "-b", "-l", "-t five tank", "tank -t"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
