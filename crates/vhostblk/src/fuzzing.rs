//! What fuzz targets run.

use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use crate::message::{HEAD_BYTES, VhostHead, VhostMessage};
use crate::request::{DESCRIPTORS_MAX, DiskRequest};

/// Bytes of the guest's memory.
const MEMORY_BYTES: usize = 64 << 10;

/// Parses any bytes as messages of a monitor.
pub fn fuzz_messages(bytes: &[u8]) {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return };
    if let Ok(head) = VhostHead::parse(head) {
        let _ = VhostMessage::parse(head.request, &rest[..rest.len().min(head.size as usize)]);
    }
    let _ = VhostMessage::parse(u32::from(head[0]), rest);
}

/// Takes any bytes for what rings have in flight.
pub fn fuzz_inflight(bytes: &[u8]) {
    crate::inflight::fuzz(bytes);
}

/// Takes any bytes for the memory of a guest, with a ring at its beginning, and takes all requests from that.
pub fn fuzz_chains(bytes: &[u8]) {
    let Ok(memory) = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), MEMORY_BYTES)]) else { return };
    let _ = memory.write_slice(&bytes[..bytes.len().min(MEMORY_BYTES)], GuestAddress(0));
    let Ok(mut queue) = Queue::new(16) else { return };
    // available, used, descriptors: small places, which small inputs reach
    let places =
        (queue.try_set_avail_ring_address(GuestAddress(0x10)), queue.try_set_used_ring_address(GuestAddress(0)));
    let places = (places, queue.try_set_desc_table_address(GuestAddress(0x40)));
    assert!(places.0.0.is_ok() && places.0.1.is_ok() && places.1.is_ok());
    queue.set_ready(true);
    let Ok(entries) = queue.iter(&memory) else { return };
    for chain in entries {
        let Ok(request) = DiskRequest::parse(&memory, chain) else { continue };
        let (data, mut buf) = (request.data.len(), [0; 512]);
        assert!(data < 1 << 32 && request.status < MEMORY_BYTES as u64);
        let _ = request.ranges(&memory).map(|ranges| ranges.iter().for_each(|range| drop(range.bytes())));
        let mut cursor = request.data.cursor(&memory);
        let whole = (0..data / 512).take(DESCRIPTORS_MAX).all(|_| cursor.get(&mut buf).is_ok());
        assert!(whole, "data are where they are said to be");
        let _ = memory.write_obj(0u8, GuestAddress(request.status));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring with one request, as `fuzz_chains` looks for it: a head, 512 bytes of data, a status.
    fn seed() -> Vec<u8> {
        let mut memory = vec![0; 4096];
        let mut put = |at: usize, bytes: &[u8]| memory[at..at + bytes.len()].copy_from_slice(bytes);
        // flags, index, the first head
        put(0x10, &[0, 0, 1, 0, 0, 0]);
        for (index, (address, len, flags)) in
            [(0x400u64, 16u32, 1u16), (0x600, 512, 1), (0x500, 1, 2)].iter().enumerate()
        {
            let next = index as u16 + 1;
            let descriptor =
                [&address.to_le_bytes()[..], &len.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()];
            put(0x40 + 16 * index, &descriptor.concat());
        }
        put(0x400, &[1]);
        memory
    }

    #[test]
    fn any_memory_of_a_guest() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = |most: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) as usize % most
        };
        for _ in 0..5000 {
            let mut memory = seed();
            for _ in 0..random(12) {
                // mostly where the ring and its descriptors are
                let at = if random(4) == 0 { random(4096) } else { 0x10 + random(0x80) };
                memory[at] = [0, 1, 2, 4, 16, 255, random(256) as u8][random(7)];
            }
            fuzz_chains(&memory);
            fuzz_messages(&memory[random(200)..][..random(400)]);
            let mut inflight = vec![0; 700];
            // rings of version 1, which begin at multiples of 320 bytes
            [inflight[8], inflight[328]] = [1, 1];
            for _ in 0..random(40) {
                inflight[random(700)] = [0, 1, 2, 15, 16, 255, random(256) as u8][random(7)];
            }
            fuzz_inflight(&inflight);
        }
    }
}
