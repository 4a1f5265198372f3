//! A virtual machine goes on when the process of its pool was killed, and the pool is imported again.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserInflight;

use super::snapshots::Fresh;
use super::vhost::{ENTRIES, FLUSH, Guest, READ, SHORT, WRITE};

/// Requests that a ring has at once.
const SLOTS: u16 = 5;
const SLOT_BYTES: usize = 16 << 10;

fn sector_of(ring: usize, slot: u16) -> u64 {
    (ring as u64 * 16 + u64::from(slot)) * 64
}

fn heads() -> Vec<u32> {
    (0..SLOTS).map(|slot| 3 * u32::from(slot)).collect()
}

impl Fresh {
    /// The pool's process is killed, and there is another one.
    fn dies(&self) {
        self.world.kill("fresh");
        self.world.check("import -N -f -d DIR fresh", 0, "");
    }

    /// The same, and nothing was brought to disk after `work` began but logs, which these guests have.
    fn dies_after<const N: usize>(&self, mut guests: [&mut Guest; N], work: impl FnOnce([&mut Guest; N])) {
        for guest in &mut guests {
            assert_eq!((guest.tell(0, WRITE, 4096, &[1; 512]), guest.tell(0, FLUSH, 0, &[])), (0, 0));
        }
        self.world.check("freeze fresh", 0, "");
        work(guests);
        self.dies();
    }
}

#[test]
fn what_is_in_flight_is_answered_once() {
    let fresh = Fresh::new("vhost-flight");
    fresh.does("create -s -V 8M -o sync=always -o org.cenote:vhost=on fresh/v");
    let mut guest = Guest::connect_kept(&fresh, "fresh/v", 2);
    for round in 1..=4u8 {
        let before = [guest.used(0), guest.used(1)];
        let data = |ring: usize, slot: u16| [round * 16 + ring as u8 * 8 + slot as u8; SLOT_BYTES];
        for slot in 0..SLOTS {
            for ring in [0, 1] {
                guest.prepare_write(ring, slot, sector_of(ring, slot), &data(ring, slot));
                guest.push(ring, 3 * slot);
            }
        }
        // some are answered, the others are wherever they are
        while guest.used(0) == before[0] {
            std::thread::yield_now();
        }
        fresh.world.kill("fresh");
        let answered = [guest.used(0), guest.used(1)];
        let known =
            |ring: usize| -> Vec<_> { (before[ring]..answered[ring]).map(|at| guest.given_back(ring, at)).collect() };
        let known = [known(0), known(1)];
        fresh.world.check("import -N -f -d DIR fresh", 0, "");
        guest.reconnect(&fresh, "fresh/v");
        for ring in [0, 1] {
            assert!(guest.is_done(ring, SHORT) && guest.was_told(ring), "round {round}");
            let mut all: Vec<_> =
                (before[ring]..before[ring] + SLOTS).map(|index| guest.given_back(ring, index)).collect();
            assert_eq!(all[..known[ring].len()], known[ring], "what was answered is so");
            all.sort_unstable();
            assert_eq!(all, heads(), "each was answered once");
            for slot in 0..SLOTS {
                assert_eq!(guest.status_of(ring, slot), 0);
                let found = guest.ask(0, READ, sector_of(ring, slot), SLOT_BYTES as u32).unwrap();
                assert!(found == data(ring, slot), "round {round}, ring {ring}, request {slot}");
            }
        }
    }
    drop(guest);
    fresh.judge();
}

#[test]
fn what_was_taken_is_done_wherever_the_ring_is() {
    let fresh = Fresh::new("vhost-taken");
    fresh.does("create -s -V 8M -o sync=always -o org.cenote:vhost=on fresh/v");
    let mut guest = Guest::connect_kept(&fresh, "fresh/v", 1);
    assert_eq!(guest.tell(0, WRITE, 0, &[1; 512]), 0);
    guest.monitor.get_vring_base(0).unwrap();
    // a server took three of four that were there, none of which the ring still tells of, and gave one back before it was
    // killed: which it had noted, but not that it is in flight no more
    let used = guest.used(0);
    let file = guest.kept.as_ref().unwrap().1.try_clone().unwrap();
    let put = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at).unwrap();
    for (slot, counter) in [(4u16, 20u64), (1, 21), (2, 22)] {
        guest.prepare_write(0, slot, sector_of(0, slot), &[slot as u8; SLOT_BYTES]);
        guest.push(0, 500);
        put(16 + 16 * 3 * u64::from(slot) + 8, &counter.to_le_bytes());
        put(16 + 16 * 3 * u64::from(slot), &[1]);
    }
    guest.prepare_write(0, 3, sector_of(0, 3), &[3; SLOT_BYTES]);
    guest.push(0, 9);
    put(16, &[1]);
    put(12, &[0, 0]);
    put(14, &(used - 1).to_le_bytes());
    guest.reconnect(&fresh, "fresh/v");
    assert!(guest.is_done(0, SHORT));
    let mut all: Vec<_> = (used..used + 4).map(|index| guest.given_back(0, index)).collect();
    all.sort_unstable();
    assert_eq!(all, [3, 6, 9, 12], "and not that which was given back");
    for slot in 1..=4 {
        let found = guest.ask(0, READ, sector_of(0, slot), SLOT_BYTES as u32).unwrap();
        assert!(guest.status_of(0, slot) == 0 && found == [slot as u8; SLOT_BYTES], "{slot}");
    }

    // what leads nowhere, and what comes while rings run
    assert!(guest.give_kept().is_err(), "a ring runs");
    guest.monitor.get_vring_base(0).unwrap();
    let (place, _) = guest.kept.as_ref().unwrap();
    let wrong = [
        VhostUserInflight { mmap_size: place.mmap_size - 65, ..*place },
        VhostUserInflight { mmap_offset: 4096, ..*place },
        VhostUserInflight { num_queues: 2, ..*place },
        VhostUserInflight { queue_size: u16::MAX, ..*place },
    ];
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file);
    for place in wrong {
        assert!(guest.monitor.set_inflight_fd(&place, descriptor).is_err());
    }
    assert!(guest.monitor.get_inflight_fd(&VhostUserInflight::new(0, 0, 1000, ENTRIES)).is_err());
    drop(guest);
    fresh.judge();
}

/// Whether something is noted that is not on disk: behind what is in flight, the third number of the marks.
fn is_marked(guest: &Guest) -> bool {
    let (place, file) = guest.kept.as_ref().unwrap();
    let mut group = [0; 8];
    file.read_exact_at(&mut group, place.mmap_size - 64 + 16).unwrap();
    group != [0; 8]
}

/// How it is for a guest that goes on: it reads what is at the beginning of its disk, if it can.
fn begins_with(guest: &mut Guest) -> Result<u8, u8> {
    guest.ask(0, READ, 0, 512).map(|data| data[0])
}

#[test]
fn a_disk_that_has_lost_its_cache_fails_until_it_is_reset() {
    let fresh = Fresh::new("vhost-cache");
    for (name, sync) in [("v", "standard"), ("w", "always"), ("d", "disabled")] {
        fresh.does(&format!("create -s -V 8M -o sync={sync} -o org.cenote:vhost=on fresh/{name}"));
    }
    let mut guest = Guest::connect_kept(&fresh, "fresh/v", 1);
    let mut always = Guest::connect_kept(&fresh, "fresh/w", 1);
    let mut never = Guest::connect_kept(&fresh, "fresh/d", 1);
    // all was flushed, or each was on disk before it was answered; nothing is with sync=disabled, whatever is answered
    fresh.dies_after([&mut guest, &mut always, &mut never], |[guest, always, never]| {
        assert_eq!((guest.tell(0, WRITE, 0, &[1; 512]), guest.tell(0, FLUSH, 0, &[])), (0, 0));
        assert_eq!(always.tell(0, WRITE, 0, &[2; 512]), 0);
        assert_eq!((never.tell(0, WRITE, 0, &[3; 512]), never.tell(0, FLUSH, 0, &[])), (0, 0));
    });
    guest.reconnect(&fresh, "fresh/v");
    always.reconnect(&fresh, "fresh/w");
    never.reconnect(&fresh, "fresh/d");
    assert_eq!(begins_with(&mut guest), Ok(1));
    assert_eq!(begins_with(&mut always), Ok(2));
    assert_eq!(begins_with(&mut never), Err(1));
    // what was not flushed is on disk, as its group is: which the process finds out by itself
    assert_eq!(guest.tell(0, WRITE, 0, &[4; 512]), 0);
    fresh.world.check("sync -f fresh", 0, "");
    let began = Instant::now();
    while is_marked(&guest) && began.elapsed() < SHORT {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!is_marked(&guest));
    fresh.dies();
    guest.reconnect(&fresh, "fresh/v");
    assert_eq!(begins_with(&mut guest), Ok(4));
    // and as the pool was exported
    assert_eq!(guest.tell(0, WRITE, 0, &[5; 512]), 0);
    fresh.world.check("export -f fresh", 0, "");
    fresh.world.check("import -N -d DIR fresh", 0, "");
    guest.reconnect(&fresh, "fresh/v");
    assert_eq!(begins_with(&mut guest), Ok(5));
    // its monitor leaves and comes while the process stays: the cache is there
    assert_eq!(guest.tell(0, WRITE, 0, &[6; 512]), 0);
    guest.reconnect(&fresh, "fresh/v");
    assert_eq!(begins_with(&mut guest), Ok(6));

    // what was flushed is, and what was written after that is not
    fresh.dies_after([&mut guest], |[guest]| {
        assert_eq!((guest.tell(0, WRITE, 0, &[7; 512]), guest.tell(0, FLUSH, 0, &[])), (0, 0));
        assert_eq!(guest.tell(0, WRITE, 8, &[8; 512]), 0);
    });
    for _ in 0..2 {
        guest.reconnect(&fresh, "fresh/v");
        assert_eq!(begins_with(&mut guest), Err(1));
        assert_eq!((guest.tell(0, WRITE, 0, &[9; 512]), guest.tell(0, FLUSH, 0, &[])), (1, 1));
        // nor is it forgotten by yet another process, however far its groups are
        fresh.world.check("sync -f fresh", 0, "");
        fresh.dies();
    }
    guest.reconnect(&fresh, "fresh/v");
    assert_eq!(begins_with(&mut guest), Err(1));
    guest.monitor.get_vring_base(0).unwrap();
    guest.renew_kept(1);
    guest.start(0);
    assert_eq!((begins_with(&mut guest), guest.tell(0, WRITE, 0, &[10; 512])), (Ok(7), 0));
    assert_eq!(guest.ask(0, READ, 8, 512).unwrap(), [0; 512], "which is why it failed");
    drop((guest, always, never));
    fresh.judge();
}

#[test]
fn memory_without_room_for_marks_makes_each_change_last() {
    let fresh = Fresh::new("vhost-marks");
    fresh.does("create -s -V 8M -o org.cenote:vhost=on fresh/v");
    let mut guest = Guest::connect_kept(&fresh, "fresh/v", 1);
    guest.monitor.get_vring_base(0).unwrap();
    // another server made it
    guest.kept.as_mut().unwrap().0.mmap_size -= 64;
    guest.give_kept().unwrap();
    guest.start(0);
    fresh.dies_after([&mut guest], |[guest]| assert_eq!(guest.tell(0, WRITE, 0, &[1; 512]), 0));
    guest.reconnect(&fresh, "fresh/v");
    assert_eq!(begins_with(&mut guest), Ok(1));
    drop(guest);
    fresh.judge();
}
