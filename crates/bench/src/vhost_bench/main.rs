//! vhost-bench: how fast a vhost-user-blk server is, asked as a virtual machine would, without one.
//!
//! The monitor is rust-vmm's; the guest's driver is here: one ring, as many requests in it as asked for, each of which is asked
//! anew, elsewhere, once it is done. It sleeps until it is told of answers, and wakes the server only when that wants it,
//! as a guest does. So that what is measured is the server, and not an emulated processor.
//! Source of the ring's layout: Virtual I/O Device (VIRTIO) Version 1.2, 2.7 and 5.2.

mod driver;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bench::random;
use driver::{Driver, DriverResult};

const USAGE: &str = "usage: vhost-bench SOCKET read|write|randread|randwrite BYTES DEPTH SECONDS SPAN-MiB
asks for BYTES at once, DEPTH times at once, in the disk's first SPAN-MiB; prints requests a second";

/// What is asked of the disk.
struct Load {
    is_write: bool,
    is_random: bool,
    bytes: u32,
    depth: u16,
    duration: Duration,
    span_bytes: u64,
}

fn parse(words: &[String]) -> Option<(&str, Load)> {
    let [socket, kind, bytes, depth, seconds, span] = words else { return None };
    let (is_write, is_random) = match kind.as_str() {
        "read" => (false, false),
        "write" => (true, false),
        "randread" => (false, true),
        "randwrite" => (true, true),
        _ => return None,
    };
    let bytes: u32 = bytes.parse().ok()?;
    let depth: u16 = depth.parse().ok()?;
    let span_bytes = span.parse::<u64>().ok()? << 20;
    let seconds: f64 = seconds.parse().ok()?;
    let is_possible =
        bytes > 0 && bytes.is_multiple_of(512) && u64::from(bytes) <= span_bytes && (1..=64).contains(&depth);
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    is_possible.then_some((socket, Load { is_write, is_random, bytes, depth, duration, span_bytes }))
}

/// Requests a second.
fn measure(socket: &str, load: &Load) -> DriverResult<f64> {
    let mut driver = Driver::connect(socket, load.depth, load.bytes)?;
    let places = load.span_bytes / u64::from(load.bytes);
    let (mut seed, mut asked, mut done) = (42, 0u64, 0u64);
    let mut next = || {
        let number = if load.is_random { random(&mut seed) } else { asked };
        asked += 1;
        number % places * u64::from(load.bytes / 512)
    };
    let began = Instant::now();
    let mut free: Vec<u16> = (0..load.depth).collect();
    while began.elapsed() < load.duration {
        for slot in free.drain(..) {
            driver.ask(slot, load.is_write, next())?;
        }
        driver.kick()?;
        driver.wait(&mut free)?;
        done += free.len() as u64;
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((socket, load)) = parse(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match measure(socket, &load) {
        Ok(rate) => {
            println!("{rate:.0}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("vhost-bench: {socket}: {error}");
            ExitCode::FAILURE
        }
    }
}
