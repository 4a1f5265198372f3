//! `-K`: keys of encrypted datasets, for commands that read pools without importing them.
//!
//! ```text
//!   prompt           a terminal is asked, with echo off; without one, standard input is read as it comes
//!   -                standard input, without asking: one line, or the 32 bytes of a raw key
//!   file:///PATH     one line, or the 32 bytes of a raw key
//! ```
//!
//! A key is that of an encryption root, and is asked for once. Keys of several roots are given by several `-K`; each is
//! tried until one fits.

mod terminal;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use base::{Error, Kind, Result, ResultExt, Shown};
use codec::seal::{SecretBytes, WRAPPING_SIZE, wipe};
use dmu::{Mode, Objset};
use dsl::{Dataset, EncryptionRoot, KeyFormat, SetOfKeys};
use format::ids::{DirId, Guid};
use pool::Pool;

/// Bytes of a line that holds a key, at most.
const LINE_MAX: usize = 4096;
/// How often a terminal is asked.
const TRIES: u32 = 3;
/// From so many rounds on it is told that a passphrase takes its time: seconds.
const MANY_ROUNDS: u32 = 10_000_000;

/// Where keys come from.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct KeyArgs {
    /// Read encrypted datasets with the key of their encryption root: 'prompt' asks for it, '-' is standard input;
    /// may be given several times, for several roots
    #[arg(short = 'K', value_name = "prompt|file:///PATH|-")]
    pub keys: Vec<KeyPlace>,
}

/// Where a key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// A terminal is asked for it.
    Prompt,
    /// Standard input.
    Stdin,
    /// In a file.
    File(PathBuf),
    /// It was given itself, as zdb's `-K` takes it; of a raw key, the path of its file.
    Given(GivenKey),
}

/// A key that was on the command line. It is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct GivenKey(String);

impl std::fmt::Debug for GivenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a key")
    }
}

impl FromStr for KeyPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyPlace, String> {
        match text {
            "prompt" => Ok(KeyPlace::Prompt),
            "-" => Ok(KeyPlace::Stdin),
            _ if text.starts_with("https://") || text.starts_with("http://") => {
                Err("keys are not fetched from other hosts here; prompt, - and file:///PATH are understood".to_owned())
            }
            _ => match text.strip_prefix("file://").map(Path::new) {
                Some(path) if path.is_absolute() => Ok(KeyPlace::File(path.to_owned())),
                Some(_) => Err("file:// is followed by a path from the root: file:///PATH".to_owned()),
                None => Err("that is neither prompt, - nor file:///PATH".to_owned()),
            },
        }
    }
}

impl KeyPlace {
    /// As zdb understands it: what is no place is a key itself.
    pub fn of_zdb(text: &str) -> KeyPlace {
        text.parse().unwrap_or_else(|_| KeyPlace::Given(GivenKey(text.to_owned())))
    }

    /// Whether another try may bring another key.
    fn asks(&self) -> bool {
        *self == KeyPlace::Prompt && io::stdin().is_terminal()
    }

    /// The key of a root that is there.
    fn wrapping_key(&self, root: &EncryptionRoot) -> Result<SecretBytes<WRAPPING_SIZE>> {
        let mut text = self.read(root).in_dataset(&root.name)?;
        tell_of_rounds(root);
        let key = root.wrapping_key(&mut text);
        wipe(&mut text);
        key
    }

    /// A key as it is written down there: without the end of its line, a byte too much of a raw one.
    fn read(&self, root: &EncryptionRoot) -> Result<Vec<u8>> {
        let is_raw = root.format == KeyFormat::Raw;
        match self {
            KeyPlace::Prompt | KeyPlace::Stdin if is_raw && io::stdin().is_terminal() => {
                Err(Error::new(Kind::Invalid, "raw keys cannot be typed"))
            }
            KeyPlace::Prompt if io::stdin().is_terminal() => {
                let what = if root.format == KeyFormat::Hex { "hex key" } else { "passphrase" };
                terminal::ask(&format!("Enter {what} for '{}':", Shown(&root.name)))
            }
            KeyPlace::Prompt | KeyPlace::Stdin => key_in(&mut io::stdin().lock(), is_raw),
            KeyPlace::Given(key) if !is_raw => Ok(key.0.clone().into_bytes()),
            KeyPlace::File(path) => in_file(path, is_raw),
            KeyPlace::Given(key) => in_file(Path::new(&key.0), is_raw),
        }
    }
}

fn in_file(path: &Path, is_raw: bool) -> Result<Vec<u8>> {
    let mut file = File::open(path).map_err(|e| not_read(path, &e))?;
    key_in(&mut file, is_raw).map_err(|e| Error::new(e.kind(), format!("{}: {}", path.display(), e.what())))
}

fn not_read(path: &Path, error: &io::Error) -> Error {
    Error::new(Kind::Io, format!("{}: {error}", path.display()))
}

/// A key in what is read: up to 33 bytes of a raw one, else one line.
fn key_in(from: &mut dyn Read, is_raw: bool) -> Result<Vec<u8>> {
    let most = if is_raw { WRAPPING_SIZE + 1 } else { LINE_MAX };
    let mut key = Vec::with_capacity(most);
    let mut byte = [0];
    while key.len() < most {
        match from.read(&mut byte) {
            Ok(0) => break,
            Ok(_) if !is_raw && byte[0] == b'\n' => return Ok(key),
            Ok(_) => key.push(byte[0]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::new(Kind::Io, format!("reading the key: {e}"))),
        }
    }
    if !is_raw && key.len() == most {
        return Err(Error::new(Kind::Invalid, format!("a key of more than {LINE_MAX} bytes")));
    }
    if key.is_empty() {
        return Err(Error::new(Kind::Invalid, "there is no key"));
    }
    Ok(key)
}

/// Keys, as they were given, and those that have been found to be right.
#[derive(Default)]
pub struct KeyRing {
    places: Vec<KeyPlace>,
    right: HashMap<(Guid, DirId), SecretBytes<WRAPPING_SIZE>>,
}

impl KeyRing {
    /// Of what was given.
    pub fn new(places: &[KeyPlace]) -> KeyRing {
        KeyRing { places: places.to_vec(), right: HashMap::new() }
    }

    /// The object set of a dataset, with its keys if it is encrypted and some were given; else in that mode. Errors:
    /// those of opening it; `Permission` if no key is the right one; those of reading keys.
    pub fn objset(&mut self, pool: &Pool, dataset: &Dataset, otherwise: Mode) -> Result<Arc<Objset>> {
        match self.places.is_empty() || !dataset.phys.bp.uses_crypt() {
            true => pool.dsl().objset(dataset, otherwise),
            false => {
                let keys = self.keys(pool, dataset)?;
                pool.dsl().sealed_objset(dataset, Arc::new(keys))
            }
        }
    }

    fn keys(&mut self, pool: &Pool, dataset: &Dataset) -> Result<SetOfKeys> {
        let name = dataset.name.split('@').next().unwrap_or(&dataset.name);
        let dir = pool.dsl().find_dir(name)?;
        let lost = || Error::corrupt("an encrypted dataset without a key object").in_dataset(name);
        let root = pool.dsl().encryption_root(&dir)?.ok_or_else(lost)?;
        let place = (pool.guid(), root.id);
        if let Some(key) = self.right.get(&place) {
            return pool.dsl().unwrap_keys(&dir, key)?.ok_or_else(lost);
        }
        let mut wrong = None;
        for from in &self.places {
            for tries in (0..if from.asks() { TRIES } else { 1 }).rev() {
                let open = |key| Ok((pool.dsl().unwrap_keys(&dir, &key)?.ok_or_else(lost)?, key));
                match from.wrapping_key(&root).and_then(open) {
                    Ok((keys, key)) => {
                        self.right.insert(place, key);
                        return Ok(keys);
                    }
                    Err(error) if matches!(error.kind(), Kind::Permission | Kind::Invalid) => {
                        if tries > 0 {
                            crate::output::complain("key", &error);
                        }
                        wrong = Some(error);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Err(wrong.unwrap_or_else(lost))
    }
}

fn tell_of_rounds(root: &EncryptionRoot) {
    if let KeyFormat::Passphrase { rounds, .. } = root.format
        && rounds > MANY_ROUNDS
    {
        let seconds = rounds / 2_000_000;
        let name = Shown(&root.name);
        eprintln!("The passphrase of '{name}' takes {rounds} rounds: some {seconds} s. Ctrl-C stops.");
    }
}

#[cfg(test)]
mod tests;
