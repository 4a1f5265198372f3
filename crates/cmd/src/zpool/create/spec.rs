//! The vdev words of a command line: `mirror a b log c spare d` becomes vdevs, and every device is found.
//!
//! ```text
//!   word      mirror raidz[1-3] draid... spare cache   begin a group: the devices up to the next such word
//!             log special dedup                       say what the vdevs that follow are for
//!             anything else                           a device: /path, or a name below /dev
//! ```

use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use pool::{NewLeaf, NewVdev, NewVdevShape};
use protocol::words::of_system;
use vdev::draid::DRAID_CHILDREN_MAX;
use vdev::spec::Bias;

use super::super::names::DEVICE_FOLDERS;
use super::draid;
use crate::patience::{metadata, real_path};

/// Most devices of a raidz.
const RAIDZ_DEVICES_MAX: usize = 255;

/// The vdevs that a command line speaks of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewPoolSpec {
    /// Top-level vdevs, in order.
    pub vdevs: Vec<NewVdev>,
    /// Spares.
    pub spares: Vec<NewLeaf>,
    /// Cache devices.
    pub caches: Vec<NewLeaf>,
}

/// What a word means.
enum Word {
    Group(SpecGroup),
    Bias(Bias),
    Device,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SpecGroup {
    Vdev(NewVdevShape),
    /// Of that parity.
    Draid(u64),
    Spare,
    Cache,
}

fn meaning(word: &str) -> Word {
    match word {
        "mirror" => Word::Group(SpecGroup::Vdev(NewVdevShape::Mirror)),
        "raidz" | "raidz1" => Word::Group(SpecGroup::Vdev(NewVdevShape::Raidz(1))),
        "raidz2" => Word::Group(SpecGroup::Vdev(NewVdevShape::Raidz(2))),
        "raidz3" => Word::Group(SpecGroup::Vdev(NewVdevShape::Raidz(3))),
        "spare" => Word::Group(SpecGroup::Spare),
        "cache" => Word::Group(SpecGroup::Cache),
        "log" => Word::Bias(Bias::Log),
        "special" => Word::Bias(Bias::Special),
        "dedup" => Word::Bias(Bias::Dedup),
        _ => draid::parity(word).map_or(Word::Device, |parity| Word::Group(SpecGroup::Draid(parity))),
    }
}

impl NewPoolSpec {
    /// Reads the words for a new pool, and finds the devices. Errors: what is wrong, for the user.
    pub fn parse(words: &[String]) -> Result<NewPoolSpec, String> {
        let spec = NewPoolSpec::parse_more(words)?;
        match spec.vdevs.iter().any(|vdev| vdev.bias != Some(Bias::Log)) {
            true => Ok(spec),
            false => Err("invalid vdev specification: at least one toplevel vdev must be specified".to_owned()),
        }
    }

    /// The same for a pool that is there already.
    pub fn parse_more(words: &[String]) -> Result<NewPoolSpec, String> {
        let wrong = |why: String| format!("invalid vdev specification: {why}");
        let mut spec = NewPoolSpec::default();
        let mut bias = None;
        let (mut has_log, mut words) = (false, words);
        while let Some((word, rest)) = words.split_first() {
            let group = match meaning(word) {
                Word::Bias(Bias::Log) if has_log => {
                    return Err(wrong("'log' can be specified only once".to_owned()));
                }
                Word::Bias(new) => {
                    has_log |= new == Bias::Log;
                    (bias, words) = (Some(new), rest);
                    continue;
                }
                Word::Device => {
                    spec.vdevs.push(NewVdev { shape: NewVdevShape::Single, bias, leaves: vec![leaf(word)?] });
                    words = rest;
                    continue;
                }
                Word::Group(group) => group,
            };
            match group {
                SpecGroup::Spare | SpecGroup::Cache => {
                    let is_second = !(if group == SpecGroup::Spare { &spec.spares } else { &spec.caches }).is_empty();
                    if is_second {
                        return Err(wrong(format!("'{word}' can be specified only once")));
                    }
                    bias = None;
                }
                SpecGroup::Vdev(NewVdevShape::Mirror) => {}
                SpecGroup::Vdev(_) | SpecGroup::Draid(_) if bias == Some(Bias::Log) => {
                    let kind = if matches!(group, SpecGroup::Draid(_)) { "draid" } else { "raidz" };
                    return Err(wrong(format!("unsupported 'log' device: {kind}")));
                }
                SpecGroup::Vdev(_) | SpecGroup::Draid(_) => {}
            }
            let count = rest.iter().position(|word| !matches!(meaning(word), Word::Device)).unwrap_or(rest.len());
            let leaves = rest[..count].iter().map(|word| leaf(word)).collect::<Result<Vec<_>, _>>()?;
            check_count(word, group, count).map_err(wrong)?;
            words = &rest[count..];
            match group {
                SpecGroup::Vdev(shape) => spec.vdevs.push(NewVdev { shape, bias, leaves }),
                SpecGroup::Draid(parity) => {
                    let shape = NewVdevShape::Draid(draid::shape(word, parity, count)?);
                    spec.vdevs.push(NewVdev { shape, bias, leaves });
                }
                SpecGroup::Spare => spec.spares = leaves,
                SpecGroup::Cache => spec.caches = leaves,
            }
        }
        if has_log && !spec.vdevs.iter().any(|vdev| vdev.bias == Some(Bias::Log)) {
            return Err(wrong("log requires at least 1 device".to_owned()));
        }
        if spec.leaves().next().is_none() {
            return Err(wrong("at least one toplevel vdev must be specified".to_owned()));
        }
        Ok(spec)
    }

    /// All devices.
    pub fn leaves(&self) -> impl Iterator<Item = &NewLeaf> {
        self.vdevs.iter().flat_map(|vdev| &vdev.leaves).chain(&self.spares).chain(&self.caches)
    }
}

fn check_count(word: &str, group: SpecGroup, count: usize) -> Result<(), String> {
    let (least, most) = match group {
        SpecGroup::Vdev(NewVdevShape::Mirror) => (2, usize::MAX),
        SpecGroup::Vdev(NewVdevShape::Raidz(parity)) => (parity + 1, RAIDZ_DEVICES_MAX),
        SpecGroup::Draid(parity) => (parity as usize + 1, DRAID_CHILDREN_MAX),
        _ => (1, usize::MAX),
    };
    if count < least {
        return Err(format!("{word} requires at least {least} devices"));
    }
    if count > most {
        return Err(format!("{word} supports no more than {most} devices"));
    }
    Ok(())
}

/// The device that a word stands for.
fn leaf(word: &str) -> Result<NewLeaf, String> {
    let (path, metadata) = if word.starts_with('/') {
        let path = real_path(word).map_err(|_| format!("cannot resolve path '{word}'"))?;
        let metadata = metadata(&path).map_err(|e| format!("cannot open '{}': {}", path.display(), of_system(&e)))?;
        (word.to_owned(), metadata)
    } else {
        by_short_name(word).ok_or_else(|| {
            format!("cannot open '{word}': no such device in /dev\nmust be a full path or shorthand device name")
        })?
    };
    let kind = metadata.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(format!("cannot use '{path}': must be a block device or regular file"));
    }
    Ok(NewLeaf { path, is_file: kind.is_file() })
}

fn by_short_name(word: &str) -> Option<(String, Metadata)> {
    let mut paths = DEVICE_FOLDERS.iter().map(|folder| format!("{folder}{word}"));
    paths.find_map(|path| Path::new(&path).metadata().ok().map(|metadata| (path.clone(), metadata)))
}
