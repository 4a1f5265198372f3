//! What the process of a pool need not be able to do, it cannot do: it reads devices that anybody may have written.
//!
//! ```text
//!   main ──▶ mount helper (keeps all rights, mounts)
//!     └────▶ confine ──▶ all threads, for good:
//!              no new privileges   no set-user-id program gives it any
//!              capabilities        of root's only CAP_DAC_OVERRIDE
//!              io_uring            rings that read, write and flush, and no others
//!              seccomp             no mounting, no programs, no network, no hand on the kernel or other processes
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
//! behind it, and the kernel lets these only read, write and flush what is open (`device`, `rings.rs`).
//!
//! Left open: sockets of family `AF_UNIX`, which volumes and commands come by, and which may also be connected to what
//! listens elsewhere on this machine; and, as root's process, files of the whole machine (there is no Landlock yet).

use std::collections::BTreeMap;

use rustix::io::Errno;
use rustix::process::configure_io_flusher_behavior;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

/// The capabilities that root's process keeps.
const KEPT: CapabilitySet = CapabilitySet::DAC_OVERRIDE;

/// System calls that are refused with `EPERM`. What another architecture does not have, it has not under another name.
const REFUSED: &[libc::c_long] = &[
    // file systems and namespaces
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    // programs
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_personality,
    // other processes
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // users
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_mknodat,
    // what no filter sees
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_register,
    // the kernel and the machine
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    // under older numbers
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Gives up what this thread, and those that it will start, need not have. Errors: which of it cannot be given up.
pub fn confine() -> Result<(), String> {
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
    let filter = filter().map_err(|e| format!("cannot refuse system calls: {e}"))?;
    seccompiler::apply_filter(&filter).map_err(|e| format!("cannot refuse system calls: {e}"))
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut refuse = |call: libc::c_long, rule: Vec<SeccompRule>| {
        rules.insert(call, rule.clone());
        // the same calls for programs with short pointers
        #[cfg(target_arch = "x86_64")]
        rules.insert(call | 0x4000_0000, rule);
    };
    REFUSED.iter().for_each(|call| refuse(*call, Vec::new()));
    let family = |op| SeccompCondition::new(0, SeccompCmpArgLen::Dword, op, libc::AF_UNIX as u64);
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        refuse(call, vec![SeccompRule::new(vec![family(SeccompCmpOp::Ne)?])?]);
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32), arch)?.try_into()
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::PermissionDenied;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use nix::mount::{MsFlags, mount};
    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;

    #[test]
    fn what_is_given_up_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let work = move || {
            confine().unwrap();
            let tmpfs = || mount(Some("none"), dir.path(), Some("tmpfs"), MsFlags::empty(), None::<&str>);
            assert_eq!(tmpfs().unwrap_err(), nix::errno::Errno::EPERM);
            assert_eq!(Command::new("/bin/true").status().unwrap_err().kind(), PermissionDenied);
            assert_eq!(TcpListener::bind("127.0.0.1:0").unwrap_err().kind(), PermissionDenied);
            UnixListener::bind(dir.path().join("sock")).unwrap();
            for family in [AddressFamily::INET, AddressFamily::INET6, AddressFamily::NETLINK, AddressFamily::PACKET] {
                let refused = socket(family, SocketType::DGRAM, None).unwrap_err();
                assert_eq!(refused, Errno::PERM, "{family:?}");
            }
            assert_eq!(device::try_free_ring().unwrap_err().kind(), PermissionDenied);
            let own = dir.path().join("file");
            std::fs::write(&own, "x").unwrap();
            // to oneself: the call, not the change is refused
            let uid = rustix::process::geteuid().as_raw();
            assert_eq!(std::os::unix::fs::chown(&own, Some(uid), None).unwrap_err().kind(), PermissionDenied);
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
            assert_eq!((line("NoNewPrivs:").as_str(), line("Seccomp:").as_str()), ("1", "2"));
            // and what it starts is no freer
            let nested = std::thread::spawn(|| Command::new("/bin/true").status().unwrap_err().kind());
            assert_eq!(nested.join().unwrap(), PermissionDenied);
            // twice is no harm
            confine().unwrap();
        };
        // a thread of its own, as it is for good
        std::thread::spawn(work).join().unwrap();
    }
}
