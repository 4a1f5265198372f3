//! `inspect labels` and `inspect uberblocks`: what each device says of itself.
//!
//! Devices are those on which at least one label is good, and files that were named, whatever they hold.

use std::io::Write;
use std::sync::Arc;

use base::Result;
use device::{Device, FileDevice, OpenMode};
use format::ids::Guid;
use format::nvlist::NvList;
use format::uberblock::Uberblock;
use pool::FoundDevice;
use protocol::words::time;
use serde_json::{Value as Json, json};
use vdev::label::{self, Label};

use super::args::DeviceArgs;
use super::json;
use crate::offline::Opener;
use crate::output::complain;
use crate::zdb::text::{Pointer, print_nvlist};

/// A device and its labels, good or bad.
struct Labelled {
    path: String,
    labels: [Result<Label>; label::COUNT],
    ashift: u32,
    pool_guid: Option<Guid>,
}

/// A slot of a ring.
struct Slot {
    number: usize,
    /// The labels in which the slot says the same.
    labels: Vec<usize>,
    offset: u64,
    uberblock: Result<Uberblock>,
}

pub fn labels(args: &DeviceArgs, opener: &mut Opener, out: &mut dyn Write) -> Result<bool> {
    let mut all = Vec::new();
    for device in devices(args, opener)? {
        let labels: Vec<(usize, Result<NvList>)> =
            device.labels.iter().map(|label| label.as_ref().map_err(copy).and_then(config_of)).enumerate().collect();
        if args.json {
            let labels = labels.iter().map(|(number, config)| match config {
                Ok(config) => json!({"label": number, "good": true, "config": json::of_list(config)}),
                Err(e) => json!({"label": number, "good": false, "error": e.to_string()}),
            });
            all.push(json!({"device": device.path, "labels": labels.collect::<Vec<Json>>()}));
            continue;
        }
        writeln!(out, "{}", device.path)?;
        let mut shown: Option<&NvList> = None;
        for (number, config) in &labels {
            match config {
                Err(e) => writeln!(out, "  label {number}: bad: {e}")?,
                Ok(config) if shown == Some(config) => writeln!(out, "  label {number}: good, the same")?,
                Ok(config) => {
                    writeln!(out, "  label {number}: good, {}", summary(config))?;
                    if args.verbose {
                        print_nvlist(config, 4, out)?;
                    }
                    shown = Some(config);
                }
            }
        }
    }
    if args.json {
        writeln!(out, "{}", json!({ "devices": all }))?;
    }
    Ok(true)
}

pub fn uberblocks(args: &DeviceArgs, opener: &mut Opener, out: &mut dyn Write) -> Result<bool> {
    let devices = devices(args, opener)?;
    let rings: Vec<(&Labelled, Vec<Slot>)> = devices.iter().map(|device| (device, device.slots())).collect();
    // of each pool, the one that an import takes
    let in_force = |guid: Option<Guid>| {
        let of_pool = rings.iter().filter(|(device, _)| device.pool_guid == guid);
        let good = of_pool.flat_map(|(_, slots)| slots).filter_map(|slot| slot.uberblock.as_ref().ok());
        good.max_by_key(|uberblock| uberblock.rank()).cloned()
    };
    let mut all = Vec::new();
    for (device, slots) in &rings {
        let best = in_force(device.pool_guid);
        if args.json {
            let slots = slots.iter().map(|slot| slot.to_json(best.as_ref()));
            all.push(json!({"device": device.path, "uberblocks": slots.collect::<Vec<Json>>()}));
            continue;
        }
        writeln!(out, "{}", device.path)?;
        writeln!(out, "   slot  labels  {:>10}  {:<24}  version  state", "txg", "time")?;
        for slot in slots {
            slot.print(best.as_ref(), args.verbose, out)?;
        }
    }
    if args.json {
        writeln!(out, "{}", json!({ "devices": all }))?;
    }
    Ok(true)
}

/// The devices found, and files named that nothing was found on.
fn devices(args: &DeviceArgs, opener: &mut Opener) -> Result<Vec<Labelled>> {
    let wanted = match &args.name {
        Some(name) => Some(opener.candidate(name)?.guid),
        None => None,
    };
    let discovery = opener.discover()?;
    let mut all: Vec<Labelled> = discovery.devices.iter().map(Labelled::of_found).collect();
    for path in args.pool.search.iter().filter(|path| !path.is_dir()) {
        let path = path.display().to_string();
        let is_found = |found: &Labelled| found.path == path || found.path.starts_with(&format!("{path}:"));
        if !all.iter().any(is_found) {
            all.push(Labelled::of(&path, &FileDevice::open(&path, OpenMode::ReadOnlyCached)?, None));
        }
    }
    for (path, e) in &discovery.failed {
        complain("inspect", format_args!("{path}: {e}"));
    }
    all.retain(|device| wanted.is_none() || device.pool_guid == wanted);
    Ok(all)
}

impl Labelled {
    fn of_found(found: &FoundDevice) -> Labelled {
        let device: &Arc<dyn Device> = &found.device;
        Labelled::of(&found.path, &**device, Some(&found.config))
    }

    fn of(path: &str, device: &dyn Device, config: Option<&NvList>) -> Labelled {
        let tree = config.and_then(|config| config.opt_list("vdev_tree"));
        let ashift = tree.and_then(|tree| tree.opt_u64("ashift")).and_then(|n| n.try_into().ok()).unwrap_or(9);
        let pool_guid = config.and_then(|config| config.opt_guid("pool_guid"));
        Labelled { path: path.to_owned(), labels: label::read_labels(device).labels, ashift, pool_guid }
    }

    /// The slots of the four rings; those that say the same are one.
    fn slots(&self) -> Vec<Slot> {
        let mut slots: Vec<Slot> = Vec::new();
        for label in self.labels.iter().flatten() {
            for found in label.uberblocks(self.ashift) {
                let uberblock = found.bytes.and_then(|bytes| {
                    Uberblock::parse(bytes)?.ok_or_else(|| base::Error::corrupt("sum without an uberblock"))
                });
                let same = |slot: &&mut Slot| match (&slot.uberblock, &uberblock) {
                    (Ok(a), Ok(b)) => slot.number == found.slot && a == b,
                    _ => false,
                };
                match slots.iter_mut().find(same) {
                    Some(slot) => slot.labels.push(found.label),
                    None => {
                        let (number, offset) = (found.slot, found.offset);
                        slots.push(Slot { number, labels: vec![found.label], offset, uberblock });
                    }
                }
            }
        }
        slots.sort_by_key(|slot| (slot.number, slot.labels[0]));
        slots
    }
}

impl Slot {
    fn print(&self, best: Option<&Uberblock>, verbose: bool, out: &mut dyn Write) -> Result<()> {
        let labels: String = self.labels.iter().map(|label| label.to_string()).collect();
        match &self.uberblock {
            Ok(ub) => {
                let (mark, state) = match best == Some(ub) {
                    true => ('*', "good, in force"),
                    false => (' ', "good"),
                };
                let date = time::local(ub.timestamp_s, c"%Y-%m-%d %H:%M:%S %z");
                let (slot, txg, version) = (self.number, ub.txg, ub.version);
                writeln!(out, "{mark}  {slot:>4}  {labels:<6}  {txg:>10}  {date:<24}  {version:>7}  {state}")?;
                if verbose {
                    writeln!(out, "         {}", Pointer(&ub.rootbp))?;
                }
            }
            Err(e) => {
                let slot = self.number;
                writeln!(out, "   {slot:>4}  {labels:<6}  {:>10}  {:<24}  {:>7}  bad: {e}", "-", "-", "-")?;
            }
        }
        Ok(())
    }

    fn to_json(&self, best: Option<&Uberblock>) -> Json {
        let mut json = json!({"slot": self.number, "labels": self.labels, "offset": self.offset});
        let more = match &self.uberblock {
            Ok(ub) => json!({
                "good": true,
                "in_force": best == Some(ub),
                "txg": ub.txg,
                "timestamp": ub.timestamp_s,
                "version": ub.version,
                "guid_sum": ub.guid_sum,
                "software_version": ub.software_version,
                "checkpoint_txg": ub.checkpoint_txg,
                "byte_order": if ub.endian == base::Endian::Little { "little" } else { "big" },
                "rootbp": Pointer(&ub.rootbp).to_string(),
            }),
            Err(e) => json!({"good": false, "error": e.to_string()}),
        };
        if let (Json::Object(json), Json::Object(more)) = (&mut json, more) {
            json.extend(more);
        }
        json
    }
}

fn config_of(label: &Label) -> Result<NvList> {
    NvList::unpack(label.config()?)
}

/// An error cannot be cloned; what it says can.
fn copy(e: &base::Error) -> base::Error {
    base::Error::new(e.kind(), e.to_string())
}

/// What a configuration says, in a line.
fn summary(config: &NvList) -> String {
    let number = |name| config.opt_u64(name).map_or_else(|| "-".to_owned(), |n| n.to_string());
    let state = match config.opt_u64("state") {
        Some(0) => "active",
        Some(1) => "exported",
        Some(2) => "destroyed",
        Some(3) => "spare",
        Some(4) => "cache",
        _ => "in an unknown state",
    };
    let name = config.opt_str("name").unwrap_or("-");
    let (guid, txg, leaf) = (number("pool_guid"), number("txg"), number("guid"));
    format!("pool '{name}' guid {guid} {state}, txg {txg}, device guid {leaf}")
}
