//! The program; all of it is in the library beside, where tests reach it, too.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    daemon::panics::end_the_process();
    cmd::run(&args)
}
