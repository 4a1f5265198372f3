//! `cenote top`: where the reads of imported pools are served from, live.
//!
//! ```text
//!   counters as files, of each pool ──▶ watch: what they did since the last look ──▶ view: lines
//!                                              lines ──▶ screen, as a whole │ standard output, one below the other
//! ```

mod screen;
#[cfg(test)]
mod tests;
mod view;
pub mod watch;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use protocol::client;
use protocol::kstat::{self, KstatTable};
use protocol::words::time;

use crate::output;
use screen::{Screen, TerminalEvent};
use view::ScreenLine;
use watch::Watch;

/// Show where the reads of imported pools are served from, live
///
/// Rates are of the time since the last look, at first since the pool was imported. READS FROM counts blocks, also
/// those that are read ahead; the kernel's page cache answers without asking anybody, so what it serves is not
/// known, only what it took from here. q ends.
#[derive(clap::Parser)]
#[command(name = "cenote top", no_binary_name = true)]
struct TopArgs {
    /// Seconds between two looks; counters are renewed each second
    #[arg(short, default_value_t = 1.0, value_parser = time::interval)]
    delay: f64,
    /// How many looks; without it, until interrupted
    #[arg(short = 'n', value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print one look below the other, as is done without a terminal
    #[arg(short)]
    batch: bool,
    /// Only these pools
    pools: Vec<String>,
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    // by then the terminal shows again what it did before
    output::run_command("top", args, |args| watch(&args))
}

fn watch(args: &TopArgs) -> Result<(), String> {
    let mut watch = Watch::default();
    watch.see(pools(&args.pools)?);
    let (sender, events) = mpsc::channel();
    let screen = if args.batch { None } else { Screen::enter() };
    if screen.is_some() {
        screen::listen(&sender);
    }
    let delay = Duration::from_secs_f64(args.delay);
    for look in 1.. {
        show(screen.as_ref(), &watch, &args.pools, look)?;
        let is_last = args.count == Some(look);
        if is_last && screen.is_none() {
            break;
        }
        let end = Instant::now() + delay;
        let redraw = || show(screen.as_ref(), &watch, &args.pools, look);
        if has_ended(&events, end, redraw)? || is_last {
            break;
        }
        watch.see(pools(&args.pools)?);
    }
    Ok(())
}

/// The counters of the pools in use now: of all, or of those that are wanted.
fn pools(wanted: &[String]) -> Result<BTreeMap<String, Vec<KstatTable>>, String> {
    let run = client::folder().map_err(|e| e.what().to_owned())?;
    let mut pools = run.map_or_else(BTreeMap::new, |run| kstat::read_all(&run));
    pools.retain(|name, _| wanted.is_empty() || wanted.contains(name));
    Ok(pools)
}

/// Waits until then, or until somebody wants an end; meanwhile a terminal may change its size.
fn has_ended(
    events: &Receiver<TerminalEvent>,
    until: Instant,
    mut redraw: impl FnMut() -> Result<(), String>,
) -> Result<bool, String> {
    loop {
        match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(TerminalEvent::End) => return Ok(true),
            Ok(TerminalEvent::Resized) => redraw()?,
            Err(_) => return Ok(false),
        }
    }
}

fn show(screen: Option<&Screen>, watch: &Watch, wanted: &[String], look: u64) -> Result<(), String> {
    let lines = view::lines(watch, wanted, &time::local(time::now(), c"%H:%M:%S"), screen.map(Screen::size));
    let shown = match screen {
        Some(screen) => screen.show(&lines),
        None => print(&lines, look > 1),
    };
    shown.map_err(|e| format!("writing output: {e}"))
}

/// Prints the lines, below those before.
fn print(lines: &[ScreenLine], is_next: bool) -> io::Result<()> {
    let mut out = output::stdout();
    if is_next {
        writeln!(out)?;
    }
    lines.iter().try_for_each(|line| writeln!(out, "{}", line.text))?;
    out.flush()
}
