//! Messages to the service manager that has started memtrace, such as systemd (sd_notify(3)). Without one, they are no
//! operation.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Tells that the run has begun.
pub(crate) fn ready() {
    tell(NotifyState::Ready);
}

/// Tells that the run has ended, and reports are written.
pub(crate) fn stopping() {
    tell(NotifyState::Stopping);
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        log::warn!("the service manager gets no message: {error}");
    }
}

/// Signs of life of a run for the service manager, which restarts memtrace if there is none for `WatchdogSec=`.
pub(crate) struct Watchdog {
    /// Time between two signs: half of what the manager waits (sd_watchdog_enabled(3)). `None` if it waits for none.
    interval: Option<Duration>,
    last: Instant,
}

impl Watchdog {
    /// Reads the settings of the service manager.
    pub(crate) fn of_environment() -> Self {
        Self { interval: sd_notify::watchdog_enabled().map(|limit| limit / 2), last: Instant::now() }
    }

    /// Sends a sign, if one is due and `is_alive` returns true.
    pub(crate) fn tick(&mut self, is_alive: impl FnOnce() -> bool) {
        let Some(interval) = self.interval else { return };
        if self.last.elapsed() >= interval && is_alive() {
            self.last = Instant::now();
            tell(NotifyState::Watchdog);
        }
    }
}
