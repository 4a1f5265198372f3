//! The faults that `zinject` has asked for: they last until it ends them, or the process does.

use std::sync::Arc;

use base::{Error, Kind, Mutex, Result};
use format::dnode::SLOT_SIZE;
use format::ids::ObjectId;
use pool::inject::{ActiveInjection, Injection, InjectionTarget};
use protocol::injections::{InjectionPlace, InjectionReport, InjectionRequest};

use crate::exports::Exports;
use crate::live::ServedPool;

/// The faults of a pool, by their numbers.
pub struct Injections {
    pool: Arc<ServedPool>,
    exports: Arc<Exports>,
    active: Mutex<Vec<(u64, ActiveInjection)>>,
}

impl Injections {
    /// None, of a pool whose datasets are served by `exports`.
    pub fn new(pool: &Arc<ServedPool>, exports: &Arc<Exports>) -> Injections {
        Injections { pool: pool.clone(), exports: exports.clone(), active: Mutex::default() }
    }

    /// Does what a request asks; those that it concerns. Errors: `NotFound` for a number or a thing that is not there,
    /// `ReadOnly` if the pool is; those of reading.
    pub fn answer(&self, request: &InjectionRequest) -> Result<Vec<InjectionReport>> {
        match request {
            InjectionRequest::List => Ok(self.active.lock().iter().map(report).collect()),
            &InjectionRequest::Add { number, ref place, effect, requests, per_million } => {
                self.add(number, Injection { target: self.target(place)?, effect, requests, per_million })
            }
            InjectionRequest::SetState { vdev, is_fault } => {
                self.pool.live()?.set_errors_exceeded(*vdev, *is_fault).map(|()| Vec::new())
            }
            InjectionRequest::Cancel(number) => self.cancel(*number),
            InjectionRequest::ForgetCached => self.forget_cached().map(|()| Vec::new()),
        }
    }

    fn add(&self, number: u64, injection: Injection) -> Result<Vec<InjectionReport>> {
        let mut active = self.active.lock();
        if active.iter().any(|(other, _)| *other == number) {
            return Err(Error::new(Kind::Exists, format!("there is a handler {number}")));
        }
        active.push((number, self.pool.live()?.inject(injection)?));
        Ok(active.last().map(report).into_iter().collect())
    }

    fn cancel(&self, number: Option<u64>) -> Result<Vec<InjectionReport>> {
        let mut active = self.active.lock();
        let is_meant = |(other, _): &(u64, ActiveInjection)| number.is_none_or(|number| *other == number);
        if number.is_some() && !active.iter().any(is_meant) {
            return Err(Error::new(Kind::NotFound, "no such handler"));
        }
        let (ended, left): (Vec<_>, Vec<_>) = active.drain(..).partition(is_meant);
        *active = left;
        ended.iter().for_each(|(_, injection)| injection.end(self.pool.view().tree()));
        Ok(ended.iter().map(report).collect())
    }

    /// What is meant: of a file its blocks.
    fn target(&self, place: &InjectionPlace) -> Result<InjectionTarget> {
        let (dataset, object, is_dnode, level, range, copies) = match place {
            InjectionPlace::Known(target) => return Ok(target.clone()),
            InjectionPlace::File { dataset, object, is_dnode, level, range, copies } => {
                (dataset, *object, *is_dnode, *level, *range, *copies)
            }
        };
        // it may be new
        self.pool.sync(false)?;
        let view = self.pool.view();
        let dataset = view.dsl().find(dataset)?;
        let set = view.dsl().objset(&dataset, dmu::Mode::Raw)?;
        let file = set.object(object)?;
        let (object, blocks) = match is_dnode {
            true => {
                let (block, _) = object.place(set.meta().dnode().block_size / SLOT_SIZE as u64);
                (ObjectId::META_DNODE, (block, block))
            }
            false => {
                let number = |byte: u64| file.number_above(level, byte / file.dnode().block_size);
                let blocks = |(start, end): (u64, u64)| (number(start), number(end.saturating_sub(1).max(start)));
                (object, range.map_or((0, u64::MAX), blocks))
            }
        };
        Ok(InjectionTarget::Blocks { objset: dataset.id, object, level, blocks, copies })
    }

    /// What is served is forgotten by the kernel, too.
    fn forget_cached(&self) -> Result<()> {
        self.exports.all_forgotten(|| self.pool.live()?.forget_cached())
    }
}

fn report((number, active): &(u64, ActiveInjection)) -> InjectionReport {
    InjectionReport { number: *number, injection: active.injection.clone(), counts: active.counts() }
}
