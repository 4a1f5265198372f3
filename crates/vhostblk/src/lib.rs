//! Volumes for virtual machines, by vhost-user: the machine's memory is mapped here, and its requests are taken from it.
//!
//! ```text
//!   monitor (QEMU)  ── messages, descriptors ──▶  session: features, memory, rings, configuration
//!   guest's driver  ── rings in its memory ────▶  threads: requests ─▶ zvol ─▶ its memory, used ring, interrupt
//!
//!   server.rs    one volume's socket: the monitor that is connected, and that no second one is
//!   session.rs   what a monitor's messages do; message.rs: those messages, parsed; channel.rs: with their descriptors
//!   memory.rs    the guest's memory: what of it is mapped, and what never is
//!   device.rs    the threads that take requests from all rings of a guest, do them and answer
//!   ring.rs      one virtqueue
//!   inflight.rs  what rings have in flight, in memory that the monitor keeps: a guest goes on when this process was killed
//!   cache.rs     what was answered and is not on disk, and what becomes of a guest whose process was killed before it was
//!   request.rs   a chain of descriptors as a request; commands.rs: what it does to the volume
//!   event.rs     eventfds: kicks, calls, and waiting for them
//!   config.rs    what the guest reads of its disk: capacity, limits
//!   disk.rs      what is known of the volume
//! ```
//!
//! Sources: the vhost-user protocol as QEMU's documentation has it (docs/interop/vhost-user.rst), virtio 1.2 (split rings,
//! 5.2 block device). Rings and descriptors are walked by rust-vmm's `virtio-queue`, memory is read and written by
//! `vm-memory`, which knows its bounds.
//!
//! Invariants:
//!
//! - Data are copied out of the guest's memory before anything looks at them: the guest may change them at any time.
//! - Memory that could shrink under its mapping is not mapped.
//! - What a guest says costs memory that a [`export::DataBudget`] counts, threads of which there are a fixed number, and
//!   nobody else's requests.
//! - A request is in flight from before it is done until after it was answered, also for the next process.
//! - When the answer to `GET_VRING_BASE` goes out, nothing touches that ring any more.

mod cache;
mod channel;
mod commands;
mod config;
mod device;
mod disk;
mod event;
mod fuzzing;
mod inflight;
mod memory;
mod message;
mod request;
mod ring;
mod server;
mod session;

pub use disk::{VhostDisk, VhostSource};
pub use fuzzing::{fuzz_chains, fuzz_inflight, fuzz_messages};
pub use server::VhostServer;
