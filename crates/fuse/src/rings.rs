//! The rings of this process by which the kernel sends requests (FUSE over io_uring, Linux 6.14). Each takes commands of
//! open devices, and rings for its thread, and the kernel refuses all other operations on it, for good: see `device`,
//! `rings.rs`.
//!
//! ```text
//!   free ──take──▶ used by one thread of a mount ──give──▶ free      too few are free: others are made
//!                                                                    closed: none is made, the mount uses /dev/fuse
//! ```

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use base::Mutex;
use io_uring::register::Restriction;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, getrlimit};

/// Where root lets the kernel speak FUSE over io_uring.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
/// Commands that are given to the kernel at once, at most.
const DEPTH: u32 = 16;
/// Rings that are there at most when no more can be made.
const CLOSED_WITH: usize = 256;
/// The share of the descriptors of this process that they take at most: two each.
const DESCRIPTORS_FOR_ONE: u64 = 32;
/// The number of the bell among completed commands.
pub(crate) const BELL: u64 = u64::MAX;

/// The rings that no thread uses now.
static RINGS: Mutex<FreeFuseRings> = Mutex::new(FreeFuseRings { free: Vec::new(), is_closed: false });

struct FreeFuseRings {
    free: Vec<FuseRing>,
    /// None can be made any more.
    is_closed: bool,
}

/// A ring, and a bell that other threads ring for the thread that waits there.
pub(crate) struct FuseRing {
    pub(crate) ring: IoUring<squeue::Entry128, cqueue::Entry>,
    pub(crate) bell: Arc<OwnedFd>,
}

/// Does the kernel speak FUSE over io_uring?
pub(crate) fn is_offered() -> bool {
    std::fs::read(PARAMETER).is_ok_and(|value| value.starts_with(b"Y"))
}

/// So many rings. Errors: there are not as many, and why.
pub(crate) fn take(count: usize) -> io::Result<Vec<FuseRing>> {
    let mut rings = RINGS.lock();
    while rings.free.len() < count {
        if rings.is_closed {
            let left = rings.free.len();
            return Err(io::Error::other(format!("{count} rings are needed, and {left} are left of this process")));
        }
        rings.free.push(FuseRing::new()?);
    }
    let kept = rings.free.len() - count;
    Ok(rings.free.split_off(kept))
}

/// No command of it is with the kernel.
pub(crate) fn give(ring: FuseRing) {
    RINGS.lock().free.push(ring);
}

/// Makes all rings for requests that this process will ever have, if the kernel speaks FUSE over io_uring: whatever asks for
/// one later need not be allowed to make it.
pub fn close_request_rings() {
    let mut rings = RINGS.lock();
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = CLOSED_WITH.min((descriptors / DESCRIPTORS_FOR_ONE) as usize);
    let wanted = if is_offered() { most } else { 0 };
    while rings.free.len() < wanted
        && let Ok(ring) = FuseRing::new()
    {
        rings.free.push(ring);
    }
    rings.is_closed = true;
}

impl FuseRing {
    /// Errors: there is no io_uring here, or one that cannot be restricted.
    fn new() -> io::Result<FuseRing> {
        let mut builder = IoUring::builder();
        builder.setup_r_disabled().setup_coop_taskrun();
        let ring: IoUring<squeue::Entry128, cqueue::Entry> = builder.build(DEPTH)?;
        let mut allowed = [opcode::UringCmd80::CODE, opcode::PollAdd::CODE].map(Restriction::sqe_op);
        ring.submitter().register_restrictions(&mut allowed)?;
        ring.submitter().register_enable_rings()?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut made = FuseRing { ring, bell: Arc::new(bell) };
        made.hang_bell();
        Ok(made)
    }

    /// The bell is heard from now on, each time that it is rung.
    pub(crate) fn hang_bell(&mut self) {
        let bell = types::Fd(self.bell.as_raw_fd());
        let listen = opcode::PollAdd::new(bell, libc::POLLIN as u32).multi(true).build().user_data(BELL);
        self.push(listen.into());
    }

    /// The bell was heard.
    pub(crate) fn quiet_bell(&self) {
        // nothing to be read: another ring of it is heard
        let _ = rustix::io::read(self.bell.as_fd(), &mut [0; 8]);
    }

    /// Gives the kernel a command when it is asked next. What the command points to stays until it is completed.
    pub(crate) fn push(&mut self, command: squeue::Entry128) {
        // SAFETY: commands point to buffers of slots, which their thread keeps until they are completed.
        while unsafe { self.ring.submission().push(&command) }.is_err() {
            // there is room when the kernel has taken others; an error comes again when it is waited for
            let _ = self.ring.submit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_takes_commands_of_devices_only() {
        let Ok(mut ring) = FuseRing::new() else { return println!("SKIPPED: no io_uring here") };
        let mut result_of = |command: squeue::Entry128| {
            ring.push(command);
            ring.ring.submit_and_wait(1).unwrap();
            ring.ring.completion().map(|done| (done.user_data(), done.result())).next().unwrap()
        };
        static NAME: &[u8] = b"/etc/cenote-ring\0";
        let here = types::Fd(libc::AT_FDCWD);
        let escapes = [
            opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build(),
            opcode::OpenAt::new(here, NAME.as_ptr().cast()).flags(libc::O_CREAT | libc::O_WRONLY).build(),
            opcode::UnlinkAt::new(here, NAME.as_ptr().cast()).build(),
            opcode::Write::new(types::Fd(2), NAME.as_ptr(), 1).build(),
            opcode::Nop::new().build(),
        ];
        for (at, escape) in escapes.into_iter().enumerate() {
            assert_eq!(result_of(escape.user_data(at as u64).into()), (at as u64, -libc::EACCES));
        }
        let command = opcode::UringCmd80::new(types::Fd(-1), 1).build();
        assert_eq!(result_of(command), (0, -libc::EBADF), "what is allowed is tried");
        rustix::io::write(&*ring.bell, &1u64.to_ne_bytes()).unwrap();
        ring.ring.submit_and_wait(1).unwrap();
        assert_eq!(ring.ring.completion().next().unwrap().user_data(), BELL);
    }
}
