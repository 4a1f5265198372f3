//! One pool's part of `cenote cut`: see [`protocol::cut`].
//!
//! A thread watches the time: when writes have waited for as long as they may, it lets them go on, whatever the steps are at.
//! What is taken afterwards is destroyed.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use base::{Condvar, Error, Kind, Mutex, Result};
use protocol::cut::{CUT_BYTES_MAX, CUT_PROPERTY, CutOrder, CutStage, CutStep, HeldPool, KEEP_TIME};
use protocol::datasets::Types;
use protocol::wire;

use super::around::{exists, words};
use super::host::{Host, SnapshotChange, StillPool};
use super::query::open;
use super::snapshots::names_below;

/// How long the first step may be waited for: other pools prepare.
const FIRST_STEP_TIME: Duration = Duration::from_secs(120);
/// Writes wait no longer than this, whatever is asked for.
const LIMIT_MAX: Duration = Duration::from_secs(60);

/// Takes snapshots as `steps` say; what is done goes to `told`, and the last of it is returned. Errors: why nothing is left
/// of it.
pub(super) fn cut(
    host: &dyn Host,
    order: &CutOrder,
    steps: UnixStream,
    told: &mut dyn FnMut(CutStage) -> Result<()>,
) -> Result<CutStage> {
    let take = check(host, order)?;
    let still = host.still();
    still.prepare()?;
    told(CutStage::Ready)?;
    let limit = Duration::from_millis(order.limit_ms).min(LIMIT_MAX);
    let (watch, pool) = (HoldWatch::default(), host.pool().name().to_owned());
    let mut cutting = Cutting { still: &*still, watch: &watch, steps, took: false };
    let outcome = std::thread::scope(|scope| {
        cutting.next(CutStep::Calm, FIRST_STEP_TIME)?;
        let began = Instant::now();
        let (watch, still) = (&watch, &*still);
        let guard = move || watch.guard(began + limit, still);
        std::thread::Builder::new().name("cut".to_owned()).spawn_scoped(scope, guard)?;
        let held = cutting.until_taken(&take, began + limit, told);
        watch.end(still);
        let held_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        held?;
        still.taken(&take);
        let SnapshotChange::Take { names, .. } = &take else { return Err(no_such_step()) };
        told(CutStage::Done(CutStep::Take, vec![HeldPool { pool, held_us, snapshots: names.len() as u64 }]))?;
        cutting.next(CutStep::Keep, KEEP_TIME)
    });
    if let Err(error) = outcome {
        return Err(if cutting.took { undo(host, &take, error) } else { error });
    }
    host.record(&order.history)?;
    Ok(CutStage::Done(CutStep::Keep, Vec::new()))
}

/// What is to be taken. Errors: what speaks against it, as far as can be known before.
fn check(host: &dyn Host, order: &CutOrder) -> Result<SnapshotChange> {
    let mut names = Vec::new();
    for name in &order.names {
        let Some((dataset, _)) = name.split_once('@') else {
            return Err(Error::new(Kind::Invalid, format!("'{name}' is no name of a snapshot")));
        };
        let heads = Types { snapshots: false, ..Types::DATASETS };
        open(host, dataset, heads).map_err(|failure| Error::new(Kind::NotFound, failure.line))?;
        names.extend(if order.recursive { names_below(host, name)? } else { vec![name.clone()] });
    }
    names.sort();
    names.dedup();
    match names.iter().find(|name| exists(host, name)) {
        Some(name) => Err(Error::new(Kind::Exists, format!("snapshot '{name}' exists"))),
        None => Ok(SnapshotChange::Take { names, properties: vec![(CUT_PROPERTY.to_owned(), order.id.clone())] }),
    }
}

/// Destroys what was taken; what is left of it, the error says.
fn undo(host: &dyn Host, take: &SnapshotChange, why: Error) -> Error {
    let SnapshotChange::Take { names, .. } = take else { return why };
    match host.change_snapshots(&SnapshotChange::Destroy { names: names.clone(), defer: false }) {
        Ok(refused) if refused.is_empty() => why,
        Ok(refused) => left(&why, &refused[0].0, &words(&refused[0].1)),
        Err(error) => left(&why, &names[0], &words(&error)),
    }
}

fn left(why: &Error, name: &str, how: &str) -> Error {
    Error::new(why.kind(), format!("{}; and '{name}' is left, as it cannot be destroyed: {how}", why.what()))
}

/// A pool that is being cut.
struct Cutting<'a> {
    still: &'a dyn StillPool,
    watch: &'a HoldWatch,
    steps: UnixStream,
    took: bool,
}

impl Cutting<'_> {
    /// From the first step to the snapshots.
    fn until_taken(
        &mut self,
        take: &SnapshotChange,
        until: Instant,
        told: &mut dyn FnMut(CutStage) -> Result<()>,
    ) -> Result<()> {
        for step in [CutStep::Calm, CutStep::Flush, CutStep::Park] {
            if step != CutStep::Calm {
                self.next(step, until.saturating_duration_since(Instant::now()))?;
            }
            match step {
                CutStep::Calm => self.still.calm(),
                CutStep::Flush => self.still.flush(),
                _ => self.still.park()?,
            }
            self.watch.check()?;
            told(CutStage::Done(step, Vec::new()))?;
        }
        self.next(CutStep::Take, until.saturating_duration_since(Instant::now()))?;
        self.watch.check()?;
        let refused = self.still.take(take)?;
        if let Some((name, why)) = refused.into_iter().next() {
            return Err(Error::new(why.kind(), format!("cannot create snapshot '{name}': {}", words(&why))));
        }
        self.took = true;
        // writes have not waited until now if the time is over
        self.watch.check()
    }

    /// Waits for that step. Errors: another one comes, none within `limit`, or the command is gone.
    fn next(&mut self, wanted: CutStep, limit: Duration) -> Result<()> {
        self.steps.set_read_timeout(Some(limit.max(Duration::from_millis(1))))?;
        match wire::receive::<CutStep>(&mut self.steps, CUT_BYTES_MAX) {
            Ok(Some(step)) if step == wanted => Ok(()),
            Ok(Some(_)) => Err(no_such_step()),
            Ok(None) => Err(Error::new(Kind::Interrupted, "the command has ended")),
            Err(error) if is_timeout(&error) => Err(too_long()),
            Err(error) => Err(error),
        }
    }
}

fn is_timeout(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| matches!(source.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
}

fn too_long() -> Error {
    Error::new(Kind::Interrupted, "writes have waited for as long as they may")
}

fn no_such_step() -> Error {
    Error::new(Kind::Invalid, "a step of a cut that does not come next")
}

/// For how long writes wait.
#[derive(Default)]
struct HoldWatch {
    state: Mutex<HoldState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HoldState {
    #[default]
    Waiting,
    /// They go on, as it is over.
    Ended,
    /// They go on, as the time was over.
    Expired,
}

impl HoldWatch {
    /// Lets writes go on when the time is over.
    fn guard(&self, until: Instant, still: &dyn StillPool) {
        let mut state = self.state.lock();
        while *state == HoldState::Waiting {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                *state = HoldState::Expired;
                drop(state);
                return still.go_on();
            }
            state = self.changed.wait_timeout(state, left);
        }
    }

    /// Errors: the time is over.
    fn check(&self) -> Result<()> {
        if *self.state.lock() == HoldState::Expired { Err(too_long()) } else { Ok(()) }
    }

    /// Lets writes go on.
    fn end(&self, still: &dyn StillPool) {
        let mut state = self.state.lock();
        if *state == HoldState::Waiting {
            *state = HoldState::Ended;
        }
        self.changed.notify_all();
        drop(state);
        // also if the time is over: a step may have stopped something afterwards
        still.go_on();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use pool::RefusedChanges;

    use super::*;

    /// Counts how often writes went on.
    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl StillPool for Counted {
        fn prepare(&self) -> Result<()> {
            Ok(())
        }

        fn calm(&self) {}

        fn flush(&self) {}

        fn park(&self) -> Result<()> {
            Ok(())
        }

        fn take(&self, _: &SnapshotChange) -> Result<RefusedChanges> {
            Ok(RefusedChanges::new())
        }

        fn go_on(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }

        fn taken(&self, _: &SnapshotChange) {}
    }

    #[test]
    fn writes_go_on_when_the_time_is_over() {
        let (watch, still) = (HoldWatch::default(), Counted::default());
        watch.guard(Instant::now() + Duration::from_millis(5), &still);
        assert_eq!(still.0.load(Ordering::SeqCst), 1);
        assert_eq!(watch.check().unwrap_err().kind(), Kind::Interrupted);
        let watch = HoldWatch::default();
        watch.end(&still);
        watch.guard(Instant::now(), &still);
        assert_eq!(still.0.load(Ordering::SeqCst), 2, "it had ended before");
        watch.check().unwrap();
    }

    #[test]
    fn steps_come_in_their_order_and_in_time() {
        let (mut command, steps) = UnixStream::pair().unwrap();
        let (watch, still) = (HoldWatch::default(), Counted::default());
        let mut cutting = Cutting { still: &still, watch: &watch, steps, took: false };
        wire::send(&mut command, &CutStep::Calm).unwrap();
        cutting.next(CutStep::Calm, Duration::from_secs(9)).unwrap();
        wire::send(&mut command, &CutStep::Keep).unwrap();
        assert_eq!(cutting.next(CutStep::Flush, Duration::from_secs(9)).unwrap_err().kind(), Kind::Invalid);
        let late = cutting.next(CutStep::Flush, Duration::from_millis(5)).unwrap_err();
        assert_eq!(late.what(), too_long().what());
        drop(command);
        let gone = cutting.next(CutStep::Flush, Duration::from_secs(9)).unwrap_err();
        assert_eq!(gone.what(), "the command has ended");
    }
}
