//! Probes for locks: wait, acquire and release. A lock is identified by its address.

use core::ffi::CStr;
use core::marker::PhantomData;

use crate::probe::{probe, semaphore};

semaphore!(LOCK_WAIT);
semaphore!(LOCK_ACQUIRE);
semaphore!(LOCK_RELEASE);

/// Returns true while a tracer reads the names of locks.
#[inline(always)]
#[must_use]
pub fn lock_is_enabled() -> bool {
    LOCK_WAIT.is_raised()
}

/// States that the thread is about to wait for `lock`.
#[inline(always)]
pub fn lock_wait<T: ?Sized>(lock: *const T, name: &CStr) {
    probe!(LOCK_WAIT, "lock_wait", lock.cast::<()>(), name.as_ptr());
}

/// States that the thread has the lock.
#[inline(always)]
pub fn lock_acquire<T: ?Sized>(lock: *const T) {
    probe!(LOCK_ACQUIRE, "lock_acquire", lock.cast::<()>());
}

/// States that the thread has released the lock.
#[inline(always)]
pub fn lock_release<T: ?Sized>(lock: *const T) {
    probe!(LOCK_RELEASE, "lock_release", lock.cast::<()>());
}

/// A wait of the thread for a lock. [`Waiting::acquired`] ends the wait.
#[derive(Debug)]
#[must_use = "call `acquired` when the thread has the lock"]
pub struct Waiting(*const ());

impl Waiting {
    /// States that the thread has the lock. It holds the lock until the returned guard is dropped.
    #[inline(always)]
    pub fn acquired(self) -> Held {
        lock_acquire(self.0);
        Held(self.0, PhantomData)
    }
}

/// Guard of a lock that the thread holds. Drop it after the guard of the mutex.
#[derive(Debug)]
#[must_use = "the lock counts as released when the guard is dropped"]
pub struct Held(*const (), PhantomData<*const ()>);

impl Drop for Held {
    #[inline(always)]
    fn drop(&mut self) {
        lock_release(self.0);
    }
}

/// Begins a wait for a lock.
#[inline(always)]
pub fn waiting<T: ?Sized>(lock: *const T, name: &CStr) -> Waiting {
    lock_wait(lock, name);
    Waiting(lock.cast())
}
