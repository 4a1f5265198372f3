//! What to buy, in words.

use arc::miniature::{ForetoldDevice, HitShare};
use protocol::words::nicenum::{nicebytes, nicenum};

use super::answer::{CacheAnswer, percent, rate};

/// The part of the reads that something has to serve more to be worth its price.
const WORTH: f64 = 0.02;
/// A smaller size that does so much of what the best one does is enough.
const ENOUGH: f64 = 0.9;
/// Reads below which nothing is said, and those of them that have to be in the sample.
const READS_MIN: u64 = 10_000;
const DRAWN_MIN: u64 = 1000;
/// The part of the cache in RAM from which on an index is called large.
const INDEX_LARGE: f64 = 0.2;
/// Writes of the whole device a day that are called many: most SSDs are made for fewer.
const WEAR_HIGH: f64 = 1.0;

/// Whether something pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pays {
    /// One of this size does.
    Buy(u64),
    DoNotBuy,
    /// Too little is known.
    Unknown,
}

impl Pays {
    /// For programs.
    pub fn word(self) -> &'static str {
        match self {
            Pays::Buy(_) => "buy",
            Pays::DoNotBuy => "do not buy",
            Pays::Unknown => "unknown",
        }
    }
}

/// What to do.
pub struct CacheVerdict {
    pub device: Pays,
    pub ram: Pays,
    pub sentences: Vec<String>,
}

/// The smallest size that does nearly what the best one does, and how much more is served then; `None` if that is
/// hardly anything.
fn choice(now: f64, sizes: impl Iterator<Item = (u64, f64)> + Clone) -> Option<(u64, f64)> {
    let best = sizes.clone().map(|(_, hits)| hits - now).fold(0.0, f64::max);
    let enough = |(_, hits): &(u64, f64)| hits - now >= ENOUGH * best;
    let (bytes, hits) = sizes.filter(enough).min_by_key(|(bytes, _)| *bytes)?;
    (best >= WORTH).then_some((bytes, hits - now))
}

/// What the figures mean.
pub fn verdict(answer: &CacheAnswer) -> CacheVerdict {
    let foretold = &answer.foretold;
    if foretold.reads < READS_MIN || foretold.drawn_reads < DRAWN_MIN {
        let reads = nicenum(foretold.reads);
        let few = if answer.live.is_some() { "Not enough seen yet" } else { "Too little was read to say anything" };
        let sentences = vec![format!("{few}: {reads} reads.")];
        return CacheVerdict { device: Pays::Unknown, ram: Pays::Unknown, sentences };
    }
    if let Some(live) = answer.live
        && !live.is_warm(answer.ram)
    {
        let [ram, seen] = [answer.ram, live.warm_bytes].map(nicebytes);
        let why =
            format!("Not enough seen yet: a cache of {ram} is not full of the {seen} that were asked for so far.");
        return CacheVerdict { device: Pays::Unknown, ram: Pays::Unknown, sentences: vec![why] };
    }
    let now = answer.now().value;
    let mut sentences = vec![format!(
        "{} of RAM serve {} of the reads. {} are the first of their blocks, or of what was written since: no cache \
         serves these.",
        nicebytes(answer.ram),
        percent(now),
        percent(1.0 - foretold.endless.value),
    )];
    let rams = foretold.rams.iter().map(|ram| (ram.bytes, ram.hits.value));
    let ram = choice(now, rams.filter(|(bytes, _)| *bytes > answer.ram));
    let device = choice(now, foretold.devices.iter().map(|device| (device.bytes, device.hits.value)));
    let is_unknown =
        |bytes: u64, hits: HitShare| answer.live.is_some_and(|live| !live.is_warm(bytes) && hits.high - now >= WORTH);
    let is_ram_unknown = ram.is_none() && foretold.rams.iter().any(|ram| is_unknown(ram.bytes, ram.hits));
    let of_device_unknown = |device: &ForetoldDevice| is_unknown(device.bytes.saturating_add(answer.ram), device.hits);
    let is_device_unknown = device.is_none() && foretold.devices.iter().any(of_device_unknown);
    match is_device_unknown {
        true => sentences.push("Whether a cache device pays is not known yet: not enough was seen.".to_owned()),
        false => sentences.extend(of_device(answer, device)),
    }
    sentences.push(match ram {
        Some((bytes, gain)) => format!("{} of RAM would serve {} more.", nicebytes(bytes), percent(gain)),
        None if is_ram_unknown => "Whether more RAM pays is not known yet: not enough was seen.".to_owned(),
        None => "Do not buy RAM for this: much more of it would serve hardly a read more.".to_owned(),
    });
    if let (Some((_, by_device)), Some((bytes, by_ram))) = (device, ram)
        && by_ram >= by_device
        && bytes <= 2 * answer.ram
    {
        sentences.push(format!("{} of RAM do as much as the device, and faster.", nicebytes(bytes)));
    }
    let pays = |choice: Option<(u64, f64)>, is_unknown: bool| match choice {
        Some((bytes, _)) => Pays::Buy(bytes),
        None if is_unknown => Pays::Unknown,
        None => Pays::DoNotBuy,
    };
    CacheVerdict { device: pays(device, is_device_unknown), ram: pays(ram, is_ram_unknown), sentences }
}

fn of_device(answer: &CacheAnswer, choice: Option<(u64, f64)>) -> Vec<String> {
    let devices = &answer.foretold.devices;
    let Some((bytes, gain)) = choice else {
        let largest = devices.last().map_or(0, |device| device.bytes);
        let what = "would serve hardly a read more than RAM does";
        return vec![format!("Do not buy a cache device: even one of {} {what}.", nicebytes(largest))];
    };
    let Some(device) = devices.iter().find(|device| device.bytes == bytes) else { return Vec::new() };
    let written = answer.a_day(device.written);
    let mut sentences = vec![format!(
        "A cache device of {} would serve {} more: {} of {} reads a second are left for the disks. It would be written {} \
         a day, and its index takes {} of RAM.",
        nicebytes(bytes),
        percent(gain),
        rate(answer.disk_reads(device.hits)),
        rate(answer.disk_reads(answer.now())),
        nicebytes(written),
        nicebytes(device.index),
    )];
    let times = written as f64 / bytes.max(1) as f64;
    if times > WEAR_HIGH {
        sentences.push(format!("That is {times:.1} times its size a day: look at what the device is rated for."));
    }
    if device.index as f64 > INDEX_LARGE * answer.ram as f64 {
        sentences
            .push("Its index takes much of the RAM, which serves fewer reads then; that is not in the figures.".into());
    }
    sentences
}
