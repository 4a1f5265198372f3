//! A guest's driver of one ring, and the monitor that gives it the disk.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{Ordering, fence};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::EventFd;

use bench::random;

/// What fails here is told to people only.
pub(crate) type DriverResult<T> = Result<T, Box<dyn std::error::Error>>;

/// Where the monitor says that it has the guest's memory.
const MONITOR_AT: u64 = 0x7000_0000_0000;
/// Requests have three descriptors each.
const ENTRIES: u16 = 256;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const HEADS: u64 = 0x5000;
const STATUSES: u64 = 0x6000;
const DATA: u64 = 1 << 20;

const NEXT: u16 = 1;
const WRITTEN: u16 = 2;
/// In the used ring's flags: the server looks by itself.
const NO_NOTIFY: u16 = 1;
/// The longest that an answer is waited for.
const PATIENCE_MS: i32 = 20_000;
const VERSION_1: u64 = 1 << 32;
const PROTOCOL_FEATURES: u64 = 1 << 30;
/// Without it, what was written would have to be on disk before it is answered.
const FLUSH: u64 = 1 << 9;

pub(crate) struct Driver {
    ram: GuestMemoryMmap,
    kick: EventFd,
    call: EventFd,
    /// Waits for `call`.
    calls: Epoll,
    bytes: u32,
    /// Requests that were made available, and those whose answers were seen, each modulo 2^16.
    asked: u16,
    seen: u16,
    // the server lets go of the disk once this is dropped
    _monitor: Frontend,
}

impl Driver {
    /// With room for `depth` requests of `bytes` each.
    pub(crate) fn connect(socket: &str, depth: u16, bytes: u32) -> DriverResult<Driver> {
        let len = DATA + (u64::from(depth) * u64::from(bytes)).next_multiple_of(1 << 20);
        let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        file.set_len(len)?;
        fcntl_add_seals(&file, SealFlags::SHRINK)?;
        let place = FileOffset::new(file.try_clone()?, 0);
        let ram = GuestMemoryMmap::from_ranges_with_files([(GuestAddress(0), usize::try_from(len)?, Some(place))])?;
        let (kick, call) = (EventFd::new(0)?, EventFd::new(0)?);

        let calls = Epoll::new()?;
        calls.ctl(ControlOperation::Add, call.as_raw_fd(), EpollEvent::new(EventSet::IN, 0))?;

        let mut monitor = Frontend::connect(socket, 1)?;
        monitor.set_owner()?;
        let features = monitor.get_features()? & (VERSION_1 | PROTOCOL_FEATURES | FLUSH);
        if features & PROTOCOL_FEATURES != 0 {
            let protocol = monitor.get_protocol_features()?;
            monitor.set_protocol_features(protocol & VhostUserProtocolFeatures::CONFIG)?;
        }
        monitor.set_features(features)?;
        monitor.set_mem_table(&[VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: len,
            userspace_addr: MONITOR_AT,
            mmap_offset: 0,
            mmap_handle: file.as_raw_fd(),
        }])?;
        let ring = VringConfigData {
            queue_max_size: ENTRIES,
            queue_size: ENTRIES,
            flags: 0,
            desc_table_addr: MONITOR_AT,
            used_ring_addr: MONITOR_AT + USED,
            avail_ring_addr: MONITOR_AT + AVAILABLE,
            log_addr: None,
        };
        monitor.set_vring_num(0, ENTRIES)?;
        monitor.set_vring_addr(0, &ring)?;
        monitor.set_vring_base(0, 0)?;
        monitor.set_vring_call(0, &call)?;
        monitor.set_vring_kick(0, &kick)?;
        monitor.set_vring_enable(0, true)?;
        // data that compresses by half, as far as it is written
        let mut driver = Driver { ram, kick, call, calls, bytes, asked: 0, seen: 0, _monitor: monitor };
        for slot in 0..depth {
            driver.fill(slot)?;
        }
        Ok(driver)
    }

    fn data(&self, slot: u16) -> u64 {
        DATA + u64::from(slot) * u64::from(self.bytes)
    }

    fn fill(&mut self, slot: u16) -> DriverResult<()> {
        let mut seed = u64::from(slot);
        for at in (0..u64::from(self.bytes)).step_by(16) {
            self.ram.write_obj(random(&mut seed), GuestAddress(self.data(slot) + at))?;
        }
        Ok(())
    }

    /// Makes a request available whose last answer was seen.
    pub(crate) fn ask(&mut self, slot: u16, is_write: bool, sector: u64) -> DriverResult<()> {
        let (first, number) = (3 * slot, u64::from(slot));
        let (head, status) = (HEADS + 16 * number, STATUSES + number);
        let bytes = [&u32::from(is_write).to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        self.ram.write_slice(&bytes, GuestAddress(head))?;
        self.ram.write_obj(0xffu8, GuestAddress(status))?;
        let direction = if is_write { 0 } else { WRITTEN };
        self.describe(first, head, 16, NEXT)?;
        self.describe(first + 1, self.data(slot), self.bytes, NEXT | direction)?;
        self.describe(first + 2, status, 1, WRITTEN)?;
        self.ram.write_obj(first, GuestAddress(AVAILABLE + 4 + 2 * u64::from(self.asked % ENTRIES)))?;
        self.asked = self.asked.wrapping_add(1);
        Ok(())
    }

    /// A descriptor, which goes on with the one after it.
    fn describe(&self, index: u16, address: u64, len: u32, flags: u16) -> DriverResult<()> {
        let bytes = [&address.to_le_bytes()[..], &len.to_le_bytes(), &flags.to_le_bytes(), &(index + 1).to_le_bytes()];
        Ok(self.ram.write_slice(&bytes.concat(), GuestAddress(16 * u64::from(index)))?)
    }

    /// Shows the server what was asked, and wakes it if it wants that.
    pub(crate) fn kick(&self) -> DriverResult<()> {
        self.ram.store(self.asked, GuestAddress(AVAILABLE + 2), Ordering::Release)?;
        fence(Ordering::SeqCst);
        let flags: u16 = self.ram.load(GuestAddress(USED), Ordering::Relaxed)?;
        if flags & NO_NOTIFY == 0 {
            self.kick.write(1)?;
        }
        Ok(())
    }

    /// Waits for answers, and adds their slots to `free`. Errors: a request failed, or is not answered.
    pub(crate) fn wait(&mut self, free: &mut Vec<u16>) -> DriverResult<()> {
        loop {
            let used: u16 = self.ram.load(GuestAddress(USED + 2), Ordering::Acquire)?;
            while self.seen != used {
                let entry = USED + 4 + 8 * u64::from(self.seen % ENTRIES);
                let first: u32 = self.ram.read_obj(GuestAddress(entry))?;
                let slot = u16::try_from(first / 3)?;
                let status: u8 = self.ram.read_obj(GuestAddress(STATUSES + u64::from(slot)))?;
                if status != 0 {
                    return Err(format!("a request ended with status {status}").into());
                }
                free.push(slot);
                self.seen = self.seen.wrapping_add(1);
            }
            if !free.is_empty() {
                return Ok(());
            }
            if self.calls.wait(PATIENCE_MS, &mut [EpollEvent::default()])? == 0 {
                return Err("it does not answer".into());
            }
            self.call.read()?;
        }
    }
}
