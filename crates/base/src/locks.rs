//! Locks that know no poison.
//!
//! A panic ends the process of a pool at once, as a power cut would, so nobody ever comes to a lock whose holder has
//! panicked: there is nothing to ask for at each `lock()`. In tests, which unwind, what a lock guards may be half
//! changed after a panic; it is only looked at then to be thrown away.
//!
//! The guards are the standard library's. Waits are counted while somebody asks for them ([`crate::lock_waits()`]): a lock
//! that is free is taken as the standard library takes it.

#![allow(clippy::disallowed_types, reason = "this is what stands in for them")]

use std::any::type_name;
use std::panic::Location;
use std::sync::{self, PoisonError, TryLockError};
use std::time::Duration;

use crate::lock_waits::waited;

pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// [`std::sync::Mutex`] without poison.
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked one.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(sync::Mutex::new(value))
    }

    /// Waits until it is free, and takes it.
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            // the caller of this function, which a closure would not know
            None => waited("lock", type_name::<T>(), Location::caller(), || {
                self.0.lock().unwrap_or_else(PoisonError::into_inner)
            }),
        }
    }

    /// Takes it if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        at_once(self.0.try_lock())
    }

    /// What it guarded.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// [`std::sync::RwLock`] without poison.
#[derive(Debug, Default)]
pub struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked one.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(sync::RwLock::new(value))
    }

    /// Waits until nobody writes, and keeps writers out.
    #[track_caller]
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        match self.try_read() {
            Some(guard) => guard,
            None => waited("read", type_name::<T>(), Location::caller(), || {
                self.0.read().unwrap_or_else(PoisonError::into_inner)
            }),
        }
    }

    /// Waits until it is free, and keeps all others out.
    #[track_caller]
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        match self.try_write() {
            Some(guard) => guard,
            None => waited("write", type_name::<T>(), Location::caller(), || {
                self.0.write().unwrap_or_else(PoisonError::into_inner)
            }),
        }
    }

    /// The same as [`RwLock::read`], if that needs no waiting.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        at_once(self.0.try_read())
    }

    /// The same as [`RwLock::write`], if that needs no waiting.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        at_once(self.0.try_write())
    }

    /// What it guards, for its only owner.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[inline]
fn at_once<G>(taken: Result<G, TryLockError<G>>) -> Option<G> {
    match taken {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// [`std::sync::Condvar`], for [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// One that nobody waits for.
    pub const fn new() -> Condvar {
        Condvar(sync::Condvar::new())
    }

    /// Wakes one of the threads that wait.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Waits to be woken; that may also happen for no reason.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `waits` says so.
    pub fn wait_while<'a, T>(&self, guard: MutexGuard<'a, T>, waits: impl FnMut(&mut T) -> bool) -> MutexGuard<'a, T> {
        self.0.wait_while(guard, waits).unwrap_or_else(PoisonError::into_inner)
    }

    /// The same as [`Condvar::wait`], but not longer than `most`.
    pub fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, most: Duration) -> MutexGuard<'a, T> {
        self.0.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// The same as [`Condvar::wait_while`], but not longer than `most`.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        most: Duration,
        waits: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        self.0.wait_timeout_while(guard, most, waits).unwrap_or_else(PoisonError::into_inner).0
    }
}
