//! Reading everything in a pool: what a survey finds can be compared with another's.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use base::{Env, Error, Kind, Result};
use device::Device;
use dmu::{Mode, Objset};
use format::ids::ObjectId;
use format::objset::ObjsetType;
use pool::{Candidate, Discovery, FoundDevice, OpenOptions, Pool};
use sha2::{Digest, Sha256};
use zpl::{FileKind, Zpl};

/// More entries than any pool of the corpus has; a survey that finds more goes in circles.
const ENTRIES_MAX: usize = 1_000_000;

/// What was read, by what it is: a digest, or the error.
#[derive(Debug, Default)]
pub struct Survey {
    /// For instance `tank/home:/docs data`.
    pub found: BTreeMap<String, Result<Vec<u8>, String>>,
}

/// Opens the one pool on these devices as it stands in their labels.
pub fn open(devices: &[Arc<dyn Device>], env: &Env) -> Result<Pool> {
    let found = devices.iter().filter_map(|device| FoundDevice::examine(device.path(), device.clone()).ok());
    let found = Discovery { devices: found.flatten().collect(), failed: Vec::new() };
    let candidates = Candidate::all(&found);
    let candidate = candidates.first().ok_or_else(|| Error::corrupt("no pool on these devices"))?;
    Pool::open(env, candidate, &OpenOptions { cache_bytes: Some(64 << 20), ..OpenOptions::default() })
}

impl Survey {
    /// Reads every file, directory, link, attribute and volume of every dataset and snapshot.
    pub fn of(pool: &Pool) -> Survey {
        Survey::of_those(pool, &|_| true)
    }

    /// The same of the datasets and snapshots whose names are wanted.
    pub fn of_those(pool: &Pool, is_wanted: &dyn Fn(&str) -> bool) -> Survey {
        let mut survey = Survey::default();
        let dsl = pool.dsl();
        let mut datasets = Vec::new();
        survey.note("tree".into(), || {
            for dir in dsl.walk()? {
                let head = dsl.head(&dir)?;
                datasets.push(head.clone());
                datasets.extend(dsl.snapshots(&head)?);
            }
            Ok(datasets.iter().flat_map(|dataset| dataset.name.bytes().chain([0])).collect())
        });
        for dataset in datasets.into_iter().filter(|dataset| is_wanted(&dataset.name)) {
            match dsl.objset(&dataset, Mode::Plain) {
                Ok(objset) if objset.kind() == ObjsetType::Zfs => survey.file_system(&dataset.name, objset),
                Ok(objset) => survey.objects(&dataset.name, &objset),
                Err(e) => {
                    survey.found.insert(format!("{} open", dataset.name), Err(e.to_string()));
                }
            }
        }
        survey
    }

    /// Everything in `self` that is neither an error nor the same in `truth`.
    pub fn lies<'a>(&'a self, truth: &'a Survey) -> Vec<&'a str> {
        let lie = |(what, result): (&'a String, &'a Result<Vec<u8>, String>)| match (result, truth.found.get(what)) {
            (Err(_), _) => None,
            (Ok(digest), Some(Ok(expected))) if digest == expected => None,
            _ => Some(what.as_str()),
        };
        self.found.iter().filter_map(lie).collect()
    }

    /// What is an error in `self` and was none in `truth`.
    pub fn errors<'a>(&'a self, truth: &Survey) -> Vec<(&'a str, &'a str)> {
        let error = |(what, result): (&'a String, &'a Result<Vec<u8>, String>)| match result {
            Err(e) if truth.found.get(what).is_none_or(Result::is_ok) => Some((what.as_str(), e.as_str())),
            _ => None,
        };
        self.found.iter().filter_map(error).collect()
    }

    fn note(&mut self, what: String, read: impl FnOnce() -> Result<Vec<u8>>) {
        let result = read().map(|bytes| Sha256::digest(bytes).to_vec()).map_err(|e| e.to_string());
        self.found.insert(what, result);
        assert!(self.found.len() < ENTRIES_MAX, "a survey without an end");
    }

    fn file_system(&mut self, name: &str, objset: Arc<Objset>) {
        let zpl = match Zpl::open(objset) {
            Ok(zpl) => zpl,
            Err(e) => {
                self.found.insert(format!("{name} open"), Err(e.to_string()));
                return;
            }
        };
        let mut pending = vec![(zpl.root(), String::new(), 0)];
        while let Some((ino, path, depth)) = pending.pop() {
            let place = format!("{name}:{path}/");
            let mut kind = None;
            self.note(format!("{place} stat"), || {
                let stat = zpl.stat(ino)?;
                kind = Some(stat.kind);
                Ok(format!("{stat:?}").into_bytes())
            });
            self.note(format!("{place} xattrs"), || {
                let mut all = Vec::new();
                for name in zpl.xattr_names(ino)? {
                    all.extend_from_slice(&name);
                    all.extend_from_slice(&zpl.xattr(ino, &name)?);
                }
                Ok(all)
            });
            self.note(format!("{place} acl"), || Ok(format!("{:?}", zpl.acl(ino)?).into_bytes()));
            match kind {
                Some(FileKind::Directory) if depth < 1_000 => {
                    let mut below = Vec::new();
                    let mut kinds = Ok(Vec::new());
                    self.note(format!("{place} names"), || {
                        let mut all = Vec::new();
                        zpl.readdir(ino, 0, &mut |entry| {
                            all.extend_from_slice(format!("{} ", entry.ino).as_bytes());
                            match (&mut kinds, entry.kind) {
                                (Ok(known), Some(kind)) => known.push((kind.mode_bits() >> 12) as u8),
                                _ => {
                                    kinds = Err(Error::new(Kind::NotFound, "the kind of an entry is not known")
                                        .in_dataset(name))
                                }
                            }
                            all.extend_from_slice(&entry.name);
                            if entry.name != b"." && entry.name != b".." {
                                below.push((entry.ino, format!("{path}/{}", entry.name.escape_ascii()), depth + 1));
                            }
                            if below.len() < ENTRIES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                        })?;
                        Ok(all)
                    });
                    if self.found[&format!("{place} names")].is_ok() {
                        self.note(format!("{place} kinds"), || kinds);
                    }
                    // a directory that was read in part may have named anything
                    if self.found[&format!("{place} names")].is_ok() {
                        pending.extend(below);
                    }
                }
                Some(FileKind::Symlink) => self.note(format!("{place} target"), || zpl.readlink(ino)),
                Some(FileKind::File) => self.note(format!("{place} data"), || {
                    let file = zpl.open_file(ino)?;
                    contents(file.size(), |at| file.seek_data(at), |at, buf| file.read(at, buf))
                }),
                _ => {}
            }
        }
    }

    /// The data of every object, as that of volumes.
    fn objects(&mut self, name: &str, objset: &Arc<Objset>) {
        let mut last = ObjectId::NONE;
        loop {
            match objset.next_object(last) {
                Ok(Some(id)) => last = id,
                Ok(None) => return,
                Err(e) => {
                    self.found.insert(format!("{name} objects after {last}"), Err(e.to_string()));
                    return;
                }
            }
            self.note(format!("{name} object {last}"), || {
                let object = objset.object(last)?;
                contents(
                    object.dnode().size_max(),
                    |at| object.next_allocated(at..u64::MAX),
                    |at, buf| {
                        object.read(at, buf)?;
                        Ok(buf.len())
                    },
                )
            });
        }
    }
}

/// A digest of data and of where it lies, so that a file of 2^63 bytes takes no longer than its data.
fn contents(
    size: u64,
    next_data: impl Fn(u64) -> Result<Option<u64>>,
    read: impl Fn(u64, &mut [u8]) -> Result<usize>,
) -> Result<Vec<u8>> {
    let mut sum = Sha256::new();
    sum.update(size.to_le_bytes());
    let (mut at, mut buf) = (0, vec![0; 1 << 20]);
    while at < size {
        let Some(data) = next_data(at)?.filter(|data| *data < size) else { break };
        let len = buf.len().min((size - data) as usize);
        let n = read(data, &mut buf[..len])?;
        if n == 0 {
            return Err(Error::corrupt("read of nothing within the file"));
        }
        sum.update(data.to_le_bytes());
        sum.update(&buf[..n]);
        at = data + n as u64;
    }
    Ok(sum.finalize().to_vec())
}
