//! `zdb -l`: the labels of a device as they are, whether or not they belong to a pool that opens.
//!
//! The four labels of a device mostly say the same. Each configuration, and with `-u` each uberblock, is
//! shown once, with the numbers of the labels that have it. Sums are not checked: what is here is there
//! to be read by people, and `cenote inspect labels` tells which sums are right.

use std::io::Write;

use base::Result;
use device::{FileDevice, OpenMode};
use format::nvlist::NvList;
use format::uberblock::Uberblock;
use vdev::label::{self, Label};

use super::args::ZdbArgs;
use super::config;
use super::text::print_nvlist;

/// Exit code: some labels could not be read.
const PARTLY: u8 = 1;
/// Exit code: there are no labels.
const NONE: u8 = 2;
/// Where things are in a label.
const CONFIG_AT: usize = 16 << 10;
const RING_AT: usize = 128 << 10;

/// One label as far as it makes sense.
struct FoundLabel<'a> {
    label: &'a Label,
    config: Option<NvList>,
    /// By slot; bytes count as the same if the uberblocks are.
    uberblocks: Vec<Option<Uberblock>>,
}

/// Prints the labels of all devices named; the exit code is that of the last one that is not whole.
pub fn print(args: &ZdbArgs, out: &mut dyn Write) -> Result<u8> {
    let mut code = 0;
    for path in &args.operands {
        code = match print_device(args, path, out)? {
            0 => code,
            bad => bad,
        };
    }
    Ok(code)
}

fn print_device(args: &ZdbArgs, path: &str, out: &mut dyn Write) -> Result<u8> {
    let device = FileDevice::open(path, OpenMode::ReadOnlyCached)?;
    let labels = label::read_labels(&device).labels;
    let mut ashift = 9;
    let mut all: Vec<Option<FoundLabel<'_>>> = Vec::new();
    for label in &labels {
        let found = label.as_ref().ok().map(|label| FoundLabel::of(label, &mut ashift));
        all.push(found);
    }
    for (number, found) in all.iter().enumerate() {
        let mut header = false;
        match found {
            None if args.quiet => {}
            None => writeln!(out, "failed to read label {number}")?,
            Some(found) => {
                if let Some(config) = &found.config {
                    let same = |other: &FoundLabel<'_>| other.config.as_ref() == Some(config);
                    let holders = numbers(&all, same);
                    if !args.quiet && (args.labels >= 3 || holders.first() == Some(&number)) {
                        print_header(number, &mut header, out)?;
                        print_nvlist(config, 4, out)?;
                        writeln!(out, "    labels = {}", list(&holders))?;
                    }
                } else if !args.quiet {
                    writeln!(out, "failed to unpack label {number}")?;
                }
                if args.uberblock > 0 {
                    print_ring(args, &all, number, found, &mut header, out)?;
                }
            }
        }
    }
    let configs = all.iter().flatten().filter(|found| found.config.is_some()).count();
    Ok(match configs {
        0 => NONE,
        label::COUNT => 0,
        _ => PARTLY,
    })
}

fn print_ring(
    args: &ZdbArgs,
    all: &[Option<FoundLabel<'_>>],
    number: usize,
    found: &FoundLabel<'_>,
    header: &mut bool,
    out: &mut dyn Write,
) -> Result<()> {
    let count = found.uberblocks.len();
    for (slot, uberblock) in found.uberblocks.iter().enumerate() {
        let Some(uberblock) = uberblock else {
            if args.uberblock >= 2 && !args.quiet {
                print_header(number, header, out)?;
                writeln!(out, "    Uberblock[{slot}] invalid")?;
            }
            continue;
        };
        let same = |other: &FoundLabel<'_>| other.uberblocks.iter().flatten().any(|ub| ub == uberblock);
        let holders = numbers(all, same);
        if args.uberblock < 3 && holders.first() != Some(&number) {
            continue;
        }
        // the last slot is rewritten all the time if several hosts may import the pool
        let is_heartbeat = uberblock.mmp.is_some_and(|mmp| mmp.delay_ns != 0) && slot + 1 == count;
        if args.uberblock < 4 && is_heartbeat {
            continue;
        }
        if !args.quiet {
            print_header(number, header, out)?;
        }
        writeln!(out, "    Uberblock[{slot}]")?;
        config::uberblock(uberblock, args.uberblock >= 4, out)?;
        writeln!(out, "        labels = {}", list(&holders))?;
    }
    Ok(())
}

impl<'a> FoundLabel<'a> {
    /// `ashift` is that of the last configuration that told it.
    fn of(label: &'a Label, ashift: &mut u32) -> FoundLabel<'a> {
        let bytes = label.bytes();
        let config = NvList::unpack(&bytes[CONFIG_AT..RING_AT]).ok();
        if let Some(config) = &config {
            let tree = config.opt_list("vdev_tree").and_then(|tree| tree.opt_u64("ashift"));
            *ashift = tree.and_then(|ashift| ashift.try_into().ok()).unwrap_or(9);
        }
        let slots = bytes[RING_AT..].chunks_exact(label::slot_bytes(*ashift));
        let uberblocks = slots.map(|slot| Uberblock::parse(slot).ok().flatten()).collect();
        FoundLabel { label, config, uberblocks }
    }
}

/// The numbers of the labels of which something is true.
fn numbers(all: &[Option<FoundLabel<'_>>], test: impl Fn(&FoundLabel<'_>) -> bool) -> Vec<usize> {
    all.iter().flatten().filter(|found| test(found)).map(|found| found.label.number()).collect()
}

fn list(numbers: &[usize]) -> String {
    numbers.iter().map(|number| format!("{number} ")).collect()
}

fn print_header(number: usize, printed: &mut bool, out: &mut dyn Write) -> Result<()> {
    const LINE: &str = "------------------------------------";
    if !std::mem::replace(printed, true) {
        writeln!(out, "{LINE}\nLABEL {number}\n{LINE}")?;
    }
    Ok(())
}
