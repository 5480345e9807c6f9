//! Tasks: units of work of a thread, such as requests.

use core::ffi::CStr;
use core::marker::PhantomData;

use crate::probe::{probe, semaphore};

semaphore!(TASK_BEGIN);
semaphore!(TASK_END);

/// Returns true while a tracer reads the names of tasks.
#[inline(always)]
#[must_use]
pub fn task_is_enabled() -> bool {
    TASK_BEGIN.is_raised()
}

/// Begins a task of the thread, which ends with the matching [`task_end`].
#[inline(always)]
pub fn task_begin(name: &CStr) {
    probe!(TASK_BEGIN, "task_begin", name.as_ptr());
}

/// Ends the task that the thread has begun last.
#[inline(always)]
pub fn task_end() {
    probe!(TASK_END, "task_end");
}

/// Guard of a task. The thread that created the guard drops it.
#[derive(Debug)]
#[must_use = "the task ends when the guard is dropped"]
pub struct Task(PhantomData<*const ()>);

impl Drop for Task {
    #[inline(always)]
    fn drop(&mut self) {
        task_end();
    }
}

/// Begins a task, which ends when the guard is dropped.
#[inline(always)]
pub fn task(name: &CStr) -> Task {
    task_begin(name);
    Task(PhantomData)
}
