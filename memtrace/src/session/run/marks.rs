//! Requests for marks during a run: from the user, and from functions that are entered.

use std::future;
use std::os::fd::RawFd;

use tokio::io::unix::AsyncFd;

use crate::model::printable;
use crate::session::config::{Config, Recording};
use crate::session::error::Error;
use crate::session::mark_requests::{MarkRequests, MarkSocket};
use crate::session::marks::{LastAnswers, MarkRequest, Service};
use crate::session::observer::Observer;

/// Sources of marks.
pub(super) struct MarkSources {
    requests: MarkRequests,
    /// Readable when a function is entered that sets a mark.
    functions: Option<AsyncFd<RawFd>>,
}

/// Something that sets marks.
#[derive(Debug)]
pub(super) enum MarkSource {
    Request(MarkRequest),
    /// Functions have been entered.
    Functions,
}

impl MarkSources {
    /// Listens for requests: on the socket of a recording or of a trace with accounts, and for the signal. Must be called
    /// inside the runtime.
    ///
    /// # Errors
    ///
    /// As for [`MarkRequests::listen`].
    pub(super) fn listen(config: &Config, observer: &mut dyn Observer) -> Result<Self, Error> {
        let requests = match (&config.recording, &config.accounts) {
            (_, Some(accounts)) => {
                let path = accounts.socket.as_deref();
                MarkRequests::listen(Some(&MarkSocket { service: Service::Accounts, path, name: "accounts" }), observer)
            }
            (Some(Recording { path, socket, .. }), None) => {
                let socket =
                    MarkSocket { service: Service::Recording, path: socket.as_deref(), name: &printable(path) };
                MarkRequests::listen(Some(&socket), observer)
            }
            (None, None) => MarkRequests::listen(None, observer),
        };
        Ok(Self { requests: requests?, functions: None })
    }

    /// Waits for entries of functions too: `functions` is readable then.
    pub(super) fn add_functions(&mut self, functions: AsyncFd<RawFd>) {
        self.functions = Some(functions);
    }

    /// Stops listening.
    pub(super) fn close(self) -> Option<LastAnswers> {
        self.requests.close()
    }

    /// Waits for something that sets marks.
    pub(super) async fn next(&mut self) -> MarkSource {
        let Self { requests, functions } = self;
        let entered = async {
            match functions {
                // Clear readiness before the ring is read, so that an entry during the read wakes again.
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
