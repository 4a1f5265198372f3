//! Where cells are measured: a pool or another file system that is made for a setting and destroyed after it, or a device.

use std::cell::RefCell;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use protocol::volumes::nbd_socket;

use super::counters::CacheCounters;
use super::devices::LabDevices;
use super::initiator::LabInitiator;
use super::machine::CpuSeconds;
use super::peer::PeerMount;
use super::place::{LabPlace, POOL, VOLUME};
use super::recipe::LabRecipe;
use crate::bench::measure::MeasureTime;
use crate::processors::busy_seconds;
use crate::profile::cpu_seconds;

/// Bytes of the path of a socket: `sun_path` of unix(7).
const SOCKET_PATH_MAX: usize = 107;
const POLL_TIME: Duration = Duration::from_millis(20);
/// How long it may take until a volume is given out.
const ANSWER_TIME: Duration = Duration::from_secs(10);

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
    /// The device, or where it is mounted.
    path: PathBuf,
    made: BedMade,
    /// Of a volume by iSCSI, as soon as it is wanted.
    initiator: RefCell<Option<LabInitiator>>,
}

/// What was made for a setting.
enum BedMade {
    Nothing,
    Pool,
    Peer(PeerMount),
}

impl<'a> LabBed<'a> {
    /// Makes it. Errors, for the user: it cannot be made; then nothing of it stays.
    pub fn make(
        place: &'a LabPlace,
        devices: &'a LabDevices,
        is_interrupted: &'a AtomicBool,
        recipe: &LabRecipe,
    ) -> Result<LabBed<'a>, String> {
        let of =
            |path: PathBuf, made| LabBed { place, devices, is_interrupted, path, made, initiator: RefCell::default() };
        let at = place.mountpoint();
        match recipe {
            LabRecipe::Device(name) => return Ok(of(devices.path(name)?.to_owned(), BedMade::Nothing)),
            LabRecipe::Peer { device, peer } => {
                let goes_on = || !is_interrupted.load(Ordering::Relaxed);
                let mount = PeerMount::make(*peer, devices.path(device)?, &at, place.mark(), &goes_on);
                return mount.map(|mount| of(at, BedMade::Peer(mount)));
            }
            LabRecipe::Pool { .. } | LabRecipe::Volume { .. } => {}
        }
        let bed = of(at, BedMade::Pool);
        for words in recipe.commands(devices, &bed.path, free_port()?)? {
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
        match &self.made {
            BedMade::Nothing => Ok(()),
            BedMade::Pool => self.place.cenote(&["zpool", "sync", POOL]).map(drop),
            BedMade::Peer(mount) => mount.sync(),
        }
    }

    /// Nothing of it is cached any more. Errors, for the user: of the pool.
    pub fn cool(&self) -> Result<(), String> {
        match &self.made {
            BedMade::Nothing => Ok(()),
            BedMade::Pool => self.import_again(),
            BedMade::Peer(mount) => mount.cool(&|| self.goes_on().is_ok()),
        }
    }

    fn import_again(&self) -> Result<(), String> {
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

    /// Bytes that the volume has. Errors, for the user: of the pool.
    pub fn volume_bytes(&self) -> Result<u64, String> {
        let text = self.place.cenote(&["zfs", "get", "-Hp", "-o", "value", "logicalreferenced", VOLUME])?;
        text.trim().parse().map_err(|_| format!("logicalreferenced of {VOLUME} is '{}'", text.trim()))
    }

    /// Counters of ARC and cache devices, since the pool was made or imported. Errors, for the user: they cannot be read.
    pub fn cache_counters(&self) -> Result<CacheCounters, String> {
        let path = self.place.run().join("spl/kstat/zfs/arcstats");
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        CacheCounters::parse(&text).ok_or_else(|| format!("{}: counters are missing", path.display()))
    }

    /// Seconds of processor time that were used.
    pub fn cpu_seconds(&self) -> CpuSeconds {
        let process = match self.made {
            BedMade::Pool => self.place.pool_process(),
            _ => None,
        };
        CpuSeconds { pool: process.and_then(cpu_seconds), machine: busy_seconds() }
    }

    /// Where the volume is by NBD, as soon as it is there: through an initiator if the pool has it as a target of iSCSI.
    /// Errors, for the user: it does not come.
    pub fn volume_uri(&self) -> Result<String, String> {
        if let Some(initiator) = self.initiator.borrow().as_ref() {
            return Ok(initiator.uri());
        }
        let began = Instant::now();
        loop {
            let told = self.place.cenote(&["volumes", VOLUME])?;
            let way = |name: &str| {
                let mut ways =
                    told.lines().filter_map(|line| line.strip_prefix(VOLUME)?.strip_prefix('\t')?.split_once('\t'));
                ways.find(|(way, _)| *way == name).map(|(_, uri)| uri.to_owned())
            };
            if let Some(target) = way("iscsi") {
                let run = self.place.initiator();
                check_socket(&nbd_socket(&run, POOL))?;
                let initiator = LabInitiator::start(&target, &run)?;
                let uri = initiator.uri();
                *self.initiator.borrow_mut() = Some(initiator);
                return Ok(uri);
            }
            if let Some(uri) = way("nbd") {
                check_socket(&nbd_socket(&self.place.run(), POOL))?;
                return Ok(uri);
            }
            if began.elapsed() > ANSWER_TIME {
                return Err(format!("{VOLUME}: neither NBD nor iSCSI has it"));
            }
            std::thread::sleep(POLL_TIME);
        }
    }

    /// Destroys what was made. Errors, for the user: it stays.
    pub fn end(self) -> Result<(), String> {
        drop(self.initiator.take());
        match &self.made {
            BedMade::Nothing => {}
            BedMade::Pool => self.place.end_pool()?,
            BedMade::Peer(mount) => mount.end()?,
        }
        self.place.forget_parameters()?;
        self.devices.forget()
    }
}

/// Errors, for the user: sockets cannot have such a path.
fn check_socket(path: &Path) -> Result<(), String> {
    match path.as_os_str().len() > SOCKET_PATH_MAX {
        true => Err(format!("the path of the folder is too long for sockets: {}", path.display())),
        false => Ok(()),
    }
}

/// A port of this machine that is free now. Errors, for the user: there is none.
fn free_port() -> Result<u16, String> {
    let found = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    found.map(|address| address.port()).map_err(|e| format!("a free port: {e}"))
}
