//! Each request when it is due, by as many threads as it takes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use base::Mutex;
use trace::{TraceError, TraceOp, TraceRequest};

use super::place::ReplayPlace;
use crate::bench::measure::RequestTimes;

/// How long is slept before it is looked for an interrupt.
const LOOK: Duration = Duration::from_millis(50);

/// How a trace is replayed.
#[derive(Clone, Copy)]
pub(super) struct ReplayPace<'a> {
    pub(super) speed: f64,
    pub(super) threads: usize,
    pub(super) is_interrupted: &'a AtomicBool,
}

/// Requests of one kind.
#[derive(Default)]
pub(super) struct OpSum {
    pub(super) count: u64,
    pub(super) bytes: u64,
    /// Nanoseconds that they took, or a part of them if there are very many.
    pub(super) sorted_ns: Vec<u64>,
}

/// What was replayed.
#[derive(Default)]
pub(super) struct ReplaySums {
    /// By the number of their kind.
    pub(super) ops: [OpSum; TraceOp::ALL.len()],
    /// Nanoseconds by which requests began later than they were due.
    pub(super) late_ns: Vec<u64>,
    pub(super) elapsed_ns: u64,
    /// How long the trace is, at that speed.
    pub(super) due_ns: u64,
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) first_error: Option<String>,
}

/// What one thread did.
struct Hand {
    counts: [(u64, u64); TraceOp::ALL.len()],
    times: [RequestTimes; TraceOp::ALL.len()],
    late: RequestTimes,
    failed: u64,
    first_error: Option<String>,
}

impl Hand {
    fn new() -> Hand {
        Hand {
            counts: Default::default(),
            times: std::array::from_fn(|_| RequestTimes::new()),
            late: RequestTimes::new(),
            failed: 0,
            first_error: None,
        }
    }

    fn work(mut self, due: &Mutex<Receiver<(Instant, TraceRequest)>>, place: &ReplayPlace) -> Hand {
        let mut buf = ReplayPlace::buffer();
        loop {
            let next = due.lock().recv();
            let Ok((due, request)) = next else { return self };
            let began = Instant::now();
            self.late.add(nanoseconds(began.saturating_duration_since(due)));
            let key = (request.stream, request.object);
            let done = match request.op {
                TraceOp::Read => place.read(key, request.offset, request.bytes, &mut buf),
                TraceOp::Write => place.write(key, request.offset, request.bytes),
                TraceOp::Sync | TraceOp::Other => place.sync(key),
            };
            self.times[request.op as usize].add(nanoseconds(began.elapsed()));
            let (count, bytes) = &mut self.counts[request.op as usize];
            (*count, *bytes) = (*count + 1, *bytes + request.bytes);
            if let Err(error) = done {
                self.failed += 1;
                self.first_error.get_or_insert_with(|| error.to_string());
            }
        }
    }
}

/// Replays requests. Errors: those of reading the trace.
pub(super) fn play(
    requests: impl Iterator<Item = Result<TraceRequest, TraceError>>,
    place: &ReplayPlace,
    pace: ReplayPace<'_>,
) -> Result<ReplaySums, TraceError> {
    let (sender, receiver) = sync_channel(1);
    let receiver = Mutex::new(receiver);
    let mut replayed = ReplaySums::default();
    let begin = Instant::now();
    let hands = std::thread::scope(|scope| {
        let receiver = &receiver;
        let hands: Vec<_> = (0..pace.threads).map(|_| scope.spawn(move || Hand::new().work(receiver, place))).collect();
        let outcome = requests.into_iter().try_for_each(|request| {
            let request = request?;
            if request.op == TraceOp::Other {
                replayed.passed += 1;
                return Ok(());
            }
            let due_ns = (request.time_ns.unwrap_or(0) as f64 / pace.speed) as u64;
            replayed.due_ns = replayed.due_ns.max(due_ns);
            let due = begin + Duration::from_nanos(due_ns);
            if sleep_until(due, pace.is_interrupted) && sender.send((due, request)).is_ok() {
                Ok(())
            } else {
                Err(TraceError::new("interrupted"))
            }
        });
        drop(sender);
        let hands: Vec<Hand> = hands.into_iter().filter_map(|hand| hand.join().ok()).collect();
        match outcome {
            Err(error) if !pace.is_interrupted.load(Ordering::SeqCst) => Err(error),
            _ => Ok(hands),
        }
    })?;
    replayed.elapsed_ns = nanoseconds(begin.elapsed());
    replayed.gather(hands);
    Ok(replayed)
}

impl ReplaySums {
    fn gather(&mut self, hands: Vec<Hand>) {
        let mut late = Vec::new();
        let mut times: [Vec<RequestTimes>; TraceOp::ALL.len()] = Default::default();
        for hand in hands {
            for (sum, (count, bytes)) in self.ops.iter_mut().zip(hand.counts) {
                (sum.count, sum.bytes) = (sum.count + count, sum.bytes + bytes);
            }
            times.iter_mut().zip(hand.times).for_each(|(all, one)| all.push(one));
            late.push(hand.late);
            self.failed += hand.failed;
            self.first_error = self.first_error.take().or(hand.first_error);
        }
        for (sum, times) in self.ops.iter_mut().zip(times) {
            sum.sorted_ns = RequestTimes::gathered(times);
        }
        self.late_ns = RequestTimes::gathered(late);
    }
}

/// Sleeps until then; false if interrupted.
fn sleep_until(then: Instant, is_interrupted: &AtomicBool) -> bool {
    loop {
        if is_interrupted.load(Ordering::SeqCst) {
            return false;
        }
        let left = then.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(LOOK));
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
