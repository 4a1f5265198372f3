//! What the process of a pool need not be able to do, it cannot do: it reads devices that anybody may have written.
//!
//! ```text
//!   main ──▶ helpers (keep all rights; one mounts, one opens)
//!     └────▶ confine ──▶ all threads, for good:
//!              no new privileges   no set-user-id program gives it any
//!              capabilities        of root's only CAP_DAC_OVERRIDE
//!              io_uring            rings that read, write and flush, rings for requests of FUSE, and no others
//!              Landlock            no file is written but in the folders of runs and states; no abstract socket, no signal reaches others
//!              seccomp             no mounting, no programs or processes, no sockets, no rights of files changed, no hand on
//!                                  the kernel or other processes
//! ```
//!
//! Capabilities that were looked at:
//!
//! - `CAP_DAC_OVERRIDE` stays: image files may belong to somebody else, and are opened again when devices come back.
//! - `CAP_SYS_ADMIN`: to mount, which is the helper's. Neither block devices nor `/dev/fuse`, `/sys` or io_uring need it.
//! - `CAP_SYS_RAWIO`: reading and writing a block device, and discarding its blocks, needs the right to its file only.
//! - `CAP_SYS_RESOURCE`: for `PR_SET_IO_FLUSHER`, which is done before.
//! - `CAP_KILL`: helpers are the same user's.
//!
//! Seccomp does not see what goes through io_uring. All rings are there before the filter, none can be made or changed
//! behind it, and the kernel lets these only read, write and flush what is open (`device`, `rings.rs`), or give commands to it
//! (`fuse`, `rings.rs`; where root lets the kernel speak FUSE over io_uring).
//!
//! Devices that are to be written, sockets that listen and cache files are opened by a helper, which looks at what they
//! are (`listen_helper`, `openable`). Files of the whole machine can still be read, as paths of devices, keys and
//! certificates may be anywhere. A kernel without Landlock also lets them be written.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope,
};
use rustix::io::Errno;
use rustix::process::configure_io_flusher_behavior;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};

mod filter;

/// Devices that may be opened for writing: each thread of a mount has a connection of its own, which is one more open
/// `/dev/fuse`.
const WRITTEN_DEVICES: [&str; 2] = ["/dev/null", "/dev/fuse"];

/// The capabilities that root's process keeps.
const KEPT: CapabilitySet = CapabilitySet::DAC_OVERRIDE;

/// Gives up what this thread, and those that it will start, need not have; files can be written in the folders `written`.
/// Errors: which of it cannot be given up.
pub fn confine(written: &[&Path]) -> Result<(), String> {
    let failed = |what: &'static str| move |errno: Errno| format!("cannot give up {what}: {errno}");
    // how memory is found for a process that writes back what others need to find memory. Only root may;
    // and a kernel may lack it
    let _ = configure_io_flusher_behavior(true);
    let had = capabilities(None).map_err(failed("capabilities"))?;
    if had.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().difference(KEPT) {
            match remove_capability_from_bounding_set(capability) {
                // one that this kernel does not know
                Ok(()) | Err(Errno::INVAL) => {}
                Err(errno) => return Err(failed("capabilities")(errno)),
            }
        }
    }
    match clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => {}
        Err(errno) => return Err(failed("capabilities")(errno)),
    }
    let kept = had.permitted.intersection(KEPT);
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(failed("capabilities"))?;
    set_no_new_privs(true).map_err(failed("new privileges"))?;
    device::close_rings();
    fuse::close_request_rings();
    forbid_files(written).map_err(|e| format!("cannot give up files: {e}"))?;
    filter::apply().map_err(|e| format!("cannot refuse system calls: {e}"))
}

/// Forbids changes of file systems but in these folders, sockets without a file that others listen at, and signals to
/// others, as far as this kernel has that.
fn forbid_files(written: &[&Path]) -> Result<(), RulesetError> {
    let writing = AccessFs::from_write(ABI::V3);
    let ruleset = Ruleset::default().handle_access(writing)?.handle_access(AccessNet::from_all(ABI::V4))?;
    let mut created = ruleset.scope(Scope::from_all(ABI::V6))?.create()?;
    // a folder that is not there has nothing to be written
    for folder in written.iter().filter_map(|folder| PathFd::new(folder).ok()) {
        created = created.add_rule(PathBeneath::new(folder, writing))?;
    }
    for device in WRITTEN_DEVICES.iter().filter_map(|device| PathFd::new(device).ok()) {
        created = created.add_rule(PathBeneath::new(device, AccessFs::WriteFile))?;
    }
    let status = created.restrict_self()?;
    if status.ruleset != RulesetStatus::FullyEnforced {
        tracing::info!("this kernel keeps the process from less than others do (Landlock): {:?}", status.ruleset);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ffi::{CString, c_long};
    use std::fs::{self, File};
    use std::io::ErrorKind::PermissionDenied;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
    use std::process::Command;

    use super::*;

    /// A thread of its own, as it is for good.
    fn confined(run: &Path, work: impl FnOnce() + Send + 'static) {
        let run = run.to_owned();
        let work = move || {
            confine(&[&run]).unwrap();
            work();
        };
        std::thread::spawn(work).join().unwrap();
    }

    /// The errno of a system call; 0 if it is done.
    fn errno_of(call: c_long, args: [c_long; 6]) -> i32 {
        // SAFETY: what the arguments point to, if anything, is alive, and no call that is tried here writes to memory.
        let done = unsafe { libc::syscall(call, args[0], args[1], args[2], args[3], args[4], args[5]) };
        if done < 0 { std::io::Error::last_os_error().raw_os_error().unwrap() } else { 0 }
    }

    fn has_landlock() -> bool {
        // with that flag and without attributes, it tells its version
        errno_of(libc::SYS_landlock_create_ruleset, [0, 0, 1, 0, 0, 0]) == 0
    }

    #[test]
    fn what_is_given_up_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().to_owned();
        confined(dir.path(), move || {
            assert_eq!(Command::new("/bin/true").status().unwrap_err().kind(), PermissionDenied);
            assert_eq!(std::net::TcpListener::bind("127.0.0.1:0").unwrap_err().kind(), PermissionDenied);
            assert_eq!(UnixListener::bind(run.join("sock")).unwrap_err().kind(), PermissionDenied);
            assert_eq!(device::try_free_ring().unwrap_err().kind(), PermissionDenied);
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
            assert_eq!((line("NoNewPrivs:").as_str(), line("Seccomp:").as_str()), ("1", "2"));
            // and what it starts is no freer
            let nested = std::thread::spawn(|| Command::new("/bin/true").status().unwrap_err().kind());
            assert_eq!(nested.join().unwrap(), PermissionDenied);
            // twice is no harm
            confine(&[]).unwrap();
        });
    }

    #[test]
    fn no_call_gets_out() {
        let dir = tempfile::tempdir().unwrap();
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = c_long::from(other.id());
        confined(dir.path(), move || {
            let etc = CString::new("/etc/passwd").unwrap();
            let etc = etc.as_ptr() as c_long;
            let unix = c_long::from(libc::AF_UNIX);
            let (at, dgram, raw) =
                (c_long::from(libc::AT_FDCWD), c_long::from(libc::SOCK_DGRAM), c_long::from(libc::SOCK_RAW));
            let mut tried = vec![
                ("mount", libc::SYS_mount, [0; 6]),
                ("setns", libc::SYS_setns, [-1, 0, 0, 0, 0, 0]),
                ("unshare", libc::SYS_unshare, [libc::CLONE_NEWUSER.into(), 0, 0, 0, 0, 0]),
                ("a process", libc::SYS_clone, [libc::SIGCHLD.into(), 0, 0, 0, 0, 0]),
                (
                    "a user namespace",
                    libc::SYS_clone,
                    [c_long::from(libc::CLONE_NEWUSER | libc::SIGCHLD), 0, 0, 0, 0, 0],
                ),
                ("bpf", libc::SYS_bpf, [0; 6]),
                ("userfaultfd", libc::SYS_userfaultfd, [0; 6]),
                ("ptrace", libc::SYS_ptrace, [c_long::from(libc::PTRACE_ATTACH), pid, 0, 0, 0, 0]),
                ("memory of others", libc::SYS_process_vm_writev, [pid, 0, 0, 0, 0, 0]),
                ("kill", libc::SYS_kill, [pid, 9, 0, 0, 0, 0]),
                ("kill all", libc::SYS_kill, [-1, 0, 0, 0, 0, 0]),
                ("tgkill", libc::SYS_tgkill, [pid, pid, 9, 0, 0, 0]),
                ("tkill", libc::SYS_tkill, [pid, 9, 0, 0, 0, 0]),
                ("a signal by pidfd", libc::SYS_pidfd_send_signal, [-1, 9, 0, 0, 0, 0]),
                ("limits of others", libc::SYS_prlimit64, [pid, 0, 0, 0, 0, 0]),
                ("io_uring_setup", libc::SYS_io_uring_setup, [1, 0, 0, 0, 0, 0]),
                ("io_uring_register", libc::SYS_io_uring_register, [-1, 0, 0, 0, 0, 0]),
                ("connect", libc::SYS_connect, [-1, 0, 0, 0, 0, 0]),
                ("a pair that sends anywhere", libc::SYS_socketpair, [unix, dgram, 0, 0, 0, 0]),
                ("a raw pair", libc::SYS_socketpair, [unix, raw, 0, 0, 0, 0]),
                ("sendto an address", libc::SYS_sendto, [-1, etc, 1, 0, etc, 16]),
                ("connect and send", libc::SYS_sendmsg, [-1, 0, libc::MSG_FASTOPEN.into(), 0, 0, 0]),
                ("chmod", libc::SYS_fchmodat, [at, etc, 0o4755, 0, 0, 0]),
                ("a list of rights", libc::SYS_setxattr, [etc, etc, etc, 1, 0, 0]),
                ("chown", libc::SYS_fchownat, [at, etc, 0, 0, 0, 0]),
                ("typing", libc::SYS_ioctl, [0, 0x5412, etc, 0, 0, 0]),
                ("a signal by a file", libc::SYS_fcntl, [0, 8, pid, 0, 0, 0]),
                ("shared memory", libc::SYS_shmget, [1, 1, 0, 0, 0, 0]),
            ];
            // also where the kernel has families that this list does not know
            tried.extend((0..48).map(|family| ("socket", libc::SYS_socket, [family, dgram, 0, 0, 0, 0])));
            for (name, call, args) in tried {
                assert_eq!(errno_of(call, args), libc::EPERM, "{name} {args:?}");
            }
            assert_eq!(errno_of(libc::SYS_clone3, [0; 6]), libc::ENOSYS);
            // the kernel takes the low half only
            assert_eq!(errno_of(libc::SYS_ioctl, [0, 0x5412 | 1 << 32, etc, 0, 0, 0]), libc::EPERM);
            assert_eq!(errno_of(libc::SYS_kill, [std::process::id().into(), 0, 0, 0, 0, 0]), 0);
        });
        assert!(other.try_wait().unwrap().is_none(), "it lives");
        other.kill().unwrap();
        other.wait().unwrap();
    }

    /// What is open stays of use; nothing else is written but in the run folder.
    #[test]
    fn nothing_is_written_outside_the_run_folder() {
        let (run, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (inside, outside) = (run.path().to_owned(), other.path().to_owned());
        fs::write(outside.join("there"), "whole").unwrap();
        let open = File::options().write(true).open(outside.join("there")).unwrap();
        if !has_landlock() {
            return println!("SKIPPED: no Landlock in this kernel");
        }
        confined(run.path(), move || {
            fs::create_dir(inside.join("folder")).unwrap();
            fs::write(inside.join("file"), "x").unwrap();
            fs::rename(inside.join("file"), inside.join("folder/file")).unwrap();
            fs::remove_file(inside.join("folder/file")).unwrap();
            for device in WRITTEN_DEVICES.iter().filter(|device| fs::exists(device).unwrap()) {
                File::options().write(true).open(device).unwrap();
            }
            assert_eq!(fs::read(outside.join("there")).unwrap(), b"whole");
            let there = outside.join("there");
            let own_again = format!("/proc/self/fd/{}", open.as_raw_fd());
            let refused = [
                File::options().write(true).open(&there).err(),
                File::options().append(true).create(true).open("/etc/cenote-escape").err(),
                File::options().write(true).open(own_again).err(),
                File::options().write(true).open("/proc/self/oom_score_adj").err(),
                fs::remove_file(&there).err(),
                fs::create_dir(outside.join("folder")).err(),
                fs::rename(&there, inside.join("there")).err(),
                fs::hard_link(&there, inside.join("there")).err(),
                std::os::unix::fs::symlink(&there, outside.join("link")).err(),
            ];
            for (at, error) in refused.into_iter().enumerate() {
                let error = error.unwrap_or_else(|| panic!("escape {at}"));
                let errno = error.raw_os_error();
                assert!(matches!(errno, Some(libc::EACCES | libc::EXDEV)), "escape {at}: {error}");
            }
            std::os::unix::fs::FileExt::write_all_at(&open, b"still", 0).unwrap();
        });
    }

    #[test]
    fn pairs_and_what_comes_by_them_are_of_use() {
        let (dir, (far, mut near)) = (tempfile::tempdir().unwrap(), UnixStream::pair().unwrap());
        confined(dir.path(), move || {
            let (a, mut b) = UnixStream::pair().unwrap();
            std::io::Write::write_all(&mut b, b"x").unwrap();
            drop((a, far));
            assert_eq!(UnixDatagram::pair().unwrap_err().kind(), PermissionDenied);
            assert_eq!(UnixStream::connect("/run/systemd/notify").unwrap_err().kind(), PermissionDenied);
        });
        assert_eq!(std::io::Read::read(&mut near, &mut [0]).unwrap(), 0);
    }
}
