//! Real-time priority of threads that read events or counters (sched(7), `SCHED_FIFO`).

use std::io;
use std::thread;

use memtrace_host::privileges::{self, CapabilitySet};

use super::error::Error;

/// Checks that a thread can have this real-time priority.
///
/// # Errors
///
/// The capability is missing, or the control group has no time for real-time threads.
pub(crate) fn check(priority: u8) -> Result<(), Error> {
    let refused = thread::scope(|scope| scope.spawn(|| set(priority)).join());
    match refused {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) if privileges::effective_capabilities().contains(CapabilitySet::SYS_NICE) => Err(Error::Kernel {
            // `__sched_setscheduler`, kernel/sched/syscalls.c.
            missing: String::from("time for real-time threads in this control group"),
            remedy: String::from(
                "write microseconds to cpu.rt_runtime_us of the group and of its ancestors, or remove --realtime",
            ),
        }),
        Ok(Err(_)) => Err(Error::Permission {
            action: String::from("use real-time priority (--realtime)"),
            capability: String::from("CAP_SYS_NICE"),
        }),
        Err(_) => Err(Error::Failed(String::from("the thread that tried --realtime has failed"))),
    }
}

/// Gives the calling thread precedence over all threads that are not real-time tasks.
pub(crate) fn set(priority: u8) -> io::Result<()> {
    // SAFETY: all zeros is a valid sched_param.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority.into();
    // SAFETY: the pointer refers to a whole sched_param; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
