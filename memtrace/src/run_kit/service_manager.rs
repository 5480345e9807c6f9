//! Messages to the service manager that has started memtrace, such as systemd (sd_notify(3)). Without a service manager, these
//! functions do nothing.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Reports that the run has begun.
pub(crate) fn ready() {
    tell(NotifyState::Ready);
}

/// Reports that the run has ended, and that its reports are being written.
pub(crate) fn stopping() {
    tell(NotifyState::Stopping);
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        log::warn!("the service manager gets no message: {error}");
    }
}

/// Watchdog messages to the service manager. It restarts memtrace if no message arrives within `WatchdogSec=`.
pub(crate) struct Watchdog {
    /// Time between two messages: half of the manager's timeout (sd_watchdog_enabled(3)); `None` without a timeout.
    interval: Option<Duration>,
    last: Instant,
}

impl Watchdog {
    /// Reads the settings of the service manager.
    pub(crate) fn of_environment() -> Self {
        Self { interval: sd_notify::watchdog_enabled().map(|limit| limit / 2), last: Instant::now() }
    }

    /// Sends a message if one is due and `is_alive` returns true.
    pub(crate) fn tick(&mut self, is_alive: impl FnOnce() -> bool) {
        let Some(interval) = self.interval else { return };
        if self.last.elapsed() >= interval && is_alive() {
            self.last = Instant::now();
            tell(NotifyState::Watchdog);
        }
    }
}
