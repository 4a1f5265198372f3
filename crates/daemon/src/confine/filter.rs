//! The filter of system calls: what is refused, and which arguments make the difference.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

// newer than the crate of their names; the same number on all architectures
const QUOTACTL_FD: libc::c_long = 443;
const PROCESS_MRELEASE: libc::c_long = 448;
const FCHMODAT2: libc::c_long = 452;
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;
const OPEN_TREE_ATTR: libc::c_long = 467;
const FILE_SETATTR: libc::c_long = 469;

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
    QUOTACTL_FD,
    OPEN_TREE_ATTR,
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
    libc::SYS_tkill,
    libc::SYS_pidfd_send_signal,
    PROCESS_MRELEASE,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // sockets: a helper makes and binds those that listen, and nothing is connected
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_sendmmsg,
    // what is shared by name
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // rights of files, which need no file that is open for writing
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SETXATTRAT,
    REMOVEXATTRAT,
    FILE_SETATTR,
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
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
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

/// Requests of ioctl(2) that write to a terminal as if somebody typed, take it, or name a process to be signalled.
const REFUSED_IOCTLS: &[u64] = &[
    0x5412, /* TIOCSTI */
    0x540e, /* TIOCSCTTY */
    0x541c, /* TIOCLINUX */
    0x8901, /* FIOSETOWN */
    0x8902, /* SIOCSPGRP */
];

/// Commands of fcntl(2) that name a process to be signalled.
const REFUSED_FCNTLS: &[u64] = &[8 /* F_SETOWN */, 10 /* F_SETSIG */, 15 /* F_SETOWN_EX */];

/// A condition of an argument: which, how much of it the kernel takes, how it is compared, and with what.
type Condition = (u8, SeccompCmpArgLen, SeccompCmpOp, u64);

/// Refuses the calls to this thread, and to those that it starts. Errors: the system takes no filter.
pub(super) fn apply() -> Result<(), seccompiler::Error> {
    seccompiler::apply_filter(&refusing(libc::EPERM, all_rules()?)?)?;
    // its flags are in memory, where no filter looks: whatever asks for it asks for the older one instead
    let newer = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    seccompiler::apply_filter(&refusing(libc::ENOSYS, newer)?)
}

fn all_rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut refuse = |call: libc::c_long, rule: Vec<SeccompRule>| {
        rules.insert(call, rule.clone());
        // the same calls for programs with short pointers
        #[cfg(target_arch = "x86_64")]
        rules.insert(call | 0x4000_0000, rule);
    };
    REFUSED.iter().for_each(|call| refuse(*call, Vec::new()));
    for (call, cases) in with_arguments() {
        let rule_of = |case: &Vec<Condition>| {
            let conditions =
                case.iter().map(|(at, len, op, value)| SeccompCondition::new(*at, len.clone(), op.clone(), *value));
            SeccompRule::new(conditions.collect::<Result<_, _>>()?)
        };
        refuse(call, cases.iter().map(rule_of).collect::<Result<_, _>>()?);
    }
    Ok(rules)
}

/// Calls that are refused in some cases: where all conditions of one hold.
fn with_arguments() -> Vec<(libc::c_long, Vec<Vec<Condition>>)> {
    use SeccompCmpArgLen::{Dword, Qword};
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let own = u64::from(std::process::id());
    let is_one = |at: u8, values: &[u64]| values.iter().map(|value| vec![(at, Dword, Eq, *value)]).collect();
    let has = |at: u8, flag: libc::c_int| vec![(at, Dword, MaskedEq(flag as u64), flag as u64)];
    let is_kind = |kind: libc::c_int| vec![(1, Dword, MaskedEq(0xf), kind as u64)];
    let to_others = || vec![vec![(0, Dword, Ne, own)]];
    let is_no_pair = vec![(0, Dword, Ne, libc::AF_UNIX as u64)];
    vec![
        // one half of a pair that is not connected for good sends to everybody's socket
        (libc::SYS_socketpair, vec![is_no_pair, is_kind(libc::SOCK_DGRAM), is_kind(libc::SOCK_RAW)]),
        (libc::SYS_sendto, vec![vec![(4, Qword, Ne, 0)], has(3, libc::MSG_FASTOPEN)]),
        (libc::SYS_sendmsg, vec![has(2, libc::MSG_FASTOPEN)]),
        (libc::SYS_kill, to_others()),
        (libc::SYS_tgkill, to_others()),
        (libc::SYS_rt_sigqueueinfo, to_others()),
        (libc::SYS_rt_tgsigqueueinfo, to_others()),
        (libc::SYS_prlimit64, vec![vec![(0, Dword, Ne, 0), (0, Dword, Ne, own)]]),
        // a thread, and no process
        (libc::SYS_clone, vec![vec![(0, Dword, MaskedEq(libc::CLONE_THREAD as u64), 0)]]),
        (libc::SYS_ioctl, is_one(1, REFUSED_IOCTLS)),
        (libc::SYS_fcntl, is_one(1, REFUSED_FCNTLS)),
    ]
}

fn refusing(errno: i32, rules: BTreeMap<i64, Vec<SeccompRule>>) -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno as u32), arch)?.try_into()
}
