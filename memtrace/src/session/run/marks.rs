//! Requests for marks during a run: from its socket, and from SIGUSR2.

use std::future;
use std::os::fd::RawFd;

use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::model::printable;
use crate::session::config::{Config, Recording};
use crate::session::error::Error;
use crate::session::marks::{LastAnswers, MarkRequest, MarkServer, Service};
use crate::session::observer::Observer;

/// Text of marks by the signal.
const SIGNAL: &str = "SIGUSR2";

/// Sources of requests for marks.
pub(super) struct MarkRequests {
    signal: Signal,
    /// `None` if the run is not recorded, or has no socket.
    server: Option<MarkServer>,
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

impl MarkRequests {
    /// Installs the signal handler, and listens on the socket of a recording, or of a trace with accounts. Must be called
    /// inside the runtime.
    ///
    /// # Errors
    ///
    /// The handler cannot be installed, or the socket that the user has given cannot be used. Without one, the trace
    /// has no socket then.
    pub(super) fn listen(config: &Config, observer: &mut dyn Observer) -> Result<Self, Error> {
        let signal = signal(SignalKind::user_defined2())
            .map_err(|error| Error::Failed(format!("cannot install a signal handler: {error}")))?;
        let (service, socket, name) = match (&config.recording, &config.accounts) {
            (_, Some(accounts)) => (Service::Accounts, &accounts.socket, "accounts".into()),
            (Some(Recording { path, socket, .. }), None) => (Service::Recording, socket, printable(path)),
            (None, None) => return Ok(Self { signal, server: None, functions: None }),
        };
        let server = match (MarkServer::listen(service, socket.as_deref(), &name), socket) {
            (Ok(server), _) => Some(server),
            (Err(source), Some(path)) => return Err(Error::Socket { path: path.clone(), source }),
            (Err(error), None) => {
                observer.note(&format!(
                    "marks can only be set by SIGUSR2, since the trace has no socket: {error}; --socket sets \
                     another path"
                ));
                None
            }
        };
        if let Some(server) = &server {
            log::debug!("the trace listens on {}", printable(server.path()));
        }
        Ok(Self { signal, server, functions: None })
    }

    /// Waits for entries of functions too: `functions` is readable then.
    pub(super) fn add_functions(&mut self, functions: AsyncFd<RawFd>) {
        self.functions = Some(functions);
    }

    /// Stops listening.
    pub(super) fn close(self) -> Option<LastAnswers> {
        self.server.map(MarkServer::close)
    }

    /// Waits for something that sets marks.
    pub(super) async fn next(&mut self) -> MarkSource {
        let Self { signal, server, functions } = self;
        let by_client = async {
            match server {
                // The server keeps a sender as long as it runs.
                Some(server) => match server.next().await {
                    Some(request) => request,
                    None => future::pending().await,
                },
                None => future::pending().await,
            }
        };
        let entered = async {
            match functions {
                // Clear readiness before the ring is read, so that an entry during the read wakes again.
                Some(functions) => functions.readable().await.map(|mut ready| ready.clear_ready()),
                None => future::pending().await,
            }
        };
        let entered = tokio::select! {
            _ = signal.recv() => return MarkSource::Request(MarkRequest { text: SIGNAL.to_owned(), reply: None }),
            request = by_client => return MarkSource::Request(request),
            entered = entered => entered,
        };
        if let Err(error) = entered {
            log::warn!("no more marks are set on functions: {error}");
            self.functions = None;
        }
        MarkSource::Functions
    }
}
