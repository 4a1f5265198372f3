//! The corpus: real pools as compressed images, each with a record of what it holds.
//!
//! See `tests/corpus/README.md` for what is in a case.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Device, MemDevice};
use serde::Deserialize;

/// A pool of the corpus.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// Its folder.
    #[serde(rename = "case")]
    pub name: String,
    /// Name of the pool.
    pub pool: String,
    /// What the case is there for.
    pub about: String,
    /// What wrote it.
    pub maker: String,
    /// Byte order of the machine that wrote it.
    pub endian: String,
    /// Its devices, in the order in which the pool was made.
    pub images: Vec<Image>,
    #[serde(skip)]
    dir: PathBuf,
}

/// A device of a case.
#[derive(Clone, Debug, Deserialize)]
pub struct Image {
    /// Name of the compressed file.
    pub file: String,
    /// Bytes when decompressed.
    pub size: u64,
}

impl Image {
    /// Name of the device: that of the file without `.zst`.
    pub fn name(&self) -> &str {
        self.file.trim_end_matches(".zst")
    }
}

/// The folder of the corpus.
pub fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus")
}

/// All cases, by name.
pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = fs::read_dir(dir())
        .expect("the corpus is part of the project")
        .filter_map(|entry| {
            let dir = entry.expect("the corpus can be listed").path();
            let json = fs::read(dir.join("case.json")).ok()?;
            let case: Case = serde_json::from_slice(&json).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
            Some(Case { dir, ..case })
        })
        .collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(cases.len() > 30, "the corpus has only {} cases", cases.len());
    cases
}

/// The case of that name.
pub fn case(name: &str) -> Case {
    cases().into_iter().find(|case| case.name == name).unwrap_or_else(|| panic!("no case {name} in the corpus"))
}

impl Case {
    /// The folder of the case.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The devices, in memory.
    pub fn load(&self) -> Vec<Arc<MemDevice>> {
        self.images.iter().map(|image| Arc::new(MemDevice::new(image.name(), self.bytes_of(image)))).collect()
    }

    /// Writes the devices as sparse files into `to`, and returns their paths.
    pub fn extract(&self, to: &Path) -> io::Result<Vec<PathBuf>> {
        self.images
            .iter()
            .map(|image| {
                let path = to.join(image.name());
                let mut file = File::create(&path)?;
                self.chunks(image, |at, chunk| {
                    file.seek(SeekFrom::Start(at))
                        .and_then(|_| file.write_all(chunk))
                        .expect("the image can be written");
                });
                file.set_len(image.size)?;
                Ok(path)
            })
            .collect()
    }

    /// The folder of manifests that a reader sees if the intent log is left alone.
    pub fn manifest_dir(&self) -> PathBuf {
        let synced = self.dir.join("synced");
        if synced.is_dir() { synced } else { self.dir.join("manifest") }
    }

    /// Whether a dataset (or a snapshot of one) is encrypted: it or one above it has a key in the case.
    pub fn is_encrypted(&self, dataset: &str) -> bool {
        let name = dataset.split('@').next().unwrap_or(dataset).replace('/', "+");
        let ends = name.char_indices().filter(|&(_, c)| c == '+').map(|(at, _)| at).chain([name.len()]);
        ends.map(|end| &name[..end]).any(|root| self.dir.join("keys").join(format!("{root}.key")).exists())
    }

    /// The files with keys of its encryption roots.
    pub fn key_files(&self) -> Vec<PathBuf> {
        let listed = fs::read_dir(self.dir.join("keys")).into_iter().flatten();
        let mut files: Vec<PathBuf> = listed.map(|entry| entry.expect("the folder can be listed").path()).collect();
        files.sort();
        files
    }

    /// A text of the case: `info/zfs-list`, for instance, where there is one.
    pub fn text(&self, path: &str) -> Option<String> {
        let plain = self.dir.join(path);
        let packed = self.dir.join(format!("{path}.zst"));
        let raw = fs::read(plain)
            .ok()
            .or_else(|| fs::read(packed).ok().map(|raw| zstd::decode_all(&*raw).expect("the text is whole")));
        raw.map(|raw| String::from_utf8(raw).expect("the corpus' texts are UTF-8"))
    }

    /// The bytes of a packed file beside the pool, such as a stream.
    pub fn zstd(&self, path: &str) -> Vec<u8> {
        let raw = fs::read(self.dir.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        zstd::decode_all(&*raw).expect("the file is whole")
    }

    /// The datasets that have a manifest: name in the pool, and the manifest's text.
    pub fn manifests(&self, extension: &str) -> Vec<(String, String)> {
        manifests_in(&self.manifest_dir(), extension)
    }

    /// The same as they are when intent logs have been replayed; none if the case has no log.
    pub fn replayed(&self, extension: &str) -> Vec<(String, String)> {
        let dir = self.dir.join("replayed");
        if dir.is_dir() { manifests_in(&dir, extension) } else { Vec::new() }
    }

    fn bytes_of(&self, image: &Image) -> Vec<u8> {
        let mut bytes = vec![0; image.size as usize];
        self.chunks(image, |at, chunk| bytes[at as usize..][..chunk.len()].copy_from_slice(chunk));
        bytes
    }

    /// Calls `each` for every chunk of the image that is not all zeros, so that files and memory stay sparse.
    fn chunks(&self, image: &Image, mut each: impl FnMut(u64, &[u8])) {
        let path = self.dir.join(&image.file);
        let open = || {
            let mut decoder = zstd::Decoder::with_buffer(BufReader::new(File::open(&path)?))?;
            decoder.window_log_max(27)?;
            io::Result::Ok(decoder)
        };
        let mut decoder = open().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let (mut at, mut chunk) = (0, vec![0; 64 << 10]);
        while at < image.size {
            let len = chunk.len().min((image.size - at) as usize);
            decoder.read_exact(&mut chunk[..len]).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            if chunk[..len].iter().any(|&byte| byte != 0) {
                each(at, &chunk[..len]);
            }
            at += len as u64;
        }
    }
}

fn manifests_in(dir: &Path, extension: &str) -> Vec<(String, String)> {
    let mut manifests = Vec::new();
    for entry in fs::read_dir(dir).expect("every case has manifests") {
        let path = entry.expect("the folder can be listed").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("names are ASCII").to_owned();
        let (name, packed) = name.strip_suffix(".zst").map_or((name.as_str(), false), |name| (name, true));
        let Some(name) = name.strip_suffix(extension) else { continue };
        let raw = fs::read(&path).expect("the manifest can be read");
        let text = if packed { zstd::decode_all(&*raw).expect("the manifest is whole") } else { raw };
        manifests.push((name.replace('+', "/"), String::from_utf8(text).expect("manifests are ASCII")));
    }
    manifests.sort();
    manifests
}

/// The devices as the pool layer sees them.
pub fn as_devices(devices: &[Arc<MemDevice>]) -> Vec<Arc<dyn Device>> {
    devices.iter().map(|device| device.clone() as Arc<dyn Device>).collect()
}
