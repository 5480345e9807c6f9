//! Points at which a test kills the patcher or memtrace. A normal build has none.
//!
//! In a build with the feature `fault-points`, the patcher reads two environment variables, which memtrace passes on.
//! `MEMTRACE_FAULT_POINT=NAME` or `NAME:N` names a [`FaultPoint`]. The process is killed when it reaches the point for
//! the `N`th time, by default the first. `MEMTRACE_FAULT_TARGET=memtrace` kills the parent of the patcher instead.

/// Step of the work on a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultPoint {
    /// A thread is traced.
    Seized,
    /// A thread is asked to stop.
    Interrupted,
    /// The main thread has stopped.
    Stopped,
    RegistersRead,
    FrameWritten,
    BeforeSetRegs,
    AfterSetRegs,
    AfterMask,
    /// The main thread has stopped at the start of a system call.
    SyscallEntry,
    /// The main thread has stopped at the end of a system call.
    SyscallExit,
    /// The patcher has opened the memfd.
    MemfdOpened,
    ImageWritten,
    ControlWritten,
    /// The main thread has its signal mask again.
    Unmasked,
    /// The main thread has its registers again.
    RegsRestored,
    Continued,
    /// The main thread runs alone.
    DetachedA,
    /// All threads are traced.
    AllSeized,
    /// All threads have stopped.
    AllStopped,
    /// The words of the threads and the table of the stub are empty.
    Cleared,
    /// The jump of a site is written.
    SiteWritten,
    /// A thread runs alone.
    Released,
    /// All threads have stopped to get the original code.
    DisableStopped,
    /// The original code of a site is written.
    SiteRestored,
}

/// Marks a step.
pub(super) fn point(step: FaultPoint) {
    #[cfg(any(test, feature = "fault-points"))]
    armed::reach(step);
    #[cfg(not(any(test, feature = "fault-points")))]
    let _ = step;
}

/// Reads the environment variables.
pub(in crate::patcher) fn arm_from_environment() {
    #[cfg(feature = "fault-points")]
    armed::arm_from_environment();
}

#[cfg(any(test, feature = "fault-points"))]
pub(super) mod armed {
    use std::sync::{Mutex, PoisonError};

    use super::FaultPoint;

    static ARMED: Mutex<Option<Armed>> = Mutex::new(None);

    struct Armed {
        name: String,
        /// Number of times that the point must still be reached until the kill.
        left: u32,
        kills_parent: bool,
    }

    /// Kills this process, or its parent, when the point `name` is reached for the `nth` time.
    pub(in crate::patcher) fn arm(name: &str, nth: u32, kills_parent: bool) {
        let armed = Armed { name: name.to_owned(), left: nth, kills_parent };
        *ARMED.lock().unwrap_or_else(PoisonError::into_inner) = Some(armed);
    }

    #[cfg(feature = "fault-points")]
    pub(super) fn arm_from_environment() {
        let Ok(point) = std::env::var("MEMTRACE_FAULT_POINT") else { return };
        let (name, nth) = point.split_once(':').unwrap_or((&point, "1"));
        let kills_parent = std::env::var("MEMTRACE_FAULT_TARGET").is_ok_and(|target| target == "memtrace");
        arm(name, nth.parse().unwrap_or(1), kills_parent);
    }

    pub(super) fn reach(step: FaultPoint) {
        let mut armed = ARMED.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(fault) = armed.as_mut().filter(|fault| fault.name == format!("{step:?}")) else { return };
        fault.left = fault.left.saturating_sub(1);
        if fault.left > 0 {
            return;
        }
        let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
        let victim = if fault.kills_parent { parent } else { own };
        *armed = None;
        // SAFETY: kill(2) takes two numbers.
        unsafe { libc::kill(victim.cast_signed(), libc::SIGKILL) };
    }
}
