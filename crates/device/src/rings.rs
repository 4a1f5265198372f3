//! The rings of this process. Each can read, write and flush, and nothing else: the kernel refuses all other operations
//! on it, for good, as it would let a ring do what a filter of system calls refuses.
//!
//! ```text
//!   free ──take──▶ used by one thread ──give──▶ free          none is free: another one is made
//!                                                             closed: none is made, plain system calls do it
//! ```

use std::io;

use base::Mutex;
use io_uring::register::Restriction;
use io_uring::{IoUring, opcode};

/// Jobs in flight at most, per ring.
pub(crate) const DEPTH: u32 = 128;
/// Rings that are there at most when no more can be made: one for each thread that does several jobs at the same time.
const CLOSED_WITH: usize = 32;
/// The share of the descriptors of this process that these rings take at most.
const DESCRIPTORS_FOR_ONE: u64 = 16;

/// The rings that no thread uses now.
static RINGS: Mutex<FreeRings> = Mutex::new(FreeRings { free: Vec::new(), is_closed: false });

struct FreeRings {
    free: Vec<IoUring>,
    /// None can be made any more: that is refused, or there is no io_uring.
    is_closed: bool,
}

/// One for this thread, until it gives that back; `None` if there is none.
pub(crate) fn take() -> Option<IoUring> {
    let mut rings = RINGS.lock();
    if let Some(ring) = rings.free.pop() {
        return Some(ring);
    }
    if rings.is_closed {
        return None;
    }
    // forbidden in many containers, absent in old kernels
    let made = restricted();
    rings.is_closed = made.is_err();
    made.ok()
}

/// Nothing of it is in flight.
pub(crate) fn give(ring: IoUring) {
    RINGS.lock().free.push(ring);
}

/// Makes all rings that this process will ever have: whatever asks for one later need not be allowed to make it. Where
/// there is no io_uring, there are none.
pub fn close_rings() {
    let mut rings = RINGS.lock();
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = CLOSED_WITH.min((descriptors / DESCRIPTORS_FOR_ONE) as usize).max(1);
    while !rings.is_closed && rings.free.len() < most {
        match restricted() {
            Ok(ring) => rings.free.push(ring),
            Err(_) => rings.is_closed = true,
        }
    }
    rings.is_closed = true;
}

/// Tries whether this process may make a ring that can do everything. Errors: the refusal of the system.
pub fn try_free_ring() -> io::Result<()> {
    IoUring::new(1).map(drop)
}

/// Errors: there is no io_uring here, or one that cannot be restricted.
fn restricted() -> io::Result<IoUring> {
    let ring = IoUring::builder().setup_r_disabled().build(DEPTH)?;
    let mut allowed =
        [opcode::Read::CODE, opcode::Readv::CODE, opcode::Write::CODE, opcode::Fsync::CODE].map(Restriction::sqe_op);
    ring.submitter().register_restrictions(&mut allowed)?;
    ring.submitter().register_enable_rings()?;
    Ok(ring)
}

#[cfg(test)]
mod tests {
    use io_uring::{squeue, types};

    use super::*;

    fn result_of(ring: &mut IoUring, entry: &squeue::Entry) -> i32 {
        // SAFETY: what the entry points to is static, and the ring waits for it.
        unsafe { ring.submission().push(entry) }.unwrap();
        ring.submit_and_wait(1).unwrap();
        ring.completion().next().unwrap().result()
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no io_uring")]
    fn a_ring_only_reads_writes_and_flushes() {
        let Some(mut ring) = take() else { return println!("SKIPPED: no io_uring here") };
        static NAME: &[u8] = b"/etc/cenote-ring\0";
        static ADDRESS: [u8; 16] = [2, 0, 0, 9, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let here = types::Fd(libc::AT_FDCWD);
        let escapes = [
            opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build(),
            opcode::Socket::new(libc::AF_UNIX, libc::SOCK_STREAM, 0).build(),
            opcode::Connect::new(types::Fd(0), ADDRESS.as_ptr().cast(), 16).build(),
            opcode::OpenAt::new(here, NAME.as_ptr().cast()).flags(libc::O_CREAT | libc::O_WRONLY).build(),
            opcode::UnlinkAt::new(here, NAME.as_ptr().cast()).build(),
            opcode::Nop::new().build(),
            opcode::Fsync::new(types::Fixed(0)).build(),
        ];
        for (at, escape) in escapes.iter().enumerate() {
            assert_eq!(result_of(&mut ring, escape), -libc::EACCES, "escape {at}");
        }
        assert!(ring.submitter().register_files(&[0]).is_err(), "nothing is registered");
        assert!(ring.submitter().register_restrictions(&mut [Restriction::sqe_op(opcode::Socket::CODE)]).is_err());
        let flush = opcode::Fsync::new(types::Fd(-1)).build();
        assert_eq!(result_of(&mut ring, &flush), -libc::EBADF, "what is allowed is tried");
        give(ring);
    }
}
