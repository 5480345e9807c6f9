//! Requests for marks while a run or a monitor is in progress: through its socket, and by SIGUSR2.

use std::future;
use std::path::Path;

use memtrace_model::printable;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::error::Error;
use super::marks::{LastAnswers, MarkRequest, MarkServer, Service};
use super::observer::Observer;

/// Text of marks by the signal.
const SIGNAL: &str = "SIGUSR2";

/// The socket that marks are requested through.
pub(crate) struct MarkSocket<'a> {
    pub(crate) service: Service,
    /// `None` for a socket in the directory of the user.
    pub(crate) path: Option<&'a Path>,
    /// Name of the recording, or of the service.
    pub(crate) name: &'a str,
}

/// Sources of requests for marks.
pub(crate) struct MarkRequests {
    signal: Signal,
    /// `None` without a socket.
    server: Option<MarkServer>,
}

impl MarkRequests {
    /// Installs the signal handler, and listens on the socket, if there is one. Must be called inside the runtime.
    ///
    /// # Errors
    ///
    /// The handler cannot be installed, or the socket that the user has given cannot be used. If the user has given none,
    /// marks can only be set by the signal then.
    pub(crate) fn listen(socket: Option<&MarkSocket<'_>>, observer: &mut dyn Observer) -> Result<Self, Error> {
        let signal = signal(SignalKind::user_defined2())
            .map_err(|error| Error::Failed(format!("cannot install a signal handler: {error}")))?;
        let Some(&MarkSocket { service, path, name }) = socket else { return Ok(Self { signal, server: None }) };
        let server = match (MarkServer::listen(service, path, name), path) {
            (Ok(server), _) => Some(server),
            (Err(source), Some(path)) => return Err(Error::Socket { path: path.to_owned(), source }),
            (Err(error), None) => {
                observer.note(&format!(
                    "marks can only be set by SIGUSR2, since there is no socket: {error}; --socket sets another path"
                ));
                None
            }
        };
        if let Some(server) = &server {
            log::debug!("marks can be set through {}", printable(server.path()));
        }
        Ok(Self { signal, server })
    }

    /// Waits for a request.
    pub(crate) async fn next(&mut self) -> MarkRequest {
        let Self { signal, server } = self;
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
        tokio::select! {
            _ = signal.recv() => MarkRequest { text: SIGNAL.to_owned(), reply: None },
            request = by_client => request,
        }
    }

    /// Stops listening.
    pub(crate) fn close(self) -> Option<LastAnswers> {
        self.server.map(MarkServer::close)
    }
}
