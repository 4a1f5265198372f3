//! `cenote emulate`: files that are as slow as disks and SSDs, for trying what is to be bought, and for tests.
//!
//! ```text
//!   program, loop device, pool ─▶ kernel ─▶ FUSE ─▶ folder: files ─▶ device::emulated ─▶ file that has the bytes
//! ```
//!
//! Every read, write and flush of such a file is a request that takes its time; the kernel keeps nothing of it.

mod folder;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Env, Mutex};
use device::emulated::{ALL_EMULATED, EmulatedDevice, EmulatedKind};
use device::{Device, FileDevice, OpenMode};
use fuse::{MountOptions, SnapDir, Unmount};
use protocol::words::nicenum::nicebytes;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::output;
use folder::{EmulatedFile, EmulatedFolder};

/// The type of the mount is `fuse.SUBTYPE`.
const SUBTYPE: &str = "cenote-emulate";
/// Requests that may wait at the same time.
const THREADS: usize = 64;

/// Serve files that are as slow as disks and SSDs
///
/// A folder is mounted that has each of the files under its own name. Reads, writes and flushes there take as long as such
/// a device would: seeks and revolutions, write caches that fill up, flushes that program flash memory. Nothing is kept in
/// the page cache. Files can be used as they are, by pools too, or become disks by losetup(8) with --direct-io=on. The
/// bytes are in FILE, which is fastest on a tmpfs; they are not flushed there. SIGINT or SIGTERM unmounts the folder.
///
/// Kinds: hdd7200, hdd10k, hdd15k; ssd (volatile cache), ssd-plp (power-loss protection), ssd-cliff (slow after 2 GiB),
/// ssd-liar (volatile cache, and a flush that does nothing), nvme (volatile cache).
#[derive(clap::Parser)]
#[command(name = "cenote emulate", no_binary_name = true)]
struct EmulateArgs {
    /// The folder to mount at
    #[arg(long, value_name = "FOLDER")]
    at: PathBuf,
    /// Make files that do not exist, of this size
    #[arg(long, value_parser = size)]
    size: Option<u64>,
    /// Keep the bytes in memory, where they go with this program; FILE is a name only
    #[arg(long, requires = "size")]
    memory: bool,
    /// End when standard input ends, as it does when the program that began this one is killed
    #[arg(long)]
    until_eof: bool,
    /// Where platters stand, and how times vary
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A kind of device, and the file that has the bytes
    #[arg(required = true, value_name = "KIND=FILE", value_parser = wanted)]
    devices: Vec<WantedDevice>,
}

/// One device of the command line.
#[derive(Clone, Debug, PartialEq)]
struct WantedDevice {
    kind: EmulatedKind,
    path: PathBuf,
}

/// A size in bytes. Errors: the words are none, or it is no multiple of 4096.
fn size(text: &str) -> Result<u64, String> {
    let parsed = dsl::property::rules::parse_number(text).ok();
    let parsed = parsed.filter(|size| *size > 0 && size.is_multiple_of(4096) && i64::try_from(*size).is_ok());
    parsed.ok_or_else(|| "not a size that is a multiple of 4096".to_owned())
}

fn wanted(text: &str) -> Result<WantedDevice, String> {
    let kinds = || ALL_EMULATED.map(EmulatedKind::name).join(", ");
    let (kind, path) = text.split_once('=').ok_or_else(|| "not KIND=FILE".to_owned())?;
    let kind =
        EmulatedKind::of_name(kind).ok_or_else(|| format!("no kind of device '{kind}'; there are {}", kinds()))?;
    match path {
        "" => Err("not KIND=FILE".to_owned()),
        path => Ok(WantedDevice { kind, path: path.into() }),
    }
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    output::run_command("emulate", args, |args| serve(&args))
}

/// What is mounted, and whether it is to go.
#[derive(Default)]
struct EmulatedMount {
    mount: Mutex<Option<Arc<fuse::Mount>>>,
    is_interrupted: AtomicBool,
}

impl EmulatedMount {
    /// Takes the mount away, whatever uses it.
    fn end(&self) {
        self.is_interrupted.store(true, Ordering::SeqCst);
        let mount = self.mount.lock().clone();
        if let Some(mount) = mount
            && mount.unmount(Unmount::IfUnused).is_err()
            && let Err(error) = mount.unmount(Unmount::Force)
        {
            output::complain("emulate", error);
        }
    }

    fn is_mounted(&self, mount: Arc<fuse::Mount>) {
        *self.mount.lock() = Some(mount);
        if self.is_interrupted.load(Ordering::SeqCst) {
            self.end();
        }
    }
}

/// Serves until it is unmounted.
fn serve(args: &EmulateArgs) -> Result<(), String> {
    // threads that come have what this one has: signals go to one of them only
    let serving = Arc::new(EmulatedMount::default());
    let ended = serving.clone();
    output::on_interrupt(move || ended.end());
    if args.until_eof {
        std::thread::spawn(exit_at_eof);
    }
    let env = Env::real();
    let mut files = Vec::new();
    for (n, device) in args.devices.iter().enumerate() {
        let below = match args.size.filter(|_| args.memory) {
            Some(size) => in_memory(device, size)?,
            None => in_file(device, args.size)?,
        };
        files.push(open(device, below, args.seed.wrapping_add(n as u64), &env)?);
    }
    let lines: Vec<String> = files
        .iter()
        .map(|file| format!("{} {} {}", file.kind, args.at.join(&file.name).display(), nicebytes(file.device.size())))
        .collect();
    let mount = Arc::new(mount(&args.at, files, &env)?);
    serving.is_mounted(mount.clone());
    // it serves on if nobody reads that
    let _ = writeln!(std::io::stdout(), "{}", lines.join("\n"));
    mount.wait();
    Ok(())
}

/// Mounts a folder with these files. The timers of this thread, and of those that come, are exact from now on. Errors, for
/// the user: a name comes twice; of the mount.
fn mount(at: &Path, files: Vec<EmulatedFile>, env: &Env) -> Result<fuse::Mount, String> {
    // threads have it from the one that makes them: no timer is late for the kernel's convenience
    let _ = nix::sys::prctl::set_timerslack(1);
    let folder = Arc::new(EmulatedFolder::new(files)?);
    fuse::mount(folder, &options(at), env, &daemon::mount_helper::new()).map_err(|e| e.to_string())
}

/// Ends this program when standard input ends. The mount is not taken away: another one may be at its place by then.
fn exit_at_eof() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    std::process::exit(output::FAILED.into());
}

fn failed(wanted: &WantedDevice, what: &dyn std::fmt::Display) -> String {
    format!("{}: {what}", wanted.path.display())
}

/// A device of zeros in memory, which goes with the process.
fn in_memory(wanted: &WantedDevice, size: u64) -> Result<FileDevice, String> {
    let failed = |what: &dyn std::fmt::Display| failed(wanted, what);
    let file = File::from(memfd_create("device", MemfdFlags::CLOEXEC).map_err(|e| failed(&e))?);
    file.set_len(size).map_err(|e| failed(&e))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    FileDevice::open(&path, OpenMode::ReadWriteCached).map_err(|e| failed(&e))
}

/// The file that has the bytes; it is made if there is none and a size was given.
fn in_file(wanted: &WantedDevice, size: Option<u64>) -> Result<FileDevice, String> {
    let failed = |what: &dyn std::fmt::Display| failed(wanted, what);
    if let Some(size) = size {
        match File::create_new(&wanted.path) {
            Ok(file) => file.set_len(size).map_err(|e| failed(&e))?,
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(failed(&e)),
        }
    }
    let path = wanted.path.to_str().ok_or_else(|| failed(&"the path is not UTF-8"))?;
    let below = FileDevice::open(path, OpenMode::ReadWriteCached).map_err(|e| failed(&e))?;
    below.lock(true).map_err(|e| failed(&e))?;
    if below.size() == 0 {
        return Err(failed(&"it is empty; --size is for files that do not exist"));
    }
    Ok(below)
}

fn open(wanted: &WantedDevice, below: FileDevice, seed: u64, env: &Env) -> Result<EmulatedFile, String> {
    let name = wanted.path.file_name().and_then(OsStr::to_str).ok_or_else(|| failed(wanted, &"it has no name"))?;
    let device = Arc::new(EmulatedDevice::new(Arc::new(below), wanted.kind, seed, env.clone()));
    Ok(EmulatedFile { name: name.to_owned(), kind: wanted.kind, device })
}

fn options(at: &Path) -> MountOptions {
    MountOptions {
        subtype: SUBTYPE.to_owned(),
        atime: false,
        exec: false,
        setuid: false,
        devices: false,
        snapdir: SnapDir::Disabled,
        overlay: false,
        // each request of a program becomes one of the device
        page_cache: false,
        keep_pages: false,
        n_threads: THREADS,
        ..MountOptions::new("emulated", at)
    }
}
