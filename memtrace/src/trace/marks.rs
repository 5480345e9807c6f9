//! Requests for marks during a run: from the user, and from functions that set marks.

use std::future;
use std::os::fd::RawFd;

use memtrace_model::printable;
use tokio::io::unix::AsyncFd;

use crate::run_kit::error::Error;
use crate::run_kit::mark_requests::{MarkRequests, MarkSocket};
use crate::run_kit::marks::{LastAnswers, MarkRequest, Service};
use crate::run_kit::observer::Observer;
use crate::trace::config::Config;

/// Name of a run without a recording file.
const UNNAMED: &str = "a trace";

/// Sources of marks.
pub(super) struct MarkSources {
    requests: MarkRequests,
    /// Ring of function entries, readable after an entry.
    functions: Option<AsyncFd<RawFd>>,
}

/// Source of the next mark.
#[derive(Debug)]
pub(super) enum MarkSource {
    Request(MarkRequest),
    /// Functions that set marks have been entered.
    Functions,
}

impl MarkSources {
    /// Listens for the signal, and on the socket of a recording, of a trace with memory over time, or of a trace with
    /// accounts. Must be called inside the runtime.
    ///
    /// # Errors
    ///
    /// The same as for [`MarkRequests::listen`].
    pub(super) fn listen(config: &Config, observer: &mut dyn Observer) -> Result<Self, Error> {
        let socket = |service, path, name| Some(MarkSocket { service, path, name });
        let name = config.recording.as_ref().map(|recording| printable(&recording.path).to_string());
        let requests = match (&config.recording, &config.accounts) {
            (_, Some(accounts)) => socket(Service::Accounts, accounts.socket.as_deref(), "accounts"),
            (Some(recording), None) => {
                socket(Service::Recording, recording.socket.as_deref(), name.as_deref().unwrap_or(UNNAMED))
            }
            (None, None) => config.timeline.and_then(|_| socket(Service::Recording, None, UNNAMED)),
        };
        let requests = MarkRequests::listen(requests.as_ref(), observer);
        Ok(Self { requests: requests?, functions: None })
    }

    /// Adds function entries as a source. `functions`: ring of the entries, readable after an
    /// entry.
    pub(super) fn add_functions(&mut self, functions: AsyncFd<RawFd>) {
        self.functions = Some(functions);
    }

    /// Stops listening.
    pub(super) fn close(self) -> Option<LastAnswers> {
        self.requests.close()
    }

    /// Waits for the next mark.
    pub(super) async fn next(&mut self) -> MarkSource {
        let Self { requests, functions } = self;
        let entered = async {
            match functions {
                // Clear the readiness before the ring is read, so that an entry during the read wakes the loop again.
                Some(functions) => functions.readable().await.map(|mut ready| ready.clear_ready()),
                None => future::pending().await,
            }
        };
        let entered = tokio::select! {
            request = requests.next() => return MarkSource::Request(request),
            entered = entered => entered,
        };
        if let Err(error) = entered {
            log::warn!("no more marks are set on functions: {error}");
            self.functions = None;
        }
        MarkSource::Functions
    }
}
