//! What commands get that want to know everything that happens, block by block or request by request.

use base::{Env, Result};
use pool::Pool;
use protocol::tap::{self, ACCESS_BYTES, TapOrder, TapSubject, Tapped, TappedCache};
use protocol::wire::PoolReply;
use protocol::words::hex;

/// Entries in one part of an answer.
const PART_ENTRIES: usize = 8 << 10;
/// Blocks that are looked for among the latest, by 8 bits of their numbers, and how many accesses ago they may be.
const LATEST: usize = 256;
const JOINED_WITHIN: usize = 128;
/// What says in an access that it is a read that somebody waits for.
const KIND_BITS: u8 = 3;
const READ: u8 = 0;

/// Answers a request about a tap; all but the last part of the answer go to `part`.
pub(crate) fn answer(
    env: &Env,
    pool: &Pool,
    (subject, order): (TapSubject, TapOrder),
    part: &mut dyn FnMut(PoolReply) -> Result<()>,
) -> Result<PoolReply> {
    let cache = pool.cache();
    let tapped = match (subject, order) {
        (TapSubject::Blocks, TapOrder::Open) => Tapped { session: cache.open_tap()?, ..Tapped::default() },
        (TapSubject::Requests, TapOrder::Open) => {
            Tapped { session: env.open_tap(env.requests())?, ..Tapped::default() }
        }
        (TapSubject::Blocks, TapOrder::Take { session, shift }) => {
            let taken = cache.tapped(session, shift)?;
            for some in taken.accesses.chunks(PART_ENTRIES) {
                give(&joined(some.iter().map(|access| access.encode())), |access| *access, part)?;
            }
            let footprint = cache.footprint();
            let cache = TappedCache {
                shift: taken.shift,
                reads: taken.reads,
                misses: taken.misses,
                limit: footprint.limit,
                size: footprint.size,
                blocks: footprint.blocks,
            };
            Tapped { session, lost: taken.lost, cache: Some(cache), ..Tapped::default() }
        }
        (TapSubject::Requests, TapOrder::Take { session, .. }) => {
            let taken = env.requests().take(session, env.ticks_ns())?;
            give(&taken.entries, tap::encode, part)?;
            Tapped { session, lost: taken.lost, ..Tapped::default() }
        }
        (TapSubject::Blocks, TapOrder::Close { session }) => {
            cache.close_tap(session);
            Tapped { session, ..Tapped::default() }
        }
        (TapSubject::Requests, TapOrder::Close { session }) => {
            env.requests().close(session);
            Tapped { session, ..Tapped::default() }
        }
    };
    Ok(PoolReply::Tapped(Tapped { now_ns: env.ticks_ns(), ..tapped }))
}

/// Accesses in their order, of which reads that soon come again are one, with their number: most blocks of metadata are
/// read again and again.
fn joined<const N: usize>(accesses: impl Iterator<Item = [u8; N]>) -> Vec<[u8; ACCESS_BYTES]> {
    let mut joined: Vec<[u8; ACCESS_BYTES]> = Vec::new();
    // by some bits of the block: where it is in the list, and when that was
    let mut latest = [(0, 0); LATEST];
    for (number, access) in accesses.enumerate() {
        let [block, kind] = [access[7], access[8] & KIND_BITS];
        let (at, then) = latest[usize::from(block)];
        match joined.get_mut(at) {
            Some(known)
                if number - then < JOINED_WITHIN && kind == READ && known[..N] == access && known[N] < u8::MAX =>
            {
                known[N] += 1;
            }
            _ => {
                latest[usize::from(block)] = (joined.len(), number);
                let mut entry = [0; ACCESS_BYTES];
                entry[..N].copy_from_slice(&access);
                joined.push(entry);
            }
        }
    }
    joined
}

/// Gives entries out in parts.
fn give<T, const N: usize>(
    entries: &[T],
    encode: impl Fn(&T) -> [u8; N],
    part: &mut dyn FnMut(PoolReply) -> Result<()>,
) -> Result<()> {
    entries.chunks(PART_ENTRIES).try_for_each(|some| {
        let bytes: Vec<u8> = some.iter().flat_map(&encode).collect();
        part(PoolReply::Tapped(Tapped { entries: hex(&bytes), ..Tapped::default() }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(block: u64, what: u64) -> [u8; 16] {
        (u128::from(what) << 64 | u128::from(block)).to_le_bytes()
    }

    #[test]
    fn reads_that_soon_come_again_are_one() {
        let (hot, cold) = (access(7 << 56, 4096 << 8), |n: u64| access(n << 40, 4096 << 8));
        let mut accesses = vec![hot, cold(1), hot, hot, cold(2), cold(3)];
        // neither what is written twice, nor the same with another size
        let (written, other) = (access(9 << 56, 4096 << 8 | 2), access(7 << 56, 512 << 8));
        accesses.extend([written, written, other, hot]);
        accesses.extend((4..140).map(cold));
        accesses.push(hot);
        accesses.extend([hot; 300]);
        let joined = joined(accesses.iter().copied());
        let counts: Vec<([u8; 16], u8)> =
            joined.iter().map(|entry| (std::array::from_fn(|at| entry[at]), entry[16])).collect();
        assert_eq!(counts[..4], [(hot, 2), (cold(1), 0), (cold(2), 0), (cold(3), 0)]);
        assert_eq!(counts[4..8], [(written, 0), (written, 0), (other, 0), (hot, 0)]);
        assert_eq!(counts[144], (hot, 127), "after so many others, it is another one");
        let sum: usize = counts.iter().map(|(_, more)| 1 + usize::from(*more)).sum();
        assert_eq!(sum, accesses.len());
        assert!(joined.iter().all(|entry| entry.len() == ACCESS_BYTES));
    }
}
