//! Block devices for volumes: what the listen helper does about them, as the process of a pool has no right to.
//!
//! ```text
//!   the pool's process                     the helper                              the kernel (module nbd)
//!     Attach, with one end of a pair ──▶     netlink: connects it, or connects ──▶   /dev/nbd3
//!     of sockets; serves NBD at the other    the device again that waits for it
//!                                            links.rs: /dev/zvol/tank/vm ──▶ ../../nbd3
//! ```
//!
//! A device carries the guids of its pool and volume, so it is found again by the process after this one, and by the next
//! import after a kill. The kernel keeps it, and what was asked of it, while there is no process.
//!
//! What the pool's process can have done here: devices with contents of its choosing, at names below `/dev/zvol`; and
//! devices of this kind, with guids of its choosing, given up. It cannot reach other devices.

mod links;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use format::ids::Guid;
use nbd::{KernelDevice, KernelNbd};
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

use links::DeviceLinks;

/// The beginning of the identifiers of our devices.
const MARK: &str = "cenote";
/// How long a process that was replaced may take to end, and between looks.
const TAKEOVER_TIME: Duration = Duration::from_secs(60);
/// How long udev and the like may look at a device until it counts as in use, and between looks.
const LOOK_TIME: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(20);
/// What the kernel waits until it asks again what was asked of a process that died, in milliseconds. It also tells, after
/// each such time, of a request that has no answer.
const ASK_AGAIN_MS: &str = "3000";

/// Which volume a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlockId {
    /// Of the pool.
    pub pool: Guid,
    /// Of the volume, or snapshot of one.
    pub dataset: Guid,
}

/// A device as it is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockPlan {
    /// Its volume.
    pub id: BlockId,
    /// The name of that.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Nothing can be written.
    pub is_read_only: bool,
    /// The partitions on it are devices, too.
    pub has_partitions: bool,
}

/// Something about a device. Errors: of the system; ENODEV if the kernel has no such devices.
#[derive(Serialize, Deserialize)]
pub enum BlockWish {
    /// There is one; one end of a pair of sockets comes along.
    Attach(BlockPlan),
    /// It has another name, size, or mode.
    Change(BlockPlan),
    /// What programs have written is sent, and nothing is kept.
    Forget(BlockId),
    /// It goes. Errors: EBUSY if it is in use, unless forced.
    Detach { id: BlockId, is_forced: bool },
    /// All of a pool go but these, unless they are in use.
    Sweep { pool: Guid, but: Vec<Guid> },
}

impl BlockId {
    fn backend(self) -> String {
        format!("{}{:016x}", BlockId::of_pool(self.pool), self.dataset)
    }

    fn of_pool(pool: Guid) -> String {
        format!("{MARK}:{pool:016x}:")
    }

    /// Its device. Errors: ENODEV if there is none.
    fn device(self) -> io::Result<KernelDevice> {
        KernelDevice::of(&self.backend())?.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }
}

/// Does it.
pub fn fulfil(wish: BlockWish, socket: Option<OwnedFd>) -> io::Result<()> {
    match wish {
        BlockWish::Attach(plan) => {
            let socket = socket.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
            attach(&plan, socket)
        }
        BlockWish::Change(plan) => {
            let device = plan.id.device()?;
            kernel()?.resize(device, &plan.id.backend(), plan.bytes)?;
            set_up(device, &plan)
        }
        BlockWish::Forget(id) => forget(id.device()?),
        BlockWish::Detach { id, is_forced } => match KernelDevice::of(&id.backend())? {
            Some(device) => detach(device, is_forced),
            None => Ok(()),
        },
        BlockWish::Sweep { pool, but } => {
            let stay: HashSet<String> = but.into_iter().map(|dataset| BlockId { pool, dataset }.backend()).collect();
            for (device, backend) in KernelDevice::all()? {
                if backend.starts_with(&BlockId::of_pool(pool)) && !stay.contains(&backend) {
                    // one that is in use stays, and what is asked of it fails
                    let _ = detach(device, false);
                }
            }
            Ok(())
        }
    }
}

/// The kernel's devices; their module is loaded if need be. Errors: ENODEV if there is none.
fn kernel() -> io::Result<KernelNbd> {
    static LOADED: Once = Once::new();
    if let Ok(found) = KernelNbd::open() {
        return Ok(found);
    }
    LOADED.call_once(|| drop(run("modprobe", &["-q", "nbd"])));
    KernelNbd::open().map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))
}

fn attach(plan: &BlockPlan, socket: OwnedFd) -> io::Result<()> {
    let (kernel, backend) = (kernel()?, plan.id.backend());
    let Some(device) = KernelDevice::of(&backend)? else {
        let device = kernel.connect(socket.as_fd(), &backend, (plan.bytes, plan.is_read_only))?;
        return set_up(device, plan);
    };
    match kernel.reconnect(device, socket.as_fd(), &backend) {
        // the process before this one has the device still, and ends when this one is ready
        Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {
            let (until, plan) = (Instant::now() + TAKEOVER_TIME, plan.clone());
            let again = move || {
                while kernel.reconnect(device, socket.as_fd(), &backend).is_err() && Instant::now() < until {
                    std::thread::sleep(PAUSE);
                }
                let _ = kernel.resize(device, &backend, plan.bytes);
            };
            std::thread::Builder::new().name("block-again".to_owned()).spawn(again)?;
        }
        reconnected => {
            reconnected?;
            kernel.resize(device, &backend, plan.bytes)?;
        }
    }
    set_up(device, plan)
}

/// Gives a device its links and its mode.
fn set_up(device: KernelDevice, plan: &BlockPlan) -> io::Result<()> {
    let queue = device.sysfs().join("queue");
    // as good as can be
    let _ = fs::write(queue.join("io_timeout"), ASK_AGAIN_MS);
    let _ = fs::write(queue.join("scheduler"), "none");
    let path = device.path().display().to_string();
    run("blockdev", &[if plan.is_read_only { "--setro" } else { "--setrw" }, &path])?;
    DeviceLinks::host().set(device, &plan.name, plan.has_partitions)?;
    links::follow_partitions(delete_partitions);
    let has_partitions = plan.has_partitions;
    // the process that asked has to serve the blocks in which partitions are looked for
    let look = move || {
        // the kernel looks for partitions when it is opened for the first time
        drop(File::open(device.path()));
        // it does not look again by itself, nor may it while one is in use
        if !has_partitions {
            return delete_partitions(device);
        }
        let _ = run("blockdev", &["--rereadpt", &path]);
        DeviceLinks::host().renew_partitions(device);
    };
    std::thread::Builder::new().name("partitions".to_owned()).spawn(look).map(drop)
}

/// Has the kernel forget the partitions of a device, which stay on it.
fn delete_partitions(device: KernelDevice) {
    // there may be none
    let _ = run("partx", &["--delete", &device.path().display().to_string()]);
}

fn detach(device: KernelDevice, is_forced: bool) -> io::Result<()> {
    let began = Instant::now();
    while !is_forced && is_in_use(device)? {
        if began.elapsed() > LOOK_TIME {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        std::thread::sleep(PAUSE);
    }
    if !is_forced {
        forget(device)?;
    }
    kernel()?.disconnect(device)?;
    DeviceLinks::host().take(device);
    Ok(())
}

/// Has the kernel send what programs have written, and keep nothing.
fn forget(device: KernelDevice) -> io::Result<()> {
    let file = File::open(device.path())?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// Whether programs have a device or one of its partitions open, or something is mounted from it.
fn is_in_use(device: KernelDevice) -> io::Result<bool> {
    let alone = File::options().read(true).custom_flags(libc::O_EXCL).open(device.path());
    match alone {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Ok(true),
        opened => drop(opened?),
    }
    let names = DeviceLinks::host().partitions(&device.name()).into_iter().chain([device.name()]);
    let number = |name: String| Some(fs::metadata(Path::new("/dev").join(name)).ok()?.st_rdev());
    let numbers: HashSet<u64> = names.filter_map(number).collect();
    Ok(open_files().any(|file| {
        // no other file is looked at: a mount may not answer
        fs::read_link(&file).is_ok_and(|target| target.starts_with("/dev"))
            && fs::metadata(&file)
                .is_ok_and(|found| found.file_type().is_block_device() && numbers.contains(&found.st_rdev()))
    }))
}

/// All that processes have open.
fn open_files() -> impl Iterator<Item = PathBuf> {
    let below = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_process = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.bytes().all(|b| b.is_ascii_digit()))
    };
    below("/proc".into()).filter(is_process).flat_map(move |process| below(process.join("fd")))
}

/// Runs a program of the system. Errors: it is not there, or fails.
fn run(program: &str, args: &[&str]) -> io::Result<()> {
    let mut command = Command::new(program);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").args(args);
    let done = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    match done.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{program}: {done}"))),
    }
}
