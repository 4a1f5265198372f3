//! Volumes by vhost-user, with rust-vmm's frontend for the monitor, and a small driver for the guest; what becomes of it
//! when its server is killed: `vhost_killed`. QEMU: `tests/clients/vhost`.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::snapshots::Fresh;

const RAM_BYTES: u64 = 16 << 20;
/// Where the monitor says that it has the guest's memory.
const MONITOR_AT: u64 = 0x7000_0000_0000;
pub(super) const ENTRIES: u16 = 16;

pub(super) const READ: u32 = 0;
pub(super) const WRITE: u32 = 1;
pub(super) const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;
const NEXT: u16 = 1;
const WRITTEN: u16 = 2;
const INDIRECT: u16 = 4;
const READ_ONLY: u64 = 1 << 5;
const EVENT_IDX: u64 = 1 << 29;
const FLUSHES: u64 = 1 << 9;

/// Places of the parts of a ring, from its own place on.
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const HEAD: u64 = 0x3000;
const STATUS: u64 = 0x4000;
const DATA: u64 = 1 << 20;
/// Bytes of the data of one of several requests.
const SLOT_BYTES: u64 = 64 << 10;

/// A virtual machine: its memory, and rings in it.
pub(super) struct Guest {
    pub(super) monitor: Frontend,
    file: File,
    ram: GuestMemoryMmap,
    kicks: Vec<EventFd>,
    calls: Vec<EventFd>,
    pub(super) next: Vec<u16>,
    features: u64,
    /// What its monitor keeps of what is in flight, if it does.
    pub(super) kept: Option<(VhostUserInflight, File)>,
}

fn memfd(bytes: u64, seals: SealFlags) -> File {
    let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap());
    file.set_len(bytes).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

impl Guest {
    /// A monitor that has agreed on features, and those that there are.
    fn greet(fresh: &Fresh, volume: &str) -> (Frontend, u64) {
        let path = fresh.world.dir.join(format!("run/vhost/{volume}+sock"));
        let mut monitor = Frontend::connect(path, 8).unwrap();
        monitor.set_owner().unwrap();
        let features = monitor.get_features().unwrap();
        let protocol = monitor.get_protocol_features().unwrap();
        let wanted = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD;
        assert!(protocol.contains(wanted), "{protocol:?}");
        monitor.set_protocol_features(protocol).unwrap();
        monitor.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        monitor.set_features(features & !EVENT_IDX).unwrap();
        (monitor, features)
    }

    /// One that has said nothing of its memory yet.
    fn begin(fresh: &Fresh, volume: &str) -> Guest {
        let (monitor, features) = Guest::greet(fresh, volume);
        let file = memfd(RAM_BYTES, SealFlags::SHRINK);
        let place = FileOffset::new(file.try_clone().unwrap(), 0);
        let ram =
            GuestMemoryMmap::from_ranges_with_files([(GuestAddress(0), RAM_BYTES as usize, Some(place))]).unwrap();
        Guest { monitor, file, ram, kicks: Vec::new(), calls: Vec::new(), next: Vec::new(), features, kept: None }
    }

    /// One with so many rings that run.
    fn connect(fresh: &Fresh, volume: &str, rings: usize) -> Guest {
        Guest::connect_with(Guest::begin(fresh, volume), rings)
    }

    /// The same, whose monitor keeps what is in flight.
    pub(super) fn connect_kept(fresh: &Fresh, volume: &str, rings: usize) -> Guest {
        let mut guest = Guest::begin(fresh, volume);
        guest.renew_kept(rings as u16);
        Guest::connect_with(guest, rings)
    }

    fn connect_with(mut guest: Guest, rings: usize) -> Guest {
        let file = guest.file.try_clone().unwrap();
        guest.give(&file, RAM_BYTES).unwrap();
        for ring in 0..rings {
            guest.next.push(0);
            guest.kicks.push(EventFd::new(EFD_NONBLOCK).unwrap());
            guest.calls.push(EventFd::new(EFD_NONBLOCK).unwrap());
            guest.start(ring);
        }
        guest
    }

    /// Has new memory for what is in flight, as after a reset.
    pub(super) fn renew_kept(&mut self, rings: u16) {
        let kept = self.monitor.get_inflight_fd(&VhostUserInflight::new(0, 0, rings, ENTRIES)).unwrap();
        self.kept = Some(kept);
        self.give_kept().unwrap();
    }

    pub(super) fn give_kept(&mut self) -> vhost::Result<()> {
        let (place, file) = self.kept.as_ref().unwrap();
        self.monitor.set_inflight_fd(place, file.as_raw_fd())
    }

    /// Its monitor has lost its server, and has another one: as QEMU does, it knows of rings what was given back.
    pub(super) fn reconnect(&mut self, fresh: &Fresh, volume: &str) {
        // nobody else may have the volume
        self.monitor = Frontend::from_stream(UnixStream::pair().unwrap().0, 1);
        self.monitor = Guest::greet(fresh, volume).0;
        let file = self.file.try_clone().unwrap();
        self.give(&file, RAM_BYTES).unwrap();
        self.give_kept().unwrap();
        (0..self.next.len()).for_each(|ring| self.start_at(ring, self.used(ring)));
    }

    fn give(&self, file: &File, bytes: u64) -> vhost::Result<()> {
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: bytes,
            userspace_addr: MONITOR_AT,
            mmap_offset: 0,
            mmap_handle: file.as_raw_fd(),
        };
        self.monitor.set_mem_table(&[region]).map(drop)
    }

    fn place(ring: usize) -> u64 {
        0x10000 * ring as u64
    }

    pub(super) fn start(&mut self, ring: usize) {
        self.start_at(ring, self.next[ring]);
    }

    fn start_at(&mut self, ring: usize, base: u16) {
        let at = MONITOR_AT + Guest::place(ring);
        let config = VringConfigData {
            queue_max_size: ENTRIES,
            queue_size: ENTRIES,
            flags: 0,
            desc_table_addr: at,
            used_ring_addr: at + USED,
            avail_ring_addr: at + AVAILABLE,
            log_addr: None,
        };
        self.monitor.set_vring_num(ring, ENTRIES).unwrap();
        self.monitor.set_vring_addr(ring, &config).unwrap();
        self.monitor.set_vring_base(ring, base).unwrap();
        self.monitor.set_vring_call(ring, &self.calls[ring]).unwrap();
        self.monitor.set_vring_kick(ring, &self.kicks[ring]).unwrap();
        self.monitor.set_vring_enable(ring, true).unwrap();
    }

    fn describe(&self, table: u64, index: u16, (address, len, flags, next): (u64, u32, u16, u16)) {
        let bytes = [&address.to_le_bytes()[..], &len.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()];
        self.ram.write_slice(&bytes.concat(), GuestAddress(table + 16 * u64::from(index))).unwrap();
    }

    /// Makes a chain available, and tells of it.
    pub(super) fn push(&mut self, ring: usize, head: u16) {
        let at = Guest::place(ring) + AVAILABLE;
        self.ram.write_obj(head, GuestAddress(at + 4 + 2 * u64::from(self.next[ring] % ENTRIES))).unwrap();
        self.next[ring] = self.next[ring].wrapping_add(1);
        self.ram.write_obj(self.next[ring], GuestAddress(at + 2)).unwrap();
        self.kicks[ring].write(1).unwrap();
    }

    pub(super) fn used(&self, ring: usize) -> u16 {
        self.ram.read_obj(GuestAddress(Guest::place(ring) + USED + 2)).unwrap()
    }

    /// The request that was given back as number `index`.
    pub(super) fn given_back(&self, ring: usize, index: u16) -> u32 {
        let entry = Guest::place(ring) + USED + 4 + 8 * u64::from(index % ENTRIES);
        self.ram.read_obj(GuestAddress(entry)).unwrap()
    }

    /// Whether the guest was told of answers since this was asked last.
    pub(super) fn was_told(&self, ring: usize) -> bool {
        self.calls[ring].read().is_ok()
    }

    /// Describes one of several requests that write, which begins with descriptor `3 * slot`.
    pub(super) fn prepare_write(&self, ring: usize, slot: u16, sector: u64, data: &[u8]) {
        let to = DATA + SLOT_BYTES * (16 * ring as u64 + u64::from(slot));
        self.ram.write_slice(data, GuestAddress(to)).unwrap();
        self.lay_out((ring, slot), (WRITE, sector), (to, data.len() as u32, 0));
    }

    /// How that request ended.
    pub(super) fn status_of(&self, ring: usize, slot: u16) -> u8 {
        self.ram.read_obj(GuestAddress(Guest::place(ring) + STATUS + u64::from(slot))).unwrap()
    }

    /// Whether all has been given back, after some time.
    pub(super) fn is_done(&self, ring: usize, patience: Duration) -> bool {
        let began = Instant::now();
        while self.used(ring) != self.next[ring] {
            if began.elapsed() > patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Describes a request with data of `len` bytes at [`DATA`], which `flags` says whether the device writes.
    fn prepare(&self, ring: usize, kind: u32, sector: u64, len: u32, flags: u16) {
        self.lay_out((ring, 0), (kind, sector), (DATA, len, flags));
    }

    /// Describes a request, which begins with descriptor `3 * slot`, with data at a place.
    fn lay_out(&self, (ring, slot): (usize, u16), (kind, sector): (u32, u64), (to, len, flags): (u64, u32, u16)) {
        let (at, first) = (Guest::place(ring), 3 * slot);
        let (head, status) = (at + HEAD + 16 * u64::from(slot), at + STATUS + u64::from(slot));
        let bytes = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        self.ram.write_slice(&bytes, GuestAddress(head)).unwrap();
        self.ram.write_obj(9u8, GuestAddress(status)).unwrap();
        self.describe(at, first, (head, 16, NEXT, if len > 0 { first + 1 } else { first + 2 }));
        self.describe(at, first + 1, (to, len, NEXT | flags, first + 2));
        self.describe(at, first + 2, (status, 1, WRITTEN, 0));
    }

    fn status(&self, ring: usize) -> u8 {
        self.status_of(ring, 0)
    }

    /// A request that gives data; how it ends.
    pub(super) fn tell(&mut self, ring: usize, kind: u32, sector: u64, data: &[u8]) -> u8 {
        self.ram.write_slice(data, GuestAddress(DATA)).unwrap();
        self.prepare(ring, kind, sector, data.len() as u32, 0);
        self.push(ring, 0);
        assert!(self.is_done(ring, Duration::from_secs(20)));
        self.status(ring)
    }

    /// A request that wants data.
    pub(super) fn ask(&mut self, ring: usize, kind: u32, sector: u64, len: u32) -> Result<Vec<u8>, u8> {
        self.ram.write_slice(&vec![0xee; len as usize], GuestAddress(DATA)).unwrap();
        self.prepare(ring, kind, sector, len, WRITTEN);
        self.push(ring, 0);
        assert!(self.is_done(ring, Duration::from_secs(20)));
        let mut data = vec![0; len as usize];
        self.ram.read_slice(&mut data, GuestAddress(DATA)).unwrap();
        match self.status(ring) {
            0 => Ok(data),
            status => Err(status),
        }
    }

    fn config(&mut self) -> Vec<u8> {
        let flags = VhostUserConfigFlags::empty();
        self.monitor.get_config(0, 60, flags, &[0; 60]).unwrap().1
    }

    fn capacity(&mut self) -> u64 {
        u64::from_le_bytes(self.config()[..8].try_into().unwrap()) * 512
    }
}

fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
}

#[test]
fn volumes_by_vhost() {
    let fresh = Fresh::new("vhost");
    fresh.does("create -s -V 8M fresh/a/v");
    let socket = fresh.world.dir.join("run/vhost/fresh/a/v+sock");
    assert!(!socket.exists(), "nobody has asked for it");
    fresh.fails(
        "set org.cenote:vhost=yes fresh/a",
        "cannot set property for 'fresh/a': 'org.cenote:vhost' must be one of 'on | off'\n",
    );
    // nor is such a value taken where a dataset is made
    let wrong = "'org.cenote:vhost' must be one of 'on | off'";
    fresh.fails("create -o org.cenote:vhost=yes fresh/q", &format!("cannot create 'fresh/q': {wrong}\n"));
    fresh.fails("create -V 8M -o org.cenote:vhost=yes fresh/q", &format!("cannot create 'fresh/q': {wrong}\n"));
    fresh.does("snapshot fresh/c@s");
    fresh.fails("clone -o org.cenote:vhost=yes fresh/c@s fresh/q", &format!("cannot create 'fresh/q': {wrong}\n"));
    fresh.fails(
        "create -o org.cenote:nbd_listen=127.0.0.1:1 fresh/q",
        "cannot create 'fresh/q': 'org.cenote:nbd_listen' is set on the pool's root file system only\n",
    );
    fresh.does("set org.cenote:vhost=on fresh/a");
    let shown = String::from_utf8(fresh.world.cenote("volumes fresh/a").stdout).unwrap();
    assert!(shown.contains(&format!("fresh/a/v\tvhost\t{}\t-m 1G", socket.display())), "{shown}");

    let mut guest = Guest::connect(&fresh, "fresh/a/v", 2);
    assert_eq!((guest.capacity(), guest.features & READ_ONLY), (8 << 20, 0));
    let config = guest.config();
    assert_eq!((&config[20..24], config[24], &config[34..36]), (&512u32.to_le_bytes()[..], 5, &[128, 0][..]));
    let data: Vec<u8> = (0..3 << 20).map(|at: u32| (at / 512 + at) as u8).collect();
    assert_eq!(guest.tell(0, WRITE, 3, &data), 0);
    assert!(guest.ask(1, READ, 3, 3 << 20).unwrap() == data, "what one ring wrote, another reads");
    assert_eq!(guest.tell(1, FLUSH, 0, &[]), 0);
    let guid = fresh.world.zfs("get -Hp -o value guid fresh/a/v").0.trim().parse::<u64>().unwrap();
    assert_eq!(guest.ask(0, GET_ID, 0, 20).unwrap(), format!("{guid:016x}\0\0\0\0").as_bytes());
    // whole blocks go, parts of them stay
    assert_eq!(guest.tell(0, DISCARD, 0, &[range(33, 64, 0), range(200, 1, 0)].concat()), 0);
    let mut now = data.clone();
    now[(64 - 3) * 512..(96 - 3) * 512].fill(0);
    assert!(guest.ask(0, READ, 3, 3 << 20).unwrap() == now);
    assert_eq!(guest.tell(0, WRITE_ZEROES, 0, &range(5, 3, 1)), 0);
    now[2 * 512..5 * 512].fill(0);
    assert!(guest.ask(0, READ, 3, 3 << 20).unwrap() == now);

    // what cannot be
    assert_eq!(guest.tell(0, WRITE, (8 << 11) - 1, &[1; 1024]), 1);
    assert_eq!(guest.tell(0, WRITE, 0, &[1; 100]), 1);
    assert_eq!(guest.ask(0, READ, u64::MAX, 512), Err(1));
    assert_eq!(guest.ask(0, READ, 8 << 11, 512), Err(1));
    assert_eq!(guest.tell(0, DISCARD, 0, &range(u64::MAX / 512, 9, 0)), 1);
    assert_eq!(guest.tell(0, DISCARD, 0, &range(0, 8, 1)), 2);
    assert_eq!(guest.tell(0, DISCARD, 0, &[0; 15]), 1);
    assert_eq!(guest.tell(0, 77, 0, &[]), 2);

    // a ring that stops says where it was, and goes on from there
    assert_eq!(guest.monitor.get_vring_base(0).unwrap(), u32::from(guest.next[0]));
    guest.start(0);
    assert!(guest.ask(0, READ, 3, 512).unwrap() == now[..512]);
    drop(guest);
    fresh.judge();
}

#[test]
fn what_a_machine_has_changes_under_it() {
    let fresh = Fresh::new("vhost-changes");
    fresh.does("create -s -V 8M -o org.cenote:vhost=on fresh/v");
    fresh.does("create -s -V 8M fresh/w");
    let mut guest = Guest::connect(&fresh, "fresh/v", 1);
    assert_eq!(guest.tell(0, WRITE, 0, &[1; 4096]), 0);
    fresh.does("snapshot fresh/v@a");
    assert_eq!(guest.tell(0, WRITE, 0, &[2; 4096]), 0);
    fresh.does("rollback fresh/v@a");
    assert_eq!(guest.ask(0, READ, 0, 4096).unwrap(), [1; 4096]);

    // another size is told
    let (ours, theirs) = UnixStream::pair().unwrap();
    guest.monitor.set_backend_request_fd(&theirs).unwrap();
    fresh.does("set volsize=16M fresh/v");
    let mut told = [0; 12];
    std::io::Read::read_exact(&mut &ours, &mut told).unwrap();
    assert_eq!(told, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(guest.capacity(), 16 << 20);
    assert_eq!(guest.tell(0, WRITE, 30 << 10, &[3; 4096]), 0);

    // it is in use
    assert!(fresh.world.zfs("destroy -r fresh/v").0.contains("busy"));
    assert!(String::from_utf8(fresh.world.zpool("export fresh").stderr).unwrap().contains("busy"));
    // by one machine: another is turned away
    let path = |name: &str| fresh.world.dir.join(format!("run/vhost/fresh/{name}+sock"));
    let second = Frontend::connect(path("v"), 1).unwrap();
    assert!(second.get_features().is_err());
    // its socket goes with its name
    fresh.does("rename fresh/v fresh/a/x");
    assert!(!path("v").exists() && path("a/x").exists());
    assert_eq!(guest.ask(0, READ, 30 << 10, 4096).unwrap(), [3; 4096]);
    fresh.does("set readonly=on fresh/a/x");
    assert_eq!(guest.tell(0, WRITE, 0, &[4; 512]), 1);
    // the one that is connected stays so
    fresh.does("set org.cenote:vhost=off fresh/a/x");
    assert!(!path("a/x").exists());
    assert_eq!(guest.ask(0, READ, 0, 512).unwrap(), [1; 512]);
    assert!(fresh.world.zfs("destroy -r fresh/a/x").0.contains("busy"));
    drop(guest);
    fresh.does("set org.cenote:vhost=on fresh/a/x");
    let mut guest = Guest::connect(&fresh, "fresh/a/x", 1);
    assert_ne!(guest.features & READ_ONLY, 0);
    assert_eq!(guest.tell(0, WRITE, 0, &[4; 512]), 1);
    drop(guest);
    // on again after an import
    fresh.world.check("export fresh", 0, "");
    assert!(!path("a/x").exists());
    fresh.world.check("import -N -d DIR fresh", 0, "");
    assert_eq!(Guest::connect(&fresh, "fresh/a/x", 1).ask(0, READ, 0, 512).unwrap(), [1; 512]);
    fresh.does("destroy -r fresh/a/x");
    assert!(!path("a/x").exists());
    // where a volume is now says whether it is given out
    fresh.does("set org.cenote:vhost=on fresh/a");
    fresh.does("create -s -V 8M fresh/y");
    fresh.does("rename fresh/y fresh/a/y");
    assert!(Guest::connect(&fresh, "fresh/a/y", 1).ask(0, READ, 0, 512).is_ok());
    fresh.does("rename fresh/a fresh/b");
    assert!(Guest::connect(&fresh, "fresh/b/y", 1).ask(0, READ, 0, 512).is_ok() && !path("a/y").exists());
    fresh.does("rename fresh/b/y fresh/y");
    assert!(!path("b/y").exists() && !path("y").exists());
    fresh.judge();
}

#[test]
fn what_was_flushed_outlives_a_kill() {
    let fresh = Fresh::new("vhost-killed");
    fresh.does("create -s -V 8M -o org.cenote:vhost=on fresh/v");
    let mut guest = Guest::connect(&fresh, "fresh/v", 1);
    // a guest that could switch the cache off would do so behind the back of its next monitor
    assert_eq!(guest.features & (1 << 11 | FLUSHES), FLUSHES);
    for sector in 0..100 {
        assert_eq!(guest.tell(0, WRITE, 40 * sector, &[1; 3000 / 512 * 512]), 0);
    }
    assert_eq!(guest.tell(0, FLUSH, 0, &[]), 0);
    fresh.world.kill("fresh");
    drop(guest);
    fresh.world.check("import -N -f -d DIR fresh", 0, "");
    let mut guest = Guest::connect(&fresh, "fresh/v", 1);
    for sector in 0..100 {
        assert!(guest.ask(0, READ, 40 * sector, 2560).unwrap() == [1; 2560], "{sector}");
    }
    // one that cannot flush need not
    guest.monitor.set_features(guest.features & !(EVENT_IDX | FLUSHES)).unwrap();
    assert_eq!(guest.tell(0, WRITE, 7, &[2; 512]), 0);
    assert_eq!(guest.tell(0, WRITE_ZEROES, 0, &range(40, 2, 0)), 0);
    fresh.world.kill("fresh");
    drop(guest);
    fresh.world.check("import -N -f -d DIR fresh", 0, "");
    let mut guest = Guest::connect(&fresh, "fresh/v", 1);
    assert_eq!(guest.ask(0, READ, 7, 512).unwrap(), [2; 512]);
    assert_eq!(guest.ask(0, READ, 40, 1536).unwrap(), [[0; 512], [0; 512], [1; 512]].concat());
    drop(guest);
    fresh.judge();
}

/// How long a device may take.
pub(super) const SHORT: Duration = Duration::from_secs(20);

/// Chains that no driver makes.
fn send_wrong_chains(guest: &mut Guest) {
    let at = Guest::place(0);
    // a circle, one that leaves the table, addresses and lengths outside of memory, no room for a status
    let chains: [&[(u64, u32, u16, u16)]; 8] = [
        &[(at + HEAD, 16, NEXT, 1), (DATA, 512, NEXT, 0)],
        &[(at + HEAD, 16, NEXT, 999)],
        &[(at + HEAD, 16, NEXT, 1), (u64::MAX - 5, 512, NEXT | WRITTEN, 2), (at + STATUS, 1, WRITTEN, 0)],
        &[(at + HEAD, 16, NEXT, 1), (DATA, u32::MAX, NEXT | WRITTEN, 2), (at + STATUS, 1, WRITTEN, 0)],
        &[(at + HEAD, 16, NEXT, 1), (RAM_BYTES, 1, WRITTEN, 0)],
        &[(at + HEAD, 16, 0, 0)],
        &[(at + HEAD, 7, NEXT, 1), (at + STATUS, 1, WRITTEN, 0)],
        &[(at + STATUS, 1, NEXT | WRITTEN, 1), (at + HEAD, 16, 0, 0)],
    ];
    for chain in chains {
        for (index, descriptor) in chain.iter().enumerate() {
            guest.describe(at, index as u16, *descriptor);
        }
        guest.push(0, 0);
        assert!(guest.is_done(0, SHORT), "{chain:?}");
    }
    // a table that leads to itself, one of no whole entries, one elsewhere, and one that is right
    guest.describe(DATA, 0, (DATA, 32, INDIRECT, 0));
    for (address, len) in [(DATA, 32), (DATA, 17), (u64::MAX - 16, 32), (DATA, 0)] {
        guest.describe(at, 0, (address, len, INDIRECT, 0));
        guest.push(0, 0);
        assert!(guest.is_done(0, SHORT), "{address} {len}");
    }
    guest.prepare(0, WRITE, 8, 512, 0);
    guest.ram.write_slice(&[6; 512], GuestAddress(DATA)).unwrap();
    let table = 2 * DATA;
    for index in 0..3 {
        let mut bytes = [0; 16];
        guest.ram.read_slice(&mut bytes, GuestAddress(at + 16 * index)).unwrap();
        guest.ram.write_slice(&bytes, GuestAddress(table + 16 * index)).unwrap();
    }
    guest.describe(at, 0, (table, 48, INDIRECT, 0));
    guest.push(0, 0);
    assert!(guest.is_done(0, SHORT));
    assert_eq!((guest.status(0), guest.ask(0, READ, 8, 512).unwrap()), (0, vec![6; 512]));
    // one request without an end of data: more descriptors than any driver has
    for index in 0..2000u64 {
        guest.describe(table + 16 * index, 0, (DATA, 512, NEXT, index as u16 + 1));
    }
    guest.describe(at, 0, (table, 2000 * 16, INDIRECT, 0));
    guest.push(0, 0);
    assert!(guest.is_done(0, SHORT));
}

#[test]
fn a_hostile_guest_harms_nobody() {
    let fresh = Fresh::new("vhost-hostile");
    for name in ["v", "w"] {
        fresh.does(&format!("create -s -V 8M -o org.cenote:vhost=on fresh/{name}"));
    }
    let mut neighbour = Guest::connect(&fresh, "fresh/w", 1);
    assert_eq!(neighbour.tell(0, WRITE, 0, &[5; 512]), 0);

    // memory that could go under the mapping
    let guest = Guest::begin(&fresh, "fresh/v");
    assert!(guest.give(&memfd(RAM_BYTES, SealFlags::empty()), RAM_BYTES).is_err(), "it could shrink");
    assert!(guest.give(&memfd(RAM_BYTES, SealFlags::SHRINK), RAM_BYTES + 4096).is_err(), "it is not there");
    assert!(guest.give(&File::open("/dev/zero").unwrap(), RAM_BYTES).is_err());
    drop(guest);

    let mut guest = Guest::connect(&fresh, "fresh/v", 2);
    let at = Guest::place(0);
    send_wrong_chains(&mut guest);
    // a head that is in no table, and more entries than the ring has: it runs no more
    let before = guest.used(0);
    guest.push(0, 500);
    guest.ram.write_obj(guest.next[0].wrapping_add(5000), GuestAddress(at + AVAILABLE + 2)).unwrap();
    guest.kicks[0].write(1).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(guest.used(0), before);
    // the other ring does, and after it was set up anew, this one
    assert_eq!(guest.ask(1, READ, 8, 512).unwrap(), [6; 512]);
    guest.monitor.get_vring_base(0).unwrap();
    guest.next[0] = before;
    guest.ram.write_obj(before, GuestAddress(at + AVAILABLE + 2)).unwrap();
    guest.start(0);
    assert_eq!(guest.ask(0, READ, 8, 512).unwrap(), [6; 512]);

    // rings where no memory is, and of sizes that none has
    assert!(guest.monitor.set_vring_num(9, 16).is_err());
    guest.monitor.set_vring_enable(1, false).unwrap();
    guest.monitor.set_vring_num(1, 3).unwrap();
    assert!(guest.monitor.set_vring_enable(1, true).is_err());
    // a guest that is gone while its requests are under way
    for _ in 0..8 {
        guest.prepare(0, WRITE, 16, 1 << 20, 0);
        guest.push(0, 0);
    }
    drop(guest);
    assert_eq!(neighbour.ask(0, READ, 0, 512).unwrap(), [5; 512]);
    drop(neighbour);
    fresh.judge();
}
