//! The fuzzer of pools: hostile ones, with good checksums, that are imported for writing and used.
//!
//! ```text
//!   a base: a small pool in memory ─▶ a copy ─▶ some fields changed, sealed again     [`alter`]
//!                                                    │
//!             import, replay logs ◀──────────────────┘
//!             users at work: files, names, attributes, datasets, properties            [`work`]
//!             export, or a crash, and import again
//!             what is found then, and what commands would make of it                   [`judge`]
//! ```
//!
//! A case is a number: the same number, the same case. Errors are what is expected of most pools. Wrong is
//! a panic; more time or memory than a small pool can need; a path outside of the folder that was named; and
//! damage where nothing was damaged: to a dataset that had no part in it, or to the space maps, after a
//! change of contents only.

mod alter;
mod base_pools;
mod finding;
mod judge;
mod work;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use base::{Env, Mutex};
use device::Device;
use testkit::rng::Rng;
use testkit::seal::{Forge, FoundBlock};

pub use base_pools::{BasePool, bases};
use finding::Reach;
pub use finding::{CaseOutcome, Finding};

/// Runs case `number` on one of the bases.
pub fn run(bases: &[BasePool], number: u64) -> CaseOutcome {
    note_panics();
    let mut rng = Rng::new(number);
    let base = rng.pick(bases);
    let devices = base.copy();
    let mut forge = Forge::new(&base.atlas);
    let mut outcome = CaseOutcome::default();
    let (reach, changes) = alter::alter(base, &mut forge, &mut rng);
    outcome.story = format!("{}: {}", base.name, changes.join("; "));
    // what has no room where it is cannot be sealed: another case
    if catch_unwind(AssertUnwindSafe(|| forge.seal(&devices))).is_ok_and(|sealed| sealed.is_err()) {
        return outcome;
    }
    take_panic();
    let done = catch_unwind(AssertUnwindSafe(|| use_it(base, &devices, reach, &mut rng, &mut outcome)));
    let panicked = take_panic();
    if done.is_err() || panicked.is_some() {
        let (key, what) = panicked.unwrap_or_default();
        outcome.findings.push(Finding::new(format!("panic at {key}"), what));
    }
    outcome
}

/// As [`run`], but what is changed is what `bytes` say, for fuzzers that follow the program: in which of the wanted
/// blocks, where, and what is put there.
pub fn run_patched(bases: &[BasePool], is_wanted: &dyn Fn(&FoundBlock) -> bool, bytes: &[u8]) -> CaseOutcome {
    let mut outcome = CaseOutcome::default();
    let Some((&[chosen, chance], mut rest)) = bytes.split_first_chunk::<2>() else { return outcome };
    let base = &bases[usize::from(chosen) % bases.len()];
    let devices = base.copy();
    let mut forge = Forge::new(&base.atlas);
    let blocks: Vec<usize> = (0..base.atlas.blocks().len()).filter(|&n| is_wanted(&base.atlas.blocks()[n])).collect();
    while let Some((&[b0, b1, a0, a1, len], tail)) = rest.split_first_chunk::<5>() {
        let (new, tail) = tail.split_at(tail.len().min(usize::from(len % 33)));
        let block = blocks[usize::from(u16::from_le_bytes([b0, b1])) % blocks.len()];
        let contents = forge.contents_mut(block);
        let at = usize::from(u16::from_le_bytes([a0, a1])) * 4 % contents.len();
        contents[at..].iter_mut().zip(new).for_each(|(old, new)| *old = *new);
        rest = tail;
    }
    if forge.seal(&devices).is_ok() {
        use_it(base, &devices, Reach::Anything, &mut Rng::new(chance.into()), &mut outcome);
    }
    outcome
}

fn use_it(base: &BasePool, devices: &[Arc<dyn Device>], reach: Reach, rng: &mut Rng, outcome: &mut CaseOutcome) {
    let env = Env::fixed(2000);
    let rounds = 1 + rng.below(2);
    for _ in 0..rounds {
        match work::work(&env, base, devices, reach, rng) {
            Ok(()) => outcome.was_writable = true,
            Err(work::WorkStopped::Refused) => break,
            Err(work::WorkStopped::Wrong(finding)) => outcome.findings.push(finding),
        }
    }
    judge::judge(&env, base, devices, reach, outcome);
}

/// Where the last panic was, and what it said.
static PANIC: Mutex<Option<(String, String)>> = Mutex::new(None);

fn take_panic() -> Option<(String, String)> {
    PANIC.lock().take()
}

/// Panics of any thread are remembered, and not shown, but for those of other tests.
fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let thread = std::thread::current();
            if thread.name().is_some_and(|name| name.contains("::") && !name.starts_with("pools::")) {
                return tell(info);
            }
            let place = info.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
            let trace = std::backtrace::Backtrace::force_capture().to_string();
            let ours = trace.lines().filter(|line| line.contains("crates/") || line.contains("./src"));
            let trace: Vec<&str> = ours.map(str::trim).take(12).collect();
            let what = format!("{info}\n        {}", trace.join("\n        "));
            // in a library it is the caller that tells one from another
            let ours = trace.iter().find(|line| !line.contains("crates/tests/src")).map(|line| line.to_string());
            let key =
                if place.contains("crates/") { place } else { format!("{place} from {}", ours.unwrap_or_default()) };
            PANIC.lock().get_or_insert((key, what));
        }));
    });
}
