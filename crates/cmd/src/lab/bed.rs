//! Where cells are measured: a pool that is made for a setting and destroyed after it, or a device.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use protocol::volumes::{nbd_socket, nbd_uri};

use super::devices::LabDevices;
use super::machine::cpu_seconds;
use super::place::{LabPlace, POOL};
use crate::bench::measure::MeasureTime;

/// The volume of a setting that has one.
const VOLUME: &str = "cenotelab/volume";
/// Bytes of the path of a socket: `sun_path` of unix(7).
const SOCKET_PATH_MAX: usize = 107;
/// The volume is to be had by NBD.
const NBD_ON: &str = "org.cenote:nbd=on";
const POLL_TIME: Duration = Duration::from_millis(20);

/// How a setting is made. Devices are names of [`super::devices`].
pub enum LabRecipe {
    /// A device as it is.
    Device(&'static str),
    /// `zpool create`: words for vdevs, and properties of the root file system.
    Pool { vdevs: &'static str, properties: Vec<String> },
    /// A pool with a volume of so many bytes beside.
    Volume { vdevs: &'static str, properties: Vec<String>, bytes: u64 },
}

impl LabRecipe {
    /// A pool with properties that were written as `compression=lz4 atime=off`; of a property that comes twice, the last
    /// counts.
    pub fn pool(vdevs: &'static str, properties: &str) -> LabRecipe {
        let key = |word: &str| word.split('=').next().map(str::to_owned);
        let mut kept: Vec<String> = Vec::new();
        for word in properties.split_whitespace() {
            kept.retain(|other| key(other) != key(word));
            kept.push(word.to_owned());
        }
        LabRecipe::Pool { vdevs, properties: kept }
    }

    /// The words for vdevs.
    pub fn vdevs(&self) -> &'static str {
        match self {
            LabRecipe::Device(device) => device,
            LabRecipe::Pool { vdevs, .. } | LabRecipe::Volume { vdevs, .. } => vdevs,
        }
    }
}

/// Why there is no figure.
#[derive(Debug)]
pub enum CellStop {
    /// Somebody wants the lab to end: the cell is not finished.
    Interrupted,
    /// Something went wrong: the cell is finished, without a figure.
    Failed(String),
}

impl From<String> for CellStop {
    fn from(why: String) -> CellStop {
        CellStop::Failed(why)
    }
}

impl From<std::io::Error> for CellStop {
    fn from(error: std::io::Error) -> CellStop {
        CellStop::Failed(error.to_string())
    }
}

/// See the top of the file.
pub struct LabBed<'a> {
    place: &'a LabPlace,
    devices: &'a LabDevices,
    is_interrupted: &'a AtomicBool,
    /// The device, or where the pool is mounted.
    path: PathBuf,
    is_pool: bool,
}

impl<'a> LabBed<'a> {
    /// Makes it. Errors, for the user: it cannot be made; then nothing of it stays.
    pub fn make(
        place: &'a LabPlace,
        devices: &'a LabDevices,
        is_interrupted: &'a AtomicBool,
        recipe: &LabRecipe,
    ) -> Result<LabBed<'a>, String> {
        let of = |path: PathBuf, is_pool| LabBed { place, devices, is_interrupted, path, is_pool };
        if let LabRecipe::Device(name) = recipe {
            return Ok(of(devices.path(name)?.to_owned(), false));
        }
        let bed = of(place.mountpoint(), true);
        for words in commands(recipe, devices, &place.mountpoint())? {
            if let Err(why) = place.cenote(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
                // what is made of it would be in the way of all settings that follow
                return Err(match bed.end() {
                    Ok(()) => why,
                    Err(stays) => format!("{why}; {stays}"),
                });
            }
        }
        Ok(bed)
    }

    /// The device, or the root of the pool's file system.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The place of the lab.
    pub fn place(&self) -> &LabPlace {
        self.place
    }

    /// How long something is measured.
    pub fn pace(&self, seconds: f64) -> MeasureTime<'_> {
        MeasureTime { seconds, is_interrupted: self.is_interrupted }
    }

    /// Errors: somebody wants the lab to end.
    pub fn goes_on(&self) -> Result<(), CellStop> {
        if self.is_interrupted.load(Ordering::Relaxed) { Err(CellStop::Interrupted) } else { Ok(()) }
    }

    /// All that was written is on the devices. Errors, for the user: of the pool.
    pub fn sync(&self) -> Result<(), String> {
        self.place.cenote(&["zpool", "sync", POOL]).map(drop)
    }

    /// Nothing of the pool is cached any more. Errors, for the user: of the pool.
    pub fn cool(&self) -> Result<(), String> {
        self.place.cenote(&["zpool", "export", POOL])?;
        let mut words = vec!["zpool", "import"];
        let folders = self.devices.folders();
        words.extend(folders.iter().flat_map(|folder| ["-d", folder.as_str()]));
        words.push(POOL);
        self.place.cenote(&words).map(drop)
    }

    /// The same, and so many bytes of RAM are for the cache from then on. Errors, for the user: of the pool.
    pub fn cool_with(&self, ram_bytes: u64) -> Result<(), String> {
        self.place.set_parameter("zfs_arc_max", ram_bytes)?;
        self.cool()
    }

    /// Takes the cache device out of the pool and puts it in again, so that nothing is on it. Errors, for the user: of the pool.
    pub fn empty_cache(&self, device: &str) -> Result<(), String> {
        let path = self.devices.path(device)?.to_string_lossy();
        self.place.cenote(&["zpool", "remove", POOL, &path])?;
        self.place.cenote(&["zpool", "add", POOL, "cache", &path]).map(drop)
    }

    /// A number that `zfs get` or `zpool get` knows of the pool. Errors, for the user: it knows none.
    pub fn property(&self, command: &str, name: &str) -> Result<f64, String> {
        let text = self.place.cenote(&[command, "get", "-Hp", "-o", "value", name, POOL])?;
        let text = text.trim().trim_end_matches('x');
        text.parse().map_err(|_| format!("{name} is '{text}'"))
    }

    /// Seconds of processor time of the pool's process.
    pub fn cpu_seconds(&self) -> f64 {
        self.place.pool_process().and_then(cpu_seconds).unwrap_or(0.0)
    }

    /// Where the volume is by NBD, as soon as it is there. Errors, for the user: it does not come.
    pub fn volume_uri(&self, time: Duration) -> Result<String, String> {
        let socket = nbd_socket(&self.place.run(), POOL);
        if socket.as_os_str().len() > SOCKET_PATH_MAX {
            return Err(format!("the path of the folder is too long for sockets: {}", socket.display()));
        }
        let began = Instant::now();
        while !socket.exists() {
            if began.elapsed() > time {
                return Err(format!("{}: it is not there", socket.display()));
            }
            std::thread::sleep(POLL_TIME);
        }
        Ok(nbd_uri(&self.place.run(), VOLUME))
    }

    /// Destroys the pool. Errors, for the user: it stays.
    pub fn end(self) -> Result<(), String> {
        if self.is_pool {
            self.place.end_pool()?;
        }
        self.place.forget_parameters()?;
        self.devices.forget()
    }
}

/// The commands that make a setting, words of this program. Errors, for the user: there is no such device.
pub fn commands(recipe: &LabRecipe, devices: &LabDevices, mountpoint: &Path) -> Result<Vec<Vec<String>>, String> {
    let (vdevs, properties, volume) = match recipe {
        LabRecipe::Device(name) => return devices.path(name).map(|_| Vec::new()),
        LabRecipe::Pool { vdevs, properties } => (vdevs, properties, None),
        LabRecipe::Volume { vdevs, properties, bytes } => (vdevs, properties, Some(*bytes)),
    };
    let mountpoint = mountpoint.to_string_lossy().into_owned();
    // a device that fails ends the cell, and not the lab
    let mut create: Vec<String> =
        ["zpool", "create", "-o", "failmode=continue", "-m", &mountpoint].map(str::to_owned).into();
    create.extend(properties.iter().flat_map(|property| ["-O".to_owned(), property.clone()]));
    create.push(POOL.to_owned());
    create.extend(devices.vdevs(vdevs)?);
    let volume = volume.map(|bytes| {
        let bytes = bytes.to_string();
        ["zfs", "create", "-V", &bytes, "-o", "volblocksize=4K", "-o", NBD_ON, VOLUME].map(str::to_owned).to_vec()
    });
    Ok(std::iter::once(create).chain(volume).collect())
}
