//! Requests for marks during a trace or `memtrace threads`: through a socket, and by SIGUSR2.

use std::future;
use std::path::Path;

use memtrace_model::printable;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::error::Error;
use super::marks::{LastAnswers, MarkRequest, MarkServer, Service};
use super::observer::Observer;

/// Text of a mark that the signal requests.
const SIGNAL: &str = "SIGUSR2";

/// Settings of the socket for requests.
pub(crate) struct MarkSocket<'a> {
    pub(crate) service: Service,
    /// Path of the socket; `None` selects a socket in the user's directory.
    pub(crate) path: Option<&'a Path>,
    /// Printable path of the recording, or name of the targets.
    pub(crate) name: &'a str,
}

/// Sources of requests for marks.
pub(crate) struct MarkRequests {
    signal: Signal,
    /// Server of the socket; `None` without a socket.
    server: Option<MarkServer>,
}

impl MarkRequests {
    /// Installs the signal handler, and listens on the socket, if there is one. Must be called inside the runtime.
    ///
    /// # Errors
    ///
    /// The handler cannot be installed, or the socket at a given path cannot be used. Without a given path, an unusable
    /// socket is reported as a note, and only the signal can set marks.
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
                // `None` does not occur: the task of the server holds a sender as long as the server exists.
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

    /// Stops listening. Returns the connections that may still wait for an answer; `None` without a socket.
    pub(crate) fn close(self) -> Option<LastAnswers> {
        self.server.map(MarkServer::close)
    }
}
