//! A panic is a power cut: whichever thread it is in, it ends the whole process at once.
//!
//! A thread that panics has left something half done. It stops before it lets go of a lock, so nobody sees that; and
//! what is on disk is whole at any moment. The next import goes on from there. SIGABRT leaves a core where the system
//! is told to (`ulimit -c`).

use std::backtrace::Backtrace;
use std::sync::OnceLock;

/// The pool that this process serves.
static POOL: OnceLock<String> = OnceLock::new();

/// From now on, a panic says what it has to say, and ends the process.
pub fn end_the_process() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // the thread, the place, and the backtrace if RUST_BACKTRACE wants it
        tell(panic);
        match POOL.get() {
            None => eprintln!("cenote: this is a bug of cenote's, which ends here"),
            Some(pool) => eprintln!(
                "cenote: this is a bug of cenote's: the process of pool '{pool}' ends, as in a power cut. What was \
                 synced is there after 'zpool import'\n{}",
                // it goes to a log, and may never happen again
                Backtrace::force_capture()
            ),
        }
        std::process::abort();
    }));
}

/// This process serves that pool.
pub fn in_pool(name: &str) {
    POOL.get_or_init(|| name.to_owned());
}
