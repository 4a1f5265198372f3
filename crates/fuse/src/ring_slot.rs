//! Room for one request that comes over io_uring, and for its answer.
//!
//! ```text
//!   headers   [ fuse_in_header, then fuse_out_header : 128 ][ the opcode's own structure : 128 ][ commit id, payload bytes : 32 ]
//!   payload   [ the rest of the request, then the answer : 1 MiB ]
//!
//!   thread   register ─▶ kernel ─ request ─▶ thread ─▶ a reply ─ answered ─▶ thread: commit, and the next one ─▶ kernel
//! ```
//!
//! Source: linux/fuse.h, `fuse_uring_req_header` and `fuse_uring_cmd_req`. Above are [`ring_threads`](crate::ring_threads),
//! which have slots filled, and [`reply`](crate::reply), which answers. Invariant: the kernel reads and writes a slot
//! only between a command that names it and that command's completion, and its thread alone has it then.

use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use base::{CopyKind, Error, Mutex, Result, count_copy};
use io_uring::{opcode, squeue, types};

use crate::wire::{IN_HEADER_BYTES, IO_BYTES_MAX, InHeader, OUT_HEADER_BYTES, out_header};

/// `FUSE_IO_URING_CMD_REGISTER`: the kernel may use a slot.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: a slot has an answer, and may be used again.
const COMMIT_AND_FETCH: u32 = 2;
/// Where the opcode's own structure stands in the headers, and how long it may be.
const OP_AT: usize = 128;
const OP_BYTES: usize = 128;
/// Where `fuse_uring_ent_in_out` stands, and its number of bytes in the payload.
const COMMIT_ID_AT: usize = OP_AT + OP_BYTES + 8;
const PAYLOAD_LEN_AT: usize = COMMIT_ID_AT + 8;
/// Bytes of `fuse_uring_req_header`.
const HEADERS_BYTES: usize = 288;

/// Where a thread is told that slots of its have answers.
pub(crate) struct RingDoor {
    bell: Arc<OwnedFd>,
    state: Mutex<DoorState>,
}

#[derive(Default)]
struct DoorState {
    answered: Vec<RingSlot>,
    /// The thread waits in the kernel, and has to be rung for.
    sleeps: bool,
}

impl RingDoor {
    pub(crate) fn new(bell: Arc<OwnedFd>) -> Arc<RingDoor> {
        Arc::new(RingDoor { bell, state: Mutex::default() })
    }

    fn put(&self, slot: RingSlot) {
        let mut state = self.state.lock();
        state.answered.push(slot);
        if std::mem::take(&mut state.sleeps) {
            // it can fail only where it was rung already
            let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Takes the slots that have answers into `answered`, which is empty.
    pub(crate) fn take(&self, answered: &mut Vec<RingSlot>) {
        std::mem::swap(&mut self.state.lock().answered, answered);
    }

    /// Its thread is about to wait in the kernel. False if it must not: there are answers.
    pub(crate) fn may_sleep(&self) -> bool {
        let mut state = self.state.lock();
        state.sleeps = state.answered.is_empty();
        state.sleeps
    }

    /// Its thread waits no more.
    pub(crate) fn awake(&self) {
        self.state.lock().sleeps = false;
    }
}

/// Room for one request and its answer.
pub(crate) struct RingSlot {
    headers: Box<[u8; HEADERS_BYTES]>,
    payload: Box<[u8]>,
    /// Addresses and lengths of both, as readv(2) takes them.
    parts: Box<[usize; 4]>,
    queue: u16,
    door: Arc<RingDoor>,
}

impl RingSlot {
    /// One for requests of the kernel's queue of that number. Answers are told at `door`.
    pub(crate) fn new(queue: u16, door: &Arc<RingDoor>) -> RingSlot {
        let mut headers = Box::new([0; HEADERS_BYTES]);
        // zeroed pages that nothing has touched take no memory
        let mut payload = vec![0; IO_BYTES_MAX as usize].into_boxed_slice();
        let addresses = [headers.as_mut_ptr(), payload.as_mut_ptr()].map(<*mut u8>::expose_provenance);
        let parts = [addresses[0], headers.len(), addresses[1], payload.len()];
        RingSlot { headers, payload, parts: Box::new(parts), queue, door: door.clone() }
    }

    /// The kernel's queue that it is of.
    pub(crate) fn queue(&self) -> u16 {
        self.queue
    }

    /// The command that gives it to the kernel for the first time. `connection` is a descriptor of /dev/fuse.
    pub(crate) fn register(&self, connection: RawFd) -> squeue::Entry128 {
        let parts = self.parts.as_ptr().expose_provenance() as u64;
        let command = opcode::UringCmd80::new(types::Fd(connection), REGISTER).cmd(self.command(0)).addr(Some(parts));
        let mut entry = command.build();
        // SAFETY: an entry is an `io_uring_sqe`, whose `len`, which the crate cannot set, is a u32 at byte 24.
        unsafe { (&raw mut entry).cast::<u32>().add(24 / 4).write(self.parts.len() as u32 / 2) };
        entry
    }

    /// The command that gives it back with an answer.
    pub(crate) fn commit(&self, connection: RawFd) -> squeue::Entry128 {
        let command = self.command(self.word(COMMIT_ID_AT));
        opcode::UringCmd80::new(types::Fd(connection), COMMIT_AND_FETCH).cmd(command).build()
    }

    /// `fuse_uring_cmd_req`: no flags, the request that is answered, the queue.
    fn command(&self, commit_id: u64) -> [u8; 80] {
        let mut command = [0; 80];
        command[8..16].copy_from_slice(&commit_id.to_ne_bytes());
        command[16..18].copy_from_slice(&self.queue.to_ne_bytes());
        command
    }

    /// The request that the kernel has put into it, as three parts of what would come by /dev/fuse. Errors: `Corrupt` if it
    /// is none.
    pub(crate) fn request(&self) -> Result<[&[u8]; 3]> {
        let (header, op) = (&self.headers[..IN_HEADER_BYTES], &self.headers[OP_AT..OP_AT + OP_BYTES]);
        let whole = InHeader::parse(header)?.len as usize;
        let payload_len = self.word(PAYLOAD_LEN_AT) as u32 as usize;
        let op_len = whole.checked_sub(IN_HEADER_BYTES + payload_len);
        let parts = op_len.and_then(|len| Some([header, op.get(..len)?, self.payload.get(..payload_len)?]));
        parts.ok_or_else(|| Error::corrupt(format!("{payload_len} bytes of a request of {whole}")))
    }

    /// Puts the answer to the request of that number into it, and tells its thread.
    pub(crate) fn answer(mut self, unique: u64, errno: i32, parts: &[&[u8]]) {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        let (errno, parts, len) = match len <= self.payload.len() {
            true => (errno, parts, len),
            false => {
                tracing::error!("a reply of {len} bytes was not taken");
                (libc::EIO, &[][..], 0)
            }
        };
        let mut at = 0;
        for part in parts {
            self.payload[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        count_copy(CopyKind::IntoBuffers, len);
        let header = out_header(OUT_HEADER_BYTES + len, errno, unique);
        self.headers[..OUT_HEADER_BYTES].copy_from_slice(&header);
        self.headers[PAYLOAD_LEN_AT..PAYLOAD_LEN_AT + 4].copy_from_slice(&(len as u32).to_ne_bytes());
        let door = self.door.clone();
        door.put(self);
    }

    /// Answers EIO to a request that makes no sense.
    pub(crate) fn refuse(self) {
        let unique = self.word(COMMIT_ID_AT);
        self.answer(unique, libc::EIO, &[]);
    }

    /// The eight bytes of the headers from there on.
    fn word(&self, at: usize) -> u64 {
        u64::from_ne_bytes(std::array::from_fn(|i| self.headers[at + i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Out;
    use rustix::event::{EventfdFlags, eventfd};

    fn slot_of(len: u32, payload_len: u32) -> (RingSlot, Arc<RingDoor>) {
        let door = RingDoor::new(Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap()));
        let mut slot = RingSlot::new(3, &door);
        let header = Out::default().u32(len).u32(1).u64(77).u64(5).padded(IN_HEADER_BYTES);
        slot.headers[..IN_HEADER_BYTES].copy_from_slice(&header);
        slot.headers[COMMIT_ID_AT..COMMIT_ID_AT + 8].copy_from_slice(&77u64.to_ne_bytes());
        slot.headers[PAYLOAD_LEN_AT..PAYLOAD_LEN_AT + 4].copy_from_slice(&payload_len.to_ne_bytes());
        (slot, door)
    }

    #[test]
    fn a_request_has_three_parts_or_is_none() {
        let (slot, _) = slot_of(40 + 24 + 5, 5);
        assert_eq!(slot.request().unwrap().map(<[u8]>::len), [40, 24, 5]);
        for (len, payload_len) in [(40 + 129, 0), (44, 5), (39, 0), (u32::MAX, 5), (40 + (1 << 20) + 1, (1 << 20) + 1)]
        {
            assert!(slot_of(len, payload_len).0.request().is_err(), "{len} {payload_len}");
        }
    }

    #[test]
    fn an_answer_goes_to_the_thread_of_the_slot() {
        let (slot, door) = slot_of(40, 0);
        assert!(door.may_sleep());
        slot.answer(77, libc::ENOENT, &[b"ab", b"c"]);
        assert!(!door.may_sleep(), "there is an answer");
        assert_eq!(rustix::io::read(&*door.bell, &mut [0; 8]), Ok(8), "it was rung");
        let mut answered = Vec::new();
        door.take(&mut answered);
        let slot = &answered[0];
        assert_eq!(slot.headers[..4], 19u32.to_ne_bytes());
        assert_eq!(slot.headers[4..8], (-libc::ENOENT).to_ne_bytes());
        assert_eq!((&slot.payload[..3], slot.word(PAYLOAD_LEN_AT) as u32), (&b"abc"[..], 3));
        assert_eq!(slot.command(slot.word(COMMIT_ID_AT))[8..18], [77, 0, 0, 0, 0, 0, 0, 0, 3, 0]);
        door.awake();
        let (slot, door) = slot_of(40, 0);
        slot.answer(77, 0, &[&vec![0; (1 << 20) + 1]]);
        door.take(&mut answered);
        assert_eq!(answered[0].headers[4..8], (-libc::EIO).to_ne_bytes(), "longer than there is room for");
    }
}
